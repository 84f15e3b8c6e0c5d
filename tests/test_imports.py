"""Imports point one way, and ``import desopt`` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import desopt

PACKAGE = Path(desopt.__file__).parent

#: The house from the bottom up. A module may import from its own folder and from those below it.
LAYERS = (
    "_version", "system", "kernels", "contract", "methods", "data", "objectives", "plugins",
    "theory", "protocol", "engines", "testing", "run", "trackers", "estimators", "sklearn",
    "torch", "federate", "studies", "report", "bench", "watch", "cli", "__main__",
)  # fmt: skip
LEVEL = {name: level for level, name in enumerate(LAYERS)}

# The package's own __init__ only gathers names for the user.
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part(path: Path) -> str:
    """The layer's name for a file: its first folder, or its own name."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def own_imports(source: str) -> set[str]:
    """The parts of desopt that a source imports, wherever in the file it does."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("desopt.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_come_from_the_same_layer_or_below(path: Path) -> None:
    name = part(path)
    assert name in LEVEL, f"give {name} a place in LAYERS"
    above = {
        other
        for other in own_imports(path.read_text(encoding="utf-8"))
        if LEVEL.get(other, len(LAYERS)) > LEVEL[name]
    }
    assert not above, f"{name} must not import {sorted(above)}"


def test_the_check_sees_every_form_of_import() -> None:
    source = (
        "import desopt.cli.app\n"
        "from desopt import engines\n"
        "def f():\n    from desopt.run.minimize import minimize\n"
    )
    assert own_imports(source) == {"cli", "engines", "run"}


def test_methods_and_engines_do_not_know_each_other() -> None:
    for folder, other in (("methods", "engines"), ("engines", "methods")):
        for path in (PACKAGE / folder).rglob("*.py"):
            if path.name == "client.py":  # a federation's node takes a sampler of the user's own
                continue
            assert other not in own_imports(path.read_text(encoding="utf-8")), path.name


def test_import_loads_nothing_but_the_standard_library() -> None:
    """It takes milliseconds, for all that numba takes half a second."""
    code = (
        "import sys; before = set(sys.modules); import desopt; "
        "print({name.partition('.')[0] for name in sys.modules.keys() - before} "
        "- sys.stdlib_module_names - {'desopt'} or '[]')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900
    )
    assert done.stdout.strip() == "[]"
