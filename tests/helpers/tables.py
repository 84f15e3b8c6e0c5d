"""The tables of the documentation, for tests that compare them with the package."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows(page: str, first: str) -> list[list[str]]:
    """The cells of the table of a page whose first column has this title, row by row."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    tables = [i for i, line in enumerate(lines) if line.replace(" ", "").startswith(f"|{first}|")]
    assert len(tables) == 1, f"{page} has {len(tables)} tables with the first column {first!r}"
    found = []
    for line in lines[tables[0] + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def name(cell: str) -> str:
    """A cell without the marks of code."""
    return cell.strip("`").strip('"')
