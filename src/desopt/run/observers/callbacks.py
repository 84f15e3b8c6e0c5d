"""The user's functions, called after every round by our convention or by SciPy's.

==========================================  ==========================================
``callback(row)``                           the round's row, with ``row.x``
``callback(intermediate_result)``           SciPy's: an ``OptimizeResult`` with ``x``, ``fun``,
                                            ``nit``, ``nfev`` and the row's columns
==========================================  ==========================================

SciPy tells its convention by the name of the only parameter, and so do we. A callback ends the run
by returning True or by raising StopIteration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from desopt.contract.space import Space
from desopt.contract.types import Answer
from desopt.run.history import End, Row, Status
from desopt.run.observers.record import Record

#: Called after each round; True or StopIteration ends the run.
Callback: TypeAlias = Callable[[Row], Any]


class Callbacks:
    """Calls the functions in their order; all are called, whatever they return."""

    def __init__(self, callbacks: Sequence[Callback], space: Space | None = None) -> None:
        self._space = space
        self._callbacks = [partial(_as_scipy, f) if is_scipys(f) else f for f in callbacks]

    def begin(self, record: Record) -> None:
        pass

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> End | None:
        if not self._callbacks:
            return None
        seen = Row(row)  # a copy that may be kept; with x, the history would grow by n per round
        seen.x = np.asarray(state.x).view() if self._space is None else self._space.decode(state.x)
        seen.x.flags.writeable = False
        stops = [_stops(callback, seen) for callback in self._callbacks]
        return End(Status.CALLBACK, "stopped by a callback") if any(stops) else None

    def end(self) -> None:
        pass


def is_scipys(callback: Callable[..., Any]) -> bool:
    """Whether a function has SciPy's convention."""
    try:
        return set(inspect.signature(callback).parameters) == {"intermediate_result"}
    except (TypeError, ValueError):  # built in, without a signature
        return False


def _as_scipy(callback: Callable[..., Any], row: Row) -> Any:
    from scipy.optimize import OptimizeResult  # late: takes 0.1 s

    return callback(
        intermediate_result=OptimizeResult(
            row, x=row.x, fun=row["loss"], nit=row["round"], nfev=row["evaluations"]
        )
    )


def _stops(callback: Callback, row: Row) -> bool:
    try:
        return bool(callback(row))
    except StopIteration:
        return True
