"""Panels of curves and of performance profiles, drawn with matplotlib."""

from __future__ import annotations

import csv
import importlib.util
import json
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.methods.registry import Look
from desopt.objectives.losses import LOSSES
from desopt.report import names, profiles, style
from desopt.report.results import Series
from desopt.studies.output import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Legend = Mapping[str, Look]


@dataclass(frozen=True)
class ProfilePanel:
    """One panel of profiles: the ratios and the look of each line, by label."""

    title: str
    ratios: Mapping[str, FloatArray]
    looks: Mapping[str, Look]


def save(figure: Figure, folder: Path, name: str, title: str, formats: Sequence[str]) -> list[Path]:
    """Save in these formats, without dates: equal results give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{form}" for form in formats]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as a box
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # one layout for all formats
        for path in paths:
            no_date = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix, {})
            with replacing(path) as part:
                figure.savefig(part, format=path.suffix[1:], metadata={**no_date, "Title": title})
    return paths


def plain(text: str) -> str:
    """Plain text for matplotlib, where $ starts a formula and a leading _ hides a label."""
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")


def curves(
    lines: Sequence[tuple[Series, Look]], rows: Sequence[str], metric: str, legend: Legend,
    cost: str = "rounds",
) -> Figure:  # fmt: skip
    """A row of panels per data set, a column per problem, the legend above.

    Where a look stands for several step sizes, every panel tells those of its lines.
    """
    problems = names.in_order({s.case.problem for s, _ in lines}, LOSSES)
    width = style.TEXT_WIDTH if len(problems) > 1 else style.COLUMN_WIDTH
    figure, grid = _figure(width, 1.6 * len(rows) + 0.5, len(rows), len(problems))
    told = several_steps(lines)
    for row, data in enumerate(rows):
        for column, problem in enumerate(problems):
            axes = grid[row, column]
            here = [line for line in lines if line[0].instance == (problem, data)]
            if not here:
                axes.set_axis_off()
                continue
            _curves(axes, here, metric, cost)
            shown = names.data(data, here[0][0].generated)
            pad = _step_sizes(axes, here, 0.8 * figure.bbox.width / len(problems)) if told else None
            axes.set_title(plain(f"{names.problem(problem)}, {shown}"), pad=pad)
        grid[row, 0].set_ylabel(names.METRICS[metric])
    for axes in grid[-1]:
        axes.set_xlabel(names.COSTS[cost])
    legend_above(figure, legend)
    return figure


def several_steps(lines: Sequence[tuple[Series, Look]]) -> bool:
    """Whether any look stands for more than one step size."""
    return len({(look, s.case.step_size) for s, look in lines}) > len({look for _, look in lines})


def _step_sizes(axes: Axes, lines: Sequence[tuple[Series, Look]], room: float) -> float:
    """The step sizes of the lines, between panel and title; returns how high, in points."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="", label=f"{names.SETTINGS['step_size']} =")]
    handles += [
        Line2D([], [], color=colour, linestyle="", marker=marker or "s", markersize=2.6,
               label=plain(names.value(series.case.step_size)))
        for series, (colour, _, marker) in lines
    ]  # fmt: skip
    height = _fitting(
        axes.legend, len(handles), room, handles=handles, loc="lower center",
        bbox_to_anchor=(0.5, 1), borderpad=0.4, borderaxespad=0, handlelength=0.6,
        handletextpad=0.3, columnspacing=0.7, labelspacing=0.2, fontsize=6,
    )  # fmt: skip
    return height * 72 / axes.figure.dpi + 2


def _curves(axes: Axes, lines: Sequence[tuple[Series, Look]], metric: str, cost: str) -> None:
    log = cost != "rounds"  # methods differ by powers of ten in all others
    for place, (series, (colour, dash, marker)) in enumerate(lines):
        x = series.x[cost][log:]  # round 0 has no place on a log axis
        low, middle, high = (curve[log:] for curve in series.y[metric])
        every = max(len(x) // 5, 1)
        marks = (place % every, every)  # at different rounds for different curves
        axes.fill_between(x, low, high, color=colour, alpha=style.BAND_OPACITY, linewidth=0)
        axes.plot(x, middle, color=colour, linestyle=dash, marker=marker, markevery=marks)
    if log:
        _cost_axis(axes)
    else:
        axes.locator_params(axis="x", integer=True)
        axes.set_xlim(0, max(float(series.x[cost][-1]) for series, _ in lines))
    top = max(float(series.median(metric)[0]) for series, _ in lines)
    lows = np.concatenate([series.y[metric][0] for series, _ in lines])
    positive = lows[(lows > 0) & np.isfinite(lows)]
    _loss_axis(axes, float(positive.min(initial=top)), top)


def _loss_axis(axes: Axes, bottom: float, top: float) -> None:
    """From the least value to the start: a diverging curve leaves the panel."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.set_ylim(bottom * 0.94, max(top, bottom * 1.1) * 1.06)
    subs = (1, 2, 3, 4, 5, 6, 8) if top < 12 * bottom else (1, 2, 5)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def against_costs(
    series: Sequence[Series], costs: Sequence[str], reference: tuple[str, float], caption: str
) -> Figure:
    """Training loss of methods on one instance: one panel per cost, logarithmic axes.

    ``reference``: label and height of a horizontal line.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=style.SCREEN_SIZE, layout="constrained")
    panels = figure.subplots(1, len(costs), sharey=True)
    for axes, cost in zip(panels, costs, strict=True):
        cost_panel(axes, [(s, style.method_look(s.case.method)) for s in series], cost)
        axes.axhline(reference[1], label=reference[0], **style.REFERENCE_LINE)
        axes.set(xlabel=names.COSTS[cost])
    panels[0].set_ylabel(names.METRICS["train_loss"])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, handlelength=2.6)
    figure.suptitle(plain(caption), fontsize=11)
    return figure


