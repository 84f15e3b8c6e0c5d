"""Panels of curves and of profiles, drawn by matplotlib."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.methods.registry import Look
from desopt.report import names, profiles
from desopt.report.select import Series
from desopt.studies.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEXT_WIDTH, COLUMN_WIDTH = 7.16, 3.5  # inches, of the paper's journal
STYLE: Any = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],  # comes with matplotlib: the same on every machine
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.4,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.3,
    "ytick.minor.width": 0.3,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "lines.markeredgewidth": 0.0,
    "pdf.fonttype": 42,  # embedded TrueType, as publishers ask for
    "svg.fonttype": "path",
    "svg.hashsalt": "desopt",
}

Legend = Mapping[str, Look]


@dataclass(frozen=True)
class Profiles:
    """One panel of profiles: ratios and look by label."""

    title: str
    ratios: Mapping[str, FloatArray]
    looks: Mapping[str, Look]


def save(figure: Figure, folder: Path, name: str, title: str, formats: Sequence[str]) -> list[Path]:
    """Equal results give equal files: they hold no date."""
    paths = [folder / f"{name}.{form}" for form in formats]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # once found, the layout serves every format
        for path in paths:
            date = "CreationDate" if path.suffix == ".pdf" else "Date"
            with replacing(path) as part:
                figure.savefig(part, format=path.suffix[1:], metadata={date: None, "Title": title})
    return paths


def plain(text: str) -> str:
    """A name as matplotlib has to be told: dollars are no formula, and none begins with _."""
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")


def curves(
    lines: Sequence[tuple[Series, Look]], rows: Sequence[str], metric: str, legend: Legend
) -> Figure:
    """A row of panels per data set, a column per problem, the legend above."""
    problems = names.in_order({s.case.problem for s, _ in lines}, names.PROBLEMS)
    width = TEXT_WIDTH if len(problems) > 1 else COLUMN_WIDTH
    figure, grid = _figure(width, 1.6 * len(rows) + 0.5, len(rows), len(problems))
    for row, data in enumerate(rows):
        for column, problem in enumerate(problems):
            axes = grid[row, column]
            here = [line for line in lines if line[0].instance == (problem, data)]
            if not here:
                axes.set_axis_off()
                continue
            _curves(axes, here, metric)
            shown = names.data(data, here[0][0].generated)
            axes.set_title(plain(f"{names.problem(problem)}, {shown}"))
        grid[row, 0].set_ylabel(names.METRICS[metric])
    for axes in grid[-1]:
        axes.set_xlabel("rounds")
    _legend(figure, legend)
    return figure


def _curves(axes: Axes, lines: Sequence[tuple[Series, Look]], metric: str) -> None:
    for place, (series, (colour, dash, marker)) in enumerate(lines):
        x = series.x["rounds"]
        low, middle, high = series.y[metric]
        every = max(len(x) // 5, 1)
        marks = (place % every, every)  # not all curves at the same rounds
        axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(x, middle, color=colour, linestyle=dash, marker=marker, markevery=marks)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlim(0, max(float(series.x["rounds"][-1]) for series, _ in lines))
    top = max(float(series.median(metric)[0]) for series, _ in lines)
    lows = np.concatenate([series.y[metric][0] for series, _ in lines])
    positive = lows[(lows > 0) & np.isfinite(lows)]
    _loss_axis(axes, float(positive.min(initial=top)), top)


def _loss_axis(axes: Axes, bottom: float, top: float) -> None:
    """From the least value to the start: what diverges leaves, the others stay readable."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.set_ylim(bottom * 0.94, max(top, bottom * 1.1) * 1.06)
    subs = (1, 2, 3, 4, 5, 6, 8) if top < 12 * bottom else (1, 2, 5)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def profile_panels(panels: Sequence[Profiles], legend: Legend, height: float) -> Figure:
    """One panel per accuracy, below each other as in the paper."""
    figure, grid = _figure(COLUMN_WIDTH, height, len(panels), 1)
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        finite = np.concatenate([r[np.isfinite(r)] for r in panel.ratios.values()])
        right = max(1.15 * float(finite.max(initial=1)), 4.0)
        for label, ratio in panel.ratios.items():
            _profile(axes, ratio, panel.looks[label], right)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set(xlim=(1, right), ylim=(-0.02, 1.04), title=panel.title)
        axes.set_ylabel(r"$\rho(\tau)$")
        axes.set_xlabel("\n".join(filter(None, (r"$\tau$", _solves_none(panel)))), fontsize=7)
    _legend(figure, legend)
    return figure


def _profile(axes: Axes, ratio: FloatArray, look: Look, right: float) -> None:
    tau, rho = profiles.staircase(ratio)
    if not tau.size:
        return
    # To the right edge; and from the floor, so that a late first step is seen as one.
    floor = [] if tau[0] == 1 else [(1.0, 0.0)]
    x, y = np.array([*floor, *zip(tau, rho, strict=True), (right, rho[-1])]).T
    colour, dash, marker = look
    axes.step(
        x, y, where="post", color=colour, linestyle=dash, marker=marker, clip_on=False,
        markevery=(len(floor), max(len(tau) // 4, 1)),
    )  # fmt: skip


def _solves_none(panel: Profiles) -> str:
    """What solves nothing has no line in the paper; here it is named."""
    none = [label for label, ratio in panel.ratios.items() if not np.isfinite(ratio).any()]
    text = plain(f"no instance solved: {'; '.join(none)}")
    return "\n".join(textwrap.wrap(text, 62)) if none else ""


def _figure(width: float, height: float, rows: int, columns: int) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _legend(figure: Figure, legend: Legend) -> None:
    from matplotlib.artist import setp
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, label=plain(label))
        for label, (colour, _, marker) in legend.items()
    ]
    for handle, (_, dash, _) in zip(handles, legend.values(), strict=True):
        setp(handle, linestyle=dash)
    wide = figure.get_figwidth() > COLUMN_WIDTH
    figure.legend(
        handles=handles, loc="outside upper center", ncols=min(len(handles), 8 if wide else 3),
        frameon=False, handlelength=2.6, columnspacing=1.1, fontsize=7.5 if wide else 7,
    )  # fmt: skip
