"""The search by several generations of a population, each around the mean of the best before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from desopt.contract import streams
from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.streams import Stream
from desopt.contract.types import Answer, Batches, FloatArray, IndexArray, Task
from desopt.kernels.steps import weighted_normals
from desopt.methods.searches.base import Buffer, Search
from desopt.methods.searches.population import ranking


def recombined(
    v: FloatArray, sigma: float, best: IndexArray, stream: Stream, box: Box | None
) -> FloatArray:
    """v + sigma times the mean of the stream's vectors of these numbers, projected onto the box."""
    if best.size == 0:
        return v
    z = np.empty(v.size)
    weighted_normals(z, np.full(best.size, 1.0 / best.size), best, *stream.key())
    with np.errstate(over="ignore", invalid="ignore"):
        moved: FloatArray = v + sigma * z
    if box is not None:
        box.project(moved)
    return moved


class Generations(Search):
    """The values at v + sigma[g] z_j for the members j of a generation; then v moves to the best.

    It moves to the mean of the best quarter, at least one; the best of a single member says
    nothing. The answer has a bit for every member, set for these. The members of one generation
    can be evaluated together.
    """

    def __init__(
        self, task: Task, worker: int, stream: Stream, sigma: FloatArray, *,
        generations: Sequence[range], layout: Layout, box: Box | None = None,
    ) -> None:  # fmt: skip
        super().__init__(task, worker, layout, Batches.ROUND, box)
        self.stream, self.sigma = stream, sigma
        self.point = self.x.copy()  # v
        self._generations = [members for members in generations if members]
        self._g = 0  # the generation that is evaluated
        self._selected = np.zeros(layout.bits, np.bool_)
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
        return self._end() - len(self._values)

    def answer(self, rows: int = 1) -> Answer:
        if self.needed:
            raise ValueError(
                f"the search has {len(self._values)} of {self._generations[-1].stop} values: ask "
                "and tell more"
            )
        return self._answer(self._layout.encode(self._selected), rows, self.point)

    def _end(self) -> int:
        """The values that can be computed now: up to the end of the generation."""
        return self._generations[min(self._g, len(self._generations) - 1)].stop

    def _propose(self, p: int) -> list[Buffer]:
        first = len(self._values)
        return [
            self._trial(j) for j in range(first + len(self._asked), min(first + p, self._end()))
        ]

    def _trial(self, j: int) -> Buffer:
        trial = self._buffer()
        streams.normals(self.stream.at(j), self.x.size, out=trial[0])
        np.multiply(trial[0], self.sigma[self._g], out=trial[0])
        np.add(self.point, trial[0], out=trial[0])
        if self.box is not None:
            self.box.reflect(trial[0])
        return trial

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        self._values += values
        self._violations += violations or [0.0] * len(values)
        self._spare += asked
        if len(self._values) == self._end():
            self._select(self._generations[self._g])
            self._g += 1
        return len(values)

    def _select(self, members: range) -> None:
        """A generation is complete."""
        parents = max(1, len(members) // 4) if len(members) > 1 else 0
        sums = self._violations[members.start :] + self._values[members.start :]
        ranked = ranking(np.array(sums), len(members))
        best = members.start + np.sort(ranked[:parents])
        self._selected[best] = True
        self.point = recombined(self.point, float(self.sigma[self._g]), best, self.stream, self.box)
