"""The search by the members of a population, and their ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from desopt.contract import streams
from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.streams import Stream
from desopt.contract.types import Answer, Batches, FloatArray, IndexArray, Task
from desopt.methods.searches.base import Buffer, Search


def ranking(sums: FloatArray, members: int) -> IndexArray:
    """The members of a population that have a value or a finite violation, best first.

    ``sums`` are those of the answers of all workers; violations come first, if there are any.
    """
    values, violations = sums[-members:], sums[:-members]
    known = np.isfinite(values)
    order = np.argsort(values, kind="stable")
    if violations.size:
        known = np.isfinite(violations) & ((violations > 0.0) | ((violations == 0.0) & known))
        order = np.lexsort((np.where(violations > 0.0, 0.0, values), violations))
    best: IndexArray = order[known[order]]
    return best


class Population(Search):
    """The values at x + sigma z_j for j < members; the answer has lambda sums over the data.

    ``shape`` changes z_j ~ N(0, I), in place, to a step of another distribution. A member without
    a finite value, or beyond ``members``, has the sum +inf: it ranks last. With constraints there
    are 2 lambda numbers: the violations, +inf for such a member, and the sums.
    """

    def __init__(
        self, task: Task, worker: int, stream: Stream, sigma: float, *, members: int,
        layout: Layout, shape: Callable[[FloatArray], None] | None = None, box: Box | None = None,
        constrained: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(task, worker, layout, Batches.ALL, box)
        self.stream, self.sigma, self.members, self.shape = stream, sigma, members, shape
        self._constrained = constrained
        self._values: list[float] = []
        self._violations: list[float] = []

    @property
    def iterations(self) -> Sequence[int]:
        first = len(self._values)
        return range(first, first + max(1, len(self._asked)))

    @property
    def index(self) -> int:
        return len(self._values)

    @property
    def needed(self) -> int:
        return self.members - len(self._values)

    def finish(self, values: FloatArray) -> None:
        """The values of all members."""
        self._asked, self._values, self.evaluations = [], values.tolist(), values.size
        self.nans = int(values.size - np.isfinite(values).sum())

    def answer(self, rows: int = 1) -> Answer:
        if len(self._values) < self.members:
            raise ValueError(
                f"the search has {len(self._values)} of {self.members} values: ask and tell more"
            )
        numbers = np.full(
            (1 + self._constrained, self._layout.float64 // (1 + self._constrained)), inf
        )
        values = np.array(self._values, np.float64) * rows
        if self._constrained:
            over = np.array(self._violations, np.float64)
            values[over > 0.0] = inf
            numbers[0, : self.members] = np.where((over > 0.0) | np.isfinite(values), over, inf)
        numbers[-1, : self.members] = np.where(np.isfinite(values), values, inf)
        return self._answer(self._layout.encode(float64=numbers.ravel()), rows, None)

    def _propose(self, p: int) -> list[Buffer]:
        first = len(self._values)
        members = range(first + len(self._asked), min(first + p, self.members))
        return [self._trial(j) for j in members]

    def _trial(self, j: int) -> Buffer:
        trial = self._buffer()
        streams.normals(self.stream.at(j), self.x.size, out=trial[0])
        if self.shape is not None:
            self.shape(trial[0])
        np.multiply(trial[0], self.sigma, out=trial[0])
        np.add(self.x, trial[0], out=trial[0])
        if self.box is not None:
            self.box.reflect(trial[0])
        return trial

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        self._values += values
        self._violations += violations or [0.0] * len(values)
        self._spare += asked
        return len(values)
