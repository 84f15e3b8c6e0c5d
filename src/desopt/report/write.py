"""Write a report: page, figures, tables, verdicts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from desopt.report import figures, page, tables
from desopt.report.findings import find
from desopt.report.results import Results
from desopt.report.verdicts import Claim
from desopt.studies.output import printable, write_text
from desopt.system.plot_style import require_matplotlib

FORMATS = ("html", "svg", "pdf", "tex")
MANIFEST = ".written"  # the files of a report, one name per line
NEEDS = "figures need matplotlib: pip install 'desopt[report]', or use --format html,tex"


@dataclass(frozen=True)
class WrittenReport:
    """The verdicts and the files of a report."""

    claims: Sequence[Claim]
    departures: str  # of the settings from those that the claims are about
    paths: Sequence[Path]


def write(
    results: Results, out: Path, formats: Sequence[str], step: Callable[[str, int], None]
) -> WrittenReport:
    """Write the report; ``step(name, of)`` is called before each of its ``of`` parts."""
    drawn = [form for form in formats if form in ("svg", "pdf")]
    if drawn:
        require_matplotlib(NEEDS)
    found = find(results)
    count = len(found.figures) * bool(drawn) + 1
    out.mkdir(parents=True, exist_ok=True)
    paths = _write_claims(found.claims, found.departed, out)
    for plan in found.figures if drawn else ():
        step(plan.name, count)
        paths += figures.save(plan, out / "figures", drawn)
    step("page", count)
    if "tex" in formats:
        paths += [tables.write_latex(table, out) for table in found.tables]
    if "html" in formats:
        target = out / "index.html"
        write_text(target, page.render(results, found, drawn))
        paths.insert(0, target)
    _remove_former(out, paths, [*formats, "md", "json"])
    return WrittenReport(found.claims, found.departed, paths)


def _remove_former(out: Path, paths: Sequence[Path], formats: Sequence[str]) -> None:
    """Remove files of an earlier report in these formats that this one did not write."""
    record = out / MANIFEST
    before = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
    now = [path.relative_to(out).as_posix() for path in paths]
    kept = []
    for name in before:
        if name in now or not re.fullmatch(r"(figures/)?\w[\w.-]*", name):
            continue
        if name.rpartition(".")[2] in formats:
            (out / name).unlink(missing_ok=True)
        elif (out / name).is_file():
            kept.append(name)
    write_text(record, "".join(f"{name}\n" for name in sorted([*kept, *now])))


def _write_claims(claims: Sequence[Claim], departed: str, out: Path) -> list[Path]:
    """The verdicts as Markdown and as JSON."""
    if not claims:
        return []
    lines = (
        [f"Settings that differ from the paper's: {_markdown(departed)}.", ""] if departed else []
    )
    shown = [[c.text, c.verdict, c.numbers, c.further] for c in claims]
    header = ["claim", "verdict", "numbers", "further data sets"]
    width = 4 if any(c.further for c in claims) else 3
    cut = (row[:width] for row in (header, ["---"] * 4, *shown))
    lines += [f"| {' | '.join(map(_markdown, row))} |" for row in cut]
    text, data = out / "claims.md", out / "claims.json"
    write_text(text, "\n".join([*lines, ""]))
    rows = json.dumps([asdict(c) for c in claims], indent=1, ensure_ascii=False)
    write_text(data, rows + "\n")
    return [text, data]


def _markdown(text: str) -> str:
    """Plain text in a table cell: markup, HTML and links in it are escaped."""
    marked = re.sub(r"([\\`*_~|\[\]]|:(?=//))", r"\\\1", html.escape(text, quote=False))
    return printable(marked)