def cost_panel(axes: Axes, lines: Sequence[tuple[Series, Look]], cost: str) -> None:
    """Training loss against one cost, logarithmic axes."""
    for place, (s, (colour, dash, marker)) in enumerate(lines):
        x, y = s.x[cost][1:], s.median("train_loss")[1:]  # round 0 has no place on a log axis
        # Markers at equal distances on the logarithmic axis, shifted from curve to curve.
        marks = np.unique(np.geomspace(1 + place % 3, len(x), 8).astype(int) - 1)[:-1]
        axes.plot(
            x, y, color=colour, linestyle=dash, marker=marker, markevery=list(marks),
            label=f"{names.method(s.case.method)}, {names.setting('step_size', s.case.step_size)}",
        )  # fmt: skip
    low = min(float(s.median("train_loss").min()) for s, _ in lines)
    _loss_axis(axes, low, max(s.start for s, _ in lines))
    _cost_axis(axes)


def _cost_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(_si)
    axes.xaxis.set_minor_formatter(lambda *_: "")


def run_curve(folder: Path) -> Path | None:
    """Draw curve.png, the objective against rounds, from the files of ``desopt run``.

    None, and no file, without matplotlib or without evaluations.
    """
    summary = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    with (folder / "history.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    if not rows or importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    look, start = style.method_look(settings["method"]), summary["initial_loss"]
    rounds = np.array([0, *(int(row["round"]) for row in rows)])
    losses = np.array([np.nan if start is None else start, *(float(row["loss"]) for row in rows)])
    with style.for_screen():
        figure = Figure(figsize=style.SMALL_SIZE, layout="constrained")
        axes = figure.add_subplot()
        axes.plot(rounds, losses, color=look.colour, marker=look.marker, markersize=3)
        axes.set(xlabel="rounds", ylabel="objective")
        if np.all(np.isfinite(losses)) and losses.min() > 0:
            axes.set_yscale("log")
        (path,) = save(figure, folder, "curve", "objective against rounds", ("png",))
    return path


def _si(value: float, _place: float) -> str:
    """``20k`` for 20,000."""
    for power, prefix in ((6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:g}{prefix}"
    return f"{value:g}"


def profile_panels(panels: Sequence[ProfilePanel], legend: Legend, height: float) -> Figure:
    """One panel per accuracy, stacked as in the paper."""
    figure, grid = _figure(style.COLUMN_WIDTH, height, len(panels), 1)
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
    legend_above(figure, legend)
    return figure


def _profile(axes: Axes, ratio: FloatArray, look: Look, right: float) -> None:
    tau, rho = profiles.staircase(ratio)
    if not tau.size:
        return
    # Extend to the right edge, and down to 0 where the first step comes late.
    floor = [] if tau[0] == 1 else [(1.0, 0.0)]
    x, y = np.array([*floor, *zip(tau, rho, strict=True), (right, rho[-1])]).T
    colour, dash, marker = look
    axes.step(
        x, y, where="post", color=colour, linestyle=dash, marker=marker, clip_on=False,
        markevery=(len(floor), max(len(tau) // 4, 1)),
    )  # fmt: skip


def _solves_none(panel: ProfilePanel) -> str:
    """The solvers without a line, because they solve no instance."""
    none = [label for label, ratio in panel.ratios.items() if not np.isfinite(ratio).any()]
    text = plain(f"no instance solved: {'; '.join(none)}")
    return "\n".join(textwrap.wrap(text, 62)) if none else ""


def _figure(width: float, height: float, rows: int, columns: int) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def legend_above(figure: Figure, legend: Legend, columns: int = 8) -> None:
    """Above all panels, in at most so many columns where the figure is wide."""
    from matplotlib.artist import setp
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, label=plain(label))
        for label, (colour, _, marker) in legend.items()
    ]
    for handle, (_, dash, _) in zip(handles, legend.values(), strict=True):
        setp(handle, linestyle=dash)
    wide = figure.get_figwidth() > style.COLUMN_WIDTH
    _fitting(
        figure.legend, columns if wide else 3, figure.bbox.width, handles=handles,
        loc="outside upper center", handlelength=2.6, columnspacing=1.1,
        fontsize=7.5 if wide else 7,
    )  # fmt: skip


def _fitting(
    draw: Callable[..., Any], columns: int, room: float, *, handles: Sequence[Any], **options: Any
) -> float:
    """A legend of as many columns as fit into the room, in pixels; returns its height."""
    for count in range(min(columns, len(handles)), 0, -1):
        legend = draw(handles=handles, ncols=count, frameon=False, **options)
        size = legend.get_window_extent()
        if size.width <= room or count == 1:
            return float(size.height)
        legend.remove()
    return 0.0
