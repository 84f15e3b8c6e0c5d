"""The curves and profiles of a study as JSON for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.methods.registry import METHODS, Look
from desopt.objectives.losses import LOSSES
from desopt.report import names, profiles, style
from desopt.report.profiles import compare
from desopt.report.results import Series, best_steps, varying
from desopt.report.variants import Variants, in_order

DIGITS = 5
POINTS = 60  # of a curve: more are indistinguishable on a screen
DELTAS = (0.1, 0.05, 0.01, 0.001)

Column = tuple[float | None, ...]


def page_data(
    items: Mapping[str, Sequence[Series]], profiled: Mapping[str, Sequence[Series]] | None = None
) -> dict[str, Any]:
    """Everything that the page draws. Items share series, and series share x columns.

    ``profiled``: the series of the performance profiles; None: all of them.
    """
    compared = items if profiled is None else profiled
    series = {s.case.id: s for found in items.values() for s in found}
    place = {case: i for i, case in enumerate(series)}
    columns: dict[Column, int] = {}
    generated = {s.case.data: s.generated for s in series.values()}
    sets = sorted(names.in_order(generated, names.DATA), key=generated.__getitem__)
    problems = names.in_order((s.case.problem for s in series.values()), LOSSES)
    return {
        "costs": names.COSTS,
        "metrics": names.METRICS,
        "step_dashes": style.STEP_DASHES,
        "problems": {name: names.problem(name) for name in problems},
        "data": {name: names.data(name, generated[name]) for name in sets},
        "series": [_series(s, columns) for s in series.values()],
        "columns": list(columns),
        "items": [_item(name, found, place) for name, found in items.items()],
        "profiles": [p for name, found in compared.items() for p in _profiles(name, found)],
    }


def _series(s: Series, columns: dict[Column, int]) -> dict[str, Any]:
    count = len(s.x["rounds"])
    kept = np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))
    x = {cost: numbers(s.x[cost][kept]) for cost in names.COSTS}
    return {
        "problem": s.case.problem,
        "data": s.case.data,
        "step": s.case.step_size,
        "runs": s.runs,
        "x": {cost: columns.setdefault(column, len(columns)) for cost, column in x.items()},
        "y": {metric: [numbers(curve[kept]) for curve in s.y[metric]] for metric in names.METRICS},
    }


def numbers(values: FloatArray) -> Column:
    """The values with ``DIGITS`` significant digits; None for NaN and infinity."""
    return tuple(_rounded(v) if np.isfinite(v) else None for v in values.tolist())


def _rounded(value: float) -> float:
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def _item(name: str, series: Sequence[Series], place: dict[str, int]) -> dict[str, Any]:
    """The compared variants, apart from the step size, and the series of each of them."""
    variants = Variants(series)
    best = {s.case.id for s in best_steps(series)}
    return {
        "name": names.item(name),
        "variants": [_variant(variants.label(key), variants.look(key)) for key in variants.keys],
        "members": [
            [place[s.case.id], variants.keys.index(variants.key(s)), int(s.case.id in best)]
            for s in series
        ],
    }


def _variant(label: str, look: Look) -> dict[str, str]:
    return dict(zip(("label", "colour", "dash", "marker"), (label, *look), strict=True))


def _profiles(item: str, series: Sequence[Series]) -> list[dict[str, Any]]:
    """Profiles of all that the item compares; methods with their best step sizes."""
    by_step = item != "curves"
    chosen = list(series) if by_step else best_steps(series)
    compared = [
        name for name in varying(series) if name != ("step_rule" if by_step else "step_size")
    ]
    return [
        profile
        for delta in DELTAS
        for cost in ("rounds", "evaluations")
        if (profile := _profile(item, chosen, compared, delta, cost)) is not None
    ]


def _profile(
    item: str, series: Sequence[Series], compared: Sequence[str], delta: float, cost: str
) -> dict[str, Any] | None:
    found = compare(series, compared, delta, cost)
    if len(found.instances) < 2 or len(found.solvers) < 2:
        return None
    steps_used = sorted({s.case.step_size for s in series}, key=names.size)
    lines = []
    for i, key in enumerate(in_order(compared, found.solvers)):
        look = _profile_look(compared, key, i, steps_used)
        tau, rho = profiles.staircase(found.of(*key))
        pairs = list(zip(numbers(tau), numbers(rho), strict=True))
        lines.append({**_variant(names.label(compared, key), look), "points": pairs})
    count = len(found.instances)
    about = {"item": names.item(item), "delta": delta, "cost": cost, "instances": count}
    return {**about, "lines": lines}


def _profile_look(
    compared: Sequence[str], key: tuple[Any, ...], place: int, steps_used: Sequence[float | str]
) -> Look:
    if list(compared) != ["method", "step_size"] or key[0] not in METHODS:
        return style.setting_look(compared, key, place)
    return style.step_look(key, steps_used)
