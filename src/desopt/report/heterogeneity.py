"""The report of ``desopt suite heterogeneity``: how much of DES's loss by skewed data is won back.

*Gap closed* = (DES skewed - method skewed) / (DES skewed - DES iid), of final training losses, each
median of the runs and each with its own best step size of the grid. Instances where DES loses less
than 2 % of its iid loss by the skew have no gap worth speaking of, and none is given.

*Regret* of DES-C with step_size="auto" = (its loss - that of the best step size) / (loss at x0 -
that of the best step size).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt.report import names, style
from desopt.report.figures import PlannedFigure
from desopt.report.findings import Findings
from desopt.report.results import Results, Series
from desopt.report.tables import MISSING, Table
from desopt.report.verdicts import Claim, conclude, count
from desopt.studies.heterogeneity import DATA, DENSE, SPARSE
from desopt.studies.paper import PROBLEMS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Methods by the settings of their series.
TITLES = {
    "des-mr": "DES-mR",
    "des-c": "DES-C",
    "des-c bits": "DES-C, bits only",
    "des-c auto": "DES-C, auto",
    "zo-nsgd auto": "ZO-NSGD, auto",
}
#: All forms of a method have its colour; those with a setting of their own are hollow.
MARKERS = {"des-c": "o", "des-c bits": "s", "des-c auto": "D", "zo-nsgd auto": "^"}
#: DES must lose this share by the skew for a gap to be counted.
LEAST_GAP = 0.02
#: Sets with at most as many coordinates as iterations.
FEW = tuple(name for name in DENSE if name != "mnist")

Instance = tuple[str, str]  # data and problem


@dataclass(frozen=True)
class Losses:
    """The least loss of every method over its step sizes, by instance, partition and method."""

    least: Mapping[tuple[Instance, str, str], float]
    start: Mapping[Instance, float]

    def gap(self, instance: Instance, partition: str, method: str) -> float | None:
        """The gap closed; None without the results, or without a gap."""
        keys = self._of_gap(instance, partition, method)
        if not all(key in self.least for key in keys):
            return None
        iid, skewed, found = (self.least[key] for key in keys)
        if skewed < (1 + LEAST_GAP) * iid:
            return None
        return (skewed - found) / (skewed - iid)

    def no_gap(self, instance: Instance, partition: str, method: str) -> bool:
        """Whether the results are there, and DES loses next to nothing."""
        keys = self._of_gap(instance, partition, method)
        complete = all(key in self.least for key in keys)
        return complete and self.gap(instance, partition, method) is None

    def _of_gap(
        self, instance: Instance, partition: str, method: str
    ) -> list[tuple[Instance, str, str]]:
        iid, skewed = ((instance, how, "des-mr") for how in ("iid", partition))
        return [iid, skewed, (instance, partition, method)]

    def regret(self, instance: Instance, partition: str) -> float | None:
        """Of DES-C with "auto", in units of what its best step size wins."""
        keys = ((instance, partition, name) for name in ("des-c auto", "des-c"))
        ours, best = (self.least.get(key) for key in keys)
        if ours is None or best is None:
            return None
        return (ours - best) / (self.start[instance] - best)

    def ratio(self, instance: Instance, method: str) -> float | None:
        """Its iid loss in units of DES's."""
        ours, des = (self.least.get((instance, "iid", name)) for name in (method, "des-mr"))
        return None if ours is None or des is None else ours / des


def losses(series: Iterable[Series], share: float = 1.0) -> Losses:
    """After this share of the rounds."""
    least: dict[tuple[Instance, str, str], float] = {}
    start: dict[Instance, float] = {}
    for s in series:
        curve = s.median("train_loss")
        key = (s.case.data, s.case.problem), s.case.partition, _name(s)
        start[key[0]] = float(curve[0])
        found = float(curve[round(share * (curve.size - 1))])
        least[key] = min(found, least.get(key, np.inf))
    return Losses(least, start)


def _name(s: Series) -> str:
    name = s.case.method if s.case.correction == "full" else f"{s.case.method} bits"
    return f"{name} auto" if s.case.step_size == "auto" else name


def findings(results: Results) -> Findings:
    everything = [s for name in results.items for s in results.item(name)]
    found, half = losses(everything), losses(everything, 0.5)
    return Findings(
        claims=_claims(found, half),
        tables=[_sorted_table(found), _skewed_table(found), _half_table(found, half)],
        figures=[
            PlannedFigure(
                "heterogeneity-gaps",
                "Gap closed on label-sorted data; 100 % is DES on iid data",
                partial(_gaps, found),
            )
        ],
        shown={
            name: _best(results.item(name)) for name in names.in_order(results.items, ["sorted"])
        },
        illustrated=True,
        heading="What was to be shown",
        intro="Each is decided by a fixed rule from the results alone. Gap closed: 0 % is DES on "
        "the skewed data, 100 % DES on the same rows dealt at random.",
    )


