"""Fed-ZO-GD and Fed-ZO-SGD: federated averaging over zeroth-order gradient descent (section 5.1).

In round t a worker does K' = K/2 steps v -= alpha_k^t g_k u_k with u_k ~ N(0, I) and the
central difference g_k = (f_i(v + mu u_k) - f_i(v - mu u_k)) / (2 mu); the server averages.

===========  =========================  =================================
method       minibatch                  alpha_k^t
===========  =========================  =================================
fed-zo-gd    one per round              alpha / ((k+1) sqrt(t+1))
fed-zo-sgd   a new one per iteration    alpha / sqrt((k+1)(t+1))
===========  =========================  =================================

A worker's answer is its K' scalars g_k: with the stream of u_k they determine its final point.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Answer, FloatArray, Local, Task, Walked
from desopt.kernels.steps import replay_gaussian
from desopt.methods.aggregation import AGGREGATES, combine
from desopt.methods.base import TwoPointSettings, finite_or, slopes_answer, unmoved


@dataclass(frozen=True)
class FedState:
    """x after ``round`` rounds."""

    round: int
    x: FloatArray


@dataclass(frozen=True, kw_only=True)
class _FedZO(TwoPointSettings):
    """Both methods; they differ in the step sizes and in when a minibatch is drawn."""

    new_minibatch = False
    aggregate: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("aggregate", self.aggregate, AGGREGATES)

    def init(self, x0: FloatArray) -> FedState:
        return FedState(0, x0)

    def plan(self, state: FedState) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        scale = -self.step_sizes(task.round)[: self.affordable(task)]
        if self.new_minibatch:
            v = task.x.copy()
            walked = local.walk(v, v, task.round, scale, self.radius)
        else:
            f = local.minibatch(task.x, task.round)
            stream = Stream(self.seed, task.round, worker, 0, Purpose.NORMAL)
            slopes = f.descend(stream, scale, self.radius)
            walked = Walked(slopes, f.evaluations, f.evaluations * f.rows, f.nans)
            v = f.point
        return slopes_answer(worker, walked, v, self.estimates)

    def merge(self, state: FedState, answers: Iterable[Answer]) -> FedState:
        add = partial(self._add, state)
        total, count = combine(self.aggregate, answers, add, state.x.size)
        if count == 0:
            return unmoved(state)
        with np.errstate(over="ignore", invalid="ignore"):
            return FedState(state.round + 1, finite_or(state.x + total / count, state.x))

    @np.errstate(over="ignore", invalid="ignore")
    def _add(self, state: FedState, total: FloatArray, answer: Answer) -> bool:
        """total += v_i - x_t, where that is finite: slopes may be of any size."""
        v = answer.point
        if v is None:
            v = state.x.copy()
            g = self.layout.decode(answer).float64
            stream = Stream(self.seed, state.round, answer.worker, 0, Purpose.NORMAL)
            replay_gaussian(v, -(self.step_sizes(state.round) * g), *stream.key())
        displacement = v - state.x
        finite = bool(np.isfinite(displacement).all())
        if finite:
            total += displacement
        return finite

    @abstractmethod
    def step_sizes(self, t: int) -> FloatArray:
        """alpha_k^t for k = 0..K'-1."""


@dataclass(frozen=True, kw_only=True)
class FedZOGD(_FedZO):
    """Zeroth-order gradient descent on one minibatch per round."""

    name: str = "fed-zo-gd"

    def step_sizes(self, t: int) -> FloatArray:
        k = np.arange(1.0, self.estimates + 1.0)
        return self.step_size / (k * math.sqrt(t + 1.0))


@dataclass(frozen=True, kw_only=True)
class FedZOSGD(_FedZO):
    """Zeroth-order SGD: a new minibatch per iteration."""

    name: str = "fed-zo-sgd"
    new_minibatch = True

    def step_sizes(self, t: int) -> FloatArray:
        k = np.arange(1.0, self.estimates + 1.0)
        return self.step_size / np.sqrt(k * (t + 1.0))
