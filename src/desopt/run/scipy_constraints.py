"""SciPy's constraints as a function of x that gives the violations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

from desopt.contract.types import FloatArray
from desopt.objectives.scaled import as_violations

Violations: TypeAlias = Callable[[FloatArray], FloatArray]

_EQUALITY = (
    "is an equality, which a search that compares values cannot keep; solve it for one of the "
    "variables, or give two inequalities with a tolerance between them"
)


def violations(constraints: Any) -> Violations | None:
    """How far each constraint is from being met (0: it is); None if there are no constraints.

    constraints
        Dicts, ``LinearConstraint``, ``NonlinearConstraint``, ``Bounds`` or functions of x that
        give violations; one of them or several.
    """
    if constraints is None:
        return None
    alone = callable(constraints) or isinstance(constraints, Mapping)
    if alone or isinstance(constraints, Bounds | LinearConstraint | NonlinearConstraint):
        constraints = (constraints,)
    parts = tuple(_part(place, constraint) for place, constraint in enumerate(constraints))
    return partial(_all, parts) if parts else None


def _all(parts: tuple[Violations, ...], x: FloatArray) -> FloatArray:
    return np.concatenate([np.maximum(np.atleast_1d(part(np.copy(x))), 0.0) for part in parts])


def _part(place: int, constraint: Any) -> Violations:
    if isinstance(constraint, Mapping):
        return _of_dict(place, constraint)
    if isinstance(constraint, Bounds | LinearConstraint | NonlinearConstraint):
        if np.any(np.equal(constraint.lb, constraint.ub)):
            raise ValueError(f"constraint {place} {_EQUALITY}")
        return partial(_outside, constraint)
    if callable(constraint):
        return constraint  # type: ignore[no-any-return]
    raise TypeError(
        f"constraint {place} must be a dict, a LinearConstraint, a NonlinearConstraint, Bounds or "
        f"a function of x that gives violations, got {constraint!r:.80}"
    )


def _of_dict(place: int, constraint: Mapping[str, Any]) -> Violations:
    kind, fun = str(constraint.get("type", "")).lower(), constraint.get("fun")
    if kind == "eq":
        raise ValueError(f"constraint {place} {_EQUALITY}")
    if kind != "ineq" or not callable(fun):
        raise ValueError(
            f"constraint {place} must have type 'ineq' and a function 'fun' that is >= 0 where it "
            f"is met, got {dict(constraint)!r:.80}"
        )
    return partial(_below_zero, fun, tuple(constraint.get("args", ())))


def _below_zero(fun: Callable[..., Any], args: tuple[Any, ...], x: FloatArray) -> FloatArray:
    return -as_violations(fun(x, *args))


def _outside(constraint: Any, x: FloatArray) -> FloatArray:
    """How far the constrained quantity is below its lower or above its upper bound."""
    if isinstance(constraint, Bounds):
        value = x
    elif isinstance(constraint, LinearConstraint):
        value = constraint.A @ x
    else:
        value = as_violations(constraint.fun(x))
    lower, upper = np.asarray(constraint.lb), np.asarray(constraint.ub)
    return np.asarray(np.maximum(lower - value, value - upper))
