"""ES-CSA: the (mu/mu_w, lambda)-ES with cumulative step-size adaptation.

Hansen, Arnold and Auger, "Evolution strategies" (2015), made distributed as in section 5.1 of
the paper: the server's population is evaluated by every worker on all of its data, and the
sums decide the ranking. c_s, d_s and chi_n are those of Hansen, "The CMA evolution strategy: a
tutorial" (2016). A missing worker's rows are missing for all members alike: the ranking is
that of the mean over the rows of those who answered.

========  ============  =====================================================================
symbol    name          meaning
========  ============  =====================================================================
lambda    population    members per round, x + sigma z_j with z_j ~ N(0, I)
mu        parents       lambda // 2
w_i       weights       ln(mu + 1/2) - ln(i), normalised to sum 1
mu_eff                  1 / sum w_i^2
c_s       c             (mu_eff + 2) / (n + mu_eff + 5)
d_s       damping       1 + 2 max(0, sqrt((mu_eff - 1) / (n + 1)) - 1) + c_s
chi_n     length        sqrt(n) (1 - 1/(4n) + 1/(21 n^2)), about E||N(0, I)||
========  ============  =====================================================================

A worker's answer is lambda sums, +inf where a member has no finite value: it ranks last, as does
a member whose sums overflow. exp and log are the package's own: they decide bits of x. In a box,
members are mirrored at its bounds, z_j stays as it was drawn, and x is projected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from desopt.contract.streams import SERVER
from desopt.contract.types import Answer, FloatArray, Task
from desopt.kernels.portable import exp, log
from desopt.kernels.steps import sum_of_squares, weighted_normals
from desopt.methods.base import PopulationAlgorithm, ProblemSize, directions, unmoved
from desopt.methods.searches import Population, affordable


@dataclass(frozen=True)
class CSAState:
    """Mean, step size and evolution path after ``round`` generations."""

    round: int
    x: FloatArray
    sigma: float
    path: FloatArray


@dataclass(frozen=True, kw_only=True)
class ESCSA(PopulationAlgorithm):
    """Evolution strategy with cumulative step-size adaptation."""

    state_type: ClassVar[type[CSAState]] = CSAState

    name: str = "es-csa"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population < 2:
            raise ValueError(f"population must be at least 2, got {self.population!r}")

    def init(self, x0: FloatArray) -> CSAState:
        return CSAState(0, x0, self.step_size, np.zeros_like(x0))

    def plan(self, state: CSAState) -> Task:
        return Task(state.round, state.x, (state.sigma,))

    def search(self, task: Task, worker: int) -> Population:
        (sigma,) = task.scalars
        members = affordable(self.population, task.limit)
        stream = directions(self.seed, task.round, SERVER)  # one population for all workers
        return Population(
            task, worker, stream, sigma, members=members, layout=self.layout, box=self.box,
            constrained=self.constrained,
        )  # fmt: skip

    def merge(self, state: CSAState, answers: Iterable[Answer]) -> CSAState:
        ranked = self.ranked(answers)
        if ranked.size == 0:
            return unmoved(state)
        n, weights = state.x.size, self.weights
        best = ranked[: weights.size]
        z = np.empty(n)  # z_w = sum_i w_i z_(i); a member without a value is no step
        stream = directions(self.seed, state.round, SERVER)
        weighted_normals(z, weights[: best.size], best, *stream.key())

        mu_eff = 1.0 / sum_of_squares(weights)
        c = (mu_eff + 2.0) / (n + mu_eff + 5.0)
        damping = 1.0 + 2.0 * max(0.0, math.sqrt((mu_eff - 1.0) / (n + 1.0)) - 1.0) + c
        length = math.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n))
        path = (1.0 - c) * state.path + math.sqrt(c * (2.0 - c) * mu_eff) * z
        sigma = state.sigma * exp(c / damping * (math.sqrt(sum_of_squares(path)) / length - 1.0))
        with np.errstate(over="ignore"):
            x = self.kept(state.x + state.sigma * z, state.x)
        return CSAState(state.round + 1, x, sigma if sigma < math.inf else state.sigma, path)

    @cached_property
    def weights(self) -> FloatArray:
        """Positive and decreasing, summing to 1, for the mu best."""
        mu = self.population // 2
        raw = [log(mu + 0.5) - log(i) for i in range(1, mu + 1)]
        total = math.fsum(raw)
        return np.array([w / total for w in raw])


def defaults(problem: ProblemSize) -> dict[str, int]:
    """lambda = M K b / N, as many values of F as a round of DES; at least 4 + floor(3 ln n)."""
    least = 4 + math.floor(3.0 * log(problem.n))
    if problem.rows is None:
        return {"population": least}
    samples = problem.workers * problem.iterations * problem.batch_size
    return {"population": max(round(samples / problem.rows), least)}
