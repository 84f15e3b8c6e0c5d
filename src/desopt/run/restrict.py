"""Bounds, scales and constraints of a run: its objective, starting point and box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from desopt.contract.space import Box, Space
from desopt.contract.types import Algorithm, FloatArray, Objective
from desopt.methods import METHODS
from desopt.objectives.scaled import ScaledObjective


class Restricted(NamedTuple):
    """What is searched: ``space`` is None where that is x itself."""

    objective: Objective
    start: FloatArray
    space: Space | None = None
    box: Box | None = None
    constrained: bool = False


def restricted(
    objective: Objective, start: FloatArray, settings: SimpleNamespace, *, given: bool
) -> Restricted:
    """The run within its bounds and constraints; ``given``: whether ``start`` is the user's."""
    bounds, scale = settings.bounds, settings.scale
    constraints = as_function(settings.constraints)
    if bounds is None and scale is None and constraints is None:
        return Restricted(objective, start)
    compiled = bool(getattr(objective, "in_box", False))
    space = Space.of(bounds, scale, start.size, "own" if compiled else "linear")
    if not given:
        Box(space.lower, space.upper).project(start)
    if compiled and scale is None and constraints is None:
        space.check(start)
        return Restricted(objective, start, None, Box(space.lower, space.upper))
    wrapped = ScaledObjective(objective, space, constraints)
    return Restricted(wrapped, space.encode(start), space, space.box, constraints is not None)


def as_function(constraints: Any) -> Any:
    """The ``constraints`` argument as a function of x, if it has SciPy's form."""
    if isinstance(constraints, Mapping | list | tuple) or hasattr(constraints, "lb"):
        from desopt.run.scipy_constraints import violations  # late: loads scipy.optimize

        return violations(constraints)
    return constraints


def within(algorithm: Algorithm, given: Restricted) -> Algorithm:
    """The algorithm with the box and the order of a restricted run; refused if it has none."""
    if given.box is None and not given.constrained:
        return algorithm
    wanted = {"bounds": given.box is not None, "constraints": given.constrained}
    for name in (name for name, needed in wanted.items() if needed):
        if name not in getattr(algorithm, "observes", ()):
            names = [key for key, m in METHODS.items() if name in _observes(m.algorithm)]
            raise ValueError(
                f"{algorithm.name} does not take {name}; the methods that do are {', '.join(names)}"
            )
    changes: dict[str, Any] = {"box": given.box, "constrained": given.constrained}
    restricted: Algorithm = replace(algorithm, **changes)  # type: ignore[type-var]
    return restricted


def in_single_precision(algorithm: Algorithm) -> Algorithm:
    """The algorithm with a state of float32 numbers; refused if it has none."""
    if "float32" not in getattr(algorithm, "observes", ()):
        names = [key for key, m in METHODS.items() if "float32" in _observes(m.algorithm)]
        raise ValueError(
            f"{algorithm.name} does not take float32; the methods that do are {', '.join(names)}"
        )
    single: Algorithm = replace(algorithm, float32=True)  # type: ignore[type-var]
    return single


def _observes(algorithm: type[Any]) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(algorithm, "observes", ())
    return found
