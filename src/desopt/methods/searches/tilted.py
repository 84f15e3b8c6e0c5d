"""The (1+1) search of des-c, which compares f_i plus a tilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.types import Answer, Batches, BoolArray, FloatArray, Task
from desopt.kernels.correction import predict, tilt_of
from desopt.kernels.steps import undo_step
from desopt.methods.proposals import Proposals
from desopt.methods.searches.base import Buffer
from desopt.methods.searches.one_plus_one import LARGEST, InTurn, OnePlusOne
from desopt.methods.searches.two_point import TwoPoint


class Tilt(NamedTuple):
    """What is added to f_i: c^T v + mu/2 ||v - x||^2 with c = gain g - delta.

    ``stays``: v stays at x, and the bits say which steps would have been accepted. The change
    expected of a step s = alpha_k u_k is (of_g g + delta)^T s + of_h sqrt(alpha_k) h^T |s|.
    """

    g: FloatArray
    delta: FloatArray
    h: FloatArray
    gain: float
    of_g: float
    of_h: float
    mu: float
    stays: bool
    alpha: FloatArray

    @property
    def c(self) -> FloatArray:
        return self.gain * self.g - self.delta

    def expected(self, proposals: Proposals) -> FloatArray:
        """The change expected of every step."""
        g, h, delta, out = self.g, self.h, self.delta, np.empty(proposals.count)
        for first, index, step in proposals.blocks():
            part = slice(first, first + len(step))
            predict(g, h, delta, self.of_g, self.of_h, index, step, self.alpha[part], out[part])
        return out


class Tilted(OnePlusOne):
    """A (1+1) search of f_i plus a tilt.

    ``encode`` makes the answer of the bits, the changes and those expected. In a box, the tilt is
    that of the step as it was drawn.
    ``changes`` are those of f_i alone, by every step; 0 where one of the two values is not finite.
    ``expected`` is left by compiled searches, which have the steps at hand.
    """

    def __init__(
        self, task: Task, worker: int, proposals: Proposals, tilt: Tilt, *, layout: Layout,
        dense: bool, encode: Callable[[BoolArray, FloatArray, FloatArray], bytes],
        box: Box | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            task, worker, proposals, layout=layout, batches=Batches.ROUND, dense=dense, box=box
        )
        self.tilt, self._encode_changes = tilt, encode
        self.changes = np.zeros(proposals.count)
        self.expected: FloatArray | None = None

    def _payload(self, accepted: BoolArray) -> bytes:
        expected = self.expected
        if expected is None:
            expected = self.tilt.expected(self.proposals)
        return self._encode_changes(accepted, self.changes, expected)

    def _start(self) -> None:
        super()._start()
        self._c, self.expected = self.tilt.c, None  # of a compiled search that could not start

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        assert self._accepted is not None
        undo, self._undo = self._undo, None
        if undo is not None:
            undo_step(self._v[0], *undo)
        for used, (trial, value) in enumerate(zip(asked, values, strict=True), 1):
            k, self._k = self._k, self._k + 1
            if k < 0:
                self._best = value if isfinite(value) else LARGEST
                continue
            index, step = self._drawn.popleft()
            known = isfinite(value) and self._best < LARGEST
            self.changes[k] = value - self._best if known else 0.0
            more = tilt_of(self._c, self.x, self.tilt.mu, self._v[0], index, step)
            if isfinite(value) and (not known or self.changes[k] + more <= 0.0):
                self._accepted[k] = True
                if self.tilt.stays:
                    continue
                self._best = value
                self.basis += 1
                if undo is not None:
                    self._here((index, step))
                    self._undo = None
                self._move(trial, asked)
                return used
        self._spare += [trial for trial in asked if trial is not self._v]
        return len(values)


class Probed(InTurn):
    """Slopes along given lines, then the search that ``then`` makes of them.

    The answer is that of the second part, which has the slopes.
    """

    def __init__(self, probes: TwoPoint, then: Callable[[FloatArray], Tilted]) -> None:
        super().__init__(probes)
        self._then = then

    def _second(self) -> Tilted:
        return self._then(self._parts[0].slopes)

    def _joined(self) -> Answer:
        answer: Answer = self._parts[1].answer()
        return answer
