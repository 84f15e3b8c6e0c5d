"""Linear models: a loss of the margin and an L2 penalty (the paper's three problems).

f(x) = (1/N) sum_i loss(y_i z_i^T x) + penalty/2 ||x||^2 with labels y_i = -1 or +1. The losses
are in ``desopt.objectives.losses``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy import sparse

from desopt.contract import streams
from desopt.contract.types import Batches, FloatArray, IndexArray, LocalSearch
from desopt.data import (
    Arrays,
    Batch,
    Loaders,
    NoData,
    Partitioned,
    Rows,
    Shard,
    all_finite,
    as_rows,
    distinct,
)
from desopt.data.checks import refuse_width
from desopt.data.shards import as_writeable
from desopt.kernels import linear, two_point
from desopt.kernels.gaussian import search_gaussian, values_around
from desopt.kernels.layouts import Csr, Dense
from desopt.kernels.mixture import UNSEARCHED, search_mixture
from desopt.kernels.steps import add_scaled
from desopt.methods.proposals import GaussianProposals, MixtureProposals
from desopt.methods.searches import OnePlusOne, Population, TwoPoint
from desopt.objectives.local import drive
from desopt.objectives.losses import LOSSES


class Table(Arrays):
    """X as finite float64 and y as -1 and +1: nothing else ever gets to the kernels.

    It is made of checked ``Arrays`` only; ``done`` holds what other shards share with this one.
    """

    def __new__(cls, arrays: Any, where: str, negative: float, done: dict[int, Any]) -> Table:
        if not isinstance(arrays, Arrays):
            raise TypeError(f"a table is made of checked Arrays, got {type(arrays).__name__}")
        X, y = arrays
        if id(X) not in done:
            done[id(X)] = _as_float_matrix(X)
            if not all_finite(done[id(X)]):  # only now: float64 holds less than longdouble
                raise ValueError(
                    f"{where}: X contains infinity, or numbers too large for float64; remove or "
                    "replace these entries first"
                )
        if id(y) not in done:
            done[id(y)] = np.where(y == negative, -1.0, 1.0)
        return tuple.__new__(cls, (done[id(X)], done[id(y)]))

    @cached_property
    def layout(self) -> Dense | Csr:
        """X as the kernels take it. There are no other layouts than these."""
        X = self[0]
        if sparse.issparse(X):
            return Csr(*map(as_writeable, (X.indptr, X.indices, X.data)))
        return Dense(as_writeable(X))

    def fits(self, where: str, *points: FloatArray) -> Table:
        """The table, if the points have a number for each of its columns."""
        n = self[0].shape[1]
        for point in points:
            if point.shape != (n,):
                refuse_width(where, n, point.size)
        return self


def _table(arrays: tuple[Any, ...]) -> Table:
    if not isinstance(arrays, Table):
        raise TypeError("a linear model works on shards that went through its prepare() only")
    return arrays


@dataclass(frozen=True)
class LinearModel:
    """loss(y z^T x) + penalty/2 ||x||^2; data are (X, y), X dense or sparse."""

    loss: str
    penalty: float = 1e-6
    compiled = True

    def __post_init__(self) -> None:
        if not (np.isfinite(self.penalty) and self.penalty >= 0):
            raise ValueError(f"regularization must be a number >= 0, got {self.penalty!r}")

    def settings(self) -> dict[str, Any]:
        return {"name": self.loss, "penalty": self.penalty}

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        if isinstance(shards, Partitioned):
            return int(shards.arrays[0].shape[1])
        having = {i: s for i, s in enumerate(distinct(shards)) if isinstance(s, Rows)}
        _check_columns(having)
        return next((int(shard.arrays[0].shape[1]) for shard in having.values()), None)

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        """Arrays as the kernels want them, converted once and shared; labels as -1 and +1."""
        if isinstance(shards, Loaders):
            return shards  # each is prepared where it is loaded
        if isinstance(shards, Partitioned):
            (whole,) = self.prepare([Rows(shards.arrays)], some=some)
            return replace(shards, arrays=whole.arrays, single=False)
        with_arrays = [shard for shard in shards if isinstance(shard, Rows)]
        for given in with_arrays:
            self._check_arrays(given.arrays, given.where)
        negative = _negative_label(with_arrays, some)
        done: dict[int, Any] = {}  # shards of one data set share their arrays, and go on doing so
        prepared: list[Shard] = []
        for shard in shards:
            if isinstance(shard, NoData):
                raise TypeError(f"data is missing: {self.loss!r} needs data=(X, y)")
            if isinstance(shard, Rows):
                table = Table(shard.arrays, shard.where, negative, done)
                shard = replace(shard, arrays=table, single=False)
            prepared.append(shard)
        return prepared

    def score(self, shard: Rows, x: FloatArray) -> tuple[float, int]:
        """f on all rows of a shard, and the number of rows on the wrong side."""
        table = _table(shard.arrays).fits(shard.where, x)
        model = LOSSES[self.loss].kind, self.penalty
        value, errors = linear.value_and_errors(
            table.layout, shard.numbers(), table[1], as_plain(x), *model
        )
        return float(value), int(errors)

    def bind(self, batch: Batch, x: FloatArray) -> LinearFunction:
        return LinearFunction(self, batch, x)

    def rows_of(self, batch: Batch, x: FloatArray) -> tuple[Table, IndexArray]:
        """The table that a batch is from, and its row numbers there; for points like x."""
        if batch.shard.arrays:
            shard = cast(Rows, batch.shard)
            return _table(shard.arrays).fits(shard.where, x), shard.numbers(batch)
        (drawn,) = batch.arguments()
        try:
            rows = as_rows(drawn, "the batch of draw(rng, b)")
            (prepared,) = self.prepare([rows], some=True)
            table = _table(prepared.arrays).fits(rows.where, x)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"worker {batch.stream.worker}: {error}") from error
        return table, rows.numbers()

    def _check_arrays(self, arrays: tuple[Any, ...], where: str) -> None:
        shapes = [array.shape for array in arrays]
        if [len(shape) for shape in shapes] != [2, 1]:
            raise ValueError(
                f"{where}: data for {self.loss!r} must be (X, y): a matrix and a vector of labels; "
                f"got {len(arrays)} array(s) of shape {', '.join(map(str, shapes))}"
            )
        if arrays[0].dtype.kind not in "fiub":
            raise TypeError(f"{where}: X must hold real numbers, got dtype {arrays[0].dtype}")
        if arrays[0].shape[1] == 0:
            raise ValueError(f"{where}: X must have at least one column, got shape {shapes[0]}")
        if arrays[1].dtype.kind not in "fiub":
            raise TypeError(
                f"{where}: labels must be numbers, got dtype {arrays[1].dtype}; "
                "map them to -1 and +1 first"
            )
        if not all_finite(arrays[1]):
            raise ValueError(f"{where}: labels must be finite; map them to -1 and +1 first")


class LinearFunction:
    """A linear model on one batch, or on a fresh one for each iteration.

    The searches that have compiled code run in one call; all others are driven by values.
    """

    def __init__(self, model: LinearModel, batch: Batch, x: FloatArray) -> None:
        self.rows = batch.rows
        self._linear, self._batch = model, batch
        self._loss = LOSSES[model.loss].kind, model.penalty
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

    def _table(self, x: FloatArray) -> Table:
        """The table of a shard that has one, for points like x."""
        shard = cast(Rows, self._batch.shard)
        return _table(shard.arrays).fits(shard.where, x)

    def _data(
        self, x: FloatArray, iteration: int = 0
    ) -> tuple[Dense | Csr, IndexArray, FloatArray]:
        """Layout, row numbers and labels of the batch, for points like x."""
        if iteration != self._iteration:
            self._drawn = self._linear.rows_of(self._batch.at(iteration), x)
            self._iteration = iteration
        table, numbers = self._drawn
        return table.fits("data", x).layout, numbers, table[1]

    # --- searches in compiled code: True, or False where they must be driven by values -------

    def _one_plus_one(self, search: OnePlusOne) -> bool:
        compiled = _STEPS.get(type(search.proposals))
        return compiled is not None and compiled(self, search, search.proposals)

    def _mixture(self, search: OnePlusOne, steps: MixtureProposals) -> bool:
        x, key = as_plain(search.x), steps.stream.key()
        batch = self._batch
        if batch.batches is Batches.ROUND and batch.shard.arrays:
            shard = cast(Rows, batch.shard)  # its rows are drawn inside the call
            table = self._table(x)
            layout, y = table.layout, table[1]
            rows = *shard.members, batch.size, batch.stream.key()
        else:
            layout, numbers, y = self._data(x)
            rows = numbers, numbers.size, 0, key
        accepted = np.empty(steps.scale.size, np.bool_)
        nans, *moved = search_mixture(
            layout, *rows, y, x, steps.scale, steps.l, steps.gaussian or None, *self._loss,
            accepted, key,
        )  # fmt: skip
        if nans == UNSEARCHED:
            return False
        search.finish(accepted, int(nans), moved=tuple(moved))
        return True

    def _gaussian(self, search: OnePlusOne, steps: GaussianProposals) -> bool:
        accepted, v = np.zeros(steps.alpha.size, np.bool_), search.x.copy()
        nans = search_gaussian(
            *self._data(v), v, steps.alpha, *self._loss, accepted, *steps.stream.key()
        )
        if nans == UNSEARCHED:
            return False
        search.finish(accepted, int(nans), point=v)
        return True

    def _population(self, search: Population) -> bool:
        values, x = np.empty(search.members), as_plain(search.x)
        values_around(*self._data(x), x, search.sigma, *self._loss, values, *search.stream.key())
        search.finish(values)
        return True

    def _two_point(self, search: TwoPoint) -> bool:
        if self._batch.fresh and self._batch.shard.arrays:
            return self._two_point_on_rows(search)
        if self._batch.fresh or not search.moving:
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
        table = self._table(search.point)
        rows = table.layout, *shard.members, table[1], self._batch.size
        keys = self._batch.stream.key(), search.stream.key()
        rest = search.scale, *self._loss, search.radius, slopes, *keys
        if search.moving:
            nans = two_point.descend_new_batches(*rows, search.point, *rest)
        else:
            x = as_plain(search.x)
            nans = two_point.estimate_new_batches(*rows, x, search.point, *rest)
        search.finish(slopes, int(nans))
        return True

    def _two_point_one_by_one(self, search: TwoPoint) -> bool:
        """A call for each estimate: a user's draw(rng, b) comes between them."""
        slopes, u, nans = np.zeros(search.scale.size), np.empty_like(search.x), 0
        at = search.point if search.moving else as_plain(search.x)
        for k in range(slopes.size):
            data = self._data(at, k if self._batch.fresh else 0)
            streams.normals(search.stream.at(k), u.size, out=u)
            slope, lost = two_point.slope(*data, at, u, *self._loss, search.radius)
            nans += int(lost)
            slopes[k] = slope if np.isfinite(slope) else 0.0
            if (c := search.scale[k] * slopes[k]) != 0.0:
                add_scaled(search.point, c, u)
        search.finish(slopes, nans)
        return True