def _best(series: Sequence[Series]) -> list[Series]:
    """The series with the best step size of each method."""
    best: dict[tuple[str, ...], Series] = {}
    for s in series:
        key = (s.case.data, s.case.problem, s.case.partition, _name(s))
        if key not in best or s.final() < best[key].final():
            best[key] = s
    return list(best.values())


# --- claims ----------------------------------------------------------------------------------


def _claims(found: Losses, half: Losses) -> list[Claim]:
    convex = [(data, problem) for data in FEW for problem in ("lr", "lsvm")]
    sparse = [(data, problem) for data in SPARSE for problem in PROBLEMS]
    every = [(data, problem) for data in DATA for problem in PROBLEMS]
    nonconvex = [(data, "nsvm") for data in ("a9a", "mushrooms", "news20")]
    sorted_ = "sorted"
    return [
        _closes("Sorted, convex, n <= K", found, convex, sorted_, "des-c", 0.95),
        _closes("Sorted, convex, n <= K", found, convex, sorted_, "des-c bits", 0.90),
        _closes("Dirichlet 0.3", found, every, "dirichlet-0.3", "des-c", 0.85),
        _closes("Sorted, n >> K, T = 150", half, sparse, sorted_, "des-c", 0.85),
        _closes("Sorted, n >> K, T = 300", found, sparse, sorted_, "des-c", 0.95),
        _closes("Sorted, NSVM on a9a, mushrooms, news20", found, nonconvex, sorted_, "des-c", 0.85),
        _closes("Sorted, all instances", found, every, sorted_, "des-c", 0.90, 0.75),
        _closes("Sorted, all instances", found, every, sorted_, "zo-nsgd auto", 0.90, 0.75),
        _follows(found),
        _no_worse(found, every, "des-c", 1.01, 1.02),
        _no_worse(found, every, "des-c bits", 1.0, 1.0),
    ]


def _closes(
    where: str, found: Losses, instances: Iterable[Instance], partition: str, method: str,
    least: float, most: float = 1.0,
) -> Claim:  # fmt: skip
    chosen = list(instances)
    gaps = {i: found.gap(i, partition, method) for i in chosen}
    known = {i: gap for i, gap in gaps.items() if gap is not None}
    level = [_text(i) for i in chosen if found.no_gap(i, partition, method)]
    good = sum(gap >= least for gap in known.values())
    part = "every instance" if most == 1.0 else f"{most:.0%} of the instances"
    return conclude(
        f"{where}: {TITLES[method]} closes at least {least:.0%} of the gap.",
        "docs/heterogeneity.md",
        f"Gap closed at least {least:.0%} in {part} where DES loses {LEAST_GAP:.0%} or more.",
        len(known) + len(level),
        good >= most * len(known),
        f"{good} of {count(len(known))}{_exceptions(known, least)}"
        + (f"; no gap: {', '.join(level)}" if level else ""),
    )


def _follows(found: Losses) -> Claim:
    keys = sorted({(i, how) for i, how, _ in found.least})
    regrets = {key: found.regret(*key) for key in keys}
    known = {key: regret for key, regret in regrets.items() if regret is not None}
    above = {key: regret for key, regret in known.items() if regret > 0.05}
    mean = sum(known.values()) / len(known) if known else 0.0
    listed = ", ".join(f"{_text(i)}, {how} {regret:.0%}" for (i, how), regret in above.items())
    return conclude(
        'DES-C with step_size="auto" wins at least 95% of what it does with its best step size.',
        "docs/heterogeneity.md",
        "Regret at most 5% in 95% of the instances and partitions.",
        len(known),
        len(above) <= 0.05 * len(known),
        f"{len(known) - len(above)} of {count(len(known))}; mean regret {mean:.1%}"
        + (f"; above: {listed}" if above else ""),
    )


def _exceptions(gaps: Mapping[Instance, float], least: float) -> str:
    below = [f"{_text(i)} {gap:.0%}" for i, gap in gaps.items() if gap < least]
    return f"; below: {', '.join(below)}" if below else ""


def _no_worse(
    found: Losses, instances: Iterable[Instance], method: str, most: float, most_nonconvex: float
) -> Claim:
    ratios = {i: found.ratio(i, method) for i in instances}
    known = {i: ratio for i, ratio in ratios.items() if ratio is not None}
    limits = {i: most_nonconvex if i[1] == "nsvm" else most for i in known}
    above = {i: ratio for i, ratio in known.items() if ratio > limits[i]}
    middle = float(np.median(list(known.values()))) if known else 0.0
    listed = f"; above: {', '.join(f'{_text(i)} {r:.3f}' for i, r in above.items())}"
    limit = f"{most:g} x" + (f" ({most_nonconvex:g} x for NSVM)" if most_nonconvex != most else "")
    return conclude(
        f"On iid data {TITLES[method]} ends at most at {limit} the loss of DES.",
        "docs/heterogeneity.md",
        "Final training loss on iid data, each with its best step size, in every instance.",
        len(known),
        not above,
        f"{len(known) - len(above)} of {count(len(known))}; median ratio {middle:.3f}"
        + (listed if above else ""),
    )


