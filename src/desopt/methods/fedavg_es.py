"""FedAvg-ES: federated averaging over a population-based evolution strategy.

Federated averaging (McMahan et al., AISTATS 2017) with the (mu/mu_I, lambda)-ES (Beyer and
Schwefel, "Evolution strategies: a comprehensive introduction", 2002) as the workers' search. In
round t a worker does G = K // lambda generations from v = x_t, at least one, on one minibatch:

    w_j = v + sigma_g^t z_j,   z_j ~ N(0, I),   for the members j of generation g
    v   = v + sigma_g^t (1/mu) sum of the z_j of the mu best w_j

and the server averages the final points. The K values are dealt evenly to the generations, which
so have lambda members or a few more. DES makes a decision of every value, this a move of lambda.

============  ============  ==================================================================
symbol        name          meaning
============  ============  ==================================================================
sigma_g^t     step_size     alpha / ((t+1)^(1/4) sqrt(g+1)): as in ``des``, a generation counting
                            as an iteration
K             iterations    function values of a worker per round
lambda        population    members of a generation
mu            parents       a quarter of the members, at least 1; none of a single member
============  ============  ==================================================================

The mean of the mu best has no order: a worker's answer is one bit per member. A member without a
finite value is not selected; the mean is that of the selected ones, and v stays where there are
none. In a box, members are mirrored at its bounds, z_j stays as it was drawn, and v is projected.
With constraints, the best are those with the least violation, then the least value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, FloatArray, Task
from desopt.kernels.portable import log
from desopt.methods.aggregation import AGGREGATES, averaged
from desopt.methods.base import BaseAlgorithm, PointState, ProblemSize, directions, unmoved
from desopt.methods.searches import Generations, affordable
from desopt.methods.searches.generations import recombined


@dataclass(frozen=True, kw_only=True)
class FedAvgES(BaseAlgorithm):
    """A (mu/mu_I, lambda)-ES by every worker, and the mean of the points that it leads to."""

    observes: ClassVar[tuple[str, ...]] = ("bounds", "constraints")

    name: str = "fedavg-es"
    population: int
    aggregate: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("aggregate", self.aggregate, AGGREGATES)
        if self.population < 2:
            raise ValueError(f"population must be at least 2, got {self.population!r}")

    def search(self, task: Task, worker: int) -> Generations:
        count = affordable(self.iterations, task.limit)
        return Generations(
            task, worker, directions(self.seed, task.round, worker), self.step_sizes(task.round),
            generations=[range(g.start, min(g.stop, count)) for g in self.generations],
            layout=self.layout, box=self.box,
        )  # fmt: skip

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        x = averaged(self.aggregate, state.x, answers, partial(self._rebuilt, state))
        return unmoved(state) if x is None else PointState(state.round + 1, self.kept(x, state.x))

    def _rebuilt(self, state: PointState, answer: Answer) -> FloatArray:
        """v after the last generation, from the bits."""
        v, stream = state.x.copy(), directions(self.seed, state.round, answer.worker)
        selected, sizes = self.layout.decode(answer).bits, self.step_sizes(state.round).tolist()
        for members, sigma in zip(self.generations, sizes, strict=True):
            best = members.start + np.flatnonzero(selected[members.start : members.stop])
            v = recombined(v, sigma, best, stream, self.box)
        return v

    def step_sizes(self, t: int) -> FloatArray:
        """sigma_g^t for g = 0..G-1."""
        g = np.arange(1.0, len(self.generations) + 1.0)
        sigma: FloatArray = self.step_size / math.sqrt(math.sqrt(t + 1.0)) / np.sqrt(g)
        return sigma

    @cached_property
    def generations(self) -> list[range]:
        """The numbers of the members of each."""
        K = self.iterations
        G = max(1, K // self.population)
        return [range(K * g // G, K * (g + 1) // G) for g in range(G)]

    @property
    def layout(self) -> Layout:
        return Layout(bits=self.iterations)

    @property
    def cost(self) -> Cost:
        return Cost(min(2, self.iterations), self.iterations)  # one has nobody to be better than


def defaults(problem: ProblemSize) -> dict[str, int]:
    """lambda = 4 + floor(3 ln n), the usual size for n variables."""
    return {"population": 4 + math.floor(3.0 * log(problem.n))}
