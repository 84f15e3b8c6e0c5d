"""Common to all searches: asking and telling, the memory of points, the counts."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TypeAlias

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.types import Answer, Batches, FloatArray, Step, Task

#: An array, and the read-only view of it that is given out.
Buffer: TypeAlias = tuple[FloatArray, FloatArray]


def affordable(count: int, limit: int | None, *, each: int = 1, first: int = 0) -> int:
    """The number of iterations, of ``count``, that a task's limit allows; at least one.

    An iteration costs ``each`` values, the start of the search ``first``.
    """
    return count if limit is None else max(1, min(count, (limit - first) // each))


class Search:
    """Common to all searches: the points under evaluation, their memory, and the counts."""

    def __init__(
        self, task: Task, worker: int, layout: Layout, batches: Batches, box: Box | None
    ) -> None:
        self.round, self.x, self.worker, self.batches = task.round, task.x, worker, batches
        self.box = box
        self.evaluations = self.nans = self.basis = 0
        self._layout = layout
        self._asked: list[Buffer] = []
        self._spare: list[Buffer] = []  # memory for points, used again: new pages are slow

    def ask(self, p: int = 1) -> Sequence[FloatArray]:
        if p < 1:
            raise ValueError(f"ask for at least one point, got {p}")
        asked = self._asked
        if len(asked) < p:
            asked += self._propose(p)
        return [asked[0][1]] if p == 1 and asked else [view for _, view in asked[:p]]

    def tell(self, values: Sequence[float], violations: Sequence[float] = ()) -> None:
        count, asked = len(values), self._asked
        if count > len(asked):
            raise ValueError(f"{len(asked)} points were asked for, got {count} values")
        self._asked = asked[count:]
        used = self._decide(asked[:count], values, violations)
        if violations:  # points that violate constraints were not evaluated
            values = [value for value, over in zip(values, violations, strict=True) if not over > 0]
            used -= sum(over > 0.0 for over in violations[:used])
        self.evaluations += used
        for value in values[:used]:
            if not isfinite(value):
                self.nans += 1

    def _propose(self, p: int) -> list[Buffer]:
        """More points, up to p with those asked for before; none when there are no more."""
        raise NotImplementedError

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        """Continue with the values of these points; the number of them that were used."""
        raise NotImplementedError

    def _buffer(self) -> Buffer:
        return self._spare.pop() if self._spare else buffer_of(np.empty_like(self.x))

    def _answer(
        self, payload: bytes, rows: int, point: FloatArray | None, change: Step | None = None
    ) -> Answer:
        samples = self.evaluations * rows
        return Answer(self.worker, payload, self.evaluations, samples, self.nans, point, change)


def buffer_of(array: FloatArray) -> Buffer:
    view = array.view()
    view.flags.writeable = False
    return array, view
