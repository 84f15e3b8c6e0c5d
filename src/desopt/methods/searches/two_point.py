"""The search by slopes between two points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from desopt.contract import streams
from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.streams import Stream
from desopt.contract.types import Answer, Batches, FloatArray, IndexArray, Task
from desopt.kernels.steps import add_scaled
from desopt.methods.searches.base import Buffer, Search

_LARGEST_SINGLE = float(np.finfo(np.float32).max)


class Probe(NamedTuple):
    """The slope between x - below u and x + above u, on the minibatch of iteration ``batch``."""

    u: FloatArray
    above: float
    below: float
    batch: int


class TwoPoint(Search):
    """K' slopes g_k = (f(p + mu u_k) - f(p - mu u_k)) / (2 mu), and v += scale[k] g_k u_k.

    ``moving``: p = v, which starts at x and moves after every ``group`` estimates; these share a
    minibatch. Else p = x and v is the sum of the steps. u_k is the stream's vector number k, or
    ``numbers[k]``; the last estimates are those of the ``probes``. A slope that is not finite
    counts as 0. The answer holds the slopes, or what ``encode`` makes of them. Where p moves, at
    most the points of one group can be evaluated together; else all of them.
    """

    def __init__(
        self, task: Task, worker: int, stream: Stream, scale: FloatArray, *, radius: float,
        layout: Layout, batches: Batches, moving: bool, group: int = 1,
        numbers: IndexArray | None = None, probes: Sequence[Probe] = (),
        encode: Callable[[FloatArray], bytes] | None = None, box: Box | None = None,
    ) -> None:  # fmt: skip
        super().__init__(task, worker, layout, batches, box)
        self.stream, self.scale, self.radius, self.moving = stream, scale, radius, moving
        self.group, self.numbers = group, numbers
        self.probes = dict(enumerate(probes, scale.size - len(probes)))
        self._encode = encode or self._as_numbers
        self.point = self.x.copy() if moving else np.zeros_like(self.x)  # v
        self.slopes = np.zeros(scale.size)
        self._told: list[float] = []
        self._directions: dict[int, FloatArray] = {}

    @property
    def iterations(self) -> Sequence[int]:
        first = len(self._told)
        return [self._batch(i // 2) for i in range(first, first + max(1, len(self._asked)))]

    @property
    def index(self) -> int:
        return len(self._told)

    @property
    def needed(self) -> int:
        return self._end() - len(self._told)

    def _batch(self, k: int) -> int:
        probe = self.probes.get(k)
        return k // self.group if probe is None else probe.batch

    def direction(self, k: int) -> Stream:
        """The stream of u_k."""
        return self.stream.at(k if self.numbers is None else int(self.numbers[k]))

    def finish(self, slopes: FloatArray, nans: int) -> None:
        """The outcome of all estimates; ``point`` is v already."""
        self._asked, self.slopes = [], slopes
        self.nans, self.evaluations = nans, 2 * slopes.size
        self._told = [0.0] * self.evaluations

    def answer(self, rows: int = 1) -> Answer:
        if len(self._told) < 2 * self.scale.size:
            raise ValueError(
                f"the search has {len(self._told)} of {2 * self.scale.size} values: ask and tell "
                "more"
            )
        point = self.point if self.scale.any() else None
        return self._answer(self._encode(self.slopes), rows, point)

    def _propose(self, p: int) -> list[Buffer]:
        first = len(self._told)
        values = range(first + len(self._asked), min(first + p, self._end()))
        return [self._trial(*divmod(i, 2)) for i in values]

    def _as_numbers(self, slopes: FloatArray) -> bytes:
        """In the precision of the layout."""
        if self._layout.float32:
            single = np.clip(slopes, -_LARGEST_SINGLE, _LARGEST_SINGLE)
            return self._layout.encode(float32=single)
        return self._layout.encode(float64=slopes)

    def _end(self) -> int:
        """The values that can be computed now: all of them, or up to the end of a group."""
        told, end, size = len(self._told), 2 * self.scale.size, 2 * self.group
        return min(end, told - told % size + size) if self.moving else end

    def _trial(self, k: int, below: int) -> Buffer:
        """p + mu u_k, or p - mu u_k."""
        if k not in self._directions and k not in self.probes:
            self._directions[k] = streams.normals(self.direction(k), self.x.size)
        trial = self._buffer()
        at = self.point if self.moving else self.x
        probe = self.probes.get(k) or Probe(self._directions[k], self.radius, self.radius, k)
        np.multiply(probe.u, -probe.below if below else probe.above, out=trial[0])
        np.add(at, trial[0], out=trial[0])
        if self.box is not None:
            self.box.project(trial[0])
        return trial

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        for value in values:
            self._told.append(value)
            if len(self._told) % 2 == 0:
                self._estimate(len(self._told) // 2 - 1, *self._told[-2:])
        self._spare += asked
        return len(values)

    def _estimate(self, k: int, above: float, below: float) -> None:
        probe = self.probes.get(k)
        g = (above - below) / (2.0 * self.radius if probe is None else probe.above + probe.below)
        self.slopes[k] = g if isfinite(g) else 0.0
        if probe is not None:
            return
        if (k + 1) % self.group and k + 1 < self.scale.size:
            return
        for j in range(k - k % self.group, k + 1):  # the group is complete
            u, c = self._directions.pop(j), self.scale[j] * self.slopes[j]
            if c != 0.0:  # as in a replay, which does not draw u for nothing
                add_scaled(self.point, c, u)
        if self.moving and self.box is not None:
            self.box.project(self.point)
