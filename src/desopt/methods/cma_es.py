"""CMA-ES: an evolution strategy that learns scales and correlations of the variables.

The (mu/mu_w, lambda)-ES of ``es_csa`` with the covariance matrix sigma^2 D A A^T D: D is a
diagonal, A the lower triangular factor of a correlation matrix. Rank-one and rank-mu updates with
negative weights as in Hansen, "The CMA evolution strategy: a tutorial" (2016); D has the larger
learning rates of Ros and Hansen (2008), damped once the variables are correlated, as in Akimoto
and Hansen, "Diagonal acceleration for covariance matrix adaptation evolution strategies" (2020).
So a badly scaled function is learnt in O(n) values, a rotated one in O(n^2).

=========  ==============  ===================================================================
symbol     name            meaning
=========  ==============  ===================================================================
lambda     population      members per round, x + sigma D A z_j with z_j ~ N(0, I)
w_i        weights         ln((lambda + 1) / 2) - ln(i); the positive ones normalised to sum 1
p_s        path            of the mean steps in the coordinates of z: adapts sigma
p_c        full.path       of the mean steps in those of x: rank-one update of A
p_d        diagonal.path   the same, for D
c_1, c_m   one, mu         learning rates: the larger of the two papers', for A and for D
beta                       damping of D: max(1, 2 sqrt(tr (A A^T)^-1 / n) - 1)
=========  ==============  ===================================================================

A takes n (n + 1) / 2 numbers and O(n^3) operations per round. With more than ``correlations``
variables it is left out, and the method is a sep-CMA-ES. A worker's answer is that of ``es_csa``:
lambda sums, +inf where a member has no finite value; such a member has no weight. In a box,
members are mirrored at its bounds, z_j stays as it was drawn, and x is projected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import numpy as np

from desopt.contract.streams import SERVER, normals
from desopt.contract.types import Answer, FloatArray, IndexArray, Task
from desopt.kernels import factor as kernels
from desopt.kernels.portable import exp, log
from desopt.kernels.steps import sum_of_squares
from desopt.methods import es_csa
from desopt.methods.base import PopulationAlgorithm, ProblemSize, directions, unmoved
from desopt.methods.searches import Population, affordable

#: The most variables for which correlations can be learnt: A takes 64 MB.
MOST_CORRELATED = 4096
#: D stays between 1 / _WIDEST and _WIDEST.
_WIDEST = 1e150


@dataclass(frozen=True)
class CMAState:
    """The distribution after ``round`` generations; ``factor`` is empty without correlations."""

    round: int
    x: FloatArray
    sigma: float
    path: FloatArray
    path_full: FloatArray
    path_diagonal: FloatArray
    scale: FloatArray
    factor: FloatArray


class Rates(NamedTuple):
    """How fast A or D is learnt: rank one, rank mu, the path, and the members' weights."""

    one: float
    mu: float
    path: float
    weights: FloatArray


