"""Applying, undoing and replaying steps. These loops decide bits of x: no fast-math here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from desopt.rng import fill_normals

_jit: Any = njit(cache=True, nogil=True, error_model="numpy")


@_jit
def apply_step(v, index, step, old):
    """v[r] += step in order (a coordinate drawn twice adds up), keeping what was there."""
    for j in range(index.size):
        r = index[j]
        old[j] = v[r]
        v[r] = old[j] + step[j]


@_jit
def apply_row(v, index, step, k, old):
    """``apply_step`` for row k, without making views in a Python loop."""
    for j in range(index.shape[1]):
        r = index[k, j]
        old[j] = v[r]
        v[r] = old[j] + step[k, j]


@_jit
def undo_step(v, index, old):
    """Restore what ``apply_step`` replaced, last first."""
    for j in range(index.size - 1, -1, -1):
        v[index[j]] = old[j]


@_jit
def undo_row(v, index, k, old):
    """``undo_step`` for row k."""
    for j in range(index.shape[1] - 1, -1, -1):
        v[index[k, j]] = old[j]


@_jit
def replay_sparse(v, index, step, accepted):
    """v[r] += step for every coordinate of every accepted step, in order."""
    for k in range(index.shape[0]):
        if accepted[k]:
            for j in range(index.shape[1]):
                v[index[k, j]] += step[k, j]


@_jit
def displace_sparse(total, x, v, index, step, accepted):
    """total += v_K - x, where v_K is x after the accepted steps. v = x before and after.

    Costs O(K l). A coordinate met again adds x - x = 0, which changes no bit.
    """
    replay_sparse(v, index, step, accepted)
    iterations, l = index.shape
    for k in range(iterations):
        if accepted[k]:
            for j in range(l):
                r = index[k, j]
                total[r] += v[r] - x[r]
                v[r] = x[r]


@_jit
def add_scaled(v, c, u):
    """v += c u."""
    for j in range(v.size):
        v[j] += c * u[j]


@_jit
def replay_gaussian(v, scale, c1, c2, c3, k0, k1):
    """v += scale[k] u_k for every k with scale[k] != 0; u_k the normals of iteration k."""
    u = np.empty(v.size)
    for k in range(scale.size):
        if scale[k] != 0.0:
            fill_normals(u, c1, c2, c3 | np.uint64(k), k0, k1)
            add_scaled(v, scale[k], u)


@_jit
def weighted_normals(out, weight, member, c1, c2, c3, k0, k1):
    """out = sum_i weight[i] u_member[i], summed in the order given."""
    u = np.empty(out.size)
    out[:] = 0.0
    for i in range(weight.size):
        fill_normals(u, c1, c2, c3 | np.uint64(member[i]), k0, k1)
        add_scaled(out, weight[i], u)


@_jit
def sum_of_squares(x):
    """sum_j x_j^2, in order."""
    total = 0.0
    for j in range(x.size):
        total += x[j] * x[j]
    return total