#: Compiled searches by the type of the search, and those of OnePlusOne by that of its steps.
_COMPILED: dict[type[Any], Callable[[LinearFunction, Any], bool]] = {
    OnePlusOne: LinearFunction._one_plus_one,
    TwoPoint: LinearFunction._two_point,
    Population: LinearFunction._population,
}
_STEPS: dict[type[Any], Callable[[LinearFunction, OnePlusOne, Any], bool]] = {
    MixtureProposals: LinearFunction._mixture,
    GaussianProposals: LinearFunction._gaussian,
}


def as_plain(x: FloatArray) -> FloatArray:
    """x as the kernels were compiled for: contiguous, and as if it were writeable."""
    return as_writeable(np.ascontiguousarray(x))


def _as_float_matrix(X: Any) -> Any:
    """C-ordered or CSR float64, without a copy where it is so already."""
    with np.errstate(over="ignore"):  # a number too large becomes infinite, and is refused
        if sparse.issparse(X):
            return X.astype(np.float64, copy=False)
        return np.require(X, np.float64, ["C", "A"])


def _check_columns(shards: Mapping[int, Rows]) -> None:
    """Refuse workers whose columns are not those of the others, as far as can be seen."""
    widths = {worker: int(shard.arrays[0].shape[1]) for worker, shard in shards.items()}
    names = {worker: shard.columns for worker, shard in shards.items() if shard.columns}
    usual = Counter(widths.values()).most_common(1)[0][0] if widths else 0
    like = next((worker for worker, width in widths.items() if width == usual), 0)
    for worker, width in widths.items():
        if width != usual:
            lost = [repr(name) for name in names.get(like, ()) if name not in names.get(worker, ())]
            without = f" (without {', '.join(lost[:8])})" if lost and worker in names else ""
            raise ValueError(
                f"data: worker {worker} has {width} columns{without}, worker {like} has {usual}; "
                "every worker's data need the same columns in the same order"
            )
    first = next(iter(names), 0)
    for worker, own in names.items():
        for j, (name, other) in enumerate(zip(own, names[first], strict=True)):
            if name != other:
                raise ValueError(
                    f"data: column {j} of worker {worker} is {name!r}, of worker {first} "
                    f"{other!r}; every worker's data need the same columns in the same order"
                )


