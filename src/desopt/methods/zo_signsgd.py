"""ZO-signSGD with majority vote (Liu et al., ICLR 2019; section 5.1 of the paper).

In round t a worker makes K' = K/2 central-difference estimates g_k u_k at x_t, each on its own
minibatch, and votes with the sign of their mean; the server steps alpha / sqrt(t+1) along the
sign of the sum of votes. sign(0) = 0: a tie leaves the coordinate unchanged. A vote is -1, 0 or 1
whatever the slopes are; where their sum is NaN (inf - inf) it is 0.

A worker's answer is its K' scalars g_k. They and the stream of u_k give the sum of the estimates,
and its signs the vote, one for each of n coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.types import Answer, Batches, FloatArray, Task
from desopt.kernels.steps import replay_gaussian
from desopt.methods.base import PointState, TwoPointAlgorithm, directions
from desopt.methods.searches import TwoPoint, affordable


@dataclass(frozen=True, kw_only=True)
class ZOSignSGD(TwoPointAlgorithm):
    """Zeroth-order signSGD with majority vote."""

    name: str = "zo-signsgd"

    def search(self, task: Task, worker: int) -> TwoPoint:
        ones = np.ones(affordable(self.estimates, task.limit, each=2))
        return TwoPoint(
            task, worker, directions(self.seed, task.round, worker), ones, radius=self.radius,
            layout=self.layout, batches=Batches.ITERATION, moving=False, box=self.box,
        )  # fmt: skip

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        votes = np.zeros_like(state.x)
        for answer in answers:
            total = answer.point  # sum_k g_k u_k
            if total is None:
                total = np.zeros_like(state.x)
                g = self.layout.decode(answer).float64
                stream = directions(self.seed, state.round, answer.worker)
                replay_gaussian(total, g, *stream.key())
            votes += _vote(total)
        step = self.step_size / math.sqrt(state.round + 1.0)
        with np.errstate(over="ignore"):
            x = self.kept(state.x - step * np.sign(votes), state.x)
        return PointState(state.round + 1, x)

    @property
    def layout(self) -> Layout:
        return Layout(float64=self.estimates)


def _vote(total: FloatArray) -> FloatArray:
    """sign(total), and 0 for NaN."""
    with np.errstate(invalid="ignore"):
        vote = np.sign(total)
    vote[np.isnan(vote)] = 0.0
    return vote
