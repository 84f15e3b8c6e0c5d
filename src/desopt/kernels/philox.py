"""Philox4x32-10 and what is made of its words: integers, normal numbers, mixture steps."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from desopt.kernels.bits import as_bits, as_float
from desopt.kernels.jit import exact, exact_inline, exact_with_gil

#: The most iterations of a round, for which the counter has room.
MAX_ITERATIONS = 2**28


class Purpose(IntEnum):
    """What a stream is for; the top four bits of the counter.

    >>> streams.Purpose.NORMAL.value
    2
    """

    BATCH = 0
    COORDINATE = 1
    NORMAL = 2
    PARTITION = 3
    EVALUATION = 4
    USER = 5
    DATA = 6
    PARTICIPATION = 7
    CANDIDATE = 8
    SUBSPACE = 9


_U = np.uint64
_M0, _M1 = _U(0xD2511F53), _U(0xCD9E8D57)  # multipliers and
_W0, _W1 = _U(0x9E3779B9), _U(0xBB67AE85)  # key increments of Philox4x32
_LOW = _U(0xFFFFFFFF)
_ONE, _32, _52, _SIGN = _U(1), _U(32), _U(52), _U(1 << 63)
_ITERATION = _U(MAX_ITERATIONS - 1)
_COORDINATE, _NORMAL = _U(Purpose.COORDINATE << 28), _U(Purpose.NORMAL << 28)


@exact_inline
def philox(c0, c1, c2, c3, k0, k1):
    """One block: ten rounds of Philox4x32 on 32-bit words held in uint64."""
    for _ in range(10):
        # Only what is multiplied is cut to 32 bits: SIMD multiplications do so by themselves.
        p0, p1 = _M0 * (c0 & _LOW), _M1 * (c2 & _LOW)
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1, (p0 >> _32) ^ c3 ^ k1, p0
        k0, k1 = k0 + _W0, k1 + _W1
    return c0 & _LOW, c1 & _LOW, c2 & _LOW, c3 & _LOW


@exact_inline
def _to_float(u):
    """float64(u) for u < 2^52, in two operations that vectorise on every CPU."""
    return as_float(u | _U(0x4330000000000000)) - 4503599627370496.0


_LN2 = 0.6931471805599453
_TURN = math.pi / 2 * 2.0**-30


@exact_inline
def _normal_pair(a, b):
    """Two normal numbers from two 32-bit words: +-r cos(phi), +-r sin(phi), maybe swapped.

    r = sqrt(-2 ln((2 a + 1) / 2^33)). Of b, bit 31 is the sign of both, bit 30 swaps them,
    and the other 30 bits are phi in (-pi/4, pi/4): together every angle once.
    """
    # 2 a + 1 = 2^e m with m in [0.7, 1.4), and ln m = 2 atanh(s) with s = (m - 1) / (m + 1).
    bits = as_bits(_to_float((a << _ONE) | _ONE))
    e = (bits - _U(0x3FE6A09E667F3BCD)) >> _52
    m = as_float(bits - (e << _52))
    s = (m - 1.0) / (m + 1.0)
    y = s * s
    p = 0.09804047819876527  # atanh(s) / s as a polynomial in s^2
    p = p * y + 0.11087124955038745
    p = p * y + 0.14286083072937864
    p = p * y + 0.1999999744591619
    p = p * y + 0.3333333333978963
    p = p * y + 0.9999999999999736
    r = math.sqrt((66.0 * _LN2 - _to_float(e) * (2.0 * _LN2)) - (4.0 * s) * p)
    r = as_float(as_bits(r) ^ ((b << _32) & _SIGN))
    phi = (_to_float(b & _U(0x3FFFFFFF)) - 536870911.5) * _TURN
    y = phi * phi
    sin = -2.475655877198039e-08
    sin = sin * y + 2.7555271893389817e-06
    sin = sin * y - 0.0001984126329839051
    sin = sin * y + 0.00833333332387815
    sin = sin * y - 0.16666666666616686
    sin = (sin * y + 0.9999999999999957) * phi
    cos = -2.717342984102282e-07
    cos = cos * y + 2.4798928755323667e-05
    cos = cos * y - 0.0013888880393776424
    cos = cos * y + 0.04166666654391119
    cos = cos * y - 0.49999999999351113
    cos = cos * y + 0.9999999999999444
    swap = (b & _U(0x40000000)) != _U(0)
    return r * (sin if swap else cos), r * (cos if swap else sin)


@exact_inline
def _below(high, w):
    """floor(w high / 2^64) for high < 2^32."""
    return ((w >> _32) * high + (((w & _LOW) * high) >> _32)) >> _32


@exact_with_gil
def fill_words(out, c1, c2, c3, k0, k1):
    """out[j] = 64-bit word j of the stream."""
    blocks = out.size // 2
    for j in range(blocks):
        a, b, c, d = philox(_U(j), c1, c2, c3, k0, k1)
        out[2 * j] = a | (b << _32)
        out[2 * j + 1] = c | (d << _32)
    if out.size & 1:
        a, b, c, d = philox(_U(blocks), c1, c2, c3, k0, k1)
        out[2 * blocks] = a | (b << _32)


@exact
def fill_normals(out, c1, c2, c3, k0, k1):
    """out[j] = normal number j of the stream."""
    fill_normal_blocks(out, 0, c1, c2, c3, k0, k1)


@exact
def fill_normal_blocks(out, first, c1, c2, c3, k0, k1):
    """out[j] = normal number 4 first + j of the stream."""
    blocks = out.size // 4
    for j in range(blocks):
        a, b, c, d = philox(_U(first + j), c1, c2, c3, k0, k1)
        z0, z1 = _normal_pair(a, b)
        z2, z3 = _normal_pair(c, d)
        out[4 * j] = z0
        out[4 * j + 1] = z1
        out[4 * j + 2] = z2
        out[4 * j + 3] = z3
    left = out.size - 4 * blocks
    if left > 0:
        a, b, c, d = philox(_U(first + blocks), c1, c2, c3, k0, k1)
        z0, z1 = _normal_pair(a, b)
        z2, _z3 = _normal_pair(c, d)
        out[4 * blocks] = z0
        if left > 1:
            out[4 * blocks + 1] = z1
        if left > 2:
            out[4 * blocks + 2] = z2


@exact_with_gil
def fill_integers(out, high, c1, c2, c3, k0, k1):
    """out[j] = word j of the stream, brought to [0, high)."""
    h = _U(high)
    for j in range((out.size + 1) // 2):
        a, b, c, d = philox(_U(j), c1, c2, c3, k0, k1)
        out[2 * j] = _below(h, a | (b << _32))
        if 2 * j + 1 < out.size:
            out[2 * j + 1] = _below(h, c | (d << _32))


@exact_with_gil
def fill_coordinates(index, step, which, scale, n, c1, c2, c3, k0, k1):
    """Row k: l coordinates of iteration which[k], and +-scale[k] by the lowest bit of each word.

    The coordinate is decided by the high bits, so the sign is independent of it.
    """
    h = _U(n)
    l = index.shape[1]
    for j in range(0, l, 2):
        for k in range(scale.size):  # the inner loop, since it is the one that vectorises
            a, b, _c, _d = philox(_U(j >> 1), c1, c2, c3 | _U(which[k]), k0, k1)
            index[k, j] = _below(h, a | (b << _32))
            step[k, j] = scale[k] if a & _ONE else -scale[k]
        if j + 1 < l:
            for k in range(scale.size):
                _a, _b, c, d = philox(_U(j >> 1), c1, c2, c3 | _U(which[k]), k0, k1)
                index[k, j + 1] = _below(h, c | (d << _32))
                step[k, j + 1] = scale[k] if c & _ONE else -scale[k]


@exact_with_gil
def fill_mixture_normals(step, which, scale, c1, c2, c3, k0, k1):
    """Row k: scale[k] times the first l normal numbers of iteration which[k]."""
    l = step.shape[1]
    for j in range(0, l, 4):
        for k in range(scale.size):
            a, b, c, d = philox(_U(j >> 2), c1, c2, c3 | _U(which[k]), k0, k1)
            z0, z1 = _normal_pair(a, b)
            z2, z3 = _normal_pair(c, d)
            step[k, j] = scale[k] * z0
            if j + 1 < l:
                step[k, j + 1] = scale[k] * z1
            if j + 2 < l:
                step[k, j + 2] = scale[k] * z2
            if j + 3 < l:
                step[k, j + 3] = scale[k] * z3


@exact
def draw_mixture(which, scale, l, n, gaussian, c1, c2, c3, k0, k1):
    """``mixture_block`` for a stream of any purpose.

    numba compiles no normal numbers where ``gaussian`` is None instead of False.
    """
    iteration = c3 & _ITERATION
    index, step = np.empty((l, scale.size), np.int64).T, np.empty((l, scale.size)).T
    fill_coordinates(index, step, which, scale, n, c1, c2, _COORDINATE | iteration, k0, k1)
    if gaussian is not None and gaussian:
        fill_mixture_normals(step, which, scale, c1, c2, _NORMAL | iteration, k0, k1)
    return index, step


@exact
def fill_normal_planes(out, first, shift, c1, c2, c3, k0, k1):
    """Normals of 2^shift iterations side by side: out[q, (j << shift) + g] is number
    4 (first + j) + q of iteration g after the one in c3, which is a multiple of 2^shift.

    Words first, then normals in their place: each loop has room for its constants in registers.
    """
    bits, side = _U(shift), _U((1 << shift) - 1)
    for t in range(out.shape[1]):
        block, iteration = _U(first) + (_U(t) >> bits), c3 | (_U(t) & side)
        a, b, c, d = philox(block, c1, c2, iteration, k0, k1)
        out[0, t] = as_float(a)
        out[1, t] = as_float(b)
        out[2, t] = as_float(c)
        out[3, t] = as_float(d)
    for q in range(0, 4, 2):
        for t in range(out.shape[1]):
            out[q, t], out[q + 1, t] = _normal_pair(as_bits(out[q, t]), as_bits(out[q + 1, t]))
