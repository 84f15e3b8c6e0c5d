"""Rows of a data matrix, dense or sparse: the only code that knows which.

Kernels take a layout and call these functions; numba picks the version by the layout's type.
Sums have one order on every CPU: dense rows go by lanes, sparse ones in four parts, since
gathers are slower than scalar loads. Unsigned indices spare the kernels Python's rule for
negative ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from desopt.kernels.jit import EXACT, exact, exact_inline
from desopt.kernels.lanes import dot, dot_both
from desopt.kernels.lowlevel import dot_lanes, prefetch

_U = np.uint64

#: How many rows ahead to ask for.
AHEAD = 4


class Dense(NamedTuple):
    """A C-ordered matrix."""

    values: Any


class Csr(NamedTuple):
    """A compressed sparse row matrix."""

    indptr: Any
    indices: Any
    data: Any


@exact_inline
def take_members(members, picked, rows):
    """rows = members[picked]; no members stand for all rows: 0, 1, ..."""
    for i in range(picked.size):
        rows[i] = members[picked[i]] if members.size else picked[i]


@exact_inline
def fetch_row(indptr, indices, data, i):
    """Ask for row i, which will be read soon: rows of a batch are all over the data."""
    begin, end = np.int64(indptr[i]), np.int64(indptr[i + 1])
    for p in range(begin, end, 8):  # 8 numbers, or 16 indices, are a cache line
        prefetch(data, p)
    for p in range(begin, end, 16):
        prefetch(indices, p)


def fill_margins(layout, rows, y, x, out):
    """out[t] = y_i z_i^T x for i = rows[t]."""


@overload(fill_margins, jit_options=EXACT)
def _fill_margins(layout, rows, y, x, out):
    if layout.instance_class is Dense:

        def dense(layout, rows, y, x, out):
            values = layout.values
            for t in range(rows.size):
                i = rows[t]
                out[t] = y[i] * dot(values, i * x.size, x, x.size)

        return dense
    return lambda layout, rows, y, x, out: _csr_margins(
        layout.indptr, layout.indices, layout.data, rows, y, x, out
    )


@exact
def _csr_margins(indptr, indices, data, rows, y, x, out):
    for t in range(rows.size):
        i = rows[t]
        fetch_row(indptr, indices, data, rows[min(t + AHEAD, rows.size - 1)])
        begin, end = _U(indptr[i]), _U(indptr[i + 1])
        fours = begin + ((end - begin) & ~_U(3))
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0  # so that one addition need not wait for the other
        for p in range(begin, fours, _U(4)):
            s0 += data[p] * x[_U(indices[p])]
            s1 += data[p + _U(1)] * x[_U(indices[p + _U(1)])]
            s2 += data[p + _U(2)] * x[_U(indices[p + _U(2)])]
            s3 += data[p + _U(3)] * x[_U(indices[p + _U(3)])]
        for p in range(fours, end):
            s0 += data[p] * x[_U(indices[p])]
        out[t] = y[i] * ((s0 + s1) + (s2 + s3))


def fill_margins_pair(layout, rows, y, pair, of_v, of_u):
    """The margins of two vectors that lie side by side, pair[j] = (v_j, u_j)."""


@overload(fill_margins_pair, jit_options=EXACT)
def _fill_margins_pair(layout, rows, y, pair, of_v, of_u):
    if layout.instance_class is Dense:

        def dense(layout, rows, y, pair, of_v, of_u):
            values = layout.values
            v, u = pair[:, 0].copy(), pair[:, 1].copy()  # lanes want them apart
            for t in range(rows.size):
                i = rows[t]
                zv, zu = dot_both(values, i * v.size, v, u, v.size)
                of_v[t] = y[i] * zv
                of_u[t] = y[i] * zu

        return dense
    return lambda layout, rows, y, pair, of_v, of_u: _csr_margins_pair(
        layout.indptr, layout.indices, layout.data, rows, y, pair.reshape(-1), of_v, of_u
    )


@exact
def _csr_margins_pair(indptr, indices, data, rows, y, pair, of_v, of_u):
    for t in range(rows.size):
        i = rows[t]
        fetch_row(indptr, indices, data, rows[min(t + AHEAD, rows.size - 1)])
        begin, end = _U(indptr[i]), _U(indptr[i + 1])
        fours = begin + ((end - begin) & ~_U(3))
        v0, v1, v2, v3, u0, u1, u2, u3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for p in range(begin, fours, _U(4)):
            j0, j1 = _U(2) * _U(indices[p]), _U(2) * _U(indices[p + _U(1)])
            j2, j3 = _U(2) * _U(indices[p + _U(2)]), _U(2) * _U(indices[p + _U(3)])
            v0 += data[p] * pair[j0]
            u0 += data[p] * pair[j0 + _U(1)]
            v1 += data[p + _U(1)] * pair[j1]
            u1 += data[p + _U(1)] * pair[j1 + _U(1)]
            v2 += data[p + _U(2)] * pair[j2]
            u2 += data[p + _U(2)] * pair[j2 + _U(1)]
            v3 += data[p + _U(3)] * pair[j3]
            u3 += data[p + _U(3)] * pair[j3 + _U(1)]
        for p in range(fours, end):
            j0 = _U(2) * _U(indices[p])
            v0 += data[p] * pair[j0]
            u0 += data[p] * pair[j0 + _U(1)]
        of_v[t] = y[i] * ((v0 + v1) + (v2 + v3))
        of_u[t] = y[i] * ((u0 + u1) + (u2 + u3))


def rows_dot_four(layout, rows, u, out):
    """out[t, :] = sum_j z_i[j] u[j, :] for i = rows[t] and four vectors side by side."""


@overload(rows_dot_four, jit_options=EXACT)
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
        indptr, indices, data = layout.indptr, layout.indices, layout.data
        for t in range(rows.size):
            dot_lanes(data, indices, indptr[rows[t]], indptr[rows[t] + 1], 0, u, out, t)

    return csr


def signed_batch(layout, rows, y):
    """The rows of a batch, copied side by side and times their labels: y_i z_i."""


@overload(signed_batch, jit_options=EXACT)
def _signed_batch(layout, rows, y):
    if layout.instance_class is Dense:

        def dense(layout, rows, y):
            given = layout.values
            n = given.shape[1]
            values = np.empty((rows.size, n))
            for t in range(rows.size):
                i = rows[t]
                for j in range(n):
                    values[t, j] = y[i] * given[i, j]
            return Dense(values)

        return dense

    def csr(layout, rows, y):
        from_ptr, from_indices, from_data = layout.indptr, layout.indices, layout.data
        indptr = np.zeros(rows.size + 1, np.int64)
        for t in range(rows.size):
            indptr[t + 1] = indptr[t] + from_ptr[rows[t] + 1] - from_ptr[rows[t]]
        indices = np.empty(indptr[-1], from_indices.dtype)
        data = np.empty(indptr[-1])
        for t in range(rows.size):
            i = rows[t]
            fetch_row(from_ptr, from_indices, from_data, rows[min(t + AHEAD, rows.size - 1)])
            shift = _U(from_ptr[i] - indptr[t])
            for p in range(_U(indptr[t]), _U(indptr[t + 1])):
                indices[p] = from_indices[p + shift]
                data[p] = y[i] * from_data[p + shift]
        return Csr(indptr, indices, data)

    return csr
