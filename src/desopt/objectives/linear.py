"""Linear models: a loss of the margin and an L2 penalty (the paper's three problems).

f(x) = (1/N) sum_i loss(y_i z_i^T x) + penalty/2 ||x||^2 with labels y_i = -1 or +1. The losses
are in ``desopt.objectives.losses``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy import sparse

from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import BoolArray, FloatArray, IndexArray
from desopt.data import (
    Arrays,
    Dealt,
    Loaders,
    Nothing,
    Pick,
    Rows,
    Shard,
    all_finite,
    as_rows,
    distinct,
)
from desopt.data.checks import refuse_width
from desopt.data.shards import as_writeable
from desopt.kernels import linear as kernels
from desopt.kernels import two_point
from desopt.kernels.gaussian import search_gaussian, values_around
from desopt.kernels.layouts import Csr, Dense
from desopt.kernels.mixture import UNSEARCHED, search_mixture
from desopt.objectives.base import PointFunction
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
        if isinstance(shards, Dealt):
            return int(shards.arrays[0].shape[1])
        having = {i: s for i, s in enumerate(distinct(shards)) if isinstance(s, Rows)}
        _check_columns(having)
        return next((int(shard.arrays[0].shape[1]) for shard in having.values()), None)

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        """Arrays as the kernels want them, converted once and shared; labels as -1 and +1."""
        if isinstance(shards, Loaders):
            return shards  # each is prepared where it is loaded
        if isinstance(shards, Dealt):
            (whole,) = self.prepare([Rows(shards.arrays)], some=some)
            return replace(shards, arrays=whole.arrays, single=False)
        with_arrays = [shard for shard in shards if isinstance(shard, Rows)]
        for given in with_arrays:
            self._check_arrays(given.arrays, given.where)
        negative = _negative_label(with_arrays, some)
        done: dict[int, Any] = {}  # shards of one data set share their arrays, and go on doing so
        prepared: list[Shard] = []
        for shard in shards:
            if isinstance(shard, Nothing):
                self.on_nothing(np.empty(0))
            if isinstance(shard, Rows):
                table = Table(shard.arrays, shard.where, negative, done)
                shard = replace(shard, arrays=table, single=False)
            prepared.append(shard)
        return prepared

    def form(self, arrays: tuple[Any, ...]) -> tuple[Dense | Csr, FloatArray, int, float]:
        """Data and loss as the kernels take them."""
        table = _table(arrays)
        return table.layout, table[1], LOSSES[self.loss].kind, self.penalty

    def score(self, shard: Rows, x: FloatArray) -> tuple[float, int]:
        """f on all rows of a shard, and the number of rows on the wrong side."""
        table = _table(shard.arrays).fits(shard.where, x)
        model = LOSSES[self.loss].kind, self.penalty
        value, errors = kernels.value_and_errors(
            table.layout, shard.numbers(), table[1], as_writeable(np.ascontiguousarray(x)), *model
        )
        return float(value), int(errors)

    def on_rows(
        self, shard: Rows, picked: IndexArray | Pick | None, x: FloatArray
    ) -> LinearFunction:
        return LinearFunction(self, shard, picked, x)

    def on_batch(self, batch: Any, size: int, x: FloatArray) -> LinearFunction:
        (shard,) = self.prepare([as_rows(batch, "the batch of draw(rng, b)")], some=True)
        return self.on_rows(cast(Rows, shard), None, x)

    def on_nothing(self, x: FloatArray) -> LinearFunction:
        raise TypeError(f"data is missing: {self.loss!r} needs data=(X, y)")

    def walk(
        self,
        shard: Rows,
        batch_size: int,
        at: FloatArray,
        moved: FloatArray,
        scale: FloatArray,
        radius: float,
        stream: Stream,
    ) -> tuple[FloatArray, int]:
        """``Local.walk`` on the rows of a shard, in one call: all g_k, and how many were NaN."""
        table = _table(shard.arrays).fits(shard.where, at, moved)
        slopes = np.empty(scale.size)
        keys = stream.of(Purpose.BATCH).key(), stream.of(Purpose.NORMAL).key()
        rows = table.layout, *shard.members, table[1], batch_size
        rest = scale, LOSSES[self.loss].kind, self.penalty, radius, slopes, *keys
        if at is moved:
            nans = two_point.walk(*rows, at, *rest)
        else:
            nans = two_point.survey(*rows, at, moved, *rest)
        return slopes, int(nans)

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


class LinearFunction(PointFunction):
    """A linear model on the rows of one batch.

    Inherits the generic searches by full evaluation; replaces those that have a compiled form.
    """

    def __init__(
        self, model: LinearModel, shard: Rows, picked: IndexArray | Pick | None, x: FloatArray
    ) -> None:
        super().__init__(x, shard.size if picked is None else picked.size)
        self._table = _table(shard.arrays).fits(shard.where, x)
        self._shard, self._picked = shard, picked
        self._model = LOSSES[model.loss].kind, model.penalty
        self._moved: tuple[IndexArray, FloatArray, FloatArray] | None = None

    @cached_property
    def _data(self) -> tuple[Dense | Csr, IndexArray, FloatArray]:
        return self._table.layout, self._shard.numbers(self._picked), self._table[1]

    def at(self, x: FloatArray) -> float:
        self._table.fits(self._shard.where, x)
        return float(kernels.objective_value(*self._data, x, *self._model))

    @property
    def change(self) -> tuple[IndexArray, FloatArray] | None:
        if self._moved is None:
            return None
        columns, _values, change = self._moved
        return columns, change

    @property
    def _v(self) -> FloatArray:
        v = super()._v
        if self._moved is not None:  # where a sparse search ended: n numbers only on demand
            columns, values, _change = self._moved
            v[columns] = values
            self._moved = None
        return v

    @property
    def _here(self) -> FloatArray:
        """v to read from: x itself while v has not left it."""
        return self._x if self._copy is None and self._moved is None else self.point

    def search_mixture(
        self, stream: Stream, scale: FloatArray, l: int, gaussian: bool
    ) -> BoolArray:
        accepted = np.empty(scale.size, np.bool_)
        key = stream.key()
        if isinstance(self._picked, Pick) and "_data" not in self.__dict__:
            rows = *self._shard.members, self._picked.size, self._picked.stream.key()
            layout, y = self._table.layout, self._table[1]
        else:
            layout, numbers, y = self._data
            rows = numbers, numbers.size, 0, key
        nans, *moved = search_mixture(
            layout, *rows, y, self._here, scale, l, gaussian or None, *self._model, accepted, key
        )
        if nans == UNSEARCHED:  # point by point, then
            return super().search_mixture(stream, scale, l, gaussian)
        self._moved = tuple(moved)
        return self._searched(accepted, nans)

    def search_gaussian(self, stream: Stream, alpha: FloatArray) -> BoolArray:
        accepted = np.zeros(alpha.size, np.bool_)
        nans = search_gaussian(
            *self._data, self.point, alpha, *self._model, accepted, *stream.key()
        )
        if nans == UNSEARCHED:
            return super().search_gaussian(stream, alpha)
        return self._searched(accepted, nans)

    def values_around(self, stream: Stream, scale: float, count: int) -> FloatArray:
        out = np.empty(count)
        values_around(*self._data, self.point, scale, *self._model, out, *stream.key())
        self.evaluations += count
        self.nans += int(out.size - np.isfinite(out).sum())
        return out

    def slope(self, u: FloatArray, radius: float) -> float:
        self._table.fits(self._shard.where, u)
        found, nans = two_point.slope(*self._data, self._here, u, *self._model, radius)
        self._estimated(1, nans)
        return float(found)

    def descend(self, stream: Stream, scale: FloatArray, radius: float) -> FloatArray:
        slopes = np.empty(scale.size)
        nans = two_point.descend(
            *self._data, self.point, scale, *self._model, radius, slopes, *stream.key()
        )
        self._estimated(scale.size, nans)
        return slopes

    def _estimated(self, count: int, nans: int) -> None:
        self.evaluations += 2 * count
        self.nans += int(nans)

    def _searched(self, accepted: BoolArray, nans: int) -> BoolArray:
        self.evaluations += accepted.size + 1
        self.nans += int(nans)
        return accepted


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
