"""The losses of the linear models as branch-free code that LLVM turns into SIMD.

A value here decides a comparison or is part of an answer; it never enters x itself. So fused
multiply-adds and any order of summation are allowed; NaN and infinity keep their meaning.
Accurate to 1e-14 relative wherever the loss is a normal number; below that, it is 0.
"""

from __future__ import annotations

import numpy as np

from desopt.bits import as_bits, as_float
from desopt.jit import fused, sums

LR, NSVM, LSVM = 0, 1, 2

#: Rows per step of the loops over a few rows: a whole number of SIMD vectors.
CHUNK = 16


_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the low bits
_ROUND_BITS = np.uint64(0x4338000000000000)
_BIAS, _52 = np.uint64(1023), np.uint64(52)


@fused
def exp_minus(t):
    """e^-t for t >= 0 (0 beyond 708): 2^-k e^-r with t = k ln 2 + r and |r| <= ln(2)/2."""
    u = min(t, 708.0)
    shifted = u * 1.4426950408889634 + _ROUND
    k = shifted - _ROUND
    r = (u - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    p = 2.7626371065696354e-07
    p = p * r - 2.764019739169484e-06
    p = p * r + 2.480150431378554e-05
    p = p * r - 0.00019841170230570286
    p = p * r + 0.001388888893251478
    p = p * r - 0.008333333385699212
    p = p * r + 0.041666666666573066
    p = p * r - 0.16666666666554314
    p = p * r + 0.5000000000000006
    p = p * r - 1.0000000000000067
    p = p * r + 1.0
    scale = as_float((_BIAS - (as_bits(shifted) - _ROUND_BITS)) << _52)
    value = p * scale if t <= 708.0 else 0.0
    return value if t == t else t


@fused
def logistic(a):
    """log(1 + e^-a) = max(0, -a) + log(1 + z), z = e^-|a|; log(1 + z) = 2 atanh(z / (2 + z))."""
    z = exp_minus(abs(a))
    s = z / (2.0 + z)
    y = s * s
    p = 0.09379009800523844
    p = p * y + 0.05872488909779737
    p = p * y + 0.0778535360074072
    p = p * y + 0.09084666995946904
    p = p * y + 0.11111354877359586
    p = p * y + 0.14285708967377525
    p = p * y + 0.2000000005790726
    p = p * y + 0.33333333333091286
    p = p * y + 1.0000000000000016
    return 2.0 * s * p + (-a if a < 0.0 else 0.0)


@fused
def one_minus_tanh(a):
    """1 - tanh(a) = 2 z / (1 + z) for a >= 0 and 2 / (1 + z) for a < 0, z = e^-2|a|."""
    z = exp_minus(2.0 * abs(a))
    return (2.0 * z if a >= 0.0 else 2.0) / (1.0 + z)


@fused
def hinge(a):
    """max(0, 1 - a)."""
    value = 1.0 - a
    return 0.0 if value < 0.0 else value


@fused
def fill_losses(kind, margin, out, count):
    """out[i] = loss(margin[i]) for i < count."""
    if kind == LR:
        for i in range(count):
            out[i] = logistic(margin[i])
    elif kind == NSVM:
        for i in range(count):
            out[i] = one_minus_tanh(margin[i])
    else:
        for i in range(count):
            out[i] = hinge(margin[i])


@sums
def sum_losses(kind, margin):
    """sum_i loss(a_i)."""
    total = 0.0
    if kind == LR:
        for i in range(margin.size):
            total += logistic(margin[i])
    elif kind == NSVM:
        for i in range(margin.size):
            total += one_minus_tanh(margin[i])
    else:
        for i in range(margin.size):
            total += hinge(margin[i])
    return total
