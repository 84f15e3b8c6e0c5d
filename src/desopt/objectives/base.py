"""The generic form of everything a local function can do."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from math import inf, isfinite

import numpy as np

from desopt.contract import streams
from desopt.contract.errors import ObjectiveError
from desopt.contract.streams import Stream
from desopt.contract.types import BoolArray, FloatArray, IndexArray, LocalFunction, Step
from desopt.kernels.steps import add_scaled, apply_row, apply_step, undo_row, undo_step
from desopt.methods.samplers import as_step

_LARGEST = sys.float_info.max


def parent_value(value: float) -> float:
    """What a step's value is compared with: a step is kept where -inf < f(v + step) <= this.

    So NaN and infinity are never kept. Where the parent itself has no finite value, the first
    step that has one is.
    """
    return value if isfinite(value) else _LARGEST


class PointFunction(ABC):
    """A local function that knows nothing but how to compute its value at a point.

    The trial point shares memory with v: a sparse step is written into v and taken back when
    it is rejected (the old values are restored, never subtracted), so that an iteration
    costs O(l), whatever n is. Dense steps go to a second buffer that is swapped in.
    """

    def __init__(self, x: FloatArray, rows: int) -> None:
        self.size = x.size
        self.rows = rows
        self.evaluations = 0
        self.nans = 0
        self._x = x
        self._copy: FloatArray | None = None  # of x, made when v leaves it
        self._trial: FloatArray | None = None  # second buffer, made when a dense step needs it
        self._pending: tuple[IndexArray, FloatArray] | None = None  # applied to v, not decided

    @abstractmethod
    def at(self, x: FloatArray) -> float:
        """f(x)."""

    @property
    def _v(self) -> FloatArray:
        if self._copy is None:
            self._copy = self._x.copy()
        return self._copy

    @property
    def change(self) -> tuple[IndexArray, FloatArray] | None:
        return None

    @property
    def point(self) -> FloatArray:
        self._undo()
        return self._v

    def value(self) -> float:
        self._undo()
        return self._evaluate(self._v)

    def peek(self, step: Step) -> float:
        self._undo()
        index, change = as_step(*step, self.size)
        if index is None:
            if self._trial is None:
                self._trial = np.empty_like(self._v)
            np.add(self._v, change, out=self._trial)
            return self._evaluate(self._trial)
        old = np.empty(change.size)
        apply_step(self._v, index, change, old)
        self._pending = index, old
        return self._evaluate(self._v)

    def move(self) -> None:
        if self._pending is not None:
            self._pending = None
        elif self._trial is not None:
            self._copy, self._trial = self._trial, self._v

    def search(self, steps: Iterable[Step], count: int) -> BoolArray:
        accepted = np.zeros(count, np.bool_)
        k = None
        try:
            best = parent_value(self.value())
            for k, step in enumerate(steps):
                value = self.peek(step)
                if -inf < value <= best:
                    self.move()
                    best = value
                    accepted[k] = True
        except ObjectiveError as error:
            error.iteration = k
            raise
        return accepted

    def search_mixture(
        self, stream: Stream, scale: FloatArray, l: int, gaussian: bool
    ) -> BoolArray:
        # The same as ``search``, without a Python object per step: this loop is what a user's
        # own function pays per iteration.
        index, step = streams.mixture_block(stream, scale, l, self.size, gaussian)
        self._undo()
        v, old = self._v, np.empty(index.shape[1])
        evaluate = self._evaluate
        accepted = np.zeros(len(index), np.bool_)
        k = None
        try:
            best = parent_value(evaluate(v))
            for k in range(len(index)):
                apply_row(v, index, step, k, old)
                value = evaluate(v)
                if -inf < value <= best:
                    best = value
                    accepted[k] = True
                else:
                    undo_row(v, index, k, old)
        except ObjectiveError as error:
            error.iteration = k
            raise
        return accepted

    def search_gaussian(self, stream: Stream, alpha: FloatArray) -> BoolArray:
        return self.search(gaussian_steps(stream, alpha, self.size), alpha.size)

    def values_around(self, stream: Stream, scale: float, count: int) -> FloatArray:
        values = np.empty(count)
        k = 0
        try:
            for k, step in enumerate(gaussian_steps(stream, np.full(count, scale), self.size)):
                values[k] = self.peek(step)
        except ObjectiveError as error:
            error.iteration = k
            raise
        return values

    def slope(self, u: FloatArray, radius: float) -> float:
        above = self.peek((None, radius * u))
        below = self.peek((None, -radius * u))
        return (above - below) / (2.0 * radius)

    def shift(self, u: FloatArray, c: float) -> None:
        self._undo()
        if c != 0.0:  # as in a replay, which does not draw u for nothing
            add_scaled(self._v, c, u)

    def descend(self, stream: Stream, scale: FloatArray, radius: float) -> FloatArray:
        slopes, u = np.zeros(scale.size), np.empty(self.size)
        for k in range(scale.size):
            streams.normals(stream.at(k), self.size, out=u)
            slopes[k] = finite_slope(self, u, radius, k)
            self.shift(u, scale[k] * slopes[k])
        return slopes

    def _evaluate(self, x: FloatArray) -> float:
        value = self.at(x)
        self.evaluations += 1
        if not isfinite(value):
            self.nans += 1
        return value

    def _undo(self) -> None:
        if self._pending is not None:
            undo_step(self._v, *self._pending)
            self._pending = None


def finite_slope(f: LocalFunction, u: FloatArray, radius: float, k: int) -> float:
    """The estimate of iteration k along u; no step (0) where a value was not finite."""
    try:
        g = f.slope(u, radius)
    except ObjectiveError as error:
        error.iteration = k
        raise
    return g if isfinite(g) else 0.0


def gaussian_steps(stream: Stream, alpha: FloatArray, n: int) -> Iterator[Step]:
    """alpha[k] u_k, u_k the normal vector of iteration k of the stream's worker and round."""
    for k in range(alpha.size):
        yield None, alpha[k] * streams.normals(stream.at(k), n)
