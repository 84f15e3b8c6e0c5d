"""A linear model along normal directions, four of them at a time.

The directions u_k and the products z_i^T u_k do not depend on what a search accepted before,
so four are drawn side by side and every row of the batch is read once for all four. What does
depend on it, v^T u_k in the penalty, follows v as steps are accepted.
"""

from __future__ import annotations

import numpy as np

from desopt.kernels.jit import exact
from desopt.kernels.lanes import dot
from desopt.kernels.layouts import fill_margins, rows_dot_four, signed_batch
from desopt.kernels.losses import sum_losses
from desopt.kernels.lowlevel import move_along_lane, unpack_lanes
from desopt.kernels.mixture import UNSEARCHED
from desopt.kernels.philox import fill_normal_planes

LANES = 4
_ROWS = 1024  # rows per step of a pass over many
BLOCKS = 64  # Philox blocks per step: the numbers stay in the first-level cache


@exact
def draw_four(u, v, vu, uu, lanes, c1, c2, c3, k0, k1):
    """u[:, g] = normals of iteration k + g; vu[g] = v^T u_g; uu[g] = u_g^T u_g."""
    n = v.size
    for g in range(LANES):
        vu[g] = 0.0
        uu[g] = 0.0
    for first in range(0, n, 4 * BLOCKS):
        fill_normal_planes(lanes, first // 4, 2, c1, c2, c3, k0, k1)
        unpack_lanes(lanes, min(4 * BLOCKS, n - first), u, first, v, vu, uu)


@exact
def dot_four(u, c, v, x, along, away):
    """along[g] = c^T u_g; away[g] = (v - x)^T u_g."""
    along[:] = 0.0
    away[:] = 0.0
    for j in range(u.shape[0]):
        for g in range(LANES):
            along[g] += c[j] * u[j, g]
            away[g] += (v[j] - x[j]) * u[j, g]


@exact
def _shifted_margins(margin, change, g, alpha, out):
    """out = margin + alpha change_g."""
    for i in range(margin.size):
        out[i] = margin[i] + alpha * change[i, g]


@exact
def search_gaussian(
    layout, rows, y, v, alpha, begin, kind, penalty, accepted, c1, c2, c3, k0, k1, tilt=None
):  # fmt: skip
    """Keep v + alpha[k] u_k where the batch's objective does not rise; v ends as v_K.

    u_k are the normals of the iterations ``begin`` and on, a multiple of LANES. ``tilt``: None, or
    what ``kernels.correction`` adds to the comparisons. Returns the number of values that are not
    finite, or UNSEARCHED.
    """
    b, n = rows.size, v.size
    batch, every = signed_batch(layout, rows, y), np.arange(b)
    u = np.empty((n, LANES))
    lanes = np.empty((4, LANES * BLOCKS))
    change = np.empty((b, LANES))
    vu, uu, cross = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    margin, trial = np.empty(b), np.empty(b)
    fill_margins(layout, rows, y, v, margin)
    total = sum_losses(kind, margin)
    if not np.isfinite(total):
        return UNSEARCHED
    nans = 0
    along, away = np.zeros(LANES), np.zeros(LANES)  # c^T u_g and (v - x)^T u_g of a tilt
    if tilt is not None:
        c, x, mu, stays, differences = tilt
    for first in range(0, alpha.size, LANES):
        draw_four(u, v, vu, uu, lanes, c1, c2, c3 | np.uint64(begin + first), k0, k1)
        rows_dot_four(batch, every, u, change)
        if tilt is not None:
            dot_four(u, c, v, x, along, away)
        for g in range(min(LANES, alpha.size - first)):
            step = alpha[first + g]
            _shifted_margins(margin, change, g, step, trial)
            new_total = sum_losses(kind, trial)
            penalty_change = step * (2.0 * vu[g] + step * uu[g])
            total_change = (new_total - total) / b + 0.5 * penalty * penalty_change
            decisive, moves = total_change, True
            if tilt is not None:
                differences[first + g] = total_change
                prox = step * (2.0 * away[g] + step * uu[g])
                decisive, moves = total_change + (step * along[g] + 0.5 * mu * prox), not stays
            if decisive <= 0.0:
                accepted[first + g] = True
            if decisive <= 0.0 and moves:
                margin, trial, total = trial, margin, new_total
                move_along_lane(v, step, u, g, cross)
                for h in range(g + 1, LANES):
                    vu[h] += step * cross[h]
                    away[h] += step * cross[h]
            else:
                nans += not np.isfinite(total_change)
    return nans


@exact
def values_around(layout, rows, y, x, scale, kind, penalty, out, c1, c2, c3, k0, k1):
    """out[k] = the batch's objective at x + scale u_k, u_k the normals of iteration k."""
    b = rows.size
    u = np.empty((x.size, LANES))
    lanes = np.empty((4, LANES * BLOCKS))
    xu, uu = np.empty(LANES), np.empty(LANES)
    margin = np.empty(b)
    fill_margins(layout, rows, y, x, margin)
    change = np.empty((min(b, _ROWS), LANES))
    trial = np.empty(min(b, _ROWS))
    xx = dot(x, 0, x, x.size)
    for first in range(0, out.size, LANES):
        draw_four(u, x, xu, uu, lanes, c1, c2, c3 | np.uint64(first), k0, k1)
        total = np.zeros(LANES)
        for begin in range(0, b, _ROWS):
            part = rows[begin : begin + _ROWS]
            rows_dot_four(layout, part, u, change)
            for g in range(LANES):
                for i in range(part.size):
                    trial[i] = margin[begin + i] + scale * (y[part[i]] * change[i, g])
                total[g] += sum_losses(kind, trial[: part.size])
        for g in range(min(LANES, out.size - first)):
            norm = xx + scale * (2.0 * xu[g] + scale * uu[g])
            out[first + g] = total[g] / b + 0.5 * penalty * norm
