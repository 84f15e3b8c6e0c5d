"""The report of the study ``stepsize``: how far "auto" is from the best fixed step size.

The *regret* of a run is (f - f_best) / (f(x0) - f_best), f_best the least final training loss of
the fixed step sizes of the same instance and seed. That of the best fixed step size is 0, of a run
that did nothing 1; it is negative where "auto" ends below all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from desopt.methods.registry import Look
from desopt.report import drawing, names, style
from desopt.report.figures import PlannedFigure
from desopt.report.findings import Findings
from desopt.report.results import Results
from desopt.report.tables import Table
from desopt.report.verdicts import FAILS, HOLDS, UNKNOWN, Claim
from desopt.studies.cases import Case
from desopt.studies.outcomes import Outcome
from desopt.studies.problems import NO_DATA
from desopt.studies.stepsize import AUTO, GRID, TIMES, base_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE = "target of the study"
#: The regrets that count as near, as never to be exceeded, and as allowed for another scale.
NEAR, MOST, SCALED = 0.05, 0.15, 0.07
#: Where the median of the grid may be missed: a bounded loss with several basins.
TRAP = ("nsvm", "covtype")

Setting = tuple[str, str, str, int, int, int]  # problem, data, method, M, K, T


@dataclass(frozen=True)
class Run:
    """The runs of one instance and seed: the final losses by step size, and of scaled problems."""

    setting: Setting
    seed: int
    start: float
    fixed: Mapping[float, float]
    auto: float
    scaled: Mapping[str, float]

    def regret(self, loss: float) -> float:
        best = min(self.fixed.values())
        return (loss - best) / (self.start - best)

    @property
    def own(self) -> float:
        """The regret of "auto"."""
        return self.regret(self.auto)

    @property
    def best_step(self) -> float:
        return min(self.fixed, key=lambda step: (self.fixed[step], step))

    @property
    def trapped(self) -> bool:
        """Whether "auto" is worse than the median of the grid."""
        return self.auto > median(self.fixed.values())

    @property
    def name(self) -> str:
        return f"{describe(self.setting)}, seed {self.seed}"


def describe(setting: Setting) -> str:
    problem, data, method, workers, iterations, rounds = setting
    where = problem if data == NO_DATA else f"{problem} {data}"
    return f"{where} {method} M={workers} K={iterations} T={rounds}"


def runs_of(outcomes: Iterable[Outcome]) -> list[Run]:
    """The complete runs, in the order of the study."""
    groups: dict[tuple[Setting, int], dict[tuple[str, float | str], Outcome]] = {}
    for o in outcomes:
        if o.status == "done":
            problem, how = base_of(o.case.problem)
            key = _setting(o.case, problem), o.case.run
            groups.setdefault(key, {})[how, o.case.step_size] = o
    found = []
    for (setting, seed), group in groups.items():
        if all(("", step) in group for step in (*GRID, AUTO)):
            final = {key: _final(o) for key, o in group.items()}
            found.append(
                Run(
                    setting,
                    seed,
                    float(group["", AUTO].curve["train_loss"][0]),
                    {step: final["", step] for step in GRID},
                    final["", AUTO],
                    {how: loss for (how, step), loss in final.items() if how and step == AUTO},
                )
            )
    return found


def _setting(case: Case, problem: str) -> Setting:
    assert case.rounds is not None
    return problem, case.data, case.method, case.workers, case.iterations, case.rounds


def _final(outcome: Outcome) -> float:
    loss = float(outcome.curve["train_loss"][-1])
    return loss if np.isfinite(loss) else float("inf")


def findings(results: Results) -> Findings:
    runs = runs_of(results.outcomes)
    return Findings(
        claims=claims(runs),
        tables=[table(runs)],
        figures=[
            PlannedFigure(
                "figure-regret",
                "Share of the runs with at most this regret: one step size for all instances, "
                'and "auto"',
                partial(picture, [run for run in runs if run.setting[3] >= 10]),
            )
        ]
        if runs
        else [],
        shown={},
        illustrated=True,
        profiled={},
        heading='What step_size="auto" should do',
        intro="Targets set before the runs; each is decided by a fixed rule from the results "
        "alone. Regret: (f - f_best) / (f(x0) - f_best), f_best of the best of "
        f"{', '.join(f'{step:g}' for step in GRID)} with the same seed.",
    )


def claims(runs: Sequence[Run]) -> list[Claim]:
    ten = [run for run in runs if run.setting[3] >= 10]
    few = [run for run in runs if run.setting[3] < 10]
    return [
        _near(
            ten,
            0.95,
            "Within 5 % of the best fixed step size in at least 95 % of the runs (M = 10)",
            "regret at most 0.05 in 95 % of all runs with ten workers",
        ),
        _mean(ten),
        _largest(ten),
        _untrapped(ten),
        _same_bits(ten),
        _other_scales(ten),
        _near(
            few,
            0.85,
            "With 1, 2 or 4 workers within 5 % in at least 85 % of the runs",
            "regret at most 0.05 in 85 % of all runs with fewer than ten workers",
        ),
    ]


def _near(runs: Sequence[Run], share: float, text: str, definition: str) -> Claim:
    near = [run.own <= NEAR for run in runs]
    numbers = f"{sum(near)} of {len(near)} runs" + _exceptions(runs, NEAR)
    holds = bool(near) and float(np.mean(near)) >= share
    return _claim(text, definition, len(runs), holds, numbers)


def _mean(runs: Sequence[Run]) -> Claim:
    mean = sum(max(run.own, -NEAR) for run in runs) / max(1, len(runs))
    return _claim(
        "A mean regret of at most 0.5 %",
        "mean over all runs with ten workers; gains of more than 5 % count as 5 %",
        len(runs),
        mean <= 0.005,
        f"mean {100 * mean:.2f} %",
    )


def _largest(runs: Sequence[Run]) -> Claim:
    worst = max(runs, key=lambda run: run.own, default=None)
    return _claim(
        "No regret above 15 %",
        "the largest over all runs with ten workers",
        len(runs),
        worst is not None and worst.own <= MOST,
        f"largest {100 * worst.own:.1f} % ({worst.name})" if worst else "",
    )


def _untrapped(runs: Sequence[Run]) -> Claim:
    trapped = [run for run in runs if run.trapped]
    return _claim(
        "Never worse than the median of the grid (but for NSVM on covtype)",
        "final loss at most the median of those of the five fixed step sizes, every run",
        len(runs),
        all(run.setting[:2] == TRAP for run in trapped),
        f"{len(runs) - len(trapped)} of {len(runs)} runs"
        + (f"; worse: {', '.join(run.name for run in trapped)}" if trapped else ""),
    )


def _same_bits(runs: Sequence[Run]) -> Claim:
    same = [run.scaled["times"] == TIMES * run.auto for run in runs if "times" in run.scaled]
    return _claim(
        "Values times 2^20 give the same bits",
        "the final loss is exactly 2^20 times that of the problem as it was",
        len(same),
        all(same),
        f"{sum(same)} of {len(same)} runs",
    )


def _other_scales(runs: Sequence[Run]) -> Claim:
    regrets = [
        (run.regret(loss), f"{run.name}, {how}")
        for run in runs
        for how, loss in run.scaled.items()
        if how != "times"
    ]
    largest, where = max(regrets, key=lambda pair: pair[0], default=(0.0, ""))
    return _claim(
        "Data or variables times 2^10 and 2^-10 cost at most 7 %",
        "regret at most 0.07 against the fixed step sizes of the problem as it was",
        len(regrets),
        largest <= SCALED,
        f"largest {100 * largest:.1f} % of {len(regrets)} runs ({where})",
    )


def _claim(text: str, definition: str, runs: int, holds: bool, numbers: str) -> Claim:
    if not runs:
        return Claim(text, SOURCE, UNKNOWN, "no complete runs", definition)
    return Claim(text, SOURCE, HOLDS if holds else FAILS, numbers, definition)


def _exceptions(runs: Sequence[Run], limit: float) -> str:
    """The worst ones by name."""
    over = sorted((run for run in runs if run.own > limit), key=lambda run: -run.own)
    text = ", ".join(f"{run.name}: {100 * run.own:.1f} %" for run in over[:8])
    more = f" and {len(over) - 8} more" if len(over) > 8 else ""
    return f"; over: {text}{more}" if over else ""


def table(runs: Sequence[Run]) -> Table:
    """A row per instance: the best fixed step sizes, and the regrets of "auto"."""
    groups: dict[Setting, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    rows: list[list[str]] = []
    bold: set[tuple[int, int]] = set()
    for setting, group in groups.items():
        problem, data, method, workers, iterations, rounds = setting
        own = [100 * run.own for run in group]
        best = sorted({run.best_step for run in group})
        if max(own) > 100 * NEAR:
            bold.add((len(rows), 7))
        rows.append(
            [
                problem, "" if data == NO_DATA else data, names.method(method), str(workers),
                str(iterations), str(rounds), ", ".join(f"{step:g}" for step in best),
                ", ".join(f"{regret:z.1f}" for regret in own),
            ]
        )  # fmt: skip
    header = ("problem", "data", "method", "M", "K", "T", "best fixed", "regret of auto in %")
    caption = 'Regret of step_size="auto" against the best fixed step size, one number per seed'
    return Table("table-regret", caption, header, rows, frozenset(bold))


def picture(runs: Sequence[Run]) -> Figure:
    """The distribution of regrets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(style.COLUMN_WIDTH, 2.6), layout="constrained")
    axes = figure.add_subplot()
    looks = {step: style.numbered_look(place) for place, step in enumerate(GRID, 1)}  # 0: black
    lines = {
        f"{step:g}": ([run.regret(run.fixed[step]) for run in runs], looks[step]) for step in GRID
    }
    lines['"auto"'] = [run.own for run in runs], Look("#000000", "-", "")
    for label, (regrets, look) in lines.items():
        ordered = np.sort(100 * np.array(regrets))
        share = np.arange(1, ordered.size + 1) / ordered.size
        axes.step(
            np.clip(ordered, 0.1, 100), share, where="post", color=look.colour,
            linestyle=look.dash, label=label,
        )  # fmt: skip
    axes.axvline(100 * NEAR, **style.REFERENCE_LINE)
    axes.set(xscale="log", xlim=(0.1, 100), ylim=(0, 1.02))
    axes.set(xlabel="regret in %, at least 0.1", ylabel="share of the runs")
    axes.xaxis.set_major_formatter("{x:g}")
    legend = {label: look for label, (_, look) in lines.items()}
    drawing.legend_above(figure, legend)
    return figure
