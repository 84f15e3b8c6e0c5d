"""The curves and profiles of a study as compact JSON for the page.

Numbers are whole multiples of a power of ten: a median is kept as steps from point to point,
its quartiles as distances from it. That takes a third of the room of plain decimals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.methods.registry import METHODS, Look
from desopt.report import names, profiles
from desopt.report.comparison import compare
from desopt.report.figures import own_look, step_look
from desopt.report.select import AXES, METRICS, Band, Series, Study, best_steps, varying

DIGITS = 5
POINTS = 60  # of a curve: more cannot be told apart on a screen
DELTAS = (0.1, 0.05, 0.01, 0.001)

Packed = list[int | None]  # the power of ten, then whole numbers; None is no number


def pack(study: Study) -> dict[str, Any]:
    """Everything that the page draws. Items share their series, and series their x axes."""
    series = {s.case.id: s for found in study.items.values() for s in found}
    place = {case: i for i, case in enumerate(series)}
    columns: dict[tuple[int | None, ...], int] = {}
    generated = {s.case.data: s.generated for s in series.values()}
    sets = sorted(names.in_order(generated, names.DATA), key=generated.__getitem__)
    problems = names.in_order((s.case.problem for s in series.values()), names.PROBLEMS)
    return {
        "axes": names.AXES,
        "metrics": names.METRICS,
        "problems": {name: names.problem(name) for name in problems},
        "data": {name: names.data(name, generated[name]) for name in sets},
        "series": [_series(s, columns) for s in series.values()],
        "columns": list(columns),
        "items": [_item(name, found, place) for name, found in study.items.items()],
        "profiles": [p for name, found in study.items.items() for p in _profiles(name, found)],
    }


def _series(s: Series, columns: dict[tuple[int | None, ...], int]) -> dict[str, Any]:
    count = len(s.x["rounds"])
    kept = np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))
    x = [tuple(steps(s.x[axis][kept])) for axis in AXES]
    low, middle, high = ([s.y[metric][i][kept] for metric in METRICS] for i in range(3))
    return {
        "problem": s.case.problem,
        "data": s.case.data,
        "step": s.case.step_size,
        "runs": s.runs,
        "x": [columns.setdefault(column, len(columns)) for column in x],
        "y": [band(each) for each in zip(low, middle, high, strict=True)],
    }


def steps(values: FloatArray) -> Packed:
    """The power of ten, the first number, then the differences."""
    power = _power(values)
    return [power, *_differences(_whole(values, power))]


def band(quartiles: Band) -> list[Packed]:
    """The median as ``steps``, and the distances of the quartiles below and above it."""
    low, middle, high = quartiles
    power = _power(middle)
    units = [_whole(values, power) for values in (low, middle, high)]
    below = [_minus(m, l) for l, m in zip(units[0], units[1], strict=True)]
    above = [_minus(h, m) for h, m in zip(units[2], units[1], strict=True)]
    return [[power, *_differences(units[1])], below, above]


def _power(values: FloatArray) -> int:
    largest = np.max(np.abs(values), initial=0.0, where=np.isfinite(values))
    return min(300, DIGITS - 1 - int(np.floor(np.log10(largest)))) if largest > 0 else 0


def _whole(values: FloatArray, power: int) -> Packed:
    scaled = values * 10.0**power
    return [round(v) if np.isfinite(v) else None for v in scaled.tolist()]


def _differences(units: Packed) -> Packed:
    result: Packed = []
    last = 0
    for unit in units:
        result.append(_minus(unit, last))
        last = last if unit is None else unit
    return result


def _minus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one - other


def _item(name: str, series: Sequence[Series], place: dict[str, int]) -> dict[str, Any]:
    """The variants that are compared, apart from the step size, and which series is whose."""
    compared = [each for each in varying(series) if each != "step_size"]
    keys = [tuple(getattr(s.case, each) for each in compared) for s in series]
    variants = _in_order(compared, dict.fromkeys(keys))
    best = {s.case.id for s in best_steps(series)}
    return {
        "name": names.item(name),
        "variants": [
            _variant(names.label(compared, key), own_look(compared, key, i))
            for i, key in enumerate(variants)
        ],
        "members": [
            [place[s.case.id], variants.index(key), int(s.case.id in best)]
            for s, key in zip(series, keys, strict=True)
        ],
    }


def _in_order(compared: Sequence[str], keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Methods in the paper's order, numbers by size."""
    methods = list(METHODS)

    def rank(name: str, value: Any) -> tuple[Any, ...]:
        if name == "method":
            return (methods.index(value) if value in methods else len(methods), value)
        return (value is None, value or 0)

    return sorted(keys, key=lambda key: [rank(*each) for each in zip(compared, key, strict=True)])


def _variant(label: str, look: Look) -> dict[str, str]:
    return dict(zip(("label", "colour", "dash", "marker"), (label, *look), strict=True))


def _profiles(item: str, series: Sequence[Series]) -> list[dict[str, Any]]:
    """Of everything the item compares; curves are compared with their best step sizes."""
    by_step = item != "curves"
    chosen = list(series) if by_step else best_steps(series)
    compared = [name for name in varying(series) if by_step or name != "step_size"]
    return [
        profile
        for delta in DELTAS
        for axis in ("rounds", "evaluations")
        if (profile := _profile(item, chosen, compared, delta, axis)) is not None
    ]


def _profile(
    item: str, series: Sequence[Series], compared: Sequence[str], delta: float, axis: str
) -> dict[str, Any] | None:
    found = compare(series, compared, delta, axis)
    if len(found.instances) < 2 or len(found.solvers) < 2:
        return None
    steps_used = sorted({s.case.step_size for s in series})
    lines = []
    for i, key in enumerate(_in_order(compared, found.solvers)):
        look = _profile_look(compared, key, i, steps_used)
        tau, rho = profiles.staircase(found.of(*key))
        pairs = [[_rounded(t), _rounded(r)] for t, r in zip(tau, rho, strict=True)]
        lines.append({**_variant(names.label(compared, key), look), "points": pairs})
    count = len(found.instances)
    about = {"item": names.item(item), "delta": delta, "axis": axis, "instances": count}
    return {**about, "lines": lines}


def _profile_look(
    compared: Sequence[str], key: tuple[Any, ...], place: int, steps_used: Sequence[float]
) -> Look:
    if list(compared) != ["method", "step_size"] or key[0] not in METHODS:
        return own_look(compared, key, place)
    return step_look(key, steps_used)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
