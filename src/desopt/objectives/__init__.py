"""What is minimised: a Python callable, or a linear model with compiled searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from desopt.contract.checks import real
from desopt.contract.errors import check_name
from desopt.contract.types import Objective
from desopt.objectives.functions import PythonObjective
from desopt.objectives.linear import LinearModel
from desopt.objectives.local import WorkerData
from desopt.objectives.losses import LOSSES, Loss
from desopt.objectives.vectorized import VectorizedObjective

#: Objectives by name, besides the losses, made from penalty and setup; ``desopt.register`` adds.
OBJECTIVES: dict[str, Callable[[float, Callable[[], Any] | None], Objective]] = {}


def objective_names() -> list[str]:
    """What ``fun`` may be by name."""
    return [*LOSSES, *OBJECTIVES]


def as_objective(
    fun: Any, penalty: Any, setup: Callable[[], Any] | None, vectorized: Any = False
) -> Objective:
    """The ``fun`` argument as an objective; ``vectorized``: it is a function of a matrix."""
    if isinstance(fun, str):
        check_name("fun", fun, objective_names())
        weight = real("regularization", penalty)
        own = fun in OBJECTIVES  # the user's, which takes setup
        for name, value in {"vectorized": vectorized, "setup": None if own else setup}.items():
            if value is not None and value is not False:
                raise ValueError(f"{name} is for a Python function, got fun={fun!r}; leave it out")
        return OBJECTIVES[fun](weight, setup) if own else LinearModel(fun, weight)
    if hasattr(fun, "bind"):
        objective: Objective = fun
        return objective
    if vectorized:
        return VectorizedObjective(fun, setup, vectorized=vectorized)
    return PythonObjective(fun, setup)


__all__ = [
    "LOSSES",
    "OBJECTIVES",
    "LinearModel",
    "Loss",
    "PythonObjective",
    "VectorizedObjective",
    "WorkerData",
    "as_objective",
    "objective_names",
]
