"""Which figures there are: the paper's, in its arrangement, and those of a user's own results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt.methods.registry import METHODS, Look
from desopt.report import drawing, names, style
from desopt.report.claims import DELTA, HIGH, LOW, step_study
from desopt.report.drawing import Legend, ProfilePanel
from desopt.report.profiles import Comparison, compare
from desopt.report.results import Results, Series, best_steps, by_settings
from desopt.report.variants import Variants, with_step
from desopt.studies.output import file_name, short, unique_names
from desopt.studies.paper import representative

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlannedFigure:
    """A figure to be drawn; its files are called ``name``."""

    name: str
    caption: str
    make: Callable[[], Figure]


def planned(results: Results) -> list[PlannedFigure]:
    """The figures that the results suffice for."""
    papers, further = results.divided()
    plans = [
        *_curve_plans(results),
        *_step_plans(papers, "figure-3"),
        *_step_curves(papers),
        *_sweep_plans(papers, ("figure-5", "figure-6")),
        *_step_plans(further, "further"),
        *_sweep_plans(further, ("further", "further")),
        *_own_plans(results),
    ]
    files = unique_names(plan.name for plan in plans)
    return [replace(plan, name=name) for plan, name in zip(plans, files, strict=True)]


def save(plan: PlannedFigure, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draw a figure in these formats, ``svg`` and ``pdf``."""
    with style.for_print():
        return drawing.save(plan.make(), folder, plan.name, plan.caption, formats)


def data_rows(found: Iterable[str]) -> list[list[str]]:
    """The data sets of each figure of curves: as in the paper, then further ones.

    A part of a missing data set, or its generated twin, takes its place.
    """
    present = set(found)
    figures = names.paper_rows(present)
    others = names.in_order(present - {name for row in figures for name in row}, names.DATA)
    return figures + [others[i : i + 3] for i in range(0, len(others), 3)]


def _curve_plans(results: Results) -> list[PlannedFigure]:
    """Figures 1 and 2 and the two of the supplement, by loss and by error."""
    found = by_settings(results.item("curves"), "method", "step_size")
    series = best_steps([s for group in found.values() for s in group.values()])
    methods = names.in_order({s.case.method for s in series}, METHODS)
    lines = [(s, style.method_look(m)) for m in methods for s in series if s.case.method == m]
    plans = []
    for metric, title in names.METRICS.items():
        for place, row in enumerate(data_rows(s.case.data for s in series)):
            if row:
                here = [line for line in lines if line[0].case.data in row]
                caption = (
                    f"{title.capitalize()} on {', '.join(map(short, row))}: median and quartiles"
                )
                legend = _with_steps({names.method(m): style.method_look(m) for m in methods}, here)
                make = partial(drawing.curves, here, row, metric, legend)
                plans.append(PlannedFigure(_figure_name(title, place), caption, make))
    return plans


def _with_steps(legend: Legend, lines: Sequence[tuple[Series, Look]]) -> Legend:
    """The legend with step sizes, unless they differ from panel to panel, and the panels tell."""
    if drawing.several_steps(lines):
        return legend
    return {
        with_step(label, [s for s, its in lines if its == look]): look
        for label, look in legend.items()
    }


def _figure_name(title: str, place: int) -> str:
    measure = title.replace(" ", "-")
    if place >= len(names.ROWS):
        return f"further-{place - len(names.ROWS) + 1}-{measure}"
    return f"{'figure' if title.startswith('training') else 'supplement'}-{place + 1}-{measure}"


def _step_plans(results: Results, prefix: str) -> list[PlannedFigure]:
    """Figure 3."""
    series = step_study(results)
    profile = compare(series, ("method", "step_size"), DELTA)
    if len(profile.instances) < 2:
        return []
    steps, legend = _step_legend(series)
    looks = {key: style.step_look(key, steps) for key in profile.solvers}
    panel = _panel(profile, ("method", "step_size"), looks, DELTA, series)
    caption = f"Performance profiles of methods and step sizes, delta = {DELTA:g}{_where(prefix)}"
    make = partial(drawing.profile_panels, [panel], legend, 3.3)
    return [PlannedFigure(f"{prefix}-profile-step-size", caption, make)]


