"""Compiled loops for the linear models: losses, margins, and whole searches.

The margin of row i is a_i = y_i z_i^T x. A batch is a list of row numbers into data that are
never copied, in one of two layouts; ``row_dot`` and ``gather`` are all that knows which.

What is summed here decides comparisons or is itself an answer, so the order of additions may
be changed for speed (``_SUMS``), but NaN and infinity keep their meaning. Bits of x are only
changed by v[r] += step and v += c u, exactly as ``steps`` replays them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from desopt.rng import fill_normals

_SUMS = {"reassoc", "contract", "arcp", "nsz"}
_jit: Any = njit(cache=True, nogil=True, error_model="numpy")
_jit_sums: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath=_SUMS)
_options: Any = {"nogil": True, "error_model": "numpy", "fastmath": _SUMS}

LR, NSVM, LSVM = 0, 1, 2


class Dense(NamedTuple):
    """Rows of a C-ordered matrix."""

    values: Any


class Csr(NamedTuple):
    """Rows of a compressed sparse row matrix."""

    indptr: Any
    indices: Any
    data: Any


@_jit
def loss(kind, a):
    """log(1 + e^-a), 1 - tanh a = 2 / (1 + e^2a), or max(0, 1 - a); safe for any a."""
    if kind == LR:
        return max(0.0, -a) + math.log1p(math.exp(-abs(a)))
    if kind == NSVM:
        return 2.0 / (1.0 + math.exp(2.0 * a))
    return max(0.0, 1.0 - a)


def row_dot(layout, i, x):
    """z_i^T x."""


@overload(row_dot, jit_options=_options)
def _row_dot(layout, i, x):
    if layout.instance_class is Dense:

        def dense(layout, i, x):
            total = 0.0
            for j in range(x.size):
                total += layout.values[i, j] * x[j]
            return total

        return dense

    def csr(layout, i, x):
        total = 0.0
        for p in range(layout.indptr[i], layout.indptr[i + 1]):
            total += layout.data[p] * x[layout.indices[p]]
        return total

    return csr


def gather(layout, rows, y, slot, columns):
    """The columns that have a slot, restricted to the batch: (start, row, y value) by slot."""


@overload(gather, jit_options=_options)
def _gather(layout, rows, y, slot, columns):
    if layout.instance_class is Dense:

        def dense(layout, rows, y, slot, columns):
            b, count = rows.size, columns.size
            start = np.arange(count + 1) * b
            row = np.empty(count * b, np.int32)
            value = np.empty(count * b)
            for i in range(b):
                sign = y[rows[i]]
                for c in range(count):
                    row[c * b + i] = i
                    value[c * b + i] = sign * layout.values[rows[i], columns[c]]
            return start, row, value

        return dense

    def csr(layout, rows, y, slot, columns):
        start = np.zeros(columns.size + 1, np.int64)
        for i in rows:
            for p in range(layout.indptr[i], layout.indptr[i + 1]):
                c = slot[layout.indices[p]]
                if c >= 0:
                    start[c + 1] += 1
        for c in range(columns.size):
            start[c + 1] += start[c]
        fill = start[:-1].copy()
        row = np.empty(start[-1], np.int32)
        value = np.empty(start[-1])
        for i in range(rows.size):
            for p in range(layout.indptr[rows[i]], layout.indptr[rows[i] + 1]):
                c = slot[layout.indices[p]]
                if c >= 0:
                    row[fill[c]] = i
                    value[fill[c]] = y[rows[i]] * layout.data[p]
                    fill[c] += 1
        return start, row, value

    return csr


@_jit_sums
def margins(layout, rows, y, x):
    """a_i = y_i z_i^T x for the rows of the batch."""
    out = np.empty(rows.size)
    for i in range(rows.size):
        out[i] = y[rows[i]] * row_dot(layout, rows[i], x)
    return out


@_jit_sums
def squared_norm(x):
    """||x||^2."""
    total = 0.0
    for j in range(x.size):
        total += x[j] * x[j]
    return total


@_jit_sums
def mean_loss(kind, margin):
    """(1/b) sum_i loss(a_i)."""
    total = 0.0
    for i in range(margin.size):
        total += loss(kind, margin[i])
    return total / margin.size


@_jit_sums
def objective_value(layout, rows, y, x, kind, penalty):
    """(1/b) sum_i loss(y_i z_i^T x) + penalty/2 ||x||^2, in one pass."""
    total = 0.0
    for i in range(rows.size):
        total += loss(kind, y[rows[i]] * row_dot(layout, rows[i], x))
    return total / rows.size + 0.5 * penalty * squared_norm(x)


@_jit_sums
def shifted_loss(kind, margin, change, c):
    """(1/b) sum_i loss(a_i + c q_i)."""
    total = 0.0
    for i in range(margin.size):
        total += loss(kind, margin[i] + c * change[i])
    return total / margin.size


@_jit_sums
def products(x, u):
    """x^T u and u^T u."""
    xu, uu = 0.0, 0.0
    for j in range(x.size):
        xu += x[j] * u[j]
        uu += u[j] * u[j]
    return xu, uu


@_jit
def column_slots(index, n):
    """Number the columns that a round's mutations touch: column -> slot (-1: none), and back."""
    slot = np.full(n, -1, np.int32)
    columns = np.empty(index.size, np.int64)
    count = 0
    for r in index.flat:
        if slot[r] < 0:
            slot[r] = count
            columns[count] = r
            count += 1
    return slot, columns[:count]


