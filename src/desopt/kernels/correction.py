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
from desopt.kernels.philox import draw_mixture

_U = np.uint64

_BLOCK = 1024  # columns
_AHEAD = 2  # steps whose numbers are asked for before they are needed


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
def predict(g, h, delta, of_g, of_h, index, step, alpha, out):
    """out[k] = (of_g g + delta)^T s_k + of_h sqrt(alpha_k) h^T |s_k|."""
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
            slope += (of_g * g[r] + delta[r]) * step[k, j]
            even += of_h * h[r] * abs(step[k, j])
        out[k] = slope + math.sqrt(alpha[k]) * even


@exact
def learn(table, old, delta, of_g, of_h, index, step, alpha, slopes, eta):
    """Bring the estimates a share ``eta`` of the way to each of the changes, one after the other.

    The least change of the estimates, in the norm of their weights, that does so (Kaczmarz). The
    rows of ``table`` are the old g and h, g, h, and the weights of g, h and delta of a coordinate,
    side by side in the cache; ``old`` and ``delta`` are the worker's. ``slopes`` are the changes
    beyond those that ``predict`` expects of the old estimates, per alpha.
    """
    for k in range(step.shape[0]):
        if index is not None and k + _AHEAD < step.shape[0]:
            for j in range(step.shape[1]):
                r = _U(at(index, k + _AHEAD, j))
                prefetch(table, _U(8) * r)
                prefetch(old, r)
                prefetch(delta, r)
        root = math.sqrt(alpha[k])
        slope, even, size = 0.0, 0.0, 0.0
        expected, expected_even = 0.0, 0.0
        for j in range(step.shape[1]):
            r, s = _U(at(index, k, j)), step[k, j]
            expected += (of_g * table[r, 0] + old[r]) * s
            expected_even += of_h * table[r, 1] * abs(s)
            slope += (table[r, 2] + delta[r]) * s
            even += table[r, 3] * abs(s)
            size += s * s * (table[r, 4] + table[r, 6] + alpha[k] * table[r, 5])
        change = expected + root * expected_even + alpha[k] * slopes[k]
        share = eta * (change - slope - root * even) / size
        if not math.isfinite(share):  # no step, or numbers beyond the largest
            continue
        for j in range(step.shape[1]):
            r, s = _U(at(index, k, j)), step[k, j]
            table[r, 2] += share * table[r, 4] * s
            delta[r] += share * table[r, 6] * s
            table[r, 3] = max(0.0, table[r, 3] + share * table[r, 5] * abs(s) * root)


@exact
def learn_mixtures(
    table, old, new, of_g, of_h, scale, l, gaussian, alpha, masks, nibbles, scales, workers,
    eta, c1, c3, k0, k1,
):  # fmt: skip
    """``learn`` from the answers of several workers with mixture steps, which are drawn here.

    masks[i] are the packed bits of workers[i], scales[i] is its scale. A worker's row is copied
    from ``old`` to ``new`` when it is needed, so that it is in the cache.
    """
    K, n = scale.size, table.shape[0]
    iterations, slopes = np.empty(K, np.int64), np.empty(K)
    for k in range(K):
        iterations[k] = k
    for i in range(workers.size):
        row = 2 + workers[i]
        worker = np.uint64(workers[i])
        index, step = draw_mixture(iterations, scale, l, n, gaussian, c1, worker, c3, k0, k1)
        from_bits(masks[i], nibbles, scales[i], slopes)
        before, delta = old[row], new[row]
        delta[:] = before
        learn(table, before, delta, of_g, of_h, index, step, alpha, slopes, eta)


