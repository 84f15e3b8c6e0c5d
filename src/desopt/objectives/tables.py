"""Rows as the kernels of linear models need them: X in float64, labels -1 and +1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse

from desopt.contract.types import FloatArray
from desopt.data import Arrays, Partitioned, Rows, Shard, all_finite, distinct
from desopt.data.checks import refuse_width
from desopt.data.shards import as_writeable
from desopt.kernels.layouts import Csr, Dense


class Table(Arrays):
    """Checked arrays, the first of which is X as finite float64, C-ordered or CSR."""

    @cached_property
    def layout(self) -> Dense | Csr:
        """X as the kernels take it. There are no other layouts than these."""
        X = self[0]
        if sparse.issparse(X):
            return Csr(*map(as_writeable, (X.indptr, X.indices, X.data)))
        return Dense(as_writeable(X))

    def fits(self, where: str, *points: FloatArray) -> Self:
        """The table, if the points have a number for each of its columns."""
        n = self[0].shape[1]
        for point in points:
            if point.shape != (n,):
                refuse_width(where, n, point.size)
        return self


class LabelledTable(Table):
    """X as finite float64 and y as -1 and +1: nothing else ever gets to the kernels.

    It is made of checked ``Arrays`` only; ``done`` holds what other shards share with this one.
    """

    def __new__(
        cls, arrays: Any, where: str, negative: float, done: dict[int, Any]
    ) -> LabelledTable:
        if not isinstance(arrays, Arrays):
            raise TypeError(f"a table is made of checked Arrays, got {type(arrays).__name__}")
        X, y = arrays
        if id(X) not in done:
            done[id(X)] = as_float_matrix(X, where)
        if id(y) not in done:
            done[id(y)] = np.where(y == negative, -1.0, 1.0)
        return tuple.__new__(cls, (done[id(X)], done[id(y)]))


def table_of(arrays: tuple[Any, ...]) -> LabelledTable:
    """The arrays of a prepared shard."""
    if not isinstance(arrays, LabelledTable):
        raise TypeError("a linear model works on shards that went through its prepare() only")
    return arrays


def check_arrays(arrays: tuple[Any, ...], where: str, loss: str) -> None:
    """Refuse data that are not a matrix of numbers and a vector of labels."""
    shapes = [array.shape for array in arrays]
    if [len(shape) for shape in shapes] != [2, 1]:
        raise ValueError(
            f"{where}: data for {loss!r} must be (X, y): a matrix and a vector of labels; "
            f"got {len(arrays)} array(s) of shape {', '.join(map(str, shapes))}"
        )
    check_matrix(arrays[0], where)
    if arrays[1].dtype.kind not in "fiub":
        raise TypeError(
            f"{where}: labels must be numbers, got dtype {arrays[1].dtype}; "
            "map them to -1 and +1 first"
        )
    if not all_finite(arrays[1]):
        raise ValueError(f"{where}: labels must be finite; map them to -1 and +1 first")


def check_matrix(X: Any, where: str) -> None:
    """Refuse an X that is not numbers in columns."""
    if X.dtype.kind not in "fiub":
        raise TypeError(f"{where}: X must hold real numbers, got dtype {X.dtype}")
    if X.shape[1] == 0:
        raise ValueError(f"{where}: X must have at least one column, got shape {X.shape}")


def as_float_matrix(X: Any, where: str) -> Any:
    """X as finite float64, C-ordered or CSR; not copied if it is that already."""
    with np.errstate(over="ignore"):  # a number too large becomes infinite, and is refused
        if sparse.issparse(X):
            matrix = X.astype(np.float64, copy=False)
        else:
            matrix = np.require(X, np.float64, ["C", "A"])
    if not all_finite(matrix):  # only now: float64 holds less than longdouble
        raise ValueError(
            f"{where}: X contains infinity, or numbers too large for float64; remove or "
            "replace these entries first"
        )
    return matrix


def column_count(shards: Sequence[Shard]) -> int | None:
    """n, the same for all workers; None where nobody has arrays on this side."""
    if isinstance(shards, Partitioned):
        return int(shards.arrays[0].shape[1])
    having = {i: s for i, s in enumerate(distinct(shards)) if isinstance(s, Rows)}
    _check_columns(having)
    return next((int(shard.arrays[0].shape[1]) for shard in having.values()), None)


def _check_columns(shards: Mapping[int, Rows]) -> None:
    """Refuse a worker with other columns than the rest, by number or by name."""
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


def negative_label(shards: Sequence[Rows], some: bool) -> float:
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
        f"{', ...' if len(values) > 6 else ''}. Make them binary first, e.g. y > {min(values):g}"
    )


def _different(y: Any) -> set[float]:
    """The different labels. Mostly there are two of them, which needs no sorting."""
    ends = y.min(), y.max()
    if ((y == ends[0]) | (y == ends[1])).all():
        return {float(end) for end in ends}
    return {float(value) for value in np.unique(y)}
