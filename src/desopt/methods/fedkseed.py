"""FedKSeed: zeroth-order steps along a fixed set of candidate directions.

Qin, Chen, Qian, Ding, Li and Deng, "Federated Full-Parameter Tuning of Billion-Sized Language
Models with Communication Cost under 18 Kilobytes" (ICML 2024). There are C candidate seeds for the
whole run, of directions z_j ~ N(0, I), j < C. In round t a worker does tau = K/2 local steps from
x_t, each with one of them, drawn uniformly, on a new minibatch:

    g_k = (f_i(v + mu z_j) - f_i(v - mu z_j)) / (2 mu),   j = j_i(k)
    v   = v - alpha g_k z_j

and sends the pairs (j, g_k). The server accumulates them, a_j += g_k / M, and everybody rebuilds
x_{t+1} = x_0 - alpha sum_j a_j z_j: x never leaves the span of the C directions.

======  ============  ==================================================
symbol  name          meaning
======  ============  ==================================================
alpha   step_size     eta of the reference, constant
C       candidates    candidate seeds; K of the reference
K       iterations    function values of a worker per round
mu      radius        half the distance between the two points
======  ============  ==================================================

Here the draws j_i(k) come from the worker's stream, so that its answer is K/2 scalars in single
precision; the reference sends the seeds as well. The state is the accumulator, in x: the sum of the
rounds' steps. Every worker counts the same, as in the other methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.streams import SERVER, Purpose, Stream, integers
from desopt.contract.types import Answer, Batches, IndexArray, Task
from desopt.kernels.steps import replay_gaussian
from desopt.methods.base import PointState, TwoPointAlgorithm, directions, unmoved
from desopt.methods.searches import TwoPoint, affordable

#: The most candidates: a server keeps a number for each.
MOST_CANDIDATES = 2**16


@dataclass(frozen=True, kw_only=True)
class FedKSeed(TwoPointAlgorithm):
    """Local zeroth-order descent within the span of C directions."""

    name: str = "fedkseed"
    candidates: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.candidates <= MOST_CANDIDATES:
            raise ValueError(f"candidates must be 1 to {MOST_CANDIDATES}, got {self.candidates!r}")

    def search(self, task: Task, worker: int) -> TwoPoint:
        count = affordable(self.estimates, task.limit, each=2)
        return TwoPoint(
            task, worker, self._candidate(), np.full(count, -self.step_size), radius=self.radius,
            layout=self.layout, batches=Batches.ITERATION, moving=True,
            numbers=self._drawn(task.round, worker), box=self.box,
        )  # fmt: skip

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        accumulator, count = np.zeros(self.candidates), 0
        for answer in answers:
            drawn = self._drawn(state.round, answer.worker)
            np.add.at(accumulator, drawn, self.layout.decode(answer).float32)  # in order
            count += 1
        if count == 0:
            return unmoved(state)
        x = state.x.copy()
        replay_gaussian(x, -self.step_size * (accumulator / count), *self._candidate().key())
        return PointState(state.round + 1, self.kept(x, state.x))

    @property
    def layout(self) -> Layout:
        return Layout(float32=self.estimates)

    def _candidate(self) -> Stream:
        """The stream of z_0; those of the others have the iterations 1, 2, ... Of no round."""
        return directions(self.seed, 0, SERVER)

    def _drawn(self, round: int, worker: int) -> IndexArray:
        """j_i(k): the candidates of a worker's steps."""
        stream = Stream(self.seed, round, worker, 0, Purpose.CANDIDATE)
        return integers(stream, self.estimates, self.candidates)
