"""exp and log from + - * / only: what they return decides bits of x, so libm is not asked.

Both are good to a few units in the last place, which is all that is needed; what matters is
that every machine gets the same ones.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_LN2_HIGH = 0.6931471803691238  # 33 bits: k * _LN2_HIGH is exact for |k| < 2^20
_LN2_LOW = 1.9082149292705877e-10


def log(x: float) -> float:
    """ln x for finite x > 0: x = 2^e m, ln m = 2 atanh((m - 1) / (m + 1))."""
    m, e = math.frexp(x)
    if m < 0.7071067811865476:
        m, e = 2.0 * m, e - 1
    s = (m - 1.0) / (m + 1.0)
    total = 0.0
    for k in range(23, 0, -2):  # |s| < 0.172, so s^25 / 25 is below 1e-20
        total = total * (s * s) + 1.0 / k
    return e * _LN2_HIGH + (2.0 * s * total + e * _LN2_LOW)


def exp(x: float) -> float:
    """e^x: x = k ln 2 + r with |r| <= 0.35, Taylor polynomial for e^r."""
    if x > 709.0:
        return math.inf
    if x < -745.0:
        return 0.0
    k = math.floor(x / _LN2_HIGH + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    total = 1.0
    for i in range(17, 0, -1):  # 0.35^18 / 18! is below 1e-24
        total = 1.0 + total * r / i
    return math.ldexp(total, k)


def exp_of(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """``exp`` of many numbers between -708 and 709, the same bits."""
    k = np.floor(x / _LN2_HIGH + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    total = np.ones_like(x)
    for i in range(17, 0, -1):
        total = 1.0 + total * r / i
    return np.ldexp(total, k.astype(np.int32))
