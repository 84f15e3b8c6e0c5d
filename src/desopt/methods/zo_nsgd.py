"""ZO-NSGD: normalised zeroth-order SGD with momentum, on shared directions.

All workers take the same directions u_k ~ N(0, I), k < K' = K/2, from the server's stream. Worker
i measures its slope g_ik = (f_i(x + mu u_k) - f_i(x - mu u_k)) / (2 mu) along each of them at
x_t, on a new minibatch. The server averages over the workers and takes a step of given length:

    g_k = (1/M) sum_i g_ik                     the slope of the mean function
    d   = - sum_k g_k u_k                      an estimate of the steepest descent
    m   = beta m + (1 - beta) d / ||d||
    x   = x + alpha_t m,                       alpha_t = alpha / sqrt(t+1), or the rule below

The slopes are linear in f, so those of the mean function are the means of the workers' slopes,
however different their data are: local steps, which make the average of local searches wrong on
such data, do not occur.

======  ============  ==================================================
symbol  name          meaning
======  ============  ==================================================
alpha   step_size     length of the step of round 0; "auto": the rule below
beta    momentum      0 <= beta < 1
K       iterations    function values of a worker per round
mu      radius        half the distance between the two points
======  ============  ==================================================

A worker's answer is its K' slopes in single precision. ``aggregate`` says how the workers' slopes
along a direction become one. Steps have a given length, so no answer, however large its numbers
are, makes one longer.

The name is that of its parts. Normalised SGD, or NSGD, with momentum: Hazan, Levy and
Shalev-Shwartz, "Beyond convexity" (2015); Cutkosky and Mehta, "Momentum improves normalized SGD"
(2020). They normalise m; normalising d makes the steps short where successive directions disagree,
and was less sensitive to alpha. ZO: zeroth-order, by randomised two-point estimates (Nesterov and
Spokoiny, 2017). Workers that share directions and send slopes only are DeComFL's (see
``methods/decomfl.py``): without normalisation and momentum this is DeComFL with one local step.

The rule of ``step_size="auto"``. A step is as long as it should be if f is level at its end along
the way it came. So the last of the K' slopes of a round t > 0 is not along a u_k, but along m:

    q = slope of f at x_t along m / ||m||             measured, the mean over the workers
    p = slope at x_{t-1} along the same, about (sum_k g_k^2 / ||d||) cos(d, m), at least 0.1 of it
    alpha_t = alpha_{t-1} / ((1 + q / p) / r)^(1/4),  (1 + q / p) / r within [1/16, 16]
    r = 10 K / n within [1/8, 1]                      the share of the way to the minimum along m

q / p is -1 where f is still as steep as at the start of the step and 0 in the minimum along it.
For n much larger than K most of d is noise across the slope, which later rounds have to undo: a
step to the minimum along m is too long there.
(Where the slopes are exact, sum_k g_k^2 / ||d|| is the slope along d.) The exponent makes changes
of alpha slow, since successive measurements differ by chance. Round 0 finds the first alpha: its
last slopes are secants of f from x_0 to x_0 + s u_0 and to x_0 - s u_0, for s = 2^-14, 2^-11, ...,
2^13 (fewer where K is small), on the minibatch of g_0. alpha_0 is sqrt(n) s for the last s before
the first secant that differs from g_0 by more than 0.4 |g_0|, times the ratio of the typical |g_k|
to |g_0|, within [1, 4]. Whether f grows like |s| or is bounded, there is such a secant on one of
the sides. Only ratios of slopes count: the rule decides alike for f times any number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from desopt.contract import streams
from desopt.contract.errors import check_name
from desopt.contract.payload import Layout
from desopt.contract.streams import SERVER
from desopt.contract.types import Answer, Batches, FloatArray, Task
from desopt.kernels.steps import inner_product, replay_gaussian, sum_of_squares
from desopt.methods.aggregation import AGGREGATES, combine
from desopt.methods.base import (
    NOISE,
    ProblemSize,
    TwoPointAlgorithm,
    by_chance,
    directions,
    unmoved,
)
from desopt.methods.searches import Probe, TwoPoint, affordable

#: Of the rule: K for a slope, two secants and their ends; limits of alpha.
_LEAST_ITERATIONS = 6
_LEAST, _MOST = 2.0**-300, 2.0**300


@dataclass(frozen=True)
class NSGDState:
    """The server's side after ``round`` rounds."""

    round: int
    x: FloatArray
    m: FloatArray
    #: The length of the last step, 0 before the first; and p of the rule.
    alpha: float
    p: float


