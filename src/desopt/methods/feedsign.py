"""FeedSign: votes on shared directions (Cai, Chen and Zhu, 2025), for K' directions a round.

All workers take the same directions u_k ~ N(0, I), k < K' = K/2, from the server's stream. Along
each of them a worker makes a central-difference estimate at x_t, on its own minibatch, and votes:
f_i rises, falls, or neither (an abstention, also where a value is not finite). The server moves

    x_{t+1} = x_t - alpha / sqrt(t+1) (1/K') sum_k s_k u_k,

s_k = 1 if more workers see f rise along u_k than fall, -1 if fewer, 0 in a tie. With K' = 1 and a
constant alpha this is the method of the reference, which sends one bit per vote and so has no
abstentions.

======  ============  ==================================================
symbol  name          meaning
======  ============  ==================================================
alpha   step_size     step size of round 0
K       iterations    function values of a worker per round
mu      radius        half the distance between the two points
======  ============  ==================================================

A worker's answer is K bits, two for each direction: rises, falls. Both at once are an abstention,
so no answer weighs more than one vote.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.streams import SERVER
from desopt.contract.types import Answer, Batches, FloatArray, Task
from desopt.kernels.steps import replay_gaussian
from desopt.methods.base import PointState, TwoPointAlgorithm, directions
from desopt.methods.searches import TwoPoint, affordable


@dataclass(frozen=True, kw_only=True)
class FeedSign(TwoPointAlgorithm):
    """Majority votes on the sign of the slope along shared directions."""

    name: str = "feedsign"

    def search(self, task: Task, worker: int) -> TwoPoint:
        still = np.zeros(affordable(self.estimates, task.limit, each=2))
        return TwoPoint(
            task, worker, directions(self.seed, task.round, SERVER), still, radius=self.radius,
            layout=self.layout, batches=Batches.ITERATION, moving=False, encode=self._votes,
            box=self.box,
        )  # fmt: skip

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        count = self.estimates
        rising = np.zeros(count, np.int64)
        for answer in answers:
            votes = self.layout.decode(answer).bits.astype(np.int64)
            rising += votes[0::2] - votes[1::2]
        x, alpha = state.x.copy(), self.step_size / math.sqrt(state.round + 1.0)
        stream = directions(self.seed, state.round, SERVER)
        replay_gaussian(x, -(alpha / count) * np.sign(rising), *stream.key())
        return PointState(state.round + 1, self.kept(x, state.x))

    def _votes(self, slopes: FloatArray) -> bytes:
        return self.layout.encode(np.column_stack((slopes > 0.0, slopes < 0.0)).ravel())

    @property
    def layout(self) -> Layout:
        return Layout(bits=self.iterations)
