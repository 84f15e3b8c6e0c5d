"""A Python function of many points at once: ``fun(X)`` or ``fun(X, batch)``, a value per row.

A call has the points of all workers that need values now. Searches in lockstep need one call for
each of their steps, however many workers there are; a population needs one in all.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy import sparse

from desopt.contract.errors import Failed, ObjectiveError, failure, user_code
from desopt.contract.types import Batches, FloatArray, LocalFunction, LocalSearch
from desopt.data import Batch, NoData, Shard, distinct
from desopt.objectives.functions import PythonObjective
from desopt.objectives.stacking import Convert, as_numpy, repeated, signature, size_of, stacked

#: Memory for the points of one call, and for copies of their batches; beyond it, more calls.
CALL_BYTES = 2**30

#: Stacked batches that are kept: those of the round, and those of the full objective.
_KEPT = 2

#: The values of points, each of its function and iteration; Failed where the call has failed.
Values: TypeAlias = Callable[
    [Sequence[FloatArray], Sequence[LocalFunction], Sequence[int]], "list[float | Failed]"
]


class MatrixObjective(Protocol):
    """What an objective needs to be evaluated at many points in one call."""

    vectorized: bool | Convert

    def values(
        self,
        points: Sequence[FloatArray],
        functions: Sequence[LocalFunction],
        iterations: Sequence[int],
    ) -> list[float | Failed]:
        """The value of each point; ``Failed`` where the call has failed."""


class _Call(NamedTuple):
    """The positions of its points, and what follows X among the arguments."""

    rows: Sequence[int]
    arguments: tuple[Any, ...]


class _Memory(threading.local):
    """What a thread keeps from call to call."""

    def __init__(self) -> None:
        self._matrix = np.empty((0, 0))
        # by the keys of all points; the functions keep alive what the keys name
        self.calls: dict[Any, tuple[list[_Call], Sequence[Any]]] = {}

    def matrix(self, points: int, n: int) -> FloatArray:
        """Memory for X: that of the last call, unless the user has kept it."""
        rows, columns = self._matrix.shape
        if rows < points or columns != n or sys.getrefcount(self._matrix) > 2:
            self._matrix = np.empty((points, n))
        return self._matrix[:points]


class VectorizedObjective(PythonObjective):
    """``fun(X, batch)`` with X of shape (points, n) and the points' batches stacked.

    ``vectorized`` is True, or a function that converts X and the arrays of the batch to those of
    another library. X is the user's own, to change and to keep; batches are read-only.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        setup: Callable[[], Any] | None = None,
        name: str = "callable",
        vectorized: bool | Convert = True,
    ) -> None:
        super().__init__(fun, setup, name)
        self.vectorized = vectorized
        self._convert = vectorized if callable(vectorized) else None
        self._memory = _Memory()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "vectorized": self.vectorized}

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        if any(sparse.issparse(array) for shard in distinct(shards) for array in shard.arrays):
            raise TypeError(
                "data have a sparse matrix, and with vectorized the batches of several points are "
                "stacked to arrays of three dimensions: pass a dense array, or fun(x, batch) "
                "without vectorized"
            )
        return shards

    def bind(self, batch: Batch, x: FloatArray) -> VectorizedFunction:  # type: ignore[override]
        self._state()  # before the first value, whose time is measured
        return VectorizedFunction(self, batch)

    def values(
        self,
        points: Sequence[FloatArray],
        functions: Sequence[LocalFunction],
        iterations: Sequence[int],
    ) -> list[float | Failed]:
        found: list[float | Failed] = [math.nan] * len(points)
        for rows, arguments in self._calls(points[0].size, functions, iterations):
            values = self._call([points[row] for row in rows], arguments)
            for row, value in zip(rows, values, strict=True):
                found[row] = value
        return found

    def _call(
        self, points: Sequence[FloatArray], arguments: tuple[Any, ...]
    ) -> Sequence[float | Failed]:
        X = self._memory.matrix(len(points), points[0].size)
        np.concatenate(points, out=X.reshape(-1))
        state = self._state()
        try:
            returned = self.fun(self._converted(X), *arguments, *state)
            array = as_numpy(returned)  # libraries that compute later report errors only here
        except Failed as failed:
            return [failed] * len(points)
        except ObjectiveError:
            raise
        except Exception as error:
            raise failure("fun", error) from error
        return as_values(array, type(returned).__name__, len(points))

    def _converted(self, X: FloatArray) -> Any:
        if self._convert is None:
            return X
        with user_code("vectorized"):
            return self._convert(X)

    def _calls(
        self, n: int, functions: Sequence[Any], iterations: Sequence[int]
    ) -> Sequence[_Call]:
        """The calls for these points; as before where their batches are the same."""
        keys = tuple(f.key(k) for f, k in zip(functions, iterations, strict=True))
        kept = self._memory.calls
        if keys not in kept:
            while len(kept) >= _KEPT:  # before, so that there is memory for the new ones
                del kept[next(iter(kept))]
            kept[keys] = [*self._planned(n, keys, functions, iterations)], functions
        return kept[keys][0]

    def _planned(
        self, n: int, keys: Sequence[Any], functions: Sequence[Any], iterations: Sequence[int]
    ) -> Iterator[_Call]:
        """One call for all batches of one shape, or more where memory is short."""
        batches: dict[Any, tuple[Any, ...]] = {}
        groups: dict[Any, list[int]] = {}
        for row, key in enumerate(keys):
            if key not in batches:
                batches[key] = functions[row].arguments(iterations[row])
            groups.setdefault(signature(batches[key]), []).append(row)
        for rows in groups.values():
            for part in _parts(rows, keys, 8 * n, size_of(batches[keys[rows[0]]])):
                yield _Call(part, self._arguments([keys[row] for row in part], batches))

    def _arguments(self, keys: Sequence[Any], batches: dict[Any, Any]) -> tuple[Any, ...]:
        """The stacked batches, as an argument; none where there are no data."""
        with user_code("vectorized"):
            if len(set(keys)) == 1:
                found = repeated(batches[keys[0]], len(keys), self._convert)
            else:
                found = stacked([batches[key] for key in keys], self._convert)
        arguments: tuple[Any, ...] = found
        return arguments


