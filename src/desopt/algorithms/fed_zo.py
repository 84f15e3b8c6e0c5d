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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from desopt import rng
from desopt.algorithms.base import TwoPointSettings, pack_scalars, slope, unpack_scalars
from desopt.kernels.steps import add_scaled, replay_gaussian
from desopt.rng import Purpose, Stream
from desopt.types import Answer, FloatArray, Local, Task


@dataclass(frozen=True)
class FedState:
    """x after ``round`` rounds."""

    round: int
    x: FloatArray


@dataclass(frozen=True, kw_only=True)
class _FedZO(TwoPointSettings):
    """Both methods; they differ in the step sizes and in when a minibatch is drawn."""

    new_minibatch = False

    def init(self, x0: FloatArray) -> FedState:
        return FedState(0, x0)

    def plan(self, state: FedState) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        t, alpha = task.round, self.step_sizes(task.round)
        # With a minibatch per iteration no function outlives it: v is moved here.
        v = task.x.copy() if self.new_minibatch else task.x
        f = local.minibatch(v, t)
        g, u = np.zeros(self.estimates), np.empty_like(task.x)
        evaluations = samples = nans = 0
        for k in range(self.estimates):
            if self.new_minibatch and k > 0:
                f = local.minibatch(v, t, k)
            rng.normals(Stream(self.seed, t, worker, k, Purpose.NORMAL), u.size, out=u)
            g[k] = slope(f, u, self.radius, k)
            c = -(alpha[k] * g[k])
            if not self.new_minibatch:
                f.shift(u, c)
            elif c != 0.0:  # as in a replay, which does not draw u for nothing
                add_scaled(v, c, u)
            evaluations += f.evaluations
            samples += f.evaluations * f.rows
            nans += f.nans
            f.evaluations = f.nans = 0
        return Answer(
            worker,
            pack_scalars(g),
            evaluations,
            samples,
            nans,
            point=v if self.new_minibatch else f.point,
        )

    def merge(self, state: FedState, answers: Sequence[Answer]) -> FedState:
        x, alpha = state.x, self.step_sizes(state.round)
        total = np.zeros_like(x)
        for answer in answers:
            v = answer.point
            if v is None:
                v = x.copy()
                g = unpack_scalars(answer, self.estimates)
                stream = Stream(self.seed, state.round, answer.worker, 0, Purpose.NORMAL)
                replay_gaussian(v, -(alpha * g), *stream.key())
            total += v - x
        return FedState(state.round + 1, x + total / len(answers))

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