@_jit
def search_sparse(layout, rows, y, v, index, step, kind, penalty, accepted):
    """K steps of l coordinates: keep a step where the batch's objective does not rise.

    Only the rows that have the touched columns change their margin and loss, so the decision
    is the sign of the change, summed over these rows and l terms of the penalty. What a
    rejected step touched is restored. Returns the number of undecidable (NaN) steps.
    """
    slot, columns = column_slots(index, v.size)
    start, row, value = gather(layout, rows, y, slot, columns)
    margin = margins(layout, rows, y, v)
    b = margin.size
    cost = np.empty(b)
    for i in range(b):
        cost[i] = loss(kind, margin[i])
    stamp = np.full(b, -1, np.int64)
    touched = np.empty(b, np.int32)
    old_margin = np.empty(b)
    new_cost = np.empty(b)
    old = np.empty(index.shape[1])
    nans = 0
    for k in range(index.shape[0]):
        count = 0
        penalty_change = 0.0
        for j in range(index.shape[1]):
            r = index[k, j]
            old[j] = v[r]
            v[r] = old[j] + step[k, j]
            change = v[r] - old[j]
            penalty_change += change * (v[r] + old[j])
            c = slot[r]
            for p in range(start[c], start[c + 1]):
                i = row[p]
                if stamp[i] != k:
                    stamp[i] = k
                    touched[count] = i
                    old_margin[count] = margin[i]
                    count += 1
                margin[i] += change * value[p]
        loss_change = 0.0
        for t in range(count):
            i = touched[t]
            new_cost[t] = loss(kind, margin[i])
            loss_change += new_cost[t] - cost[i]
        total_change = loss_change / b + 0.5 * penalty * penalty_change
        if total_change <= 0.0:
            accepted[k] = True
            for t in range(count):
                cost[touched[t]] = new_cost[t]
        else:
            nans += total_change != total_change
            for t in range(count):
                margin[touched[t]] = old_margin[t]
            for j in range(index.shape[1] - 1, -1, -1):
                v[index[k, j]] = old[j]
    return nans


@_jit
def search_gaussian(layout, rows, y, v, alpha, kind, penalty, accepted, c1, c2, c3, k0, k1):
    """K steps alpha[k] u_k, u_k normal: one product with u_k per step decides it."""
    u = np.empty(v.size)
    margin = margins(layout, rows, y, v)
    value = mean_loss(kind, margin)
    nans = 0
    for k in range(alpha.size):
        fill_normals(u, c1, c2, c3 | np.uint64(k), k0, k1)
        change = margins(layout, rows, y, u)
        new_value = shifted_loss(kind, margin, change, alpha[k])
        xu, uu = products(v, u)
        penalty_change = alpha[k] * (2.0 * xu + alpha[k] * uu)
        total_change = (new_value - value) + 0.5 * penalty * penalty_change
        if total_change <= 0.0:
            accepted[k] = True
            for j in range(v.size):
                v[j] += alpha[k] * u[j]
            for i in range(margin.size):
                margin[i] += alpha[k] * change[i]
            value = new_value
        else:
            nans += total_change != total_change
    return nans