@exact
def side_by_side(g, h, of_delta, least, alpha, in_units_of_g):
    """The table of ``learn``; its rows are as long as a line of the cache.

    A weight is |estimate| + least mean |estimate|, ``of_delta`` the mean of |delta_i|. Where an
    estimate is all 0 the weight is 1, that of h 1/alpha, or the mean weight of g/alpha.
    """
    mean_g, mean_h, mean_delta = 0.0, 0.0, 0.0
    for j in range(g.size):  # side by side, since each sum has to wait for its last addition
        mean_g += abs(g[j])
        mean_h += abs(h[j])
        mean_delta += of_delta[j]
    mean_g, mean_h, mean_delta = mean_g / g.size, mean_h / g.size, mean_delta / g.size
    table, total_g = np.empty((g.size, 8)), 0.0
    for j in range(g.size):
        table[j, 0], table[j, 1], table[j, 2], table[j, 3] = g[j], h[j], g[j], h[j]
        table[j, 4] = abs(g[j]) + least * mean_g if mean_g > 0.0 else 1.0
        table[j, 5] = abs(h[j]) + least * mean_h
        table[j, 6] = of_delta[j] + least * mean_delta if mean_delta > 0.0 else 1.0
        table[j, 7] = 0.0
    if not mean_h > 0.0:
        unknown = 1.0
        if in_units_of_g:
            for j in range(g.size):
                total_g += table[j, 4]
            unknown = total_g / g.size
        for j in range(g.size):
            table[j, 5] = unknown / alpha
    return table


@exact
def mean_size_of_rows(rows, out):
    """out = the mean of |row| over all but the first two, g and h."""
    for first in range(0, out.size, _BLOCK):
        mean = out[first : first + _BLOCK]
        mean[:] = 0.0
        for i in range(2, rows.shape[0]):
            row = rows[i, first : first + _BLOCK]
            for j in range(mean.size):
                mean[j] += abs(row[j])
        for j in range(mean.size):
            mean[j] /= rows.shape[0] - 2


@exact
def centre(old, new, table, learnt, share, length):
    """Move the mean of delta_i, with these shares, to g; length[i] = ||new[i]|| afterwards.

    The rows are g, h, delta_0, ...: g and h as they are in the table, delta_i as it was where
    nothing was learnt of it. A block of columns at a time, which stays in the cache.
    """
    n, means = new.shape[1], np.empty(_BLOCK)
    length[:] = 0.0
    for first in range(0, n, _BLOCK):
        g, h = new[0, first : first + _BLOCK], new[1, first : first + _BLOCK]
        for j in range(g.size):
            g[j], h[j] = table[first + j, 2], table[first + j, 3]
        mean = means[: g.size]
        mean[:] = 0.0
        for i in range(share.size):
            delta = new[2 + i, first : first + _BLOCK]
            if not learnt[i]:
                delta[:] = old[2 + i, first : first + _BLOCK]
            for j in range(mean.size):
                mean[j] += share[i] * delta[j]
        for j in range(mean.size):
            g[j] += mean[j]
        for i in range(share.size):
            delta = new[2 + i, first : first + _BLOCK]
            for j in range(mean.size):
                delta[j] -= mean[j]
        for i in range(new.shape[0]):
            squares = zeros()
            for j in range(0, mean.size, WIDTH):
                some = load_some(new, i * n + first + j, mean.size - j, 0.0)
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
def to_bits(changes, expected, alpha, most, bits):
    """What is sent of (changes - expected) / alpha: a scale, at most ``most``, and nibbles.

    The bits are those of the nibbles, the lowest of each first. Where there is no room for them,
    the scale is the mean size. A number that is not finite counts as 0.
    """
    slopes, largest = np.empty(changes.size), 0.0
    for k in range(changes.size):
        change = changes[k] if math.isfinite(changes[k]) else 0.0
        found = (change - expected[k]) / alpha[k]
        slopes[k] = found if math.isfinite(found) else 0.0
        largest = max(largest, abs(slopes[k]))
    if bits.size == 0:
        return mean_size(slopes, most)
    scale = float(np.float32(min(largest, most)))
    codes = np.empty(slopes.size, np.uint8)
    to_nibbles(slopes, scale, codes)
    for k in range(slopes.size):
        for i in range(4):
            bits[4 * k + i] = (codes[k] >> i) & 1
    return scale


@exact
def from_bits(mask, nibbles, scale, out):
    """The slopes of packed bits: +-scale by K signs, or what the nibbles after these say."""
    K = out.size
    if not nibbles:
        for k in range(K):
            out[k] = -scale if (mask[k >> 3] >> (k & 7)) & 1 else scale
        return
    codes = np.empty(K, np.uint8)
    for k in range(K):
        code = 0
        for i in range(4):
            bit = K + 4 * k + i
            code |= ((mask[bit >> 3] >> (bit & 7)) & 1) << i
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
