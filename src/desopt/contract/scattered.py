"""Vectors of which few numbers are not zero: what a mixture search has moved of a large x.

A step of des-mr changes l coordinates, so that a run moves at most l for each accepted step,
however large n is. A state may therefore have its vectors as ``Scattered``: 16 bytes for each
number that was ever moved, none for the others. Their bits are those of arrays: a merge gathers
the coordinates that it needs (``window``) and works on these as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desopt.contract.types import FloatArray, IndexArray
from desopt.kernels.lanes import ROW_WIDTH

#: Numbers of ``pieces``.
PIECE = 2**16


class Scattered:
    """n numbers: ``values`` at ``columns``, which rise, and 0.0 elsewhere."""

    __slots__ = ("columns", "size", "values")

    def __init__(self, size: int, columns: Any = (), values: Any = ()) -> None:
        self.size = size
        self.columns: IndexArray = np.asarray(columns, np.int64)
        self.values: FloatArray = np.asarray(values, np.float64)

    @classmethod
    def of(cls, pieces: Iterable[FloatArray]) -> Scattered:
        """An array that comes in pieces."""
        size, columns, values = 0, [np.empty(0, np.int64)], [np.empty(0)]
        for piece in pieces:
            found = np.flatnonzero(piece.view(np.int64))  # -0.0 is not 0.0
            columns.append(found + size)
            values.append(piece[found])
            size += piece.size
        return cls(size, np.concatenate(columns), np.concatenate(values))

    @property
    def nbytes(self) -> int:
        """As an array: what its messages are counted by."""
        return 8 * self.size

    def __getitem__(self, index: IndexArray) -> FloatArray:
        """The numbers at these coordinates."""
        at = np.searchsorted(self.columns, index)
        found = np.zeros(at.shape)
        there = at < self.columns.size
        there[there] = self.columns[at[there]] == index[there]
        found[there] = self.values[at[there]]
        return found

    def put(self, index: IndexArray, values: FloatArray) -> None:
        """Other numbers at these coordinates, given once each."""
        index, first = np.unique(np.concatenate((index, self.columns)), return_index=True)
        self.values = np.concatenate((values, self.values))[first]
        self.columns = index

    def copy(self) -> Scattered:
        return Scattered(self.size, self.columns, self.values)

    def pieces(self) -> Iterator[FloatArray]:
        """As an array, in pieces."""
        for begin in range(0, self.size, PIECE):
            piece = np.zeros(min(PIECE, self.size - begin))
            first, last = np.searchsorted(self.columns, (begin, begin + piece.size))
            piece[self.columns[first:last] - begin] = self.values[first:last]
            yield piece

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = np.zeros(self.size, dtype)
        whole[self.columns] = self.values
        return whole


def zeros_like(x: Any) -> Any:
    """As many zeros, scattered where x is."""
    return Scattered(x.size) if isinstance(x, Scattered) else np.zeros_like(x)


def stored(x: Any) -> FloatArray:
    """The numbers of x that are in memory."""
    return x.values if isinstance(x, Scattered) else x


def pieces_of(x: Any) -> Iterator[FloatArray]:
    """x in pieces, none of them large."""
    if isinstance(x, Scattered):
        return x.pieces()
    flat = np.asarray(x).reshape(-1)
    return (flat[begin : begin + PIECE] for begin in range(0, flat.size, PIECE))


def window(n: int, columns: Iterable[IndexArray], dots: bool) -> IndexArray:
    """These coordinates in rising order; ``dots``: so that scalar products keep their bits.

    Then there are others between them: whole groups of ``ROW_WIDTH``, and all that is left after
    the last one. Every number is in the lane that it has among all n, and zeros add nothing.
    """
    if not dots:
        return np.unique(np.concatenate([*columns]))
    groups = np.unique(np.concatenate([c // ROW_WIDTH for c in columns]))
    whole = groups[groups < n // ROW_WIDTH]
    inside = (whole[:, np.newaxis] * ROW_WIDTH + np.arange(ROW_WIDTH)).reshape(-1)
    return np.concatenate((inside, np.arange(n - n % ROW_WIDTH, n)))
