"""The user's functions, called after every round by our convention or by one of SciPy's.

==========================================  ==========================================
``callback(row)``                           the round's row, with ``row.x``
``callback(intermediate_result)``           SciPy's: an ``OptimizeResult`` with ``x``, ``fun``,
                                            ``nit``, ``nfev`` and the row's columns
``callback(xk)``                            SciPy's older one: a copy of x
==========================================  ==========================================

SciPy tells its convention by the name of the only parameter, and so do we. A callback ends the run
by returning True (not with ``xk``) or by raising StopIteration. An object may have ``begin``,
``end`` and ``close`` as well: it is told the settings of the run before the first round, the end of
the run, and closed at last, also after an error or Ctrl-C, where there is no ``end``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from desopt.contract.types import Answer
from desopt.engines import Job
from desopt.run.header import flatten
from desopt.run.history import End, Row, Status
from desopt.run.observers.record import Record

#: Called after each round; True or StopIteration ends the run.
Callback: TypeAlias = Callable[[Row], Any]


class Callbacks:
    """Calls the functions in their order; all are called, whatever they return."""

    def __init__(self, callbacks: Sequence[Callback], job: Job) -> None:
        self._job, self._space, self._given = job, job.space, callbacks
        self._callbacks = [_by_convention(callback) for callback in callbacks]

    def begin(self, record: Record) -> None:
        for begin in self._hooks("begin"):
            begin(settings_of(self._job))

    def close(self) -> None:
        """Whatever became of the run."""
        for close in self._hooks("close"):
            close()

    def _hooks(self, name: str) -> list[Callable[..., Any]]:
        found = (getattr(callback, name, None) for callback in self._given)
        return [hook for hook in found if callable(hook)]

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> End | None:
        if not self._callbacks:
            return None
        seen = Row(row)  # a copy that may be kept; with x, the history would grow by n per round
        seen.x = np.asarray(state.x).view() if self._space is None else self._space.decode(state.x)
        seen.x.flags.writeable = False
        stops = [_stops(callback, seen) for callback in self._callbacks]
        return End(Status.CALLBACK, "stopped by a callback") if any(stops) else None

    def end(self) -> None:
        for end in self._hooks("end"):
            end()


def settings_of(job: Job) -> dict[str, Any]:
    """The settings of a run on one level: ``method.name``, ``workers``, ..."""
    return flatten({
        "method": job.algorithm.settings(), "objective": job.objective.settings(),
        "workers": job.workers, "participation": job.participation,
        "batch_size": job.batch_size, "n": job.n,
    })  # fmt: skip


def is_scipys(callback: Callable[..., Any]) -> bool:
    """Whether a function has SciPy's convention."""
    return _parameters(callback) == {"intermediate_result"}


def _parameters(callback: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(callback).parameters)
    except (TypeError, ValueError):  # built in, without a signature
        return set()


def _by_convention(callback: Callable[..., Any]) -> Callback:
    if is_scipys(callback):
        return partial(_as_scipy, callback)
    return partial(with_point, callback) if _parameters(callback) == {"xk"} else callback


def with_point(callback: Callable[[Any], Any], row: Row) -> None:
    """SciPy's older convention: x only, and no meaning in what is returned."""
    callback(row.x.copy())


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
