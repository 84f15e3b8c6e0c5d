"""Values and slopes of a linear model on a batch."""

from __future__ import annotations

import numpy as np

from desopt.jit import exact, sums
from desopt.kernels.layouts import fill_margins, fill_margins_two
from desopt.kernels.losses import sum_losses

_BLOCK = 1024  # rows per step of a pass over many


@sums
def dot(x, u):
    """x^T u."""
    total = 0.0
    for j in range(x.size):
        total += x[j] * u[j]
    return total


@exact
def objective_value(layout, rows, y, x, kind, penalty):
    """(1/b) sum_i loss(y_i z_i^T x) + penalty/2 ||x||^2, in one pass over the rows."""
    total = 0.0
    margin = np.empty(min(_BLOCK, rows.size))
    for first in range(0, rows.size, _BLOCK):
        part = rows[first : first + _BLOCK]
        fill_margins(layout, part, y, x, margin)
        total += sum_losses(kind, margin[: part.size])
    return total / rows.size + 0.5 * penalty * dot(x, x)


@exact
def batch_margins(layout, rows, y, x):
    """a_i = y_i z_i^T x."""
    out = np.empty(rows.size)
    fill_margins(layout, rows, y, x, out)
    return out


@exact
def batch_margins_two(layout, rows, y, x, u):
    """y_i z_i^T x and y_i z_i^T u."""
    of_x, of_u = np.empty(rows.size), np.empty(rows.size)
    fill_margins_two(layout, rows, y, x, u, of_x, of_u)
    return of_x, of_u


@exact
def two_point_slope(kind, margin, change, radius):
    """The central difference of the mean loss along the direction that changes the margins."""
    trial = np.empty(margin.size)
    for i in range(margin.size):
        trial[i] = margin[i] + radius * change[i]
    above = sum_losses(kind, trial)
    for i in range(margin.size):
        trial[i] = margin[i] - radius * change[i]
    below = sum_losses(kind, trial)
    return (above - below) / margin.size / (2.0 * radius)