def _negative_label(shards: Sequence[Rows], some: bool) -> float:
    """Which label stands for -1: the smaller of the two that occur.

    Where only some of the labels can be seen (a worker's loader, a drawn batch) one side may
    be missing, so these must be -1 and +1, or 0 and 1.
    """
    seen = {id(shard.arrays[1]): _different(shard.arrays[1]) for shard in shards}
    values = set[float]().union(*seen.values())
    if values <= {-1, 1}:
        return -1.0
    if values <= {0, 1}:
        return 0.0
    if len(values) == 2 and not some:
        return min(values)
    where = shards[0].where if len(shards) == 1 else "data"
    if not some and all(kind <= {-1, 1} or kind <= {0, 1} for kind in seen.values()):
        odd = next(shard for shard in shards if 0 in seen[id(shard.arrays[1])])
        raise ValueError(
            f"{where}: labels are 0 and 1 in {odd.where}, but -1 and +1 in others; use -1 and +1 "
            "everywhere"
        )
    shown = ", ".join(f"{value:g}" for value in sorted(values)[:6])
    allowed = "-1 and +1, or 0 and 1" if some else "two-valued (-1/+1, 0/1 or any two numbers)"
    raise ValueError(
        f"{where}: labels must be {allowed}; got {len(values)} different: {shown}"
        f"{', ...' if len(values) > 6 else ''}. Make them binary first, e.g. y > {shown[:1]}"
    )


def _different(y: Any) -> set[float]:
    """The different labels. Mostly there are two of them, which needs no sorting."""
    ends = y.min(), y.max()
    if ((y == ends[0]) | (y == ends[1])).all():
        return {float(end) for end in ends}
    return {float(value) for value in np.unique(y)}
