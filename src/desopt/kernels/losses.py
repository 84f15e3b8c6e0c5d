"""The losses of the linear models, ``WIDTH`` margins at a time.

A value here decides a comparison, is part of an answer or is reported: the same bits on every
CPU. So everything is written as operations on lanes, fused where it says ``fma`` and only there.
NaN and infinity keep their meaning. Accurate to 1e-14 relative wherever the loss is a normal
number; below that, it is 0.
"""

from __future__ import annotations

import math

import numpy as np

from desopt.kernels.jit import exact
from desopt.kernels.lanes import (
    WIDTH,
    fma,
    lane_bits,
    lanes_of,
    load_some,
    magnitude,
    store_some,
    total,
    where,
    zeros,
)

LR, NSVM, LSVM, L2SVM = 0, 1, 2, 3

_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the low bits
_ROUND_BITS = np.uint64(0x4338000000000000)
_BIAS, _52 = np.uint64(1023), np.uint64(52)


@exact
def exp_minus(t):
    """e^-t for t >= 0 (0 beyond 708): 2^-k e^-r with t = k ln 2 + r and |r| <= ln(2)/2."""
    u = where(t > 708.0, 708.0, t)
    shifted = fma(u, 1.4426950408889634, _ROUND)
    k = shifted - _ROUND
    r = fma(k, -1.9082149292705877e-10, fma(k, -0.6931471803691238, u))
    p = fma(r, 2.7626371065696354e-07, -2.764019739169484e-06)
    p = fma(p, r, 2.480150431378554e-05)
    p = fma(p, r, -0.00019841170230570286)
    p = fma(p, r, 0.001388888893251478)
    p = fma(p, r, -0.008333333385699212)
    p = fma(p, r, 0.041666666666573066)
    p = fma(p, r, -0.16666666666554314)
    p = fma(p, r, 0.5000000000000006)
    p = fma(p, r, -1.0000000000000067)
    p = fma(p, r, 1.0)
    scale = lanes_of((_BIAS - (lane_bits(shifted) - _ROUND_BITS)) << _52)
    return where(t > 708.0, 0.0, p * scale)


@exact
def logistic(a):
    """log(1 + e^-a) = max(0, -a) + log(1 + z), z = e^-|a|; log(1 + z) = 2 atanh(z / (2 + z))."""
    z = exp_minus(magnitude(a))
    s = z / (2.0 + z)
    y = s * s
    p = fma(y, 0.09379009800523844, 0.05872488909779737)
    p = fma(p, y, 0.0778535360074072)
    p = fma(p, y, 0.09084666995946904)
    p = fma(p, y, 0.11111354877359586)
    p = fma(p, y, 0.14285708967377525)
    p = fma(p, y, 0.2000000005790726)
    p = fma(p, y, 0.33333333333091286)
    p = fma(p, y, 1.0000000000000016)
    minus = 0.0 - a
    return fma(2.0 * s, p, where(minus > 0.0, minus, 0.0))


@exact
def one_minus_tanh(a):
    """1 - tanh(a) = 2 z / (1 + z) for a >= 0 and 2 / (1 + z) for a < 0, z = e^-2|a|."""
    z = exp_minus(2.0 * magnitude(a))
    return where(a < 0.0, 2.0, 2.0 * z) / (1.0 + z)


@exact
def hinge(a):
    """max(0, 1 - a)."""
    value = 1.0 - a
    return where(value < 0.0, 0.0, value)


@exact
def squared_hinge(a):
    """max(0, 1 - a)^2."""
    value = hinge(a)
    return value * value


@exact
def fill_losses(kind, margin, out, count):
    """out[i] = loss(margin[i]) for i < count."""
    if kind == LR:
        for i in range(0, count, WIDTH):
            store_some(out, i, count - i, logistic(load_some(margin, i, count - i, math.inf)))
    elif kind == NSVM:
        for i in range(0, count, WIDTH):
            store_some(out, i, count - i, one_minus_tanh(load_some(margin, i, count - i, math.inf)))
    elif kind == LSVM:
        for i in range(0, count, WIDTH):
            store_some(out, i, count - i, hinge(load_some(margin, i, count - i, math.inf)))
    elif kind == L2SVM:
        for i in range(0, count, WIDTH):
            store_some(out, i, count - i, squared_hinge(load_some(margin, i, count - i, math.inf)))
    else:
        for i in range(count):
            out[i] = math.nan


@exact
def sum_losses(kind, margin):
    """sum_i loss(a_i). The lanes that are left over have the margin infinity, and so no loss."""
    lanes, count = zeros(), margin.size
    if kind == LR:
        for i in range(0, count, WIDTH):
            lanes = lanes + logistic(load_some(margin, i, count - i, math.inf))
    elif kind == NSVM:
        for i in range(0, count, WIDTH):
            lanes = lanes + one_minus_tanh(load_some(margin, i, count - i, math.inf))
    elif kind == LSVM:
        for i in range(0, count, WIDTH):
            lanes = lanes + hinge(load_some(margin, i, count - i, math.inf))
    elif kind == L2SVM:
        for i in range(0, count, WIDTH):
            lanes = lanes + squared_hinge(load_some(margin, i, count - i, math.inf))
    else:
        return math.nan
    return total(lanes)
