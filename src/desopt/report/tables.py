"""The tables of the report, as rows of text for HTML, LaTeX and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from desopt.contract.errors import headline
from desopt.methods.registry import METHODS
from desopt.objectives.losses import LOSSES
from desopt.report import names
from desopt.report.results import (
    IDENTIFYING,
    Instance,
    Results,
    Series,
    best_steps,
    by_settings,
)
from desopt.report.variants import Variants
from desopt.studies.cases import NAMES
from desopt.studies.output import file_name, printable, unique_names, write_text
from desopt.system.progress import duration

MISSING = "\N{EN DASH}"
MAX_MESSAGE = 500  # characters


@dataclass(frozen=True)
class Table:
    """A caption, a header and rows of text; ``bold`` are the (row, column) to emphasise."""

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: frozenset[tuple[int, int]] = frozenset()


def tables(results: Results) -> list[Table]:
    """Table 1 of the paper, and the final losses and errors of all methods."""
    ended = []
    for part, where, prefix in zip(
        results.divided(), ("", " on further data sets"), ("", "further-"), strict=True
    ):
        found = by_settings(part.item("curves"), "method", "step_size")
        series = best_steps([s for group in found.values() for s in group.values()])
        for metric, caption in (
            ("train_loss", f"Final training loss{where} (best step size)"),
            ("test_error", f"Final test error in %{where} (same step size)"),
        ):
            ended.append(final_values(series, metric, caption, prefix))
    own = [item for item in results.items if item not in names.ITEMS]
    files = unique_names(f"table-{file_name(item)}" for item in own)
    ended += [
        ended_at(name, item, results.item(item)) for name, item in zip(files, own, strict=True)
    ]
    return [data_sets(results), *(table for table in ended if table.rows)]


def ended_at(name: str, item: str, series: Sequence[Series]) -> Table:
    """Where the variants of an item end and what they have cost; the least loss is bold."""
    variants, bold = Variants(series), set()
    rows: list[list[str]] = []
    data = names.in_order({s.case.data for s in series}, names.DATA)
    problems = names.in_order({s.case.problem for s in series}, LOSSES)
    groups: dict[Instance, list[Series]] = {}
    for s in best_steps(series):
        groups.setdefault(s.instance, []).append(s)
    for key in sorted(groups, key=lambda key: (data.index(key[1]), problems.index(key[0]))):
        best = min(s.final() for s in groups[key])
        for s in sorted(groups[key], key=lambda s: variants.keys.index(variants.key(s))):
            bold |= {(len(rows), 2)} if s.final() == best else set()
            rows.append([
                f"{names.instance(key, s.generated)}: {variants.label(variants.key(s))}",
                names.value(s.case.step_size), f"{s.final():#.4g}", _percent(s.final("test_error")),
                f"{s.x['rounds'][-1]:g}", f"{s.x['evaluations'][-1]:,.0f}",
                f"{s.x['upload'][-1] / 1000:,.1f}", f"{s.x['bytes'][-1] / 1000:,.1f}",
                f"{s.x['seconds'][-1]:.3g}",
            ])  # fmt: skip
    header = (
        "instance: variant", "step size", "training loss", "test error, %", "rounds",
        "evaluations", "kB up", "kB", "seconds",
    )  # fmt: skip
    caption = f"Where it ended: {names.item(item)} (medians; best step size)"
    return Table(name, caption, header, rows, frozenset(bold))


def _percent(error: float) -> str:
    """An error rate; nothing may have been classified."""
    return f"{100 * error:.2f}" if np.isfinite(error) else MISSING


def data_sets(results: Results) -> Table:
    """The dimensions and origins of the data sets; Table 1 of the paper."""
    found = {}
    for o in results.outcomes:
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
    name, caption = "table-data-sets", "Data sets"
    if results.of_paper:
        name, caption = "table-1-data-sets", "Data sets (Table 1 of the paper)"
    return Table(name, caption, header, rows)


def final_values(series: Sequence[Series], metric: str, caption: str, prefix: str = "") -> Table:
    """One row per instance, one column per method, the best one bold."""
    groups = by_settings(series, "method")
    methods = names.in_order({s.case.method for s in series}, METHODS)
    problems = names.in_order({s.case.problem for s in series}, LOSSES)
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
    name = f"table-{prefix}{metric.replace('_', '-')}"
    return Table(name, caption, header, rows, frozenset(bold))


def summary(series: Sequence[Series], optimum: tuple[float, float]) -> Table:
    """Methods on one instance, the best first; the last row is the optimum (loss, error)."""
    rows = []
    for s in sorted(series, key=Series.final):
        values, upload, seconds = (s.x[cost][-1] for cost in ("evaluations", "upload", "seconds"))
        rows.append([
            names.method(s.case.method), names.value(s.case.step_size), f"{s.final():.4f}",
            f"{s.final('test_error'):.1%}", f"{values / 1e6:.1f}", f"{upload / 1000:,.1f}",
            f"{seconds:.1f}",
        ])  # fmt: skip
    rows.append(["optimum", "", f"{optimum[0]:.4f}", f"{optimum[1]:.1%}", "", "", ""])
    header = ("method", "step", "train loss", "test error", "M values", "kB up", "seconds")
    return Table(
        "summary", "M values: millions of values of F; kB up: sent by the workers", header, rows
    )


def _end(series: Series | None, metric: str) -> str:
    if series is None:
        return MISSING
    value = series.final(metric)
    shown = f"{100 * value:.2f}" if metric.endswith("error") else f"{value:#.4g}"
    return f"{shown} ({names.value(series.case.step_size)})"


def settings(results: Results) -> Table:
    """The values of every setting, one column per item."""
    rows = []
    for name in NAMES:
        if name not in IDENTIFYING:
            cells = [_values(name, series) for series in results.items.values()]
            if any(cell != MISSING for cell in cells):
                rows.append([_setting(name), *cells])
    runs = [sorted({s.runs for s in series}) for series in results.items.values()]
    rows.append(["runs", *map(_span, runs)])
    header = ("setting", *map(names.item, results.items))
    return Table("settings", "Settings", header, rows)


def _values(name: str, series: Sequence[Series]) -> str:
    found = sorted({getattr(s.case, name) for s in series} - {None}, key=names.size)
    return ", ".join(map(names.value, found)) or MISSING


def _setting(name: str) -> str:
    symbol = names.SETTINGS.get(name, "")
    plain = name.replace("_", " ")
    return f"{plain} ({symbol})" if symbol not in ("", plain) else plain


def _span(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return f"{first}" if first == last else f"{first} to {last}"


def provenance(results: Results) -> Table:
    """Versions, machines, dates and data behind the numbers."""
    done = [o for o in results.outcomes if o.status == "done"]
    rows = [
        ["desopt", ", ".join(sorted({o.version for o in done}))],
        ["machine", "; ".join(sorted({o.machine for o in done if o.machine}))],
        ["seeds", _span(sorted({o.seed for o in done}))],
        ["finished", f"{min(o.finished for o in done)} to {max(o.finished for o in done)}"],
        ["processor time", duration(sum(o.cpu_seconds for o in done))],
    ]
    rows += [[name, value] for name, value in results.about.items()]
    digests = {o.case.data: o.case.digest for o in done}
    for data in names.in_order(digests, names.DATA):
        rows.append([f"digest of {names.data(data, False)}", digests[data] or "unknown"])
    for item in results.progress:
        failed = f", {item.failed} failed" if item.failed else ""
        rows.append([names.item(item.name), f"{item.done:,} of {item.cases:,} cases done{failed}"])
    return Table("provenance", "Provenance", ("", "value"), rows)


def failures(results: Results) -> Table:
    """Failed cases, grouped by error message."""
    found: dict[str, list[str]] = {}
    for o in results.outcomes:
        if o.status != "done":
            message = " ".join(headline(o.message).split())
            found.setdefault(message[:MAX_MESSAGE], []).append(o.case.label)
    rows = [
        [message, f"{len(cases)}", "; ".join(cases[:3]) + ("; ..." if len(cases) > 3 else "")]
        for message, cases in found.items()
    ]
    return Table("failures", "Failed cases", ("error", "cases", "examples"), rows)


def write_latex(table: Table, folder: Path) -> Path:
    """Write a LaTeX tabular for the booktabs package."""
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
    "[": "{[}", "*": "{*}",  # at the start of a line they would be arguments of \\
    MISSING: "--",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in printable(text))
