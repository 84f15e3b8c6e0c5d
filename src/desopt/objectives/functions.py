"""A Python callable as an objective."""

from __future__ import annotations

import numbers
import threading
from collections.abc import Callable, Sequence
from typing import Any

from desopt.contract.checks import as_float
from desopt.contract.errors import Failed, failure, user_code
from desopt.contract.types import FloatArray, LocalSearch
from desopt.data import Batch, Shard
from desopt.objectives.local import drive


class PythonObjective:
    """``fun(x, batch)``, the mean of F over the batch; ``fun(x)`` where there is no data.

    ``setup`` is called once per process (per thread on the threads engine) before the first
    value is needed. What it returns, unless None, is passed to ``fun`` as the last argument:
    a simulator, a connection, anything that must not be shared or pickled. ``name`` is that of
    the registry, if it has one.
    """

    compiled = False

    def __init__(
        self,
        fun: Callable[..., Any],
        setup: Callable[[], Any] | None = None,
        name: str = "callable",
    ) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {type(fun).__name__}")
        if setup is not None and not callable(setup):
            raise TypeError(f"setup must be callable, got {type(setup).__name__}")
        self.fun = fun
        self.setup = setup
        self.name = name
        self._prepared = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {"fun": self.fun, "setup": self.setup, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def settings(self) -> dict[str, Any]:
        return {"name": self.name}

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        return shards

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        return None

    def bind(self, batch: Batch, x: FloatArray) -> PythonFunction:
        return PythonFunction(self.fun, batch, self._state())

    def _state(self) -> tuple[Any, ...]:
        """The result of ``setup`` for this thread, as one more argument; () where there is none."""
        if self.setup is None:
            return ()
        if not hasattr(self._prepared, "state"):
            with user_code("setup"):
                made = self.setup()
            self._prepared.state = () if made is None else (made,)
        state: tuple[Any, ...] = self._prepared.state
        return state


class PythonFunction:
    """fun on one batch, or on a fresh one for each iteration. It cannot write into x."""

    def __init__(self, fun: Callable[..., Any], batch: Batch, state: tuple[Any, ...]) -> None:
        self.rows = batch.rows
        self._fun, self._batch, self._state = fun, batch, state
        self._iteration: int | None = None  # of the batch that was drawn
        self._arguments: tuple[Any, ...] = ()

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        if iteration != self._iteration:
            self._arguments = (*self._batch.at(iteration).arguments(), *self._state)
            self._iteration = iteration
        if x.flags.writeable:  # points of searches are not: this is x of the run
            x = x.view()
            x.flags.writeable = False
        try:  # a with statement would cost more than the call of a small function
            value = self._fun(x, *self._arguments)
        except Failed:
            raise
        except Exception as error:
            raise failure("fun", error) from error
        return value if type(value) is float else as_number(value)

    def run(self, search: LocalSearch) -> None:
        drive(search, self.value)


def as_number(value: Any) -> float:
    """The value of ``fun`` as a float, or a TypeError that says what it was."""
    if isinstance(value, numbers.Real):
        return as_float(value)
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # only NumPy's types have a kind
    if getattr(value, "ndim", None) == 0 and kind in "fiub":
        return float(value)
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    raise TypeError(
        f"fun must return one real number, the mean over the batch; "
        f"it returned {type(value).__name__}{shape}: {value!r:.80}"
    )
