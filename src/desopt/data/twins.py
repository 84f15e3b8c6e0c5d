"""Generated data of a given shape, with columns as uneven as those of text.

They stand in for data sets that are not at hand and are never called by a real name.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from desopt.types import FloatArray, IndexArray

#: Columns are drawn with density 1 / (rank + _OFFSET): a few are in every row, most in few.
_OFFSET = 30.0


def sparse_twin(
    rows: int, n: int, nonzeros: float, seed: int = 0
) -> tuple[sparse.csr_matrix, FloatArray]:
    """A CSR matrix with about this many non-zeros per row, rows of unit length, and labels.

    Labels are the sign of a random linear model, a tenth of them flipped.
    """
    rng = np.random.default_rng(seed)
    draws = _draws_for(nonzeros, n, rng)
    columns = np.sort(_columns(rng, (rows, draws), n), axis=1)
    keep = np.ones(columns.shape, np.bool_)
    keep[:, 1:] = columns[:, 1:] != columns[:, :-1]
    indptr = np.zeros(rows + 1, np.int64)
    np.cumsum(keep.sum(axis=1), out=indptr[1:])
    indices = columns[keep].astype(np.int32)
    data = rng.gamma(2.0, 0.5, indices.size) + 0.05
    lengths = np.sqrt(np.add.reduceat(data * data, indptr[:-1]))
    data /= np.repeat(lengths, np.diff(indptr))
    X = sparse.csr_matrix((data, indices, indptr), shape=(rows, n))
    return X, _labels(X @ rng.standard_normal(n), rng)


def dense_twin(rows: int, n: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """A dense matrix with entries in [0, 1] and labels."""
    rng = np.random.default_rng(seed)
    X = rng.random((rows, n))
    return X, _labels((X - 0.5) @ rng.standard_normal(n), rng)


def _columns(rng: np.random.Generator, shape: tuple[int, int], n: int) -> IndexArray:
    """Column numbers: popularity falls with the rank, and ranks are spread over all columns."""
    rank = _OFFSET * ((1.0 + n / _OFFSET) ** rng.random(shape) - 1.0)
    spread = 2_654_435_761  # a prime, so that the map of ranks to columns is one to one
    return (np.minimum(rank.astype(np.int64), n - 1) * spread) % n


def _draws_for(nonzeros: float, n: int, rng: np.random.Generator) -> int:
    """How many draws leave this many different columns in a row, on average."""
    draws = math.ceil(nonzeros)
    while True:
        sample = np.sort(_columns(rng, (200, draws), n), axis=1)
        if 1.0 + (np.diff(sample, axis=1) != 0).sum() / 200 >= nonzeros or draws > 50 * nonzeros:
            return draws
        draws += max(1, draws // 20)


def _labels(score: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.where((score > np.median(score)) ^ (rng.random(score.size) < 0.1), 1.0, -1.0)
