"""``Result.plot``: how a run went, and where its best points are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from desopt.contract.types import FloatArray
from desopt.system.plot_style import BLUE, GREY, ORANGE, for_screen, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from desopt.run.result import Result

NEEDS = "result.plot needs matplotlib: pip install 'desopt[report]'"

#: Above this many variables, their values are not drawn.
MOST_VARIABLES = 10
_MOST_DOTS, _MOST_LINES = 20_000, 300
_WIDE, _NARROW = (11.0, 4.4), (6.4, 4.4)  # inches
_DECADES = 100.0  # ratio of values from which on an axis is logarithmic


class Values(NamedTuple):
    """Single values in the order in which they were computed; NaN where they failed."""

    values: FloatArray
    rounds: FloatArray  # done when the value's own round was
    points: FloatArray  # a row each; no columns if they are not drawn
    compare: bool  # whether all are of the same function, and not of different minibatches

    @classmethod
    def of(cls, records: Sequence[Any]) -> Values:
        """From those of ``result.evaluations``."""
        compare = all(each.rows <= 1 for each in records if not each.objective)
        kept = [each for each in records if compare or not each.objective]
        values = np.array([np.nan if each.failed else each.value for each in kept], np.float64)
        rounds = np.array([each.round + (not each.objective) for each in kept], np.float64)
        points = np.empty((len(kept), 0))
        stored = next((each.x for each in kept if each.x is not None), None)
        if compare and stored is not None and stored.size <= MOST_VARIABLES:
            nowhere = np.full(stored.size, np.nan)  # told by a process that does not know x
            points = np.array([nowhere if e.x is None else e.x for e in kept], np.float64)
        return cls(np.where(np.isfinite(values), values, np.nan), rounds, points, compare)


def plot(result: Result, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw the run; with a path, save it too (the suffix is the format).

    Without a path, the figure belongs to ``matplotlib.pyplot``, whose ``show()`` shows it.
    """
    require_matplotlib(NEEDS)
    known = Values.of(getattr(result, "evaluations", ()))
    two = known.points.shape[1] > 0 and bool(np.isfinite(known.values).any())
    if not known.values.size and not result.history.evaluated():
        raise ValueError("nothing to draw: no value is known; run with eval_every=1")
    with for_screen():
        figure = _figure(_WIDE if two else _NARROW, shown=path is None)
        panels = figure.subplots(1, 1 + two, squeeze=False)[0]
        _convergence(panels[0], result, known)
        if two:
            _points(panels[1], known)
        if path is not None:
            figure.savefig(path)
    return figure


def _figure(size: tuple[float, float], *, shown: bool) -> Figure:
    if shown:
        from matplotlib import pyplot

        return pyplot.figure(figsize=size, layout="constrained")
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _convergence(axes: Axes, result: Result, single: Values) -> None:
    """Values, their least so far, the objective after rounds, and failures, by evaluations."""
    values, history = single.values, result.history
    counts = np.array([0, *(row["evaluations"] for row in history)], np.float64)
    losses = np.array([result.initial_fun, *(row["loss"] for row in history)], np.float64)
    known = np.isfinite(losses)
    if values.size:
        # Values ahead and those of the objective itself are not in the history's counts.
        rounds = np.sort(single.rounds)
        counts = np.searchsorted(rounds, np.arange(counts.size), "right").astype(np.float64)
        at = np.arange(1, values.size + 1)
        _dots(axes, at, values, "single values" if single.compare else "values on minibatches")
        if single.compare:
            best = np.fmin.accumulate(values)
            axes.step(at, best, where="post", color=BLUE, label="best so far", zorder=3)
    if known.any():
        marker = "o" if known.sum() <= 100 else ""
        axes.plot(
            counts[known], losses[known], color=ORANGE, marker=marker, markersize=4,
            linestyle="-" if known.sum() > 2 else "", linewidth=1.2,
            label="objective after a round", zorder=4,
        )  # fmt: skip
    _failures(axes, _failed_at(values, counts, history))
    _value_scale(axes, np.concatenate([values, losses]))
    axes.set(xlabel="function values computed", ylabel="value")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_formatter("{x:,g}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize=9,
            markerscale=1.3,
        )  # fmt: skip


