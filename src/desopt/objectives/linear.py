"""Linear models: a loss of the margin and an L2 penalty (the paper's three problems).

f(x) = (1/N) sum_i loss(y_i z_i^T x) + penalty/2 ||x||^2 with labels y_i = -1 or +1. The losses
are in ``desopt.objectives.losses``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from desopt.contract import streams
from desopt.contract.types import Batches, FloatArray, IndexArray, LocalSearch
from desopt.data import Batch, Loaders, NoData, Partitioned, Rows, Shard, as_rows
from desopt.data.shards import as_writeable
from desopt.kernels import linear, two_point
from desopt.kernels.gaussian import search_gaussian, values_around
from desopt.kernels.layouts import Csr, Dense
from desopt.kernels.mixture import UNSEARCHED, search_mixture
from desopt.kernels.steps import add_scaled
from desopt.methods.proposals import GaussianProposals, MixtureProposals
from desopt.methods.searches import OnePlusOne, Population, Probed, Tilted, TwoParts, TwoPoint
from desopt.objectives.local import drive
from desopt.objectives.losses import LOSSES
from desopt.objectives.tables import (
    LabelledTable,
    check_arrays,
    column_count,
    negative_label,
    table_of,
)


@dataclass(frozen=True)
class LinearModel:
    """loss(y z^T x) + penalty/2 ||x||^2; data are (X, y), X dense or sparse."""

    loss: str
    penalty: float = 1e-6
    compiled = True
    #: Its searches keep to a box by themselves.
    in_box = True

    def __post_init__(self) -> None:
        if not (np.isfinite(self.penalty) and self.penalty >= 0):
            raise ValueError(f"regularization must be a number >= 0, got {self.penalty!r}")

    @property
    def numbers(self) -> tuple[int, float]:
        """Loss and penalty, as the kernels take them."""
        return LOSSES[self.loss].kind, self.penalty

    def settings(self) -> dict[str, Any]:
        return {"name": self.loss, "penalty": self.penalty}

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        return column_count(shards)

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        """Shards with arrays for the kernels, converted once and shared."""
        if isinstance(shards, Loaders):
            return shards  # each is prepared where it is loaded
        if isinstance(shards, Partitioned):
            (whole,) = self.prepare([Rows(shards.arrays)], some=some)
            return replace(shards, arrays=whole.arrays, single=False)
        with_arrays = [shard for shard in shards if isinstance(shard, Rows)]
        for given in with_arrays:
            check_arrays(given.arrays, given.where, self.loss)
        negative = negative_label(with_arrays, some)
        done: dict[int, Any] = {}  # shards of one data set go on sharing their arrays
        prepared: list[Shard] = []
        for shard in shards:
            if isinstance(shard, NoData):
                raise TypeError(f"data is missing: {self.loss!r} needs data=(X, y)")
            if isinstance(shard, Rows):
                table = LabelledTable(shard.arrays, shard.where, negative, done)
                shard = replace(shard, arrays=table, single=False)
            prepared.append(shard)
        return prepared

    def score(self, shard: Rows, x: FloatArray) -> tuple[float, int]:
        """f on all rows of a shard, and the number of rows on the wrong side."""
        table = table_of(shard.arrays).fits(shard.where, x)
        value, errors = linear.value_and_errors(
            table.layout, shard.numbers(), table[1], as_plain(x), *self.numbers
        )
        return float(value), int(errors)

    def bind(self, batch: Batch, x: FloatArray) -> LinearFunction:
        return LinearFunction(self, batch, x)


class Model(Protocol):
    """What ``LinearFunction`` needs of a model of linear scores."""

    @property
    def numbers(self) -> tuple[int, float]: ...
    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]: ...


def rows_of(model: Model, batch: Batch, x: FloatArray) -> tuple[LabelledTable, IndexArray]:
    """The table that a batch is from, and its row numbers there; for points like x."""
    if batch.shard.arrays:
        shard = cast(Rows, batch.shard)
        return table_of(shard.arrays).fits(shard.where, x), shard.numbers(batch)
    (drawn,) = batch.arguments()
    try:
        rows = as_rows(drawn, "the batch of draw(rng, b)")
        (prepared,) = model.prepare([rows], some=True)
        table = table_of(prepared.arrays).fits(rows.where, x)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"worker {batch.stream.worker}: {error}") from error
    return table, rows.numbers()


class LinearFunction:
    """A linear model on one batch, or on a fresh one for each iteration.

    A search with compiled code runs in one call. Others, and those that have begun, are driven by
    values.
    """

    def __init__(self, model: Model, batch: Batch, x: FloatArray) -> None:
        self.rows = batch.rows
        self._model, self._batch = model, batch
        self._loss = model.numbers
        self._iteration: int | None = None  # of the batch in _drawn
        if batch.shard.arrays:
            self._table(x)

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        data = self._data(x, iteration)
        return float(linear.objective_value(*data, as_plain(x), *self._loss))

    def run(self, search: LocalSearch) -> None:
        compiled = _COMPILED.get(type(search))
        if compiled is None or not compiled(self, search):
            drive(search, self.value)

    def _table(self, x: FloatArray) -> LabelledTable:
        """The table of a shard that has one, for points like x."""
        shard = cast(Rows, self._batch.shard)
        return table_of(shard.arrays).fits(shard.where, x)

    def _data(
        self, x: FloatArray, iteration: int = 0
    ) -> tuple[Dense | Csr, IndexArray, FloatArray]:
        """Layout, row numbers and labels of the batch, for points like x."""
        if iteration != self._iteration:
            self._drawn = rows_of(self._model, self._batch.at(iteration), x)
            self._iteration = iteration
        table, numbers = self._drawn
        return table.fits("data", x).layout, numbers, table[1]

    def _scored(self, x: FloatArray) -> tuple[Any, ...] | None:
        """What the loss needs besides margins: nothing (see ``objectives.scores``)."""
        return None

    # --- searches in compiled code: True, or False where they must be driven by values -------

    def _in_two_parts(self, search: TwoParts | Probed) -> bool:
        while (part := search.part) is not None:
            self.run(part)
            search.proceed()
        return True

    def _one_plus_one(self, search: OnePlusOne) -> bool:
        compiled = _STEPS.get(type(search.proposals))
        if compiled is None or self._batch.fresh or search.evaluations:
            return False
        return compiled(self, search, search.proposals)

    def _mixture(self, search: OnePlusOne, steps: MixtureProposals) -> bool:
        x, key = as_plain(search.x), steps.stream.key()
        batch = self._batch
        scored = self._scored(x)
        if scored is None and batch.batches is Batches.ROUND and batch.shard.arrays:
            shard = cast(Rows, batch.shard)  # its rows are drawn inside the call
            table = self._table(x)
            layout, y = table.layout, table[1]
            rows = *shard.members, batch.size, batch.stream.key()
        else:
            layout, numbers, y = self._data(x)
            rows = numbers, numbers.size, 0, key
        scale = steps.scale[search.first :]
        accepted = np.empty(scale.size, np.bool_)
        nans, *moved = search_mixture(
            layout, *rows, y, x, scale, steps.l, steps.gaussian or None, *self._loss,
            accepted, key, search.first, None if search.box is None else search.box.arrays(),
            _tilt(search), scored,
        )  # fmt: skip
        if nans == UNSEARCHED:
            return False
        search.finish(accepted, int(nans), moved=tuple(moved))
        return True

    def _gaussian(self, search: OnePlusOne, steps: GaussianProposals) -> bool:
        if search.box is not None:  # along a projected direction, margins are no straight lines
            return False
        alpha, v = steps.alpha[search.first :], search.x.copy()
        accepted = np.zeros(alpha.size, np.bool_)
        nans = search_gaussian(
            *self._data(v), v, alpha, search.first, *self._loss, accepted, *steps.stream.key(),
            _dense_tilt(search),
        )  # fmt: skip
        if nans == UNSEARCHED:
            return False
        search.finish(accepted, int(nans), point=v)
        return True

    def _population(self, search: Population) -> bool:
        plain = search.shape is None and search.box is None
        if self._batch.fresh or search.evaluations or not plain:
            return False
        values, x = np.empty(search.members), as_plain(search.x)
        values_around(*self._data(x), x, search.sigma, *self._loss, values, *search.stream.key())
        search.finish(values)
        return True

    def _two_point(self, search: TwoPoint) -> bool:
        if search.evaluations or search.box is not None:
            return False
        plain = search.group == 1 and search.numbers is None
        if plain and self._batch.fresh and self._batch.shard.arrays:
            return self._two_point_on_rows(search)
        if not plain or self._batch.fresh or not search.moving:
            return self._two_point_one_by_one(search)
        slopes, v = np.empty(search.scale.size), search.point
        nans = two_point.descend(
            *self._data(v), v, search.scale, *self._loss, search.radius, slopes,
            *search.stream.key(),
        )  # fmt: skip
        search.finish(slopes, int(nans))
        return True

    def _two_point_on_rows(self, search: TwoPoint) -> bool:
        """All estimates in one call, their minibatches drawn inside it."""
        shard, slopes = cast(Rows, self._batch.shard), np.empty(search.scale.size)
        table, plain = self._table(search.point), slopes.size - len(search.probes)
        rows = table.layout, *shard.members, table[1], self._batch.size
        keys = self._batch.stream.key(), search.stream.key()
        rest = search.scale[:plain], *self._loss, search.radius, slopes[:plain], *keys
        if search.moving:
            nans = two_point.descend_new_batches(*rows, search.point, *rest)
        else:
            x = as_plain(search.x)
            nans = two_point.estimate_new_batches(*rows, x, search.point, *rest)
        search.finish(slopes, int(nans) + self._probe(search, slopes))
        return True

    def _two_point_one_by_one(self, search: TwoPoint) -> bool:
        """A call for each estimate, for groups of them and where a draw(rng, b) of the user comes
        between them."""
        slopes, u, nans = np.zeros(search.scale.size), np.empty_like(search.x), 0
        at = as_plain(search.x).copy()
        for k in range(slopes.size - len(search.probes)):
            step, first = divmod(k, search.group)
            if search.moving and not first:
                at[:] = search.point
            data = self._data(at, step if self._batch.fresh else 0)
            streams.normals(search.direction(k), u.size, out=u)
            slope, lost = two_point.slope(*data, at, u, *self._loss, search.radius)
            nans += int(lost)
            slopes[k] = slope if np.isfinite(slope) else 0.0
            if (c := search.scale[k] * slopes[k]) != 0.0:
                add_scaled(search.point, c, u)
        search.finish(slopes, nans + self._probe(search, slopes))
        return True

    def _probe(self, search: TwoPoint, slopes: FloatArray) -> int:
        """The slopes of the probes, from single values; how many of these are not finite."""
        nans = 0
        for k, (u, above, below, batch) in search.probes.items():
            values = [self.value(search.x + c * u, batch) for c in (above, -below)]
            slope = (values[0] - values[1]) / (above + below)
            slopes[k] = slope if np.isfinite(slope) else 0.0
            nans += sum(not np.isfinite(value) for value in values)
        return nans


#: Compiled searches by the type of the search, and those of OnePlusOne by that of its steps.
_COMPILED: dict[type[Any], Callable[[LinearFunction, Any], bool]] = {
    OnePlusOne: LinearFunction._one_plus_one,
    TwoParts: LinearFunction._in_two_parts,
    Probed: LinearFunction._in_two_parts,
    Tilted: LinearFunction._one_plus_one,
    TwoPoint: LinearFunction._two_point,
    Population: LinearFunction._population,
}
_STEPS: dict[type[Any], Callable[[LinearFunction, OnePlusOne, Any], bool]] = {
    MixtureProposals: LinearFunction._mixture,
    GaussianProposals: LinearFunction._gaussian,
}


def _tilt(search: OnePlusOne) -> tuple[Any, ...] | None:
    """What the kernels add to the comparisons, and where they leave the changes of f_i."""
    if not isinstance(search, Tilted):
        return None
    g, delta, h, *rest = search.tilt
    search.expected = np.empty(search.changes.size)
    plain = as_plain(g), as_plain(delta), as_plain(h)
    return *plain, *rest, search.changes, search.expected


def _dense_tilt(search: OnePlusOne) -> tuple[Any, ...] | None:
    """The same where steps have all coordinates."""
    if not isinstance(search, Tilted):
        return None
    return search.tilt.c, as_plain(search.x), search.tilt.mu, search.tilt.stays, search.changes


def as_plain(x: FloatArray) -> FloatArray:
    """x as the kernels were compiled for: contiguous, and as if it were writeable."""
    return as_writeable(np.ascontiguousarray(x))
