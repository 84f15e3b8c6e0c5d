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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.payload import Layout
from desopt.contract.types import Answer, Batches, FloatArray, Task
from desopt.methods.aggregation import AGGREGATES, averaged
from desopt.methods.base import PointState, TwoPointAlgorithm, directions, unmoved
from desopt.methods.proposals import replay_normals
from desopt.methods.searches import TwoPoint, affordable


@dataclass(frozen=True, kw_only=True)
class FedZO(TwoPointAlgorithm):
    """Common to both: descent by every worker, and the mean of the points that it leads to."""

    batches: ClassVar[Batches]

    aggregate: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("aggregate", self.aggregate, AGGREGATES)

    def search(self, task: Task, worker: int) -> TwoPoint:
        """K' steps v -= alpha_k^t g_k u_k from x_t."""
        alpha = self.step_sizes(task.round)
        alpha = alpha[: affordable(alpha.size, task.limit, each=2)]
        return TwoPoint(
            task, worker, directions(self.seed, task.round, worker), -alpha, radius=self.radius,
            layout=self.layout, batches=self.batches, moving=True, box=self.box,
        )  # fmt: skip

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        """x_t + (1/M) sum_i (v_i - x_t), or another aggregate of the displacements."""
        x = averaged(self.aggregate, state.x, answers, partial(self._rebuilt, state))
        return unmoved(state) if x is None else PointState(state.round + 1, self.kept(x, state.x))

    def _rebuilt(self, state: PointState, answer: Answer) -> FloatArray:
        """v_i, from the slopes."""
        v, g = state.x.copy(), self.layout.decode(answer).float64
        stream = directions(self.seed, state.round, answer.worker)
        replay_normals(v, -(self.step_sizes(state.round) * g), stream, self.box)
        return v

    @property
    def layout(self) -> Layout:
        return Layout(float64=self.estimates)

    def step_sizes(self, t: int) -> FloatArray:
        """alpha_k^t for k = 0..K'-1."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FedZOGD(FedZO):
    """Zeroth-order gradient descent on one minibatch per round."""

    batches: ClassVar[Batches] = Batches.ROUND

    name: str = "fed-zo-gd"

    def step_sizes(self, t: int) -> FloatArray:
        k = np.arange(1.0, self.estimates + 1.0)
        return self.step_size / (k * math.sqrt(t + 1.0))


@dataclass(frozen=True, kw_only=True)
class FedZOSGD(FedZO):
    """Zeroth-order SGD: a new minibatch per iteration."""

    batches: ClassVar[Batches] = Batches.ITERATION

    name: str = "fed-zo-sgd"

    def step_sizes(self, t: int) -> FloatArray:
        k = np.arange(1.0, self.estimates + 1.0)
        return self.step_size / np.sqrt(k * (t + 1.0))