@dataclass(frozen=True, kw_only=True)
class CMAES(PopulationAlgorithm):
    """Evolution strategy with covariance matrix adaptation."""

    state_type: ClassVar[type[CMAState]] = CMAState

    name: str = "cma-es"
    correlations: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population < 4:
            raise ValueError(f"population must be at least 4 for cma-es, got {self.population!r}")
        if not 0 <= self.correlations <= MOST_CORRELATED:
            raise ValueError(
                f"correlations must be 0 to {MOST_CORRELATED}, the most variables for which they "
                f"are learnt, got {self.correlations!r}"
            )

    def init(self, x0: FloatArray) -> CMAState:
        n, zeros = x0.size, np.zeros_like(x0)
        factor = np.zeros(0)
        if n <= self.correlations:
            factor = np.zeros(n * (n + 1) // 2)
            factor[np.cumsum(np.arange(1, n + 1)) - 1] = 1.0
        return CMAState(0, x0, self.step_size, zeros, zeros, zeros, np.ones(n), factor)

    def plan(self, state: CMAState) -> Task:
        memory = np.concatenate((state.scale, state.factor))
        return Task(state.round, state.x, (state.sigma,), memory=memory)

    def search(self, task: Task, worker: int) -> Population:
        assert task.memory is not None
        (sigma,), n = task.scalars, task.x.size
        shape = task.memory.copy()  # read-only it would have kernels of its own
        members = affordable(self.population, task.limit)
        return Population(
            task, worker, directions(self.seed, task.round, SERVER), sigma, members=members,
            layout=self.layout, shape=partial(_shape, shape[n:], shape[:n]), box=self.box,
            constrained=self.constrained,
        )  # fmt: skip

    def merge(self, state: CMAState, answers: Iterable[Answer]) -> CMAState:
        best = self.ranked(answers)
        if best.size == 0:
            return unmoved(state)
        return _Generation(self, state, best).next()

    # --- constants of a run --------------------------------------------------------------------

    @cached_property
    def raw_weights(self) -> FloatArray:
        """ln((lambda + 1) / 2) - ln(i): positive for the better half, negative for the others."""
        middle = log((self.population + 1) / 2)
        return np.array([middle - log(i) for i in range(1, self.population + 1)])

    @cached_property
    def parents(self) -> int:
        """mu, the members of positive weight."""
        return int((self.raw_weights > 0.0).sum())

    @cached_property
    def mu_eff(self) -> float:
        return _effective(self.raw_weights[: self.parents])

    def full_rates(self, n: int) -> Rates:
        """Those of the tutorial, or of the 2020 paper for n (n + 1) / 2 degrees of freedom."""
        return self._rates(n, self._rank_one(n), self._rank_mu(n), (n + 1) / 2)

    def diagonal_rates(self, n: int) -> Rates:
        """Those of the sep-CMA-ES, or of the 2020 paper for n degrees of freedom."""
        faster = (n + 2) / 3
        return self._rates(n, self._rank_one(n) * faster, self._rank_mu(n) * faster, 1.0)

    def _rank_one(self, n: int) -> float:
        size = n + 1.3
        return 2.0 / (size * size + self.mu_eff)

    def _rank_mu(self, n: int) -> float:
        size = n + 2.0
        return 2.0 * (self.mu_eff - 2.0 + 1.0 / self.mu_eff) / (size * size + self.mu_eff)

    def _rates(self, n: int, one: float, mu: float, freedom: float) -> Rates:
        size, mu_eff = self.population, self.mu_eff
        root = math.sqrt(math.sqrt(n + 1.0))
        other = 1.0 / (2.0 * (freedom + 1.0) * root * root * root + mu_eff / 2.0)
        one = min(0.5, max(one, other))
        other *= mu_eff + 1.0 / mu_eff - 2.0 + size / (2.0 * (size + 5.0))
        mu = min(1.0 - one, max(mu, other))
        path = (4.0 + mu_eff / n) / (n + 4.0 + 2.0 * mu_eff / n)
        return Rates(one, mu, path, self._weights(n, one, mu))

    def _weights(self, n: int, one: float, mu: float) -> FloatArray:
        """Positive ones of sum 1; negative ones as large as keeps the matrix positive definite."""
        raw, parents = self.raw_weights, self.parents
        worse = raw[parents:]
        total = min(
            1.0 + one / mu,
            1.0 + 2.0 * _effective(worse) / (self.mu_eff + 2.0),
            (1.0 - one - mu) / (n * mu),
        )
        weights = raw / math.fsum(raw[:parents])
        weights[parents:] = worse * (total / -math.fsum(worse))
        return weights


class _Generation:
    """One update of the distribution by the ranked members, best first."""

    def __init__(self, method: CMAES, state: CMAState, best: IndexArray) -> None:
        self.method, self.state, self.n = method, state, state.x.size
        self.stream = directions(method.seed, state.round, SERVER)
        self.members: list[int] = best.tolist()

    def next(self) -> CMAState:
        method, state, n = self.method, self.state, self.n
        full, diagonal = method.full_rates(n), method.diagonal_rates(n)
        self._sums(full.weights, diagonal.weights)
        step = self.mean.copy()
        _shape(state.factor, state.scale, step)
        path, sigma, stalled = self._step_size()
        path_diagonal = self._path(state.path_diagonal, diagonal, step, stalled)
        path_full = path_diagonal
        scale, factor = self._rescaled(diagonal, path_diagonal, stalled), state.factor
        if factor.size:
            path_full = self._path(state.path_full, full, step, stalled)
            scale, factor = self._correlated(full, path_full, scale, stalled)
        with np.errstate(over="ignore"):
            x = method.kept(state.x + state.sigma * step, state.x)
        return CMAState(
            state.round + 1, x, sigma, path, path_full, path_diagonal,
            np.clip(scale, 1.0 / _WIDEST, _WIDEST), factor,
        )  # fmt: skip

    def _sums(self, full: FloatArray, diagonal: FloatArray) -> None:
        """Over the members: the mean step, weighted squares, and the vectors of the rank-mu update.

        A negative weight counts for a step of the expected length.
        """
        n, keeps = self.n, self.state.factor.size > 0
        self.mean, self.squares = np.zeros(n), np.zeros(n)
        self.vectors = np.empty((n, len(self.members) + 1 if keeps else 0))
        self.weights = np.empty(self.vectors.shape[1])
        self.z = np.empty(n)
        for i, member in enumerate(self.members):
            z = normals(self.stream.at(member), n, out=self.z)
            length = n / max(sum_of_squares(z), 1e-300) if full[i] < 0.0 else 1.0
            if full[i] > 0.0:
                self.mean += full[i] * z
            self.squares += (diagonal[i] * length) * (z * z)
            if keeps:
                kernels.multiply(self.state.factor, z)
                self.vectors[:, i], self.weights[i] = z, full[i] * length

    def _step_size(self) -> tuple[FloatArray, float, bool]:
        """p_s, sigma, and whether p_s is so long that the other paths wait."""
        n, mu_eff, state = self.n, self.method.mu_eff, self.state
        c = (mu_eff + 2.0) / (n + mu_eff + 5.0)
        damping = 1.0 + 2.0 * max(0.0, math.sqrt((mu_eff - 1.0) / (n + 1.0)) - 1.0) + c
        expected = math.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n))
        path = (1.0 - c) * state.path + math.sqrt(c * (2.0 - c) * mu_eff) * self.mean
        length = math.sqrt(sum_of_squares(path)) / expected
        sigma = state.sigma * exp(min(1.0, c / damping * (length - 1.0)))
        begun = 1.0 - exp(2.0 * (state.round + 1) * log(1.0 - c))
        stalled = length >= (1.4 + 2.0 / (n + 1.0)) * math.sqrt(begun)
        return path, sigma if 0.0 < sigma < math.inf else state.sigma, stalled

    def _path(self, old: FloatArray, rates: Rates, step: FloatArray, stalled: bool) -> FloatArray:
        c = rates.path
        path = (1.0 - c) * old
        if not stalled:
            path += math.sqrt(c * (2.0 - c) * self.method.mu_eff) * step
        return path

    def _kept(self, rates: Rates, stalled: bool) -> float:
        """What the updates take away, a path that waits included."""
        waiting = rates.path * (2.0 - rates.path) if stalled else 0.0
        used = math.fsum(rates.weights[: len(self.members)])
        return 1.0 - rates.one * (1.0 - waiting) - rates.mu * used

    def _rescaled(self, rates: Rates, path: FloatArray, stalled: bool) -> FloatArray:
        """D, updated in coordinates in which the members are N(0, I)."""
        factor, along, beta = self.state.factor, path / self.state.scale, 1.0
        if factor.size:
            kernels.solve(factor, along)
            beta = max(1.0, 2.0 * math.sqrt(kernels.inverse_trace(factor, self.n) / self.n) - 1.0)
        new = self._kept(rates, stalled) + rates.one * (along * along) + rates.mu * self.squares
        return self.state.scale * np.sqrt(np.maximum(1.0 + (new - 1.0) / beta, 0.25))

    def _correlated(
        self, rates: Rates, path: FloatArray, scale: FloatArray, stalled: bool
    ) -> tuple[FloatArray, FloatArray]:
        """D and A; the variances of the new matrix go to D."""
        self.vectors[:, -1], self.weights[-1] = path / self.state.scale, rates.one / rates.mu
        weighted = self.vectors * (rates.mu * self.weights)
        roots = np.empty(self.n)
        kept = self._kept(rates, stalled)
        factor, definite = kernels.update(self.state.factor, kept, self.vectors, weighted, roots)
        return (scale * roots, factor) if definite else (scale, self.state.factor)


def defaults(problem: ProblemSize) -> dict[str, int]:
    """As for es-csa; without data at least 2 sqrt(n): many variables need it against noise."""
    population = es_csa.defaults(problem)["population"]
    if problem.rows is None:
        population = max(population, math.floor(2.0 * math.sqrt(problem.n)))
    return {"population": population}


def _shape(factor: FloatArray, scale: FloatArray, z: FloatArray) -> None:
    """z = D A z, in place."""
    if factor.size:
        kernels.multiply(factor, z)
    np.multiply(scale, z, out=z)


def _effective(weights: FloatArray) -> float:
    """(sum w)^2 / sum w^2: the members that such weights are worth."""
    total = math.fsum(weights)
    return total * total / math.fsum(weights * weights)
