"""Matrices as data sets hold them: dense arrays, or CSR with 32-bit indices."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desopt.contract.types import FloatArray

Matrix: TypeAlias = Any  # a C-ordered float64 array or a scipy.sparse.csr_matrix

#: From this density on a matrix is stored dense: the kernels are then faster than on CSR, which
#: for covtype (0.22) takes half the time for most methods, as less has to come from memory.
DENSE_FROM = 0.3


def csr(data: FloatArray, indices: NDArray[Any], indptr: NDArray[Any], n: int) -> Matrix:
    """A CSR matrix of arrays known to be well-formed, which SciPy would look through."""
    matrix = sparse.csr_matrix((indptr.size - 1, n))
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def density(X: Matrix) -> float:
    """The share of the entries that are not zero (of CSR: that are stored)."""
    count = X.nnz if sparse.issparse(X) else np.count_nonzero(X)
    return float(count / (X.shape[0] * X.shape[1]))


def suited(X: Matrix, n: int = 0) -> Matrix:
    """The matrix with at least n columns, in the layout that suits its density."""
    n = max(n, X.shape[1])
    if not sparse.issparse(X):
        return np.ascontiguousarray(np.pad(X, ((0, 0), (0, n - X.shape[1]))), np.float64)
    X = csr(X.data, X.indices, X.indptr, n)
    return X.toarray() if density(X) >= DENSE_FROM else X


def unit_rows(X: Matrix) -> Matrix:
    """Rows scaled to length 1; rows of zeros stay."""
    if not sparse.issparse(X):
        lengths = np.sqrt(np.add.reduce(X * X, axis=1))[:, None]
        return X / np.where(lengths > 0, lengths, 1.0)
    squares = np.zeros(X.data.size + 1)
    np.multiply(X.data, X.data, out=squares[:-1])
    counts = np.diff(X.indptr)
    sums = np.where(counts > 0, np.add.reduceat(squares, X.indptr[:-1]), 1.0)
    lengths = np.sqrt(np.where(sums > 0, sums, 1.0))
    return csr(X.data / np.repeat(lengths, counts), X.indices, X.indptr, X.shape[1])
