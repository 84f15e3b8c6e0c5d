"""The report of ``desopt suite rivals``: who is ahead at equal round trips, and at equal bytes?

*Progress* on an instance is (f(x0) - f) / (f(x0) - f*), f* the least final loss of any method on
the same problem and data, however these were dealt: 100 % is the best that was seen. Losses are
medians of runs with other seeds than those that chose the step sizes. At equal bytes, a method's
loss is that at the bytes sent by the workers of the most frugal method in its whole run, between
two points of the curve by linear interpolation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt.methods.registry import METHODS
from desopt.report import drawing, names, style
from desopt.report.figures import PlannedFigure
from desopt.report.findings import Findings
from desopt.report.results import Results, Series
from desopt.report.rival_progress import (
    BASES,
    Comparison,
    Found,
    budget_of,
    by_instance,
    compare,
    least_losses,
    loss_at,
    loss_of,
    with_chosen_step,
)
from desopt.report.tables import MISSING, Table
from desopt.report.verdicts import Claim, conclude, count
from desopt.studies.rivals import GRID, PARTITIONS, Instance, grid, instances

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, SHARED = ("des-mr", "des", "des-c"), "zo-nsgd"
#: A method that is less than this share of progress behind is not behind.
CLOSE = 0.02
#: Most of the progress.
REACHED = 0.9
#: The share of instances that decides.
MOST = 0.75


def findings(results: Results) -> Findings:
    found = by_instance(results.item("rivals"))
    compared = {basis: compare(found, basis) for basis in BASES}
    claims = [
        *(_leads(compared[basis], partition) for partition in PARTITIONS for basis in BASES),
        *(_published(compared[basis]) for basis in BASES),
        _rule(compared["rounds"]),
    ]
    return Findings(
        claims=claims,
        tables=[
            _summary(compared, found),
            _reaching(found),
            *(_losses(found, basis) for basis in BASES),
        ],
        figures=_figures(compared, found),
        shown={
            partition: [s for s in results.item("rivals") if s.case.partition == partition]
            for partition in PARTITIONS
        },
        illustrated=True,
        heading="Who is ahead, and by how much",
        intro="Each is decided by a fixed rule from the results alone. Progress: 100 % is the "
        "least loss that any method reached on the same problem and data, 0 % that of x0.",
    )


def _title(name: str) -> str:
    method, _, auto = name.partition(" ")
    return names.method(method) + (f", {auto}" if auto else "")


def choose(results: Results) -> dict[str, str]:
    """The step sizes of ``studies.rivals.CHOSEN``, from the item ``tuning``."""
    found = by_instance(results.item("tuning"))
    best: dict[str, list[str]] = {}
    for i in instances():
        for method, series in found[i].items():
            steps = grid(method, i.data)
            factors = []
            for basis in BASES:
                budget = budget_of(found[i], basis)
                s = min(series, key=lambda s: (loss_at(s, basis, budget), s.case.step_size))
                factors.append(f"{GRID[steps.index(float(s.case.step_size))]:g}")
            best.setdefault(method, []).append("/".join(dict.fromkeys(factors)))
    return {method: " ".join(factors) for method, factors in best.items()}


# --- claims ----------------------------------------------------------------------------------


def _lead(progress: Mapping[str, float], methods: Iterable[str]) -> float:
    """By how much the best of these methods is ahead of the best of all others."""
    ours = set(methods)
    others = max((value for name, value in progress.items() if name not in ours), default=0.0)
    return max(progress[name] for name in ours & progress.keys()) - others


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _leads(compared: Comparison, partition: str) -> Claim:
    """DES against all others on iid data; ZO-NSGD on sorted data."""
    here = compared.of(partition)
    ours = OURS if partition == "iid" else (SHARED, f"{SHARED} auto")
    label = "DES" if partition == "iid" else _title(SHARED)
    leads = {i: _lead(progress, ours) for i, progress in here.items()}
    ahead = [i for i, lead in leads.items() if lead >= -CLOSE]
    middle = float(np.median(list(leads.values()))) if leads else 0.0
    behind = [f"{names.instance((i.problem, i.data), False)} by {_percent(-lead)}"
              for i, lead in leads.items() if lead < -CLOSE]  # fmt: skip
    numbers = f"{len(ahead)} of {count(len(leads))}; median lead {_percent(middle)} of progress"
    if behind:
        numbers += f"; behind: {', '.join(behind)}"
    return conclude(
        f"On {partition} data, at {BASES[compared.basis]}, {label} is ahead of all others.",
        "docs/rivals.md",
        f"In at least {MOST:.0%} of the instances no other method is ahead by more than "
        f"{CLOSE:.0%} of progress.",
        len(leads),
        len(ahead) >= MOST * len(leads),
        numbers,
    )


def _published(compared: Comparison) -> Claim:
    """The methods of the literature against the others."""
    ours = (*OURS, SHARED, f"{SHARED} auto")
    leads = {i: _lead(progress, ours) for i, progress in compared.progress.items()}
    behind = {i: lead for i, lead in leads.items() if lead < -CLOSE}
    numbers = f"{len(leads) - len(behind)} of {count(len(leads))}"
    if behind:
        worst = min(behind, key=lambda i: behind[i])
        best = max(compared.progress[worst], key=lambda name: compared.progress[worst][name])
        numbers += (
            f"; the largest lead is {_title(best)}'s on {names.instance(worst[1::-1], False)}, "
            f"{worst.partition}: {_percent(-behind[worst])}"
        )
    return conclude(
        f"At {BASES[compared.basis]}, the best of DES, DES-C and ZO-NSGD is ahead of the methods "
        "of the literature.",
        "docs/rivals.md",
        f"In at least {MOST:.0%} of the instances, iid and sorted, none is ahead of them by "
        f"more than {CLOSE:.0%} of progress.",
        len(leads),
        len(leads) - len(behind) >= MOST * len(leads),
        numbers,
    )


def _rule(compared: Comparison) -> Claim:
    auto = f"{SHARED} auto"
    losses = {
        i: progress[SHARED] - progress[auto]
        for i, progress in compared.progress.items()
        if {SHARED, auto} <= progress.keys()
    }
    good = [i for i, loss in losses.items() if loss <= 0.05]
    middle = float(np.mean(list(losses.values()))) if losses else 0.0
    worst = max(losses.values(), default=0.0)
    return conclude(
        "ZO-NSGD needs no step size: its rule loses at most 5 % to the best of the grid.",
        "docs/rivals.md",
        "In at least 90 % of the instances, iid and sorted, at the end of the run.",
        len(losses),
        len(good) >= 0.9 * len(losses),
        f"{len(good)} of {count(len(losses))}; mean loss {_percent(middle)} of progress, largest "
        f"{_percent(worst)}",
    )


# --- tables ----------------------------------------------------------------------------------


def _order(found: Iterable[str]) -> list[str]:
    known = [each for name in METHODS for each in (name, f"{name} auto")]
    return names.in_order(found, known)


def _summary(compared: Mapping[str, Comparison],
             found: Found) -> Table:  # fmt: skip
    """Median progress and instances led, by method."""
    columns = [(partition, basis) for partition in PARTITIONS for basis in BASES]
    methods = _order({name for group in found.values() for name in group})
    rows: list[list[str]] = []
    values = np.full((len(methods), len(columns)), -np.inf)
    for row, name in enumerate(methods):
        rows.append([_title(name), _bytes(name, found)])
        for column, (partition, basis) in enumerate(columns):
            here = compared[basis].of(partition)
            mine = [progress[name] for progress in here.values() if name in progress]
            led = sum(
                name in progress and progress[name] >= max(progress.values()) - CLOSE
                for progress in here.values()
            )
            values[row, column] = np.median(mine) if mine else -np.inf
            rows[-1].append(f"{100 * np.median(mine):z.1f} ({led})" if mine else MISSING)
    bold = {(int(values[:, c].argmax()), c + 2) for c in range(len(columns)) if rows}
    return Table(
        "table-rivals",
        "Median progress in %, and the number of instances in which nobody is ahead by more than "
        f"{CLOSE:.0%}",
        ("method", "bytes", *(f"{partition}, {BASES[basis]}" for partition, basis in columns)),
        rows,
        frozenset(bold),
    )


def _reaching(found: Found) -> Table:
    """The costs of most of the progress; infinite for runs that do not come that far."""
    least, methods = (
        least_losses(found),
        _order({name for group in found.values() for name in group}),
    )
    rows = []
    for name in methods:
        rows.append([_title(name)])
        for partition, basis in ((p, basis) for p in PARTITIONS for basis in BASES):
            here = {i: group for i, group in found.items() if i.partition == partition}
            costs = [
                _cost_of(with_chosen_step(group[name], "rounds"), basis, least[i.data, i.problem])
                for i, group in here.items()
                if name in group
            ]
            middle = float(np.median(costs)) if costs else np.inf
            shown = f"{middle / (1000 if basis == 'upload' else 1):.3g}"
            reached = int(np.isfinite(costs).sum())
            rows[-1].append(f"{shown if np.isfinite(middle) else MISSING} ({reached})")
    return Table(
        "table-reaching",
        f"Median rounds, and kB sent by all workers, until {REACHED:.0%} of progress, and the "
        f"number of instances in which it is reached",
        ("method", *(f"{p}, {unit}" for p in PARTITIONS for unit in ("rounds", "kB"))),
        rows,
    )


def _cost_of(s: Series, basis: str, least: float) -> float:
    """Where the median curve first reaches most of the progress."""
    progress = (s.start - s.median("train_loss")) / (s.start - least)
    there = np.flatnonzero(progress >= REACHED)
    if not there.size:
        return np.inf
    k = int(there[0])
    return float(np.interp(REACHED, progress[k - 1 : k + 1], s.x[basis][k - 1 : k + 1]))


def _bytes(name: str, found: Found) -> str:
    """Bytes of a worker's message per round."""
    s = next(group[name][0] for group in found.values() if name in group)
    return f"{s.x['upload'][-1] / s.x['rounds'][-1] / s.case.workers:.0f}"