def _where(prefix: str) -> str:
    return ", on further data sets" if prefix == "further" else ""


def _step_legend(series: Sequence[Series]) -> tuple[list[float | str], dict[str, Look]]:
    """The step sizes, and the legend of methods and step sizes."""
    steps = sorted({s.case.step_size for s in series}, key=names.size)
    methods = names.in_order({s.case.method for s in series}, METHODS)
    legend = {names.method(m): style.method_look(m)._replace(dash="-") for m in methods}
    legend |= {
        names.setting("step_size", a): Look(style.GREY, style.step_dash(a, steps), "")
        for a in steps
    }
    return steps, legend


def _step_curves(results: Results) -> list[PlannedFigure]:
    """Figure 4."""
    series = step_study(results)
    found = {s.case.data for s in series}
    data = representative("SUSY", found) or min(found, default=None)
    if data is None:
        return []
    steps, legend = _step_legend(series)
    groups = by_settings([s for s in series if s.case.data == data], "method", "step_size")
    lines = [(s, style.step_look(k, steps)) for group in groups.values() for k, s in group.items()]
    caption = f"Training loss on {short(data)} with different initial step sizes"
    make = partial(drawing.curves, lines, [data], "train_loss", legend)
    return [PlannedFigure(f"figure-4-step-size-{file_name(data)}", caption, make)]


def _panel(
    profile: Comparison, compared: Sequence[str], looks: Mapping[Any, Look], delta: float,
    series: Sequence[Series],
) -> ProfilePanel:  # fmt: skip
    labels = {key: names.label(compared, key) for key in looks}
    return ProfilePanel(
        with_step(rf"$\delta = {delta:g}$, {len(profile.instances)} instances", series),
        {labels[key]: profile.of(*key) for key in looks},
        {labels[key]: look for key, look in looks.items()},
    )


def _sweep_plans(results: Results, prefixes: tuple[str, str]) -> list[PlannedFigure]:
    """Figures 5 and 6."""
    plans = []
    for prefix, item, name in zip(
        prefixes, ("momentum", "batch"), ("momentum", "batch_size"), strict=True
    ):
        series = results.item(item)
        both = {delta: compare(series, (name,), delta) for delta in (LOW, HIGH)}
        if len(both[LOW].instances) > 1:
            looks = {key: style.numbered_look(i) for i, key in enumerate(sorted(both[LOW].solvers))}
            panels = [
                _panel(profile, (name,), looks, delta, series) for delta, profile in both.items()
            ]
            by = f"{name.replace('_', ' ')}{_where(prefix)}"
            caption = f"Performance profiles of DES-mR by {by}"
            make = partial(drawing.profile_panels, panels, panels[0].looks, 4.1)
            plans.append(PlannedFigure(f"{prefix}-profile-{item}", caption, make))
    return plans


def _own_plans(results: Results) -> list[PlannedFigure]:
    """Grids of curves for each item of a user's study, with the best step sizes."""
    plans = []
    for item, series in results.items.items():
        if item in names.ITEMS:
            continue
        best, variants = best_steps(series), Variants(series)
        lines = [(s, variants.look(k)) for k in variants.keys for s in best if variants.key(s) == k]
        legend = _with_steps({variants.label(k): variants.look(k) for k in variants.keys}, lines)
        for view in results.views:
            known = [line for line in lines if np.isfinite(line[0].median(view.metric)).any()]
            if not known:  # nothing is classified
                continue
            rows = sorted({s.case.data for s, _ in known})
            make = partial(drawing.curves, known, rows, view.metric, legend, view.cost)
            name = f"{file_name(item)}-{view.name}"
            caption = f"{view.title.capitalize()}, {short(item)}"
            plans.append(PlannedFigure(name, caption, make))
    return plans
