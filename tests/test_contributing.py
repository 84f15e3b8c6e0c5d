"""CONTRIBUTING.md: its blocks run, and its lists of files are true, as on the architecture page."""

import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import desopt
from desopt.methods.samplers import SAMPLERS

ROOT = Path(__file__).parents[1]
PACKAGE = Path(desopt.__file__).parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

#: Chapters by title.
CHAPTERS = {
    chapter.partition("\n")[0]: chapter for chapter in re.split(r"^## ", TEXT, flags=re.M)[1:]
}
PARTS = ("A method", "A loss", "A sampler", "An objective", "An engine")
BLOCKS = [
    (part, i, block)
    for part in PARTS
    for i, block in enumerate(re.findall(r"^```python\n(.*?)^```$", CHAPTERS[part], re.M | re.S))
]


def touched(part: str) -> list[str]:
    """The files in a chapter's list."""
    _, _, after = CHAPTERS[part].partition("Touch these")
    return re.findall(r"^- `([^`]+)`", after, re.M)


@pytest.mark.parametrize(("part", "i", "block"), BLOCKS, ids=[f"{p} {i}" for p, i, _ in BLOCKS])
def test_blocks_run_as_they_are(part: str, i: int, block: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_part_has_a_block_and_a_list() -> None:
    assert {part for part, _, _ in BLOCKS} == set(PARTS)
    for part in PARTS:
        assert 3 <= len(touched(part)) <= 6, part


@pytest.mark.parametrize("part", PARTS)
def test_listed_files_exist(part: str) -> None:
    for path in touched(part):
        assert list(ROOT.glob(path)), path


def listed(part: str) -> set[Path]:
    return {path for pattern in touched(part) for path in ROOT.glob(pattern)}


def test_lists_name_where_the_registries_are() -> None:
    def home(name: str, path: str) -> bool:
        return re.search(rf"^{name}\b.* = {{", (ROOT / path).read_text("utf-8"), re.M) is not None

    places = [
        ("A method", "METHODS", "src/desopt/methods/registry.py"),
        ("A method", "ORACLE", "tests/helpers/oracle.py"),
        ("A loss", "LOSSES", "src/desopt/objectives/losses.py"),
        ("A loss", "LOSSES", "tests/helpers/oracle.py"),
        ("A sampler", "SAMPLERS", "src/desopt/methods/samplers.py"),
        ("An objective", "OBJECTIVES", "src/desopt/objectives/__init__.py"),
        ("An engine", "ENGINES", "src/desopt/engines/__init__.py"),
    ]
    for part, name, path in places:
        assert path in touched(part)
        assert home(name, path), (name, path)


# --- a name is in the listed files only ------------------------------------------------------

#: The paper's own comparisons and claims, and benchmarks of chosen cases.
EXCEPTIONS = (
    "studies/paper.py", "studies/demo.py", "report/claims.py", "bench/",
    *(f"{folder}/{study}.py" for folder in ("studies", "report")
      for study in ("stepsize", "heterogeneity", "rivals", "bbob")),
)  # fmt: skip
#: Defaults of the settings, and where settings have defaults.
DEFAULTS = {"des-mr", "lr"}
OF_DEFAULTS = ("run/", "cli/", "torch/", "estimators/")


@functools.cache
def strings() -> dict[Path, set[str]]:
    """The strings in each source file."""
    return {
        path: {
            node.value
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for path in PACKAGE.rglob("*.py")
    }


def naming(name: str) -> set[Path]:
    """The source files with a name as a string."""
    return {path for path, found in strings().items() if name in found}


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("A method", set(desopt.METHODS)),
        ("A loss", set(desopt.LOSSES)),
        ("A sampler", set(SAMPLERS)),
    ],
)
def test_a_name_is_in_the_listed_files_only(part: str, names: set[str]) -> None:
    for name in names:
        allowed = EXCEPTIONS + OF_DEFAULTS * (name in DEFAULTS)
        elsewhere = [path.relative_to(PACKAGE).as_posix() for path in naming(name) - listed(part)]
        elsewhere = [path for path in elsewhere if not path.startswith(allowed)]
        assert not elsewhere, f"{name} is named in {elsewhere}"


def test_a_method_is_named_in_its_own_file_and_the_registry() -> None:
    for name, method in desopt.METHODS.items():
        own = Path(inspect.getsourcefile(method.algorithm) or "")
        assert own.parent == PACKAGE / "methods"
        extra = naming(name) - {own, PACKAGE / "methods" / "registry.py"}
        assert not {path for path in extra if path.parent == PACKAGE / "methods"}, name


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text", [CHAPTERS["Where things are"], ARCHITECTURE], ids=["contributing", "architecture"]
)
def test_the_tables_of_folders_are_complete(text: str) -> None:
    _, _, table = text.partition("| folder | content |")
    rows = re.findall(r"^\| (`[^|]+) \|", table.partition("\n\n")[0], re.M)
    listed = {name.strip("/`") for row in rows for name in row.split(", ")}
    here = {path.name for path in PACKAGE.iterdir() if not path.name.startswith(("_", "py."))}
    assert listed == here


def test_files_on_the_architecture_page_exist() -> None:
    folders = {
        path.relative_to(ROOT).as_posix()
        for path in [
            *PACKAGE.rglob("*.py"),
            *(ROOT / "tests").rglob("*.py"),
            *(ROOT / "examples").rglob("*.py"),
        ]
    }
    for name in set(re.findall(r"`([a-z_/]+\.py)`", ARCHITECTURE)):
        assert any(f"/{path}".endswith(f"/{name}") for path in folders), name