def _dots(axes: Axes, at: Any, values: FloatArray, label: str) -> None:
    thin = max(1, values.size // _MOST_DOTS)
    axes.plot(
        at[::thin], values[::thin], linestyle="", marker=".", markersize=4, color=GREY,
        alpha=0.45, label=label, rasterized=values.size > 2000,
    )  # fmt: skip


def _failed_at(values: FloatArray, counts: FloatArray, history: Any) -> FloatArray:
    """Where values failed: one by one if they are known, else after the rounds that had some."""
    if values.size:
        return np.asarray(np.flatnonzero(np.isnan(values)) + 1, np.float64)
    failed = np.diff([0.0, *(row["nans"] for row in history)]) > 0
    return counts[1:][failed]


def _failures(axes: Axes, at: FloatArray) -> None:
    if at.size:  # at the upper edge, whatever the scale of the values
        axes.plot(
            at, np.full(at.size, 0.985), linestyle="", marker="x", markersize=5, color="#AA0000",
            markeredgewidth=1.2, transform=axes.get_xaxis_transform(), clip_on=False,
            label=f"failed ({at.size:,})", zorder=5,
        )  # fmt: skip


def _value_scale(axes: Axes, values: FloatArray) -> None:
    """Logarithmic for values over decades; linear about 0 if some are not positive."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return
    low, high = float(finite.min()), float(finite.max())
    if low > 0 and high > _DECADES * low:
        axes.set_yscale("log")
        return
    near = -low if low < 0 else float(finite[finite > 0].min(initial=np.inf))
    if high > _DECADES * near:
        # Linear up to a power of ten: otherwise labels crowd around 0.
        axes.set_yscale("symlog", linthresh=10.0 ** np.ceil(np.log10(near)))


def _points(axes: Axes, known: Values) -> None:
    """Where the points were: by value, on a map, or from variable to variable."""
    draw = {1: _slice, 2: _map}.get(known.points.shape[1], _parallel_coordinates)
    chosen = _chosen(known.values)
    points, values = known.points[chosen], known.values[chosen]
    draw(axes, points, values)
    axes.set_title(f"points; the best, {values[-1]:.4g}, in orange", fontsize=10)


def _slice(axes: Axes, points: FloatArray, values: FloatArray) -> None:
    axes.plot(points[:, 0], values, linestyle="", marker=".", color=BLUE, alpha=0.5)
    axes.plot(points[-1, 0], values[-1], marker="o", markersize=7, linestyle="", color=ORANGE)
    axes.set(xlabel="x[0]", ylabel="value")
    _value_scale(axes, values)


def _map(axes: Axes, points: FloatArray, values: FloatArray) -> None:
    axes.scatter(points[:, 0], points[:, 1], c=_colours(len(values)), s=14, alpha=0.8)
    axes.plot(*points[-1], marker="o", markersize=8, linestyle="", color=ORANGE)
    scales = ["log" if spans else "linear" for spans in _spans_decades(points)]
    axes.set(xlabel="x[0]", ylabel="x[1]", xscale=scales[0], yscale=scales[1])
    _colour_bar(axes)


def _parallel_coordinates(axes: Axes, points: FloatArray, values: FloatArray) -> None:
    from matplotlib.collections import LineCollection

    heights, by_log = _heights(points)
    places = np.arange(heights.shape[1])
    lines = [np.column_stack([places, row]) for row in heights]
    axes.add_collection(
        LineCollection(lines, colors=_colours(len(lines)), linewidths=0.9, alpha=0.7)
    )
    axes.plot(places, heights[-1], color=ORANGE, linewidth=2.2, marker="o", zorder=4)
    axes.set(xlim=(-0.3, places[-1] + 0.3), ylim=(-0.08, 1.08))
    axes.set_xticks(places, [f"x[{place}]{chr(10)}log" if by_log[place] else f"x[{place}]"
                             for place in places])  # fmt: skip
    axes.set_yticks([])
    axes.tick_params(axis="x", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.grid(visible=False)
    for place, low, high in zip(places, points.min(axis=0), points.max(axis=0), strict=True):
        axes.axvline(float(place), 0.07, 0.93, color=GREY, linewidth=0.8, zorder=3)
        for height, number, side in ((-0.02, low, "top"), (1.02, high, "bottom")):
            text = f"{number:.2g}" if len(places) > 6 else f"{number:.3g}"
            axes.text(float(place), height, text, ha="center", va=side, fontsize=8)
    _colour_bar(axes)


def _colours(count: int) -> Any:
    """A colour per point by rank, given from the worst to the best."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.95, 0.0, count))


def _colour_bar(axes: Axes) -> None:
    from matplotlib.cm import ScalarMappable

    bar = axes.figure.colorbar(ScalarMappable(cmap="viridis"), ax=axes, shrink=0.6)
    bar.set_ticks([0.0, 1.0], labels=["best", "worst"])
    bar.ax.invert_yaxis()
    bar.set_label("rank of the value", labelpad=-18)
    bar.outline.set_visible(False)


def _chosen(values: FloatArray) -> Any:
    """The points to be drawn, worst first: all, or the best ones and some of the others."""
    order = np.argsort(-values, kind="stable")
    order = order[np.isfinite(values[order])]
    if order.size <= _MOST_LINES:
        return order
    half = _MOST_LINES // 2
    spread = np.linspace(0, order.size - half - 1, half).astype(np.int64)
    return np.concatenate([order[spread], order[-half:]])


def _heights(points: FloatArray) -> tuple[FloatArray, Any]:
    """Each variable from 0 to 1, by its logarithm if it spans decades; and which do."""
    by_log = _spans_decades(points)
    shown = np.where(by_log, np.log(np.where(by_log, points, 1.0)), points)
    low, span = shown.min(axis=0), np.ptp(shown, axis=0)
    return np.where(span > 0, (shown - low) / np.where(span > 0, span, 1.0), 0.5), by_log


def _spans_decades(points: FloatArray) -> Any:
    """Of each variable, whether it is positive and its values differ by large factors."""
    low, high = points.min(axis=0), points.max(axis=0)
    return (low > 0) & (high > _DECADES * low)