def _losses(found: Found, basis: str) -> Table:
    methods = _order({name for group in found.values() for name in group})
    rows, bold = [], set()
    for place, (i, group) in enumerate(found.items()):
        budget = budget_of(group, basis)
        losses = {name: loss_of(series, basis, budget) for name, series in group.items()}
        best = min(losses.values())
        cells = [f"{losses[name]:.4f}" if name in losses else MISSING for name in methods]
        bold |= {
            (place, 3 + column)
            for column, name in enumerate(methods)
            if losses.get(name, np.inf) == best
        }
        rows.append([names.data(i.data, False), names.problem(i.problem), i.partition, *cells])
    return Table(
        f"table-loss-{basis}",
        f"Training loss at {BASES[basis]}",
        ("data", "problem", "dealt", *map(_title, methods)),
        rows,
        frozenset(bold),
    )


# --- figures ---------------------------------------------------------------------------------


def _figures(compared: Mapping[str, Comparison], found: Found) -> list[PlannedFigure]:
    figures = [
        PlannedFigure(
            "rivals-progress",
            "Progress of every method on every instance (dots) and the median (bar); 100 % is the "
            "least loss of any method",
            partial(_progress, compared),
        )
    ]
    for partition in PARTITIONS:
        here = {i.data: i for i in found if i.partition == partition and i.problem == "lr"}
        if here:
            caption = (
                f"Training loss of LR by rounds, function values and bytes, {partition} data; "
                "every method with the step size that is best in the panel"
            )
            make = partial(_curves, [(i, found[i]) for i in here.values()])
            figures.append(PlannedFigure(f"rivals-curves-{partition}", caption, make))
    return figures