class VectorizedFunction:
    """f_i on a batch, or on a fresh one for each iteration; one point is a matrix of one row."""

    def __init__(self, objective: VectorizedObjective, batch: Batch) -> None:
        self.rows = batch.rows
        self._objective, self.batch = objective, batch

    def key(self, iteration: int) -> tuple[int, int]:
        """Equal where the batch is."""
        batch, shard = self.batch, self.batch.shard
        if isinstance(shard, NoData) or (batch.batches is Batches.ALL and shard.size is not None):
            return id(shard), -1
        return id(self), max(iteration, 0) if batch.fresh else 0

    def arguments(self, iteration: int) -> tuple[Any, ...]:
        batch = self.batch.at(iteration)
        try:
            return batch.arguments()
        except ObjectiveError as error:
            error.worker, error.round = batch.stream.worker, batch.stream.round
            raise

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        (value,) = self._objective.values([x], [self], [iteration])
        if isinstance(value, Failed):
            raise value
        return value

    def run(self, search: LocalSearch) -> None:
        lockstep([search], [self], self._objective.values)


def lockstep(
    searches: Sequence[LocalSearch],
    functions: Sequence[LocalFunction],
    values: Values,
    violation: Callable[[FloatArray], float] | None = None,
) -> None:
    """Bring all searches to their end: the points that they need now are evaluated together.

    Points with a positive violation of the constraints are not evaluated.
    """
    active = [pair for pair in zip(searches, functions, strict=True) if pair[0].needed]
    while active:
        each = max(1, CALL_BYTES // (8 * searches[0].x.size * len(active)))
        asked = [search.ask(min(search.needed, each)) for search, _ in active]
        points = [x for xs in asked for x in xs]
        owners = [f for (_, f), xs in zip(active, asked, strict=True) for _ in xs]
        iterations = [
            k for (s, _), xs in zip(active, asked, strict=True) for k in _iterations(s, len(xs))
        ]
        over = [] if violation is None else [*map(violation, points)]
        try:
            found = _found(values, points, owners, iterations, over)
        except ObjectiveError as error:
            k = active[0][0].iterations[0]
            error.iteration = k if k >= 0 else None
            raise
        at = 0
        for (search, _), xs in zip(active, asked, strict=True):
            end = at + len(xs)
            search.tell(found[at:end], *([over[at:end]] if any(over[at:end]) else []))
            at = end
        active = [pair for pair in active if pair[0].needed]


def _found(
    values: Values, points: Sequence[FloatArray], functions: Sequence[LocalFunction],
    iterations: Sequence[int], over: Sequence[float],
) -> list[float]:  # fmt: skip
    """The values; NaN where a call failed and where constraints are violated."""
    if not any(over):
        found = values(points, functions, iterations)
        return [math.nan if isinstance(value, Failed) else value for value in found]
    kept = [i for i, violation in enumerate(over) if not violation > 0.0]
    inside = [math.nan] * len(points)
    if kept:
        found = values(
            [points[i] for i in kept], [functions[i] for i in kept], [iterations[i] for i in kept]
        )
        for i, value in zip(kept, found, strict=True):
            inside[i] = math.nan if isinstance(value, Failed) else value
    return inside


def _iterations(search: LocalSearch, count: int) -> Sequence[int]:
    """The iteration whose minibatch each point asked for has; 0 where all have the same."""
    fresh = search.batches is Batches.ITERATION
    return search.iterations[:count] if fresh else [0] * count


def _parts(rows: list[int], keys: Sequence[Any], point: int, batch: int) -> Iterator[Sequence[int]]:
    """The rows of each call, so that it keeps to CALL_BYTES.

    One batch is not copied, whatever the number of points that share it; so where copies are too
    large, points are divided by their batches.
    """
    distinct = len({keys[row] for row in rows})
    most = CALL_BYTES // point
    if distinct > 1 and len(rows) * batch > CALL_BYTES:
        sharing = max(1, len(rows) // distinct)
        most = min(most, max(1, CALL_BYTES // batch // sharing) * sharing)
    most = max(1, most)
    for begin in range(0, len(rows), most):
        yield rows[begin : begin + most]


def as_values(array: Any, kind: str, points: int) -> list[float]:
    """What ``fun`` returned as floats, or an error that says what it was."""
    expected = f"one real number for each row of X, here an array of shape ({points},)"
    if array.dtype.kind not in "fiub" and "float" not in array.dtype.name:
        raise TypeError(
            f"fun must return {expected}; it returned {kind} of type {array.dtype}: {array!r:.80}"
        )
    if array.shape != (points,):
        hint = "; reduce over the last axis only, as in (X**2).sum(-1)" if array.ndim == 0 else ""
        raise ValueError(
            f"fun must return {expected}; it returned {kind} of shape {array.shape}{hint}"
        )
    values: list[float] = array.astype(np.float64).tolist()
    return values
