"""How well a selection of sensors estimates: the D- and A-optimal criteria, in strict arithmetic.

Sensor i measures a_i^T theta plus noise. With noise of covariance R = a I + S, the weights w have
the information J = prior I + A^T D (D S D + a I)^-1 D A, D = diag(sqrt(w)). For w of 0 and 1 that
is the information of the selected sensors; in between it is the relaxation of Liu et al. (2016),
A^T (S + a W^-1)^-1 A, written so that w = 0 needs no limit.
"""

from __future__ import annotations

import math

import numpy as np

from desopt.kernels import portable
from desopt.kernels.factor import cholesky, inverse_trace
from desopt.kernels.jit import exact

log = exact(portable.log)

#: Halvings of an interval: below the rounding of weights between 0 and 1.
_HALVINGS = 64


@exact
def relaxed_weights(x, count):
    """The nearest w to x with 0 <= w <= 1 and sum w = count: x - t, cut off, for the right t."""
    low, high = x[0], x[0]
    for i in range(x.size):
        low, high = min(low, x[i]), max(high, x[i])
    low -= 1.0  # all weights are 1 here, and 0 at high
    w = np.empty(x.size)
    for _ in range(_HALVINGS):
        middle, total = 0.5 * (low + high), 0.0
        for i in range(x.size):
            total += min(max(x[i] - middle, 0.0), 1.0)
        if total >= count:
            low = middle
        else:
            high = middle
    for i in range(x.size):
        w[i] = min(max(x[i] - low, 0.0), 1.0)
    return w


@exact
def _noise_factor(S, own, root, chosen):
    """The factor of D S D + own I, for the sensors chosen."""
    k, row = chosen.size, 0
    factor = np.empty(k * (k + 1) // 2)
    for i in range(k):
        for j in range(i + 1):
            factor[row + j] = root[chosen[i]] * root[chosen[j]] * S[chosen[i], chosen[j]]
        factor[row + i] += own
        row += i + 1
    return factor, cholesky(factor, k)


@exact
def mean_criterion(scenarios, rows, w, S, own, prior, trace):
    """The mean over scenarios of -log det J, or of the trace of J^-1; infinite where J is singular.

    ``scenarios[row]`` is A, a row for each sensor. No S: noise of variance ``own``.
    """
    m, p = scenarios.shape[1], scenarios.shape[2]
    chosen, k = np.empty(m, np.int64), 0
    for i in range(m):
        if w[i] != 0.0:  # NaN is, and spoils all that follows
            chosen[k] = i
            k += 1
    chosen, root = chosen[:k], np.sqrt(w)
    factor = np.empty(0)
    if S.size:
        factor, definite = _noise_factor(S, own, root, chosen)
        if not definite:
            return math.inf
    scale = 1.0 / math.sqrt(own)
    Y, J = np.empty((k, p)), np.empty(p * (p + 1) // 2)
    total = 0.0
    for t in rows:
        J[:] = 0.0
        row = 0
        for i in range(k):  # Y = L^-1 D A, row by row
            for c in range(p):
                Y[i, c] = root[chosen[i]] * scenarios[t, chosen[i], c]
            if S.size:
                for j in range(i):
                    for c in range(p):
                        Y[i, c] -= factor[row + j] * Y[j, c]
                for c in range(p):
                    Y[i, c] /= factor[row + i]
                row += i + 1
            else:
                for c in range(p):
                    Y[i, c] *= scale
            at = 0
            for a in range(p):
                for c in range(a + 1):
                    J[at + c] += Y[i, a] * Y[i, c]
                at += a + 1
        at = 0
        for a in range(p):
            J[at + a] += prior
            at += a + 1
        if not cholesky(J, p):
            return math.inf
        if trace:
            total += inverse_trace(J, p)
        else:
            at = 0
            for a in range(p):
                total -= 2.0 * log(J[at + a])
                at += a + 1
    return total / rows.size
