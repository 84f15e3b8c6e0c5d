"""ZO-signSGD with majority vote (Liu et al., ICLR 2019; section 5.1 of the paper).

In round t a worker makes K' = K/2 central-difference estimates g_k u_k at x_t, each on its own
minibatch, and votes with the sign of their mean; the server goes alpha / sqrt(t+1) along the
sign of the sum of votes. sign(0) = 0, so a tie leaves the coordinate where it is. A vote is -1, 0
or 1 whatever the slopes are: where they add up to no number (inf - inf) it is 0.

A worker's answer is its K' scalars g_k; the vote, a sign for each of n coordinates, is rebuilt
from them and the stream of u_k.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Answer, FloatArray, Local, Task
from desopt.kernels.steps import replay_gaussian
from desopt.methods.base import TwoPointSettings, finite_or, slopes_answer


@dataclass(frozen=True)
class SignState:
    """x after ``round`` rounds."""

    round: int
    x: FloatArray


@dataclass(frozen=True, kw_only=True)
class ZOSignSGD(TwoPointSettings):
    """Zeroth-order signSGD with majority vote."""

    name: str = "zo-signsgd"

    def init(self, x0: FloatArray) -> SignState:
        return SignState(0, x0)

    def plan(self, state: SignState) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        total, ones = np.zeros_like(task.x), np.ones(self.affordable(task))
        walked = local.walk(task.x, total, task.round, ones, self.radius)
        return slopes_answer(worker, walked, _vote(total), self.estimates)

    def merge(self, state: SignState, answers: Iterable[Answer]) -> SignState:
        votes = np.zeros_like(state.x)
        for answer in answers:
            vote = answer.point
            if vote is None:
                total = np.zeros_like(state.x)
                g = self.layout.decode(answer).float64
                stream = Stream(self.seed, state.round, answer.worker, 0, Purpose.NORMAL)
                replay_gaussian(total, g, *stream.key())
                vote = _vote(total)
            votes += vote
        step = self.step_size / math.sqrt(state.round + 1.0)
        with np.errstate(over="ignore"):
            x = finite_or(state.x - step * np.sign(votes), state.x)
        return SignState(state.round + 1, x)


def _vote(total: FloatArray) -> FloatArray:
    """sign(total), and 0 for NaN."""
    with np.errstate(invalid="ignore"):
        vote = np.sign(total)
    vote[np.isnan(vote)] = 0.0
    return vote
