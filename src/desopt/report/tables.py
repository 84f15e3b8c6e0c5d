"""The report's tables, as rows of text for HTML and for LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from desopt.methods import METHODS
from desopt.report import names
from desopt.report.select import Series, Study, best_steps, richest
from desopt.studies.cases import FIELDS
from desopt.studies.files import write_text
from desopt.studies.store import Outcome
from desopt.studies.text import printable

#: Of the settings, those that are not shown as such: they name the instance, or count the runs.
NAMING = ("data", "digest", "problem", "method", "run")
MISSING = "\N{EN DASH}"
MESSAGE = 500  # characters of one that are shown


@dataclass(frozen=True)
class Table:
    """A caption, a header and rows of text; ``bold`` holds the (row, column) that stand out."""

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: frozenset[tuple[int, int]] = frozenset()


def tables(study: Study) -> list[Table]:
    """Table 1 of the paper, and where every method ended."""
    found = richest(study.item("curves"), "method", "step_size")
    series = best_steps([s for group in found.values() for s in group.values()])
    ended = [
        results(series, "train_loss", "Final training loss, with the best step size"),
        results(series, "test_error", "Final test error (%), with the same step size"),
    ]
    return [data_sets(study.outcomes), *(table for table in ended if table.rows)]


def data_sets(outcomes: Iterable[Outcome]) -> Table:
    found = {}
    for o in outcomes:
        if o.status == "done":
            found[o.case.data, o.train_rows + o.test_rows] = o
    order = names.in_order({data for data, _ in found}, names.DATA)
    rows = [
        [
            names.data(o.case.data, o.generated),
            f"{o.n:,}",
            f"{size:,}",
            f"{o.train_rows:,}",
            f"{o.test_rows:,}",
            f"{o.density:.2%}",
            o.origin,
        ]
        for (_, size), o in sorted(
            found.items(), key=lambda pair: (order.index(pair[0][0]), pair[0][1])
        )
    ]
    header = ("data set", "n", "N", "training rows", "test rows", "density", "origin")
    return Table("table-1-data-sets", "Data sets (Table 1 of the paper)", header, rows)


def results(series: Sequence[Series], metric: str, caption: str) -> Table:
    """One row per instance, one column per method, the best one bold."""
    groups = richest(series, "method")
    methods = names.in_order({s.case.method for s in series}, METHODS)
    problems = names.in_order({s.case.problem for s in series}, names.PROBLEMS)
    data = names.in_order({s.case.data for s in series}, names.DATA)
    rows: list[list[str]] = []
    bold = set()
    for instance in sorted(groups, key=lambda i: (data.index(i[1]), problems.index(i[0]))):
        group = {key[0]: s for key, s in groups[instance].items()}
        ends = {m: s.final(metric) for m, s in group.items()}
        best = min(ends.values())
        bold |= {(len(rows), 1 + methods.index(m)) for m, end in ends.items() if end == best}
        first = next(iter(group.values()))
        title = f"{names.data(instance[1], first.generated)}, {names.problem(instance[0])}"
        rows.append([title, *(_end(group.get(m), metric) for m in methods)])
    header = ("instance", *(names.method(m) for m in methods))
    return Table(f"table-{metric.replace('_', '-')}", caption, header, rows, frozenset(bold))


def _end(series: Series | None, metric: str) -> str:
    if series is None:
        return MISSING
    value = series.final(metric)
    shown = f"{100 * value:.2f}" if metric.endswith("error") else f"{value:#.4g}"
    return f"{shown} ({series.case.step_size:g})"


def settings(study: Study) -> Table:
    """What was run: the values of every setting, a column for every item."""
    rows = []
    for name in FIELDS:
        if name not in NAMING:
            cells = [_values(name, series) for series in study.items.values()]
            if any(cell != MISSING for cell in cells):
                rows.append([_setting(name), *cells])
    runs = [sorted({s.runs for s in series}) for series in study.items.values()]
    rows.append(["runs (seeds from 0)", *map(_span, runs)])
    header = ("setting", *map(names.item, study.items))
    return Table("settings", "Settings", header, rows)


def _values(name: str, series: Sequence[Series]) -> str:
    found = sorted({getattr(s.case, name) for s in series} - {None})
    return ", ".join(f"{value:g}" for value in found) or MISSING


def _setting(name: str) -> str:
    symbol = names.SETTINGS.get(name, "")
    plain = name.replace("_", " ")
    return f"{plain} ({symbol})" if symbol not in ("", plain) else plain


def _span(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return f"{first}" if first == last else f"{first} to {last}"


def provenance(study: Study) -> Table:
    """Where the numbers come from."""
    done = [o for o in study.outcomes if o.status == "done"]
    rows = [
        ["desopt", ", ".join(sorted({o.version for o in done}))],
        ["machine", "; ".join(sorted({o.machine for o in done if o.machine}))],
        ["seeds", _span(sorted({o.seed for o in done}))],
        ["finished", f"{min(o.finished for o in done)} to {max(o.finished for o in done)}"],
        ["processor time", f"{sum(o.cpu_seconds for o in done) / 3600:.2f} hours"],
    ]
    rows += [[name, value] for name, value in study.about.items()]
    digests = {o.case.data: o.case.digest for o in done}
    for data in names.in_order(digests, names.DATA):
        rows.append([f"digest of {names.data(data, False)}", digests[data] or "not known"])
    for item in study.progress:
        failed = f", {item.failed} failed" if item.failed else ""
        rows.append([names.item(item.name), f"{item.done:,} of {item.cases:,} cases done{failed}"])
    return Table("provenance", "Provenance", ("what", "value"), rows)


def failures(study: Study) -> Table:
    """Cases that ended in an error, by message."""
    found: dict[str, list[str]] = {}
    for o in study.outcomes:
        if o.status != "done":
            message = " ".join(o.message.split())
            found.setdefault(message[:MESSAGE], []).append(o.case.label)
    rows = [
        [message, f"{len(cases)}", "; ".join(cases[:3]) + ("; ..." if len(cases) > 3 else "")]
        for message, cases in found.items()
    ]
    return Table("failures", "Cases that failed", ("error", "cases", "such as"), rows)


def write_latex(table: Table, folder: Path) -> Path:
    """A tabular for the booktabs package."""
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}", r"\toprule"]
    lines += [_latex_row(table.header), r"\midrule"]
    for i, row in enumerate(table.rows):
        cells = [_latex(cell) for cell in row]
        for j in range(len(cells)):
            if (i, j) in table.bold:
                cells[j] = rf"\textbf{{{cells[j]}}}"
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    path = folder / f"{table.name}.tex"
    write_text(path, "\n".join([f"% {table.caption}", *lines, ""]))
    return path


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "[": "{[}", "*": "{*}",  # after the end of a line they would be its arguments
    MISSING: "--",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in printable(text))