def _text(instance: Instance) -> str:
    return names.instance((instance[1], instance[0]), False)


# --- tables ----------------------------------------------------------------------------------


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:z.1f}"


def _number(value: float | None, digits: int = 4) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def _instances(found: Losses, partition: str) -> list[Instance]:
    keys = {key[0] for key in found.least if key[1] == partition}
    order = [*DATA, *sorted({data for data, _ in keys} - set(DATA))]
    return sorted(keys, key=lambda i: (order.index(i[0]), PROBLEMS.index(i[1])))


def _sorted_table(found: Losses) -> Table:
    methods = [name for name in TITLES if name != "des-mr"]
    rows = []
    for i in _instances(found, "sorted"):
        values = [_number(found.least.get((i, how, "des-mr"))) for how in ("iid", "sorted")]
        values += [_number(found.least.get((i, "sorted", name))) for name in methods]
        values += [_percent(found.gap(i, "sorted", name)) for name in methods]
        values += [_number(found.ratio(i, name), 3) for name in methods[:2]]
        rows.append([names.data(i[0], False), names.problem(i[1]), *values])
    titles = [TITLES[name] for name in methods]
    header = ["data", "problem", "DES, iid", "DES, sorted", *(f"{t}, sorted" for t in titles)]
    header += [f"gap closed in %, {t}" for t in titles]
    header += [f"iid: {t} / DES" for t in titles[:2]]
    return Table("table-sorted", "Label-sorted data: training loss and gap closed", header, rows)


def _skewed_table(found: Losses) -> Table:
    """All other partitions."""
    partitions = sorted({how for _, how, _ in found.least} - {"iid", "sorted"})
    rows = []
    for how in partitions:
        for i in _instances(found, how):
            methods = "des-c", "des-c bits", "des-c auto"
            keys = [("iid", "des-mr"), *((how, name) for name in ("des-mr", *methods))]
            losses = [found.least.get((i, *key)) for key in keys]
            gaps = [found.gap(i, how, name) for name in methods]
            rows.append([how, names.data(i[0], False), names.problem(i[1]),
                         *map(_number, losses), *map(_percent, gaps)])  # fmt: skip
    header = ("partition", "data", "problem", "DES, iid", "DES", "DES-C", "DES-C, bits only",
              "DES-C, auto", "gap closed in %, DES-C", "gap closed in %, bits only",
              "gap closed in %, auto")  # fmt: skip
    return Table("table-skewed", "Other partitions: training loss and gap closed", header, rows)


def _half_table(found: Losses, half: Losses) -> Table:
    rows = [
        [names.data(data, False), names.problem(problem)]
        + [_percent(each.gap((data, problem), "sorted", "des-c")) for each in (half, found)]
        for data in SPARSE
        for problem in PROBLEMS
    ]
    header = ("data", "problem", "gap closed in %, T = 150", "gap closed in %, T = 300")
    return Table("table-rounds", "Many coordinates: more rounds close more", header, rows)


# --- figure ----------------------------------------------------------------------------------


def _gaps(found: Losses) -> Figure:
    """A panel per problem, a row per data set, a mark per method."""
    from matplotlib.figure import Figure

    sets = [name for name in DATA if any(i[0] == name for i in _instances(found, "sorted"))]
    figure = Figure(figsize=(style.TEXT_WIDTH, 0.3 * len(sets) + 1.2), layout="constrained")
    panels = figure.subplots(1, len(PROBLEMS), sharey=True, squeeze=False)[0]
    for axes, problem in zip(panels, PROBLEMS, strict=True):
        for row, data in enumerate(sets):
            for name, shift in zip(MARKERS, (-0.27, -0.09, 0.09, 0.27), strict=True):
                gap = found.gap((data, problem), "sorted", name)
                if gap is not None:  # what is far below 0 is at the edge
                    axes.plot(max(gap, -0.28), row + shift, **_dot(name))
        axes.axvline(1.0, color="0.6", linewidth=0.8)
        axes.set_xlim(-0.3, 1.25)
        axes.set_title(names.problem(problem))
        axes.set_xlabel("gap closed")
        axes.set_yticks(range(len(sets)), [names.data(name, False) for name in sets])
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    panels[0].set_ylim(len(sets) - 0.5, -0.5)
    for name in MARKERS:
        panels[0].plot([], [], **_dot(name), label=TITLES[name])
    figure.legend(loc="outside lower center", ncols=len(MARKERS))
    return figure


def _dot(name: str) -> dict[str, Any]:
    method, _, form = name.partition(" ")
    colour = style.method_look(method).colour
    return {
        "color": colour, "marker": MARKERS[name], "markersize": 3.5, "linestyle": "",
        "markeredgewidth": 1, "markerfacecolor": "white" if form else colour,
    }  # fmt: skip
