"""The estimates of ``des-c``: what a worker's differences tell of the slopes of f and f_i.

A step s = alpha u of worker i changes f_i by about (g + delta_i)^T s + sqrt(alpha) h^T |s|. The
steps of a block are the rows of ``step``; ``index`` has their coordinates, or is None where a row
has all n.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from desopt.kernels.jit import EXACT, exact
from desopt.kernels.lanes import WIDTH, dot, load_some, zeros
from desopt.kernels.lanes import total as lane_total
from desopt.kernels.lowlevel import prefetch

_BLOCK = 1024  # columns
_AHEAD = 4  # steps whose numbers are asked for before they are needed


def at_one(index, j):
    """The coordinate of entry j of a step."""


@overload(at_one, jit_options=EXACT, inline="always")
def _at_one(index, j):
    if isinstance(index, types.NoneType):
        return lambda index, j: j
    return lambda index, j: index[j]


def at(index, k, j):
    """The coordinate of entry j of step k."""


@overload(at, jit_options=EXACT, inline="always")
def _at(index, k, j):
    if isinstance(index, types.NoneType):
        return lambda index, k, j: j
    return lambda index, k, j: index[k, j]


@exact
def tilt_of(c, x, mu, v, index, step):
    """c^T s + mu/2 (||v + s - x||^2 - ||v - x||^2) of one step; v is as before afterwards."""
    linear, away = 0.0, 0.0
    old = np.empty(step.size)
    for j in range(step.size):
        r = at_one(index, j)
        old[j] = v[r]
        v[r] = old[j] + step[j]
        linear += c[r] * step[j]
        away += step[j] * ((old[j] - x[r]) + (v[r] - x[r]))
    for j in range(step.size - 1, -1, -1):
        v[at_one(index, j)] = old[j]
    return linear + 0.5 * mu * away


@exact
def predict(g, h, delta, index, step, alpha, out):
    """out[k] = the change that the estimates predict for step k."""
    for k in range(step.shape[0]):
        if index is not None and k + _AHEAD < step.shape[0]:
            for j in range(step.shape[1]):
                r = at(index, k + _AHEAD, j)
                prefetch(g, r)
                prefetch(h, r)
                prefetch(delta, r)
        slope, even = 0.0, 0.0
        for j in range(step.shape[1]):
            r = at(index, k, j)
            slope += (g[r] + delta[r]) * step[k, j]
            even += h[r] * abs(step[k, j])
        out[k] = slope + math.sqrt(alpha[k]) * even


@exact
def project(g, delta, gain, index, step, out):
    """out[k] = -c^T s_k, c = gain g - delta: the change that makes up for the tilt of step k."""
    for k in range(step.shape[0]):
        total = 0.0
        for j in range(step.shape[1]):
            r = at(index, k, j)
            total += (gain * g[r] - delta[r]) * step[k, j]
        out[k] = -total


@exact
def learn(table, old, delta, index, step, alpha, gain, slopes, eta):
    """Bring the estimates a share ``eta`` of the way to each of the changes, one after the other.

    The least change of the estimates, in the norm of their weights, that does so (Kaczmarz). The
    rows of ``table`` are the old g and h, g, h, and the weights of g, h and delta of a coordinate,
    side by side in the cache; ``old`` and ``delta`` are the worker's. ``slopes`` are the changes
    beyond those expected, per alpha: beyond ``project``, or ``predict`` where gain is None.
    """
    for k in range(step.shape[0]):
        if index is not None and k + _AHEAD < step.shape[0]:
            for j in range(step.shape[1]):
                r = at(index, k + _AHEAD, j)
                prefetch(table, 8 * r)
                prefetch(old, r)
                prefetch(delta, r)
        root = math.sqrt(alpha[k])
        slope, even, size = 0.0, 0.0, 0.0
        expected, expected_even = 0.0, 0.0
        for j in range(step.shape[1]):
            r, s = at(index, k, j), step[k, j]
            if gain is None:
                expected += (table[r, 0] + old[r]) * s
                expected_even += table[r, 1] * abs(s)
            else:
                expected += (gain * table[r, 0] - old[r]) * s
            slope += (table[r, 2] + delta[r]) * s
            even += table[r, 3] * abs(s)
            size += s * s * (table[r, 4] + table[r, 6] + alpha[k] * table[r, 5])
        expected = expected + root * expected_even if gain is None else -expected
        change = expected + alpha[k] * slopes[k]
        share = eta * (change - slope - root * even) / size
        if not math.isfinite(share):  # no step, or numbers beyond the largest
            continue
        for j in range(step.shape[1]):
            r, s = at(index, k, j), step[k, j]
            table[r, 2] += share * table[r, 4] * s
            delta[r] += share * table[r, 6] * s
            table[r, 3] = max(0.0, table[r, 3] + share * table[r, 5] * abs(s) * root)


@exact
def side_by_side(g, h, of_g, of_h, of_delta):
    """The table of ``learn``; its rows are as long as a line of the cache."""
    table = np.empty((g.size, 8))
    for j in range(g.size):
        table[j, 0], table[j, 1], table[j, 2], table[j, 3] = g[j], h[j], g[j], h[j]
        table[j, 4], table[j, 5], table[j, 6], table[j, 7] = of_g[j], of_h[j], of_delta[j], 0.0
    return table


@exact
def weights(estimate, least, unknown, out):
    """out = |estimate| + least mean |estimate|; ``unknown`` where all of it is 0."""
    mean = 0.0
    for j in range(estimate.size):
        mean += abs(estimate[j])
    mean /= estimate.size
    for j in range(estimate.size):
        out[j] = abs(estimate[j]) + least * mean if mean > 0.0 else unknown


@exact
def copied(rows, mean):
    """A copy of the rows; mean = that of |row| over all but the first two, g and h."""
    out = np.empty_like(rows)
    mean[:] = 0.0
    for i in range(rows.shape[0]):
        for j in range(mean.size):
            out[i, j] = rows[i, j]
            if i >= 2:
                mean[j] += abs(rows[i, j])
    for j in range(mean.size):
        mean[j] /= rows.shape[0] - 2
    return out


@exact
def centre(rows, share, length):
    """Move the mean of delta_i, with these shares, to g; length[i] = ||rows[i]|| afterwards.

    The rows are g, h, delta_0, ... A block of columns at a time, which stays in the cache.
    """
    n, mean = rows.shape[1], np.empty(_BLOCK)
    length[:] = 0.0
    for first in range(0, n, _BLOCK):
        count = min(_BLOCK, n - first)
        mean[:] = 0.0
        for i in range(share.size):
            for j in range(count):
                mean[j] += share[i] * rows[2 + i, first + j]
        for i in range(rows.shape[0]):
            if i != 1:
                for j in range(count):
                    rows[i, first + j] += mean[j] if i == 0 else -mean[j]
            squares = zeros()
            for j in range(0, count, WIDTH):
                some = load_some(rows, i * n + first + j, count - j, 0.0)
                squares = squares + some * some
            length[i] += lane_total(squares)
    for i in range(length.size):
        length[i] = math.sqrt(length[i])


@exact
def total(x):
    """sum_j x_j, in order."""
    found = 0.0
    for j in range(x.size):
        found += x[j]
    return found


@exact
def mean_size(x, most):
    """sum x^2 / sum |x|, at most ``most``: the s with sum_j s |x_j| = sum_j x_j^2."""
    squares, sizes = 0.0, 0.0
    for j in range(x.size):
        squares += x[j] * x[j]
        sizes += abs(x[j])
    if sizes == 0.0:
        return 0.0
    found = squares / sizes
    return found if found < most else most  # also where it is infinite or NaN


@exact
def stretch(d, g, more):
    """d += more (d^T g / ||g||^2) g, where d^T g < 0."""
    along, size = dot(d, 0, g, g.size), dot(g, 0, g, g.size)
    share = more * along / size
    if along < 0.0 and math.isfinite(share):
        for j in range(d.size):
            d[j] += share * g[j]


@exact
def residuals(changes, expected, alpha, out):
    """out = (changes - expected) / alpha, 0 where a number is not finite; the largest |out|."""
    largest = 0.0
    for k in range(changes.size):
        change = changes[k] if math.isfinite(changes[k]) else 0.0
        found = (change - expected[k]) / alpha[k]
        out[k] = found if math.isfinite(found) else 0.0
        largest = max(largest, abs(out[k]))
    return largest


@exact
def to_bits(slopes, scale, bits):
    """The nibbles of the slopes, the lowest bit of each first."""
    codes = np.empty(slopes.size, np.uint8)
    to_nibbles(slopes, scale, codes)
    for k in range(slopes.size):
        for i in range(4):
            bits[4 * k + i] = (codes[k] >> i) & 1


@exact
def from_bits(bits, scale, out):
    """The slopes of these nibbles."""
    codes = np.empty(out.size, np.uint8)
    for k in range(out.size):
        code = 0
        for i in range(4):
            code |= int(bits[4 * k + i]) << i
        codes[k] = code
    from_nibbles(codes, scale, out)


@exact
def to_nibbles(slopes, scale, out):
    """out[k] = 0, or 1 + j (+ 7 if negative) for the nearest scale 2^-j, j <= 6, in logarithms."""
    for k in range(slopes.size):
        out[k] = 0
        if slopes[k] != 0.0 and scale > 0.0:
            m, e = math.frexp(abs(slopes[k]) / scale)
            j = -e if m >= 0.7071067811865476 else 1 - e
            if j <= 6:
                out[k] = 1 + max(j, 0) + (7 if slopes[k] < 0.0 else 0)


@exact
def from_nibbles(codes, scale, out):
    """The other side of ``to_nibbles``; 15 is not a code, and counts as 0."""
    for k in range(codes.size):
        code = codes[k]
        out[k] = 0.0
        if 1 <= code <= 7:
            out[k] = math.ldexp(scale, -(int(code) - 1))
        elif 8 <= code <= 14:
            out[k] = -math.ldexp(scale, -(int(code) - 8))
