"""Two-point estimates of a linear model's slope along normal directions u_k, and steps along them.

g_k = (f(p + mu u_k) - f(p - mu u_k)) / (2 mu). One product of the batch with u_k serves both
points, and the slope of the penalty is penalty p^T u_k. A value that is not finite is no step.
"""

from __future__ import annotations

import numpy as np

from desopt.jit import exact, sums
from desopt.kernels.gaussian import BLOCKS, LANES, draw_four
from desopt.kernels.layouts import fill_margins, fill_margins_two, rows_dot_four, signed_batch
from desopt.kernels.linear import dot
from desopt.kernels.losses import sum_losses
from desopt.kernels.lowlevel import move_along_lane
from desopt.kernels.steps import add_scaled
from desopt.rng import fill_integers, fill_normal_blocks

_NUMBERS = 1024  # per step of a pass over n: these parts of u and v stay in the cache


@sums
def mean_slope(kind, margin, along, radius, trial):
    """The central difference of the mean loss, from the margins of p and of u."""
    for i in range(margin.size):
        trial[i] = margin[i] + radius * along[i]
    above = sum_losses(kind, trial)
    for i in range(margin.size):
        trial[i] = margin[i] - radius * along[i]
    below = sum_losses(kind, trial)
    return (above - below) / margin.size / (2.0 * radius)


@exact
def slope(layout, rows, y, x, u, kind, penalty, radius):
    """The estimate along u at x."""
    margin, along = np.empty(rows.size), np.empty(rows.size)
    fill_margins_two(layout, rows, y, x, u, margin, along)
    return mean_slope(kind, margin, along, radius, np.empty(rows.size)) + penalty * dot(x, u)


@exact
def descend(layout, rows, y, v, scale, kind, penalty, radius, slopes, c1, c2, c3, k0, k1):
    """On one batch: slopes[k] = g_k at v, then v += scale[k] g_k u_k. Returns the NaNs.

    As in a Gaussian search, four directions are drawn at a time.
    """
    b = rows.size
    batch, every = signed_batch(layout, rows, y), np.arange(b)
    u = np.empty((v.size, LANES))
    lanes = np.empty((4, LANES * BLOCKS))
    change = np.empty((b, LANES))
    vu, uu, cross = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    margin, along, trial = np.empty(b), np.empty(b), np.empty(b)
    fill_margins(layout, rows, y, v, margin)
    nans = 0
    for first in range(0, scale.size, LANES):
        draw_four(u, v, vu, uu, lanes, c1, c2, c3 | np.uint64(first), k0, k1)
        rows_dot_four(batch, every, u, change)
        for g in range(min(LANES, scale.size - first)):
            for i in range(b):
                along[i] = change[i, g]
            found = mean_slope(kind, margin, along, radius, trial) + penalty * vu[g]
            nans += found != found
            slopes[first + g] = found if np.isfinite(found) else 0.0
            c = scale[first + g] * slopes[first + g]
            if c != 0.0:  # as in a replay, which does not draw u for nothing
                add_scaled(margin, c, along)
                move_along_lane(v, c, u, g, cross)
                for h in range(g + 1, LANES):
                    vu[h] += c * cross[h]
    return nans


@exact
def follow_and_draw(moved, c, u, at, block_key):
    """moved += c u, then u = the next normals, in one pass; returns at^T u."""
    c1, c2, c3, k0, k1 = block_key
    total = 0.0
    for first in range(0, u.size, _NUMBERS):
        part = slice(first, min(first + _NUMBERS, u.size))
        if c != 0.0:
            add_scaled(moved[part], c, u[part])
        fill_normal_blocks(u[part], first // 4, c1, c2, c3, k0, k1)
        total += dot(at[part], u[part])
    return total


@exact
def walk(layout, shard, y, b, at, moved, scale, kind, penalty, radius, slopes, rows_key, key):
    """On a new batch for each k: slopes[k] = g_k at ``at``, then moved += scale[k] g_k u_k.

    ``shard`` are the rows to draw from; ``at`` and ``moved`` may be one array. Returns the NaNs.
    """
    r1, r2, r3, s0, s1 = rows_key
    c1, c2, c3, k0, k1 = key
    rows = np.empty(b, np.int64)
    margin, along, trial = np.empty(b), np.empty(b), np.empty(b)
    u = np.zeros(at.size)
    c = 0.0
    nans = 0
    for k in range(scale.size):
        fill_integers(rows, shard.size, r1, r2, r3 | np.uint64(k), s0, s1)
        for i in range(b):
            rows[i] = shard[rows[i]]
        au = follow_and_draw(moved, c, u, at, (c1, c2, c3 | np.uint64(k), k0, k1))
        fill_margins_two(layout, rows, y, at, u, margin, along)
        found = mean_slope(kind, margin, along, radius, trial) + penalty * au
        nans += found != found
        slopes[k] = found if np.isfinite(found) else 0.0
        c = scale[k] * slopes[k]
    if c != 0.0:
        add_scaled(moved, c, u)
    return nans
