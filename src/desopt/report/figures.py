"""Which figures there are: the paper's, in its arrangement, and those of a user's own study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desopt.methods.registry import METHODS, Look
from desopt.report import drawing, names
from desopt.report.claims import DELTA, HIGH, LOW, step_study
from desopt.report.comparison import Comparison, compare
from desopt.report.drawing import Profiles
from desopt.report.select import Study, best_steps, richest, varying
from desopt.studies.text import distinct, file_name, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A step size's dash, where colour and marker are the method's.
DASHES = (":", "--", "-", "-.")


@dataclass(frozen=True)
class Plan:
    """A figure that can be drawn; its name is that of its files."""

    name: str
    caption: str
    make: Callable[[], Figure]


def planned(study: Study) -> list[Plan]:
    """The figures that the results are enough for."""
    plans = [*_curve_plans(study), *_step_plans(study), *_sweep_plans(study), *_own_plans(study)]
    files = distinct(plan.name for plan in plans)
    return [replace(plan, name=name) for plan, name in zip(plans, files, strict=True)]


def save(plan: Plan, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draw a figure in these formats, ``svg`` and ``pdf``."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(drawing.STYLE):
        return drawing.save(plan.make(), folder, plan.name, plan.caption, formats)


def data_rows(found: Iterable[str]) -> list[list[str]]:
    """The data sets of each figure of curves: as in the paper, then what it does not have.

    A generated twin takes the place of a data set that is not there.
    """
    present = set(found)
    figures = [[name for slot in row if (name := _at_hand(slot, present))] for row in names.ROWS]
    others = sorted(present - {name for row in figures for name in row})
    return figures + [others[i : i + 3] for i in range(0, len(others), 3)]


def _at_hand(name: str, present: set[str]) -> str | None:
    return next((each for each in (name, f"{name}-like") if each in present), None)


def _curve_plans(study: Study) -> list[Plan]:
    """Figures 1 and 2 and the supplement's two, by loss and by error."""
    found = richest(study.item("curves"), "method", "step_size")
    series = best_steps([s for group in found.values() for s in group.values()])
    lines = [(s, _look(s.case.method)) for s in series]
    methods = names.in_order({s.case.method for s in series}, METHODS)
    legend = {names.method(m): _look(m) for m in methods}
    plans = []
    for metric, title in names.METRICS.items():
        for place, row in enumerate(data_rows(s.case.data for s in series)):
            if row:
                here = [line for line in lines if line[0].case.data in row]
                caption = (
                    f"{title.capitalize()} on {', '.join(map(short, row))}: median and quartiles"
                )
                make = partial(drawing.curves, here, row, metric, legend)
                plans.append(Plan(_figure_name(title, place), caption, make))
    return plans


def _figure_name(title: str, place: int) -> str:
    measure = title.replace(" ", "-")
    if place >= len(names.ROWS):
        return f"further-{place - len(names.ROWS) + 1}-{measure}"
    return f"{'figure' if title.startswith('training') else 'supplement'}-{place + 1}-{measure}"


def _look(method: str) -> Look:
    return METHODS[method].look if method in METHODS else names.look(0)


def _step_plans(study: Study) -> list[Plan]:
    """Figures 3 and 4."""
    series = step_study(study)
    steps = sorted({s.case.step_size for s in series})
    methods = names.in_order({s.case.method for s in series}, METHODS)
    legend = {names.method(m): _look(m)._replace(dash="-") for m in methods}
    legend |= {names.setting("step_size", a): Look("#666666", _dash(a, steps), "") for a in steps}
    plans = []
    profile = compare(series, ("method", "step_size"), DELTA)
    if len(profile.instances) > 1:
        looks = {key: step_look(key, steps) for key in profile.solvers}
        panel = _panel(profile, ("method", "step_size"), looks, DELTA)
        caption = f"Performance profiles of methods and step sizes, delta = {DELTA:g}"
        make = partial(drawing.profile_panels, [panel], legend, 3.3)
        plans.append(Plan("figure-3-profile-step-size", caption, make))
    found = {s.case.data for s in series}
    if data := _at_hand("susy", found) or min(found, default=None):
        groups = richest([s for s in series if s.case.data == data], "method", "step_size")
        lines = [(s, step_look(k, steps)) for group in groups.values() for k, s in group.items()]
        caption = f"Training loss on {short(data)} with different initial step sizes"
        make = partial(drawing.curves, lines, [data], "train_loss", legend)
        plans.append(Plan(f"figure-4-step-size-{file_name(data)}", caption, make))
    return plans


def _dash(step: float, steps: Sequence[float]) -> str:
    return DASHES[steps.index(step) % len(DASHES)]


def step_look(key: tuple[Any, ...], steps: Sequence[float]) -> Look:
    """Of a method with a step size."""
    return _look(key[0])._replace(dash=_dash(key[1], steps))


def _panel(
    profile: Comparison, compared: Sequence[str], looks: Mapping[Any, Look], delta: float
) -> Profiles:
    labels = {key: names.label(compared, key) for key in looks}
    return Profiles(
        rf"$\delta = {delta:g}$, {len(profile.instances)} instances",
        {labels[key]: profile.of(*key) for key in looks},
        {labels[key]: look for key, look in looks.items()},
    )


def _sweep_plans(study: Study) -> list[Plan]:
    """Figures 5 and 6."""
    plans = []
    for number, item, name in ((5, "momentum", "momentum"), (6, "batch", "batch_size")):
        both = {delta: compare(study.item(item), (name,), delta) for delta in (LOW, HIGH)}
        if len(both[LOW].instances) > 1:
            looks = {key: names.look(i) for i, key in enumerate(sorted(both[LOW].solvers))}
            panels = [_panel(profile, (name,), looks, delta) for delta, profile in both.items()]
            caption = f"Performance profiles of DES-mR by {name.replace('_', ' ')}"
            make = partial(drawing.profile_panels, panels, panels[0].looks, 4.1)
            plans.append(Plan(f"figure-{number}-profile-{item}", caption, make))
    return plans


def _own_plans(study: Study) -> list[Plan]:
    """One grid of curves per item that is not the paper's, with the best step sizes."""
    plans = []
    for item, series in study.items.items():
        if item not in names.ITEMS:
            best = best_steps(series)
            compared = [name for name in varying(series) if name != "step_size"]
            keys = list(dict.fromkeys(tuple(getattr(s.case, n) for n in compared) for s in best))
            looks = {key: own_look(compared, key, i) for i, key in enumerate(keys)}
            lines = [(s, looks[tuple(getattr(s.case, n) for n in compared)]) for s in best]
            legend = {names.label(compared, key): look for key, look in looks.items()}
            rows = sorted({s.case.data for s in best})
            make = partial(drawing.curves, lines, rows, "train_loss", legend)
            name, caption = f"{file_name(item)}-training-loss", f"Training loss, {short(item)}"
            plans.append(Plan(name, caption, make))
    return plans


def own_look(compared: Sequence[str], key: tuple[Any, ...], place: int) -> Look:
    """A method's own look where only methods are compared."""
    known = list(compared) == ["method"] and key[0] in METHODS
    return METHODS[key[0]].look if known else names.look(place)
