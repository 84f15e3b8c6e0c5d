"""Cox's partial likelihood of b rows in O(b), and the (1+1) search with mixture mutations on it.

It is a loss of all linear predictors z_i^T x at once, not a sum over rows: each event is compared
with everybody who is still at risk. With rows in the order of falling times, the sums over the
risk sets are running sums. A step of l coordinates changes the predictors by l columns of X.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from desopt.kernels import portable
from desopt.kernels.jit import exact
from desopt.kernels.lanes import WIDTH, dot, load_some, store_some
from desopt.kernels.layouts import Dense, fill_margins
from desopt.kernels.losses import exp_minus
from desopt.kernels.mixture import UNSEARCHED
from desopt.kernels.steps import apply_row, project_row, undo_row

_LN2 = 0.6931471805599453
_SMALL = 2.0**-500
#: The exponent of a sum of hazards from which on those that were taken for 0 could matter.
_LEAST = -900

exp, log = exact(portable.exp), exact(portable.log)


class RiskSets(NamedTuple):
    """Rows of falling time; of those with the same time, events come first.

    Group g of equal times is ``rows[start[g]:start[g + 1]]``, its first ``events[g]`` rows are
    events. ``efron``: tied events leave the risk set one after the other, by Efron's mean; else
    all of them are at risk (Breslow).
    """

    rows: Any
    start: Any
    events: Any
    efron: bool


@exact
def negative_log_likelihood(sets, eta, hazard):
    """sum over events of log(sum over its risk set of e^eta_j) - eta_i; ``hazard`` is scratch.

    The logarithm of the product of all sums is that of its fraction and its power of 2: one
    logarithm for all events.
    """
    b, start, events = eta.size, sets.start, sets.events
    top = -math.inf
    for i in range(b):
        top = eta[i] if eta[i] > top else top
    for i in range(0, b, WIDTH):
        store_some(hazard, i, b - i, exp_minus(top - load_some(eta, i, b - i, top)))
    linear, at_risk, fraction, power = 0.0, 0.0, 1.0, 0
    for g in range(events.size):
        tied = 0.0
        for i in range(start[g], start[g] + events[g]):
            tied += hazard[i]
            linear += top - eta[i]
        for i in range(start[g], start[g + 1]):
            at_risk += hazard[i]
        for e in range(events[g]):
            left = at_risk - tied * (e / events[g]) if sets.efron else at_risk
            part, exponent = math.frexp(left)
            if part == 0.0 or exponent < _LEAST:
                return _far_apart(sets, eta)
            fraction *= part
            power += exponent
            if fraction < _SMALL:
                fraction, exponent = math.frexp(fraction)
                power += exponent
    return linear + (log(fraction) + power * _LN2)


@exact
def _far_apart(sets, eta):
    """The same where hazards have no common scale: relative to the largest one so far."""
    start, events = sets.start, sets.events
    top, at_risk, total = eta[0], 0.0, 0.0
    for g in range(events.size):
        for i in range(start[g], start[g + 1]):
            if eta[i] > top:
                at_risk *= exp(top - eta[i])
                top = eta[i]
            at_risk += exp(eta[i] - top)
        tied = 0.0
        for i in range(start[g], start[g] + events[g]):
            tied += exp(eta[i] - top)
            total += top - eta[i]
        for e in range(events[g]):
            total += log(at_risk - tied * (e / events[g]) if sets.efron else at_risk)
    return total


@exact
def penalties(x, ridge, lasso):
    """ridge/2 ||x||^2 + lasso ||x||_1."""
    size = 0.0
    for j in range(x.size):
        size += abs(x[j])
    return 0.5 * ridge * dot(x, 0, x, x.size) + lasso * size


@exact
def cox_value(layout, ones, sets, x, ridge, lasso):
    """The negative log partial likelihood divided by the number of rows, and the penalties."""
    eta, hazard = np.empty(sets.rows.size), np.empty(sets.rows.size)
    fill_margins(layout, sets.rows, ones, x, eta)
    return negative_log_likelihood(sets, eta, hazard) / eta.size + penalties(x, ridge, lasso)


@exact
def search_cox(X, ones, sets, v, index, step, ridge, lasso, box, accepted):
    """Steps of few coordinates from v on the rows of a dense X; v becomes the final point.

    Step k changes the coordinates ``index[k]`` by ``step[k]``; ``box`` is (lower, upper). Returns
    the number of values that are not finite; UNSEARCHED, where that at v is not.
    """
    rows, l = sets.rows, index.shape[1]
    b = rows.size
    eta, trial, hazard, old = np.empty(b), np.empty(b), np.empty(b), np.empty(l)
    fill_margins(Dense(X), rows, ones, v, eta)
    loss = negative_log_likelihood(sets, eta, hazard)
    if not np.isfinite(loss):
        return UNSEARCHED
    nans = 0
    for k in range(index.shape[0]):
        apply_row(v, index, step, k, old)
        project_row(v, index, k, box)
        for i in range(b):
            trial[i] = eta[i]
        penalty = 0.0
        for j in range(l):
            r, again = index[k, j], False
            for before in range(j):
                again |= index[k, before] == r
            if again:  # its whole change was counted the first time
                continue
            change = v[r] - old[j]
            penalty += 0.5 * ridge * change * (v[r] + old[j]) + lasso * (abs(v[r]) - abs(old[j]))
            for i in range(b):
                trial[i] += change * X[rows[i], r]
        new_loss = negative_log_likelihood(sets, trial, hazard)
        total = (new_loss - loss) / b + penalty
        if total <= 0.0:
            accepted[k] = True
            eta, trial, loss = trial, eta, new_loss
        else:
            nans += not np.isfinite(total)
            undo_row(v, index, k, old)
    return nans