@dataclass(frozen=True, kw_only=True)
class ZONSGD(TwoPointAlgorithm):
    """Normalised descent along the mean of the workers' slopes."""

    state_type: ClassVar[type[NSGDState]] = NSGDState
    adapts: ClassVar[bool] = True

    name: str = "zo-nsgd"
    step_size: float | Literal["auto"] = 1.0  # type: ignore[assignment]
    momentum: float = 0.5
    aggregate: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        check_name("aggregate", self.aggregate, AGGREGATES)
        if self.step_size == "auto" and self.iterations < _LEAST_ITERATIONS:
            raise ValueError(
                f"iterations must be at least {_LEAST_ITERATIONS} for step_size='auto', got "
                f"{self.iterations}"
            )

    def init(self, x0: FloatArray) -> NSGDState:
        return NSGDState(0, x0, np.zeros_like(x0), 0.0, 0.0)

    def plan(self, state: NSGDState) -> Task:
        if self.step_size != "auto":
            return Task(state.round, state.x)
        return Task(state.round, state.x, (state.alpha,), memory=state.m)

    def search(self, task: Task, worker: int) -> TwoPoint:
        stream, probes = directions(self.seed, task.round, SERVER), self._probes(task)
        count = self.estimates
        still = np.zeros(affordable(count, task.limit, each=2))
        return TwoPoint(
            task, worker, stream, still, radius=self.radius, layout=self.layout,
            batches=Batches.ITERATION, moving=False,
            probes=probes[: max(0, still.size - (count - len(probes)))], box=self.box,
        )  # fmt: skip

    def merge(self, state: NSGDState, answers: Iterable[Answer]) -> NSGDState:
        slopes, count = combine(self.aggregate, answers, self._add, self.estimates)
        if count == 0:
            return unmoved(state)
        slopes /= count
        plain = slopes.size - len(self._probes(self.plan(state)))
        d = np.zeros_like(state.x)
        replay_gaussian(d, -slopes[:plain], *directions(self.seed, state.round, SERVER).key())
        length = math.sqrt(sum_of_squares(d))
        if length > 0.0:
            d /= length
        m = self.momentum * state.m + (1.0 - self.momentum) * d
        if self.step_size == "auto":
            alpha = self._rule(state, slopes[:plain], slopes[plain:])
            steep = sum_of_squares(slopes[:plain]) / length if length > 0.0 else 0.0
            norm = math.sqrt(sum_of_squares(m))
            p = steep * max(0.1, inner_product(d, m) / norm) if norm > 0.0 else 0.0
        else:
            alpha, p = self.step_size / math.sqrt(state.round + 1.0), 0.0
        with np.errstate(over="ignore"):
            x = self.kept(state.x + alpha * m, state.x)
        return NSGDState(state.round + 1, x, m, alpha, p)

    def doubt(self, task: Task, answers: Sequence[Answer]) -> str:
        if self.step_size != "auto" or task.scalars[0] != 0.0:
            return ""
        probed = -2 * len(self._lengths())
        slopes = (self.layout.decode(answer).float32 for answer in answers)
        noisy = by_chance((g[0], g[probed] / 2.0 + g[probed + 1] / 2.0) for g in slopes)
        return NOISE + " and a larger radius" if noisy else ""

    def _probes(self, task: Task) -> list[Probe]:
        """Those of the rule: secants on both sides of x at first, then the slope along m."""
        if task.memory is None:
            return []
        n, (alpha,) = task.x.size, task.scalars
        if alpha == 0.0:
            u = streams.normals(directions(self.seed, task.round, SERVER), n)
            return [Probe(u, s * up, s * (1 - up), 0) for s in self._lengths() for up in (1, 0)]
        norm = math.sqrt(sum_of_squares(task.memory))
        along = task.memory * (math.sqrt(n) / norm if norm > 0.0 else 0.0)
        return [Probe(along, self.radius, self.radius, self.estimates - 1)]

    def _lengths(self) -> list[float]:
        """s of the first secants, as many as fit beside a slope."""
        count = min(10, (self.estimates - 1) // 2)
        return [math.ldexp(1.0, 30 * (2 * i + 1) // (2 * count) - 15) for i in range(count)]

    def _rule(self, state: NSGDState, g: FloatArray, probed: FloatArray) -> float:
        """alpha_t, from the slopes along u_k and those of the probes."""
        root = math.sqrt(state.x.size)
        if state.alpha == 0.0:
            typical = math.sqrt(sum_of_squares(g) / g.size)
            off = np.abs(probed - g[0]).reshape(-1, 2).max(axis=1) > 0.4 * abs(g[0])
            last = int(np.argmax(off)) - 1 if off.any() else off.size - 1
            steeper = min(4.0, max(1.0, typical / abs(g[0]))) if g[0] != 0.0 else 1.0
            return root * self._lengths()[max(0, last)] * steeper
        if state.p == 0.0:
            return state.alpha
        share = min(1.0, max(1.0 / 8.0, 10.0 * self.iterations / state.x.size))
        way = (1.0 + float(probed[0]) / root / state.p) / share
        level = min(16.0, max(1.0 / 16.0, way))
        return min(_MOST, max(_LEAST, state.alpha / math.sqrt(math.sqrt(level))))

    def _add(self, total: FloatArray, answer: Answer) -> bool:
        """total += the worker's slopes; single precision, so their sums and squares are finite."""
        total += self.layout.decode(answer).float32
        return True

    @property
    def layout(self) -> Layout:
        return Layout(float32=self.estimates)


def defaults(problem: ProblemSize) -> dict[str, Any]:
    """The best length of a step is 1 on some problems and 100 on others."""
    return {"step_size": "auto"} if problem.iterations >= _LEAST_ITERATIONS else {}
