"""The Python of every page runs: the blocks of a page one after the other, in an empty folder.

A block that cannot run has a comment before it, ``<!-- not run: REASON -->``.
"""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n)?^```python\n(.*?)^```$", re.M | re.S)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Pages about packages that need not be installed.
NEEDS = {"federation": "flwr", "sklearn": "pandas", "torch": "torch"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """(Reason for not being run, code) of every block."""
    found: list[tuple[str, str]] = BLOCK.findall(page.read_text(encoding="utf-8"))
    return found


WITH_CODE = [page for page in PAGES if any(not reason for reason, _ in blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    needed = NEEDS.get(page.stem)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(code for reason, code in blocks(page) if not reason), "utf-8")
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_block_counts() -> None:
    """None escapes by its indentation or by the spelling of its fence."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(blocks(page)) == len(re.findall(r"^ *[`~]{3,} *(?:python|py)\b", text, re.M)), (
            page
        )


def test_code_that_is_not_run_is_rare() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    assert sum(1 for reason, _ in every if reason) < 0.2 * len(every)
