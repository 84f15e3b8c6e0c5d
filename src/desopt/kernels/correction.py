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
from desopt.kernels.lanes import WIDTH, dot, load_some, magnitude, store_some, zeros
from desopt.kernels.lanes import total as lane_total
from desopt.kernels.lowlevel import prefetch
from desopt.kernels.philox import draw_mixture

_U = np.uint64

_BLOCK = 1024  # columns
_AHEAD = 6  # steps whose numbers are asked for before they are needed


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
def learn(table, weights, old, delta, of_g, of_h, index, step, alpha, slopes, eta):
    """Bring the estimates a share ``eta`` of the way to each of the changes, one after the other.

    The least change of the estimates, in the norm of their weights, that does so (Kaczmarz).
    ``table`` is that of ``side_by_side``; ``old`` and ``delta`` are the worker's. ``slopes`` are
    the changes beyond those that ``predict`` expects of the old estimates, per alpha.
    """
    by_g, least_g, by_h, least_h, by_delta, least_delta = weights
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
            of_slopes = (by_g * abs(table[r, 0]) + least_g) + (by_delta * table[r, 4] + least_delta)
            size += s * s * (of_slopes + alpha[k] * (by_h * abs(table[r, 1]) + least_h))
        change = expected + root * expected_even + alpha[k] * slopes[k]
        share = eta * (change - slope - root * even) / size
        if not math.isfinite(share):  # no step, or numbers beyond the largest
            continue
        for j in range(step.shape[1]):
            r, s = _U(at(index, k, j)), step[k, j]
            more = share * (by_h * abs(table[r, 1]) + least_h) * abs(s) * root
            table[r, 2] += share * (by_g * abs(table[r, 0]) + least_g) * s
            table[r, 3] = max(0.0, table[r, 3] + more)
            delta[r] += share * (by_delta * table[r, 4] + least_delta) * s


@exact
def learn_mixtures(
    table, weights, old, new, of_g, of_h, scale, l, gaussian, alpha, masks, nibbles, scales,
    workers, eta, c1, c3, k0, k1,
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
        learn(table, weights, before, delta, of_g, of_h, index, step, alpha, slopes, eta)


@exact
def side_by_side(rows, table, means):
    """What ``learn`` needs of a coordinate, in one line of the cache.

    A row of the table is g, h, g and h again, which will change, and the mean of |delta_i|; the
    rest of it is not used. ``means`` are those of |g|, |h| and |delta_i| over all coordinates.
    """
    sizes = np.empty(_BLOCK)
    means[:] = 0.0
    for first in range(0, rows.shape[1], _BLOCK):
        size = sizes[: min(_BLOCK, rows.shape[1] - first)]
        size[:] = 0.0
        for i in range(2, rows.shape[0]):
            delta = rows[i, first : first + _BLOCK]
            for j in range(size.size):
                size[j] += abs(delta[j])
        _lay(rows, first, size, table, means)
    for i in range(means.size):
        means[i] /= rows.shape[1]


@exact
def _lay(rows, first, size, table, means):
    """The lines of some columns; ``size`` are the sums of their |delta_i|, ``means`` as yet sums.

    The sums are taken together, since each has to wait for its last addition.
    """
    g, h = rows[0, first : first + size.size], rows[1, first : first + size.size]
    for j in range(size.size):
        size[j] /= rows.shape[0] - 2
    sum_g, sum_h, sum_delta = means[0], means[1], means[2]
    for j in range(size.size):
        line = table[first + j]
        line[0], line[1], line[2], line[3], line[4] = g[j], h[j], g[j], h[j], size[j]
        sum_g += abs(g[j])
        sum_h += abs(h[j])
        sum_delta += size[j]
    means[0], means[1], means[2] = sum_g, sum_h, sum_delta


@exact
def weights_of(table, means, least, alpha, in_units_of_g):
    """The weights of g, h and delta in ``learn``: a share of an estimate's size, and a least one.

    A weight is |estimate| + least mean |estimate|. Where an estimate is all 0 the weight is 1,
    that of h 1/alpha, or the mean weight of g/alpha.
    """
    by_g, least_g = (1.0, least * means[0]) if means[0] > 0.0 else (0.0, 1.0)
    by_delta, least_delta = (1.0, least * means[2]) if means[2] > 0.0 else (0.0, 1.0)
    if means[1] > 0.0:
        return by_g, least_g, 1.0, least * means[1], by_delta, least_delta
    unknown = 1.0
    if in_units_of_g:
        of_g = 0.0
        for j in range(table.shape[0]):
            of_g += by_g * abs(table[j, 0]) + least_g
        unknown = of_g / table.shape[0]
    return by_g, least_g, 0.0, unknown / alpha, by_delta, least_delta


@exact
def centre(old, new, table, learnt, known, share, length, means):
    """Move the mean of delta_i, with these shares, to g; length[i] = ||new[i]|| afterwards.

    The rows are g, h, delta_0, ...: g and h as they are in the table, delta_i as it was where
    nothing was learnt of it. A delta_i that is not known is then 0. Table and means become those
    of the new rows. A block of columns at a time, which stays in the cache.
    """
    n, means_of, sizes = new.shape[1], np.empty(_BLOCK), np.empty(_BLOCK)
    length[:], means[:] = 0.0, 0.0
    for first in range(0, n, _BLOCK):
        g, h = new[0, first : first + _BLOCK], new[1, first : first + _BLOCK]
        mean, size = means_of[: g.size], sizes[: g.size]
        mean[:], size[:] = 0.0, 0.0
        for i in range(share.size):
            delta = new[2 + i, first : first + _BLOCK]
            if not learnt[i]:
                delta[:] = old[2 + i, first : first + _BLOCK]
            for j in range(mean.size):
                mean[j] += share[i] * delta[j]
        for j in range(mean.size):
            g[j], h[j] = table[first + j, 2] + mean[j], table[first + j, 3]
        for i in range(2):
            squares = zeros()
            for j in range(0, mean.size, WIDTH):
                some = load_some(new, i * n + first + j, mean.size - j, 0.0)
                squares = squares + some * some
            length[i] += lane_total(squares)
        for i in range(2, new.shape[0]):
            row, squares = new[i, first : first + _BLOCK], zeros()
            for j in range(0, mean.size, WIDTH):
                left = mean.size - j
                some = load_some(row, j, left, 0.0) - load_some(mean, j, left, 0.0)
                store_some(row, j, left, some)
                squares = squares + some * some
                if known[i - 2]:
                    store_some(size, j, left, load_some(size, j, left, 0.0) + magnitude(some))
                if j + _BLOCK + WIDTH <= n - first:  # the row's next block
                    prefetch(new, i * n + first + j + _BLOCK)
                    prefetch(new, i * n + first + j + _BLOCK + WIDTH // 2)
            length[i] += lane_total(squares)
            if not known[i - 2]:
                row[:] = 0.0
        _lay(new, first, size, table, means)
    for i in range(means.size):
        means[i] /= n
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
        at_bit = K + 4 * k
        code = mask[at_bit >> 3] >> (at_bit & 7)
        if at_bit & 7 > 4:  # the rest is in the next byte
            code |= mask[(at_bit >> 3) + 1] << (8 - (at_bit & 7))
        codes[k] = code & 15
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
    values = np.zeros(16)
    for j in range(7):
        values[1 + j] = math.ldexp(scale, -j)
        values[8 + j] = -values[1 + j]
    for k in range(codes.size):
        out[k] = values[codes[k] & 15]