def _progress(compared: Mapping[str, Comparison]) -> Figure:
    """A panel per partition and basis, a row per method."""
    from matplotlib.figure import Figure

    methods = _order({n for c in compared.values() for p in c.progress.values() for n in p})
    size = style.TEXT_WIDTH, 0.42 * len(methods) + 1.2
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, partition in enumerate(PARTITIONS):
        for axes, basis in zip(panels[row], BASES, strict=True):
            here = compared[basis].of(partition)
            for place, name in enumerate(methods):
                values = [progress[name] for progress in here.values() if name in progress]
                if values:
                    _dots(axes, place, np.array(values), style.method_look(name.split()[0]).colour)
            axes.set_title(f"{partition} data, {BASES[basis]}")
            axes.set_xlim(-0.05, 1.03)
            axes.set_yticks(range(len(methods)), map(_title, methods))
            axes.invert_yaxis() if not axes.yaxis_inverted() else None
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    for axes in panels[-1]:
        axes.set_xlabel("progress")
    return figure


def _dots(axes: Any, place: int, values: Any, colour: str) -> None:
    """One dot per instance; those that ended worse than they began are at the left edge."""
    shown = np.clip(values, -0.04, None)
    jitter = np.linspace(-0.22, 0.22, values.size)
    axes.plot(shown, place + jitter, "o", color=colour, markersize=2.6, alpha=0.6)
    middle = max(float(np.median(values)), -0.04)
    axes.plot([middle] * 2, [place - 0.36, place + 0.36], color=colour, linewidth=2.2)


def _curves(groups: Sequence[tuple[Instance, Mapping[str, Sequence[Series]]]]) -> Figure:
    """A row of panels per data set, a column per cost."""
    from matplotlib.figure import Figure

    costs = ("rounds", "evaluations", "upload")
    methods = _order({name for _, group in groups for name in group})
    figure = Figure(figsize=(style.TEXT_WIDTH, 1.55 * len(groups) + 0.6), layout="constrained")
    panels = figure.subplots(len(groups), len(costs), squeeze=False)
    for row, (i, group) in enumerate(groups):
        for axes, cost in zip(panels[row], costs, strict=True):
            lines = [
                (with_chosen_step(group[name], cost), _look(name))
                for name in methods
                if name in group
            ]
            drawing.cost_panel(axes, lines, cost)
            if row == len(groups) - 1:
                axes.set_xlabel(names.COSTS[cost])
        panels[row, 0].set_ylabel(f"{names.data(i.data, False)}\n{names.METRICS['train_loss']}")
    drawing.legend_above(figure, {_title(name): _look(name) for name in methods}, columns=5)
    return figure


def _look(name: str) -> Any:
    method, _, auto = name.partition(" ")
    look = style.method_look(method)
    return look._replace(dash=":", marker="*") if auto else look
