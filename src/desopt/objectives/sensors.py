"""Sensor selection: the ``count`` sensors, of many, from which parameters are estimated best.

A scenario is a matrix A with a row for each sensor: measurement i is a_i^T theta plus noise. Data
are scenarios, an array (scenarios, sensors, parameters). The information matrix J of a selection
gives -log det J (D-optimal: the volume of the confidence ellipsoid) or trace J^-1 (A-optimal: the
mean squared error). Liu, Chepuri, Fardad, Masazade, Leus and Varshney, *Sensor selection for
estimation with correlated measurement noise*, IEEE Transactions on Signal Processing 64 (2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from desopt.contract import checks
from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray, IndexArray, LocalSearch
from desopt.data import Batch, Loaders, NoData, Partitioned, Rows, Shard, all_finite, as_rows
from desopt.data.checks import refuse_width
from desopt.data.shards import as_writeable
from desopt.kernels.factor import cholesky
from desopt.kernels.sensors import mean_criterion, relaxed_weights
from desopt.objectives.linear import as_plain
from desopt.objectives.local import drive

Criterion = Literal["D", "A"]


@dataclass(frozen=True)
class SensorSelection:
    """-log det J (``"D"``) or trace J^-1 (``"A"``) of ``count`` sensors, for ``minimize``.

    If ``relaxed``, the weights of the sensors are the point nearest to x with 0 <= w <= 1 and
    sum w = ``count``. Otherwise the sensors with the largest ``count`` numbers in x are selected;
    a step of the sampler ``swap`` exchanges a sensor for another. ``noise`` is the covariance of
    the sensors' noise (default: independent, variance 1), ``prior`` the precision with which each
    parameter is known beforehand.

    With a ``batch_size`` of at least a worker's number of scenarios, a batch is all of them, each
    once.

    >>> A = np.random.default_rng(0).standard_normal((1, 6, 2))  # scenarios, sensors, parameters
    >>> three = desopt.SensorSelection(3, "A")
    >>> result = desopt.minimize(three, np.arange(6.0), A, method="es", rounds=2)
    >>> len(three.selection(result.best_x))
    3
    """

    count: int
    criterion: Criterion = "D"
    relaxed: bool = False
    noise: ArrayLike | None = None
    prior: float = 0.0
    compiled = True
    in_box = True
    _noise: tuple[FloatArray, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("criterion", self.criterion, get_args(Criterion))
        object.__setattr__(self, "count", checks.whole("count", self.count))
        if not 0 <= checks.real("prior", self.prior) < np.inf:
            raise ValueError(f"prior must be a number >= 0, got {self.prior!r}")
        object.__setattr__(self, "_noise", _parts_of(self.noise))

    def settings(self) -> dict[str, Any]:
        noise = None if self.noise is None else np.asarray(self.noise, float).tolist()
        return {
            "name": "sensors", "count": self.count, "criterion": self.criterion,
            "relaxed": self.relaxed, "noise": noise, "prior": self.prior,
        }  # fmt: skip

    def weights(self, x: ArrayLike) -> FloatArray:
        """The weight of each sensor at x: 0 or 1, or between them where it is relaxed."""
        point = np.asarray(x, np.float64)
        if self.relaxed:
            w: FloatArray = relaxed_weights(as_plain(point), self.count)
            return w
        w = np.zeros(point.size)
        w[np.argsort(-point, kind="stable")[: self.count]] = 1.0
        return w

    def selection(self, x: ArrayLike) -> IndexArray:
        """The numbers of the ``count`` sensors of the largest weights."""
        return np.sort(np.argsort(-self.weights(x), kind="stable")[: self.count])

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        if isinstance(shards, Loaders):
            return None
        return next((int(s.arrays[0].shape[1]) for s in shards if isinstance(s, Rows)), None)

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        if isinstance(shards, Loaders):
            return shards
        if isinstance(shards, Partitioned):
            return replace(shards, arrays=self._checked(Rows(shards.arrays)).arrays)
        for shard in shards:
            if isinstance(shard, NoData):
                raise TypeError("data is missing: SensorSelection needs scenarios, data=A[None]")
        return [self._checked(shard) if isinstance(shard, Rows) else shard for shard in shards]

    def bind(self, batch: Batch, x: FloatArray) -> SensorFunction:
        return SensorFunction(self, batch)

    def value(self, scenarios: FloatArray, rows: IndexArray, x: FloatArray) -> float:
        """The mean criterion of these scenarios at x."""
        if x.size != scenarios.shape[1]:
            refuse_width("data", scenarios.shape[1], x.size)
        w, trace = self.weights(x), self.criterion == "A"
        return float(mean_criterion(scenarios, rows, w, *self._noise, float(self.prior), trace))

    def _checked(self, shard: Rows) -> Rows:
        (A, *rest), where = shard.arrays, shard.where
        if rest or A.ndim != 3 or A.dtype.kind not in "fiub" or 0 in A.shape:
            raise ValueError(
                f"{where}: data must be one array of numbers (scenarios, sensors, parameters), got "
                f"{len(rest) + 1} array(s), the first of shape {A.shape}; one matrix A is A[None]"
            )
        m = A.shape[1]
        if self.count > m:
            raise ValueError(f"{where}: count={self.count} of {m} sensors; there must be as many")
        if self._noise[0].size and self._noise[0].shape != (m, m):
            raise ValueError(
                f"noise must have a row and a column for each of {m} sensors, got shape "
                f"{self._noise[0].shape}"
            )
        plain = np.require(A, np.float64, "C")
        if not all_finite(plain):
            raise ValueError(f"{where}: scenarios contain infinity; remove these first")
        return shard if plain is A else replace(shard, arrays=(plain,))


class SensorFunction:
    """The mean criterion over one batch of scenarios, or a fresh one for each iteration."""

    def __init__(self, objective: SensorSelection, batch: Batch) -> None:
        self._objective, self._batch = objective, batch.or_all()
        self.rows = self._batch.rows
        self._iteration: int | None = None  # of the batch in _drawn

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        if iteration != self._iteration:
            self._drawn = self._draw(self._batch.at(iteration))
            self._iteration = iteration
        return self._objective.value(*self._drawn, x)

    def run(self, search: LocalSearch) -> None:
        drive(search, self.value)

    def _draw(self, batch: Batch) -> tuple[FloatArray, IndexArray]:
        shard = batch.shard
        if isinstance(shard, Rows):
            return as_writeable(shard.arrays[0]), shard.numbers(batch)
        rows = as_rows(batch.arguments()[0], "the batch of draw(rng, b)")
        (drawn,) = self._objective.prepare([rows], some=True)
        return as_writeable(drawn.arrays[0]), rows.numbers()


def swap(rng: np.random.Generator, n: int) -> tuple[IndexArray, FloatArray]:
    """A sampler for selections: one number rises and another one falls by as much."""
    i, j = rng.choice(n, 2, replace=False)
    return np.array([i, j]), np.sqrt(n / 2) * np.array([1.0, -1.0])


def _parts_of(noise: ArrayLike | None) -> tuple[FloatArray, float]:
    """S and a of the covariance R = S + a I, S positive definite; no S for R = I."""
    if noise is None:
        return np.empty((0, 0)), 1.0
    R = np.array(noise, np.float64)
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not np.array_equal(R, R.T):
        raise ValueError(f"noise must be a symmetric matrix, got shape {R.shape}")
    lower, eye = np.tril_indices(len(R)), np.eye(len(R))
    for halvings in range(40):
        own = float(R.diagonal().min()) * 0.5**halvings
        if own > 0.0 and cholesky((R - own * eye)[lower], len(R)):
            return R - own * eye, own
    raise ValueError("noise must be positive definite: a covariance with noise in every sensor")
