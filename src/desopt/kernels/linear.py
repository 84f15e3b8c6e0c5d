"""Values of a linear model on a batch."""

from __future__ import annotations

import numpy as np

from desopt.kernels.jit import exact
from desopt.kernels.lanes import dot
from desopt.kernels.layouts import fill_margins
from desopt.kernels.losses import sum_losses

_BLOCK = 1024  # rows per step of a pass over many


@exact
def objective_value(layout, rows, y, x, kind, penalty):
    """(1/b) sum_i loss(y_i z_i^T x) + penalty/2 ||x||^2, in one pass over the rows."""
    total = 0.0
    margin = np.empty(min(_BLOCK, rows.size))
    for first in range(0, rows.size, _BLOCK):
        part = rows[first : first + _BLOCK]
        fill_margins(layout, part, y, x, margin)
        total += sum_losses(kind, margin[: part.size])
    return total / rows.size + 0.5 * penalty * dot(x, 0, x, x.size)


@exact
def value_and_errors(layout, rows, y, x, kind, penalty):
    """``objective_value``, and how many rows are on the wrong side; 0 is taken for -1."""
    total, errors = 0.0, 0
    margin = np.empty(min(_BLOCK, rows.size))
    for first in range(0, rows.size, _BLOCK):
        part = rows[first : first + _BLOCK]
        fill_margins(layout, part, y, x, margin)
        total += sum_losses(kind, margin[: part.size])
        for t in range(part.size):
            errors += not (margin[t] > 0.0 or (margin[t] == 0.0 and y[part[t]] < 0.0))
    return total / rows.size + 0.5 * penalty * dot(x, 0, x, x.size), errors
