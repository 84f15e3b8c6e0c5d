"""Two-point estimates of a linear model's slope along normal directions u_k, and steps along them.

g_k = (f(p + mu u_k) - f(p - mu u_k)) / (2 mu). One product of the batch with u_k serves both
points, and the slope of the penalty is penalty p^T u_k. A value that is not finite is no step.
"""

from __future__ import annotations

import numpy as np

from desopt.kernels.gaussian import BLOCKS, LANES, draw_four
from desopt.kernels.jit import exact, exact_inline
from desopt.kernels.lanes import dot
from desopt.kernels.layouts import (
    fill_margins,
    fill_margins_pair,
    rows_dot_four,
    signed_batch,
    take_members,
)
from desopt.kernels.losses import sum_losses
from desopt.kernels.lowlevel import move_along_lane
from desopt.kernels.philox import fill_integers, fill_normal_planes, fill_normals
from desopt.kernels.steps import add_scaled

_BLOCKS = 256  # per step of a pass over n: these parts of u and v stay in the cache


@exact
def mean_slope(kind, margin, along, radius, trial):
    """The central difference of the mean loss, from the margins of p and of u; and how many of
    its two values are not finite."""
    for i in range(margin.size):
        trial[i] = margin[i] + radius * along[i]
    above = sum_losses(kind, trial)
    for i in range(margin.size):
        trial[i] = margin[i] - radius * along[i]
    below = sum_losses(kind, trial)
    nans = np.int64(not np.isfinite(above)) + np.int64(not np.isfinite(below))
    return (above - below) / margin.size / (2.0 * radius), nans


@exact
def slope(layout, rows, y, x, u, kind, penalty, radius):
    """The estimate along u at x, and how many of its values are not finite."""
    margin, along = np.empty(rows.size), np.empty(rows.size)
    fill_margins(layout, rows, y, x, margin)
    fill_margins(layout, rows, y, u, along)
    found, nans = mean_slope(kind, margin, along, radius, np.empty(rows.size))
    return found + penalty * dot(x, 0, u, x.size), nans


@exact
def descend(layout, rows, y, v, scale, kind, penalty, radius, slopes, c1, c2, c3, k0, k1):
    """On one batch: slopes[k] = g_k at v, then v += scale[k] g_k u_k.

    As in a Gaussian search, four directions are drawn at a time. Returns how many values are not
    finite.
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
            found, lost = mean_slope(kind, margin, along, radius, trial)
            found += penalty * vu[g]
            nans += lost
            slopes[first + g] = found if np.isfinite(found) else 0.0
            c = scale[first + g] * slopes[first + g]
            if c != 0.0:  # as in a replay, which does not draw u for nothing
                add_scaled(margin, c, along)
                move_along_lane(v, c, u, g, cross)
                for h in range(g + 1, LANES):
                    vu[h] += c * cross[h]
    return nans


@exact_inline
def _follow(pair, j, c, normal):
    """v_j += c u_j, then u_j = normal; returns v_j u_j. c = 0 leaves even the sign of a zero."""
    v = pair[j, 0] + c * pair[j, 1] if c != 0.0 else pair[j, 0]
    pair[j, 0] = v
    pair[j, 1] = normal
    return v * normal


@exact
def follow_and_draw(pair, c, planes, c1, c2, c3, k0, k1):
    """pair is v and u side by side: v += c u, then u = the next normals; returns v^T u."""
    n, blocks = pair.shape[0], planes.shape[1]
    t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
    for first in range(0, n, 4 * blocks):
        fill_normal_planes(planes, first // 4, 0, c1, c2, c3, k0, k1)
        whole = min(blocks, (n - first) // 4)
        for i in range(whole):
            j = first + 4 * i
            t0 += _follow(pair, j, c, planes[0, i])
            t1 += _follow(pair, j + 1, c, planes[1, i])
            t2 += _follow(pair, j + 2, c, planes[2, i])
            t3 += _follow(pair, j + 3, c, planes[3, i])
        for j in range(first + 4 * whole, min(first + 4 * blocks, n)):
            t0 += _follow(pair, j, c, planes[j % 4, whole])
    return (t0 + t1) + (t2 + t3)


@exact
def descend_new_batches(
    layout, members, size, y, b, v, scale, kind, penalty, radius, slopes, rows_key, key
):
    """On a new batch for each k: slopes[k] = g_k at v, then v += scale[k] g_k u_k.

    ``members`` are the rows to draw from (none: all). Returns how many values are not finite.
    """
    r1, r2, r3, s0, s1 = rows_key
    c1, c2, c3, k0, k1 = key
    rows = np.empty(b, np.int64)
    margin, along, trial = np.empty(b), np.empty(b), np.empty(b)
    planes = np.empty((4, _BLOCKS))
    pair = np.empty((v.size, 2))  # v and u side by side: a row's column is one place, not two
    for j in range(v.size):
        pair[j, 0] = v[j]
        pair[j, 1] = 0.0
    c = 0.0
    nans = 0
    for k in range(scale.size):
        fill_integers(rows, size, r1, r2, r3 | np.uint64(k), s0, s1)
        take_members(members, rows, rows)
        vu = follow_and_draw(pair, c, planes, c1, c2, c3 | np.uint64(k), k0, k1)
        fill_margins_pair(layout, rows, y, pair, margin, along)
        found, lost = mean_slope(kind, margin, along, radius, trial)
        found += penalty * vu
        nans += lost
        slopes[k] = found if np.isfinite(found) else 0.0
        c = scale[k] * slopes[k]
    for j in range(v.size):
        v[j] = pair[j, 0] + c * pair[j, 1] if c != 0.0 else pair[j, 0]
    return nans


@exact
def estimate_new_batches(
    layout, members, size, y, b, x, total, scale, kind, penalty, radius, slopes, rows_key, key
):
    """On a new batch for each k: slopes[k] = g_k at x, which stays, and
    total += scale[k] g_k u_k. Returns how many values are not finite.

    The margins at x are computed once for all batches, where these are more rows than there are.
    """
    r1, r2, r3, s0, s1 = rows_key
    c1, c2, c3, k0, k1 = key
    kept = np.empty(size if scale.size * b >= size else 0)
    if kept.size:
        every = np.arange(size)
        take_members(members, every, every)
        fill_margins(layout, every, y, x, kept)
    picked, rows = np.empty(b, np.int64), np.empty(b, np.int64)
    margin, along, trial = np.empty(b), np.empty(b), np.empty(b)
    u = np.empty(x.size)
    nans = 0
    for k in range(scale.size):
        fill_integers(picked, size, r1, r2, r3 | np.uint64(k), s0, s1)
        take_members(members, picked, rows)
        fill_normals(u, c1, c2, c3 | np.uint64(k), k0, k1)
        fill_margins(layout, rows, y, u, along)
        if kept.size:
            for i in range(b):
                margin[i] = kept[picked[i]]
        else:
            fill_margins(layout, rows, y, x, margin)
        found, lost = mean_slope(kind, margin, along, radius, trial)
        found += penalty * dot(x, 0, u, x.size)
        nans += lost
        slopes[k] = found if np.isfinite(found) else 0.0
        c = scale[k] * slopes[k]
        if c != 0.0:
            add_scaled(total, c, u)
    return nans
