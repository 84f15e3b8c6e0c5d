"""Rows of a data matrix, dense or sparse: the only code that knows which.

Kernels take a layout and call these functions; numba picks the version by the layout's type.
Sums here decide comparisons or are answers themselves, never bits of x, so they may be fused
and reordered. Sparse sums are not reordered: LLVM would turn them into gathers, which are
slower than scalar loads. Unsigned indices spare the kernels Python's rule for negative ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from desopt.jit import FUSED, SUMS
from desopt.kernels.lanes import dot_lanes

_U = np.uint64


class Dense(NamedTuple):
    """A C-ordered matrix."""

    values: Any


class Csr(NamedTuple):
    """A compressed sparse row matrix."""

    indptr: Any
    indices: Any
    data: Any


def row_dot(layout, i, x):
    """z_i^T x."""


@overload(row_dot, jit_options=SUMS)
def _row_dot(layout, i, x):
    if layout.instance_class is Dense:

        def dense(layout, i, x):
            total = 0.0
            for j in range(x.size):
                total += layout.values[i, j] * x[j]
            return total

        return dense
    return lambda layout, i, x: _csr_dot(layout, i, x)


def _csr_dot(layout, i, x):
    """Two running sums, so that one addition need not wait for the other."""


@overload(_csr_dot, jit_options=FUSED)
def _csr_dot_impl(layout, i, x):
    def csr(layout, i, x):
        even, odd = 0.0, 0.0
        begin, end = layout.indptr[i], layout.indptr[i + 1]
        for p in range(begin, end - 1, 2):
            even += layout.data[p] * x[_U(layout.indices[p])]
            odd += layout.data[p + 1] * x[_U(layout.indices[p + 1])]
        if (end - begin) & 1:
            even += layout.data[end - 1] * x[_U(layout.indices[end - 1])]
        return even + odd

    return csr


def row_dot_two(layout, i, x, u):
    """z_i^T x and z_i^T u, reading the row once."""


@overload(row_dot_two, jit_options=SUMS)
def _row_dot_two(layout, i, x, u):
    if layout.instance_class is Dense:

        def dense(layout, i, x, u):
            zx, zu = 0.0, 0.0
            for j in range(x.size):
                zx += layout.values[i, j] * x[j]
                zu += layout.values[i, j] * u[j]
            return zx, zu

        return dense
    return lambda layout, i, x, u: _csr_dot_two(layout, i, x, u)


def _csr_dot_two(layout, i, x, u):
    """One sum for each vector."""


@overload(_csr_dot_two, jit_options=FUSED)
def _csr_dot_two_impl(layout, i, x, u):
    def csr(layout, i, x, u):
        zx, zu = 0.0, 0.0
        for p in range(layout.indptr[i], layout.indptr[i + 1]):
            j = _U(layout.indices[p])
            zx += layout.data[p] * x[j]
            zu += layout.data[p] * u[j]
        return zx, zu

    return csr


def rows_dot_four(layout, rows, u, out):
    """out[t, :] = sum_j z_i[j] u[j, :] for i = rows[t] and four vectors side by side."""


@overload(rows_dot_four, jit_options=SUMS)
def _rows_dot_four(layout, rows, u, out):
    if layout.instance_class is Dense:

        def dense(layout, rows, u, out):
            n = layout.values.shape[1]
            flat, every = layout.values.reshape(-1), np.arange(n, dtype=np.int32)
            for t in range(rows.size):
                begin = rows[t] * n
                dot_lanes(flat, every, begin, begin + n, begin, u, out, t)

        return dense

    def csr(layout, rows, u, out):
        for t in range(rows.size):
            begin, end = layout.indptr[rows[t]], layout.indptr[rows[t] + 1]
            dot_lanes(layout.data, layout.indices, begin, end, 0, u, out, t)

    return csr


def signed_batch(layout, rows, y):
    """The rows of a batch, copied side by side and times their labels: y_i z_i."""


@overload(signed_batch, jit_options=SUMS)
def _signed_batch(layout, rows, y):
    if layout.instance_class is Dense:

        def dense(layout, rows, y):
            n = layout.values.shape[1]
            values = np.empty((rows.size, n))
            for i in range(rows.size):
                for j in range(n):
                    values[i, j] = y[rows[i]] * layout.values[rows[i], j]
            return Dense(values)

        return dense

    def csr(layout, rows, y):
        indptr = np.zeros(rows.size + 1, np.int64)
        for i in range(rows.size):
            indptr[i + 1] = indptr[i] + layout.indptr[rows[i] + 1] - layout.indptr[rows[i]]
        indices = np.empty(indptr[-1], layout.indices.dtype)
        data = np.empty(indptr[-1])
        for i in range(rows.size):
            shift = layout.indptr[rows[i]] - indptr[i]
            for p in range(indptr[i], indptr[i + 1]):
                indices[p] = layout.indices[p + shift]
                data[p] = y[rows[i]] * layout.data[p + shift]
        return Csr(indptr, indices, data)

    return csr
