"""A correlation matrix C = A A^T by its lower triangular factor A, for methods that learn one.

Row i of A starts at i (i + 1) / 2 of a flat array and has i + 1 numbers. All sums are those of
``lanes.dot``: a library's matrix products have other bits on other machines.
"""

from __future__ import annotations

import numpy as np

from desopt.kernels.jit import exact
from desopt.kernels.lanes import dot

#: The least pivot of a matrix with a diagonal of 1 that still counts as positive definite.
_LEAST = 1e-14


@exact
def multiply(factor, z):
    """z = A z, in place."""
    n = z.size
    first = n * (n + 1) // 2
    for i in range(n - 1, -1, -1):  # row i needs the old z_0 .. z_i
        first -= i + 1
        z[i] = dot(factor, first, z, i + 1)


@exact
def solve(factor, y):
    """y = A^-1 y, in place."""
    first = 0
    for i in range(y.size):
        y[i] = (y[i] - dot(factor, first, y, i)) / factor[first + i]
        first += i + 1


@exact
def inverse_trace(factor, n):
    """The trace of C^-1: the sum of the squares of A^-1."""
    column = np.empty(n)
    total = 0.0
    for j in range(n):
        below = column[: n - j]
        first = j * (j + 1) // 2
        below[0] = 1.0 / factor[first + j]
        for i in range(j + 1, n):
            first += i
            below[i - j] = -dot(factor, first + j, below, i - j) / factor[first + i]
        total += dot(below, 0, below, n - j)
    return total


@exact
def cholesky(matrix, n):
    """The factor of a symmetric matrix, its lower half packed likewise, in its place.

    False if it is not positive definite.
    """
    row = 0
    for i in range(n):
        column = 0
        for j in range(i):
            rest = matrix[row + j] - dot(matrix, row, matrix[column:], j)
            matrix[row + j] = rest / matrix[column + j]
            column += j + 1
        pivot = matrix[row + i] - dot(matrix, row, matrix[row:], i)
        if not (pivot > _LEAST * matrix[row + i] and pivot < np.inf):
            return False
        matrix[row + i] = np.sqrt(pivot)
        row += i + 1
    return True


@exact
def _combine(factor, keep, vectors, weighted, out):
    """out = keep C + sum_k w_k v_k v_k^T; row i of the arrays has the i-th element of each v_k."""
    n, count = vectors.shape
    row = 0
    for i in range(n):
        column = 0
        for j in range(i + 1):
            c = dot(factor, row, factor[column:], j + 1)
            out[row + j] = keep * c + dot(weighted, i * count, vectors[j], count)
            column += j + 1
        row += i + 1


@exact
def _decompose(matrix, scale):
    """The factor of the correlation matrix in its place; False if it is not positive definite.

    ``scale`` becomes the root of the diagonal.
    """
    row = 0
    for i in range(scale.size):
        variance = matrix[row + i]
        if not (variance > 0.0 and variance < np.inf):
            return False
        scale[i] = np.sqrt(variance)
        column = 0
        for j in range(i):
            rest = matrix[row + j] / (scale[i] * scale[j]) - dot(matrix, row, matrix[column:], j)
            matrix[row + j] = rest / matrix[column + j]
            column += j + 1
        pivot = 1.0 - dot(matrix, row, matrix[row:], i)
        if not pivot > _LEAST:
            return False
        matrix[row + i] = np.sqrt(pivot)
        row += i + 1
    return True


@exact
def update(factor, keep, vectors, weighted, scale):
    """The factor of keep C + sum_k w_k v_k v_k^T scaled to a diagonal of 1, and whether it exists.

    ``vectors[i, k]`` is element i of v_k, ``weighted`` the same times w_k. ``scale`` becomes the
    root of the diagonal before scaling.
    """
    out = np.empty_like(factor)
    _combine(factor, keep, vectors, weighted, out)
    return out, _decompose(out, scale)
