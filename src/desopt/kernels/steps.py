"""Applying, undoing and replaying steps. These loops decide bits of x."""

from __future__ import annotations

import numpy as np

from desopt.kernels.jit import exact, exact_with_gil
from desopt.kernels.lanes import dot
from desopt.kernels.philox import fill_normals


@exact_with_gil
def apply_step(v, index, step, old):
    """v[r] += step in order (a coordinate drawn twice adds up), keeping what was there."""
    for j in range(index.size):
        r = index[j]
        old[j] = v[r]
        v[r] = old[j] + step[j]


@exact_with_gil
def apply_row(v, index, step, k, old):
    """``apply_step`` for row k."""
    for j in range(index.shape[1]):
        r = index[k, j]
        old[j] = v[r]
        v[r] = old[j] + step[k, j]


@exact_with_gil
def undo_step(v, index, old):
    """Restore what ``apply_step`` replaced, last first."""
    for j in range(index.size - 1, -1, -1):
        v[index[j]] = old[j]


@exact_with_gil
def undo_row(v, index, k, old):
    """``undo_step`` for row k."""
    for j in range(index.shape[1] - 1, -1, -1):
        v[index[k, j]] = old[j]


@exact_with_gil
def project_row(v, index, k, box):
    """The coordinates of row k to their nearest values in the box (lower, upper)."""
    lower, upper = box
    for j in range(index.shape[1]):
        r = index[k, j]
        if v[r] < lower[r]:
            v[r] = lower[r]
        elif v[r] > upper[r]:
            v[r] = upper[r]


@exact_with_gil
def replay_sparse(v, index, step):
    """v[r] += step for every coordinate of every step, in order."""
    for k in range(index.shape[0]):
        for j in range(index.shape[1]):
            v[index[k, j]] += step[k, j]


@exact
def add_scaled(v, c, u):
    """v += c u."""
    for j in range(v.size):
        v[j] += c * u[j]


@exact
def replay_gaussian(v, scale, c1, c2, c3, k0, k1):
    """v += scale[k] u_k for every k with scale[k] != 0; u_k the normals of iteration k."""
    u = np.empty(v.size)
    for k in range(scale.size):
        if scale[k] != 0.0:
            fill_normals(u, c1, c2, c3 | np.uint64(k), k0, k1)
            add_scaled(v, scale[k], u)


@exact
def gaussian_rows(out, alpha, first, c1, c2, c3, k0, k1):
    """out[k] = alpha[first + k] u, u the normals of iteration first + k."""
    for k in range(out.shape[0]):
        fill_normals(out[k], c1, c2, c3 | np.uint64(first + k), k0, k1)
        for j in range(out.shape[1]):
            out[k, j] *= alpha[first + k]


@exact
def weighted_normals(out, weight, member, c1, c2, c3, k0, k1):
    """out = sum_i weight[i] u_member[i], summed in the order given."""
    u = np.empty(out.size)
    out[:] = 0.0
    for i in range(weight.size):
        fill_normals(u, c1, c2, c3 | np.uint64(member[i]), k0, k1)
        add_scaled(out, weight[i], u)


@exact
def sum_of_squares(x):
    """sum_j x_j^2, in order."""
    total = 0.0
    for j in range(x.size):
        total += x[j] * x[j]
    return total


@exact
def inner_product(a, b):
    """sum_j a_j b_j, in order."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@exact_with_gil
def add_at(total, index, values):
    """total[r] += value, for the coordinates given."""
    for j in range(index.size):
        total[index[j]] += values[j]


@exact_with_gil
def sign_of_dot(index, a, b):
    """The sign of sum_j a[j] b[index[j]], the same for any order of the index.

    Products are added as whole numbers of 2^-30 of the largest one.
    """
    largest = 0.0
    for j in range(index.size):
        largest = max(largest, abs(a[j] * b[index[j]]))
    if not 0.0 < largest < np.inf:
        return 0
    total = np.int64(0)
    for j in range(index.size):
        total += np.int64(a[j] * b[index[j]] / largest * 2.0**30)
    return np.sign(total)


@exact
def sign_of_dense_dot(a, b):
    """``sign_of_dot`` where the index is that of all coordinates."""
    largest = 0.0
    for j in range(a.size):
        largest = max(largest, abs(a[j] * b[j]))
    if not 0.0 < largest < np.inf:
        return 0
    total = np.int64(0)
    for j in range(a.size):
        total += np.int64(a[j] * b[j] / largest * 2.0**30)
    return np.sign(total)


@exact
def follow(h, d, weight):
    """(1 - weight) h + weight d / ||d||; h where the length of d is 0 or too large a number."""
    square = dot(d, 0, d, d.size)
    out = h.copy()
    if 0.0 < square < np.inf:
        scale = weight / np.sqrt(square)
        for j in range(h.size):
            out[j] = (1.0 - weight) * h[j] + scale * d[j]
    return out


@exact
def momentum_step(x, m, total, count, beta):
    """The new m = beta m + (1 - beta) total / count takes the place of total; returns x + m.

    One pass and one new array: new memory costs more than the arithmetic.
    """
    new_x = np.empty_like(x)
    for j in range(x.size):
        total[j] = beta * m[j] + (1.0 - beta) * (total[j] / count)
        new_x[j] = x[j] + total[j]
    return new_x
