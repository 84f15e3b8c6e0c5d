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
def first_slope(layout, rows, y, x, u, kind, penalty, radius, margin, along):
    """The central difference along u at x; fills the margins of x and of u."""
    fill_margins_two(layout, rows, y, x, u, margin, along)
    return _two_point(kind, margin, along, radius) + penalty * dot(x, u)


@exact
def next_slope(layout, rows, y, x, u, kind, penalty, radius, margin, along):
    """The same where the margins of x are known already."""
    fill_margins(layout, rows, y, u, along)
    return _two_point(kind, margin, along, radius) + penalty * dot(x, u)


@exact
def _two_point(kind, margin, along, radius):
    """The central difference of the mean loss; the penalty's is exact, penalty x^T u."""
    trial = np.empty(margin.size)
    for i in range(margin.size):
        trial[i] = margin[i] + radius * along[i]
    above = sum_losses(kind, trial)
    for i in range(margin.size):
        trial[i] = margin[i] - radius * along[i]
    below = sum_losses(kind, trial)
    return (above - below) / margin.size / (2.0 * radius)
