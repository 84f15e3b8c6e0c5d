"""ZO-NSGD: normalised zeroth-order SGD with momentum, on shared directions.

All workers take the same directions u_k ~ N(0, I), k < K' = K/2, from the server's stream. Worker
i measures its slope g_ik = (f_i(x + mu u_k) - f_i(x - mu u_k)) / (2 mu) along each of them at
x_t, on a new minibatch. The server averages over the workers and takes a step of fixed length:

    g_k = (1/M) sum_i g_ik                                the slope of the mean function
    d   = - sum_k g_k u_k                                 an estimate of the steepest descent
    m   = beta m + (1 - beta) alpha_t d / ||d||,          alpha_t = alpha / sqrt(t+1)
    x   = x + m

The slopes are linear in f, so those of the mean function are the means of the workers' slopes,
however different their data are: local steps, which make the average of local searches wrong on
such data, do not occur.

======  ============  ==================================================
symbol  name          meaning
======  ============  ==================================================
alpha   step_size     length of the step of round 0
beta    momentum      0 <= beta < 1
K       iterations    function values of a worker per round
mu      radius        half the distance between the two points
======  ============  ==================================================

A worker's answer is its K' slopes in single precision. ``aggregate`` says how the workers' slopes
along a direction become one; the norm is fixed, so no answer, however large its numbers are, makes
a step longer.

The name is that of its parts. Normalised SGD, or NSGD, with momentum: Hazan, Levy and
Shalev-Shwartz, "Beyond convexity" (2015); Cutkosky and Mehta, "Momentum improves normalized SGD"
(2020). They normalise m; normalising d keeps the steps short where successive directions disagree,
and was less sensitive to alpha. ZO: zeroth-order, by randomised two-point estimates (Nesterov and
Spokoiny, 2017). Workers that share directions and send slopes only are DeComFL's (see
``methods/decomfl.py``): without normalisation and momentum this is DeComFL with one local step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.payload import Cost, Layout
from desopt.contract.streams import SERVER
from desopt.contract.types import Answer, Batches, FloatArray, Task
from desopt.kernels.steps import momentum_step, replay_gaussian, sum_of_squares
from desopt.methods.aggregation import AGGREGATES, combine
from desopt.methods.base import BaseAlgorithm, check_two_point, directions, unmoved
from desopt.methods.searches import TwoPoint, affordable


@dataclass(frozen=True)
class NSGDState:
    """The server's side after ``round`` rounds."""

    round: int
    x: FloatArray
    m: FloatArray


@dataclass(frozen=True, kw_only=True)
class ZONSGD(BaseAlgorithm):
    """Normalised descent along the mean of the workers' slopes."""

    state_type: ClassVar[type[NSGDState]] = NSGDState
    observes: ClassVar[tuple[str, ...]] = ("bounds",)

    name: str = "zo-nsgd"
    momentum: float = 0.5
    radius: float = 1e-6
    aggregate: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_two_point(self.name, self.iterations, self.radius)
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        check_name("aggregate", self.aggregate, AGGREGATES)

    def init(self, x0: FloatArray) -> NSGDState:
        return NSGDState(0, x0, np.zeros_like(x0))

    def search(self, task: Task, worker: int) -> TwoPoint:
        still = np.zeros(affordable(self.iterations // 2, task.limit, each=2))
        return TwoPoint(
            task, worker, directions(self.seed, task.round, SERVER), still, radius=self.radius,
            layout=self.layout, batches=Batches.ITERATION, moving=False, box=self.box,
        )  # fmt: skip

    def merge(self, state: NSGDState, answers: Iterable[Answer]) -> NSGDState:
        slopes, count = combine(self.aggregate, answers, self._add, self.iterations // 2)
        if count == 0:
            return unmoved(state)
        d = np.zeros_like(state.x)
        replay_gaussian(d, -slopes / count, *directions(self.seed, state.round, SERVER).key())
        length = math.sqrt(sum_of_squares(d))
        if length > 0.0:
            d *= self.step_size / math.sqrt(state.round + 1.0) / length
        x = momentum_step(state.x, state.m, d, 1, self.momentum)  # d becomes the new m
        return NSGDState(state.round + 1, self.kept(x, state.x), d)

    def _add(self, total: FloatArray, answer: Answer) -> bool:
        """total += the worker's slopes; single precision, so their sums and squares are finite."""
        total += self.layout.decode(answer).float32
        return True

    @property
    def layout(self) -> Layout:
        return Layout(float32=self.iterations // 2)

    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations)
