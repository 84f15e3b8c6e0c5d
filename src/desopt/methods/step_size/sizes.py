"""Step sizes of a round: decreasing as the paper's, with control steps between them."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np

from desopt.contract.types import FloatArray, IndexArray
from desopt.kernels.portable import exp

LN2 = 0.6931471805599453

#: A control step is so many octaves smaller than its neighbours.
SMALL = 5


def decreasing(iterations: int, level: float) -> FloatArray:
    """2^level / sqrt(k + 1)."""
    alpha: FloatArray = exp(LN2 * level) / np.sqrt(np.arange(1.0, iterations + 1.0))
    return alpha


def control_steps(iterations: int, t: int, period: int) -> IndexArray:
    """The steps of round t that are made much smaller: would any step be accepted?"""
    return np.flatnonzero((np.arange(iterations) + 7 * t) % period == 0)


@lru_cache(maxsize=8)  # all workers of a round have the same
def with_controls(iterations: int, t: int, level: float, period: int) -> FloatArray:
    """The step sizes of a round after the first."""
    alpha = decreasing(iterations, level)
    alpha[control_steps(iterations, t, period)] *= 2.0**-SMALL
    alpha.flags.writeable = False
    return alpha


def few(workers: int) -> float:
    """What fewer workers than ten lack: the noise of their mean."""
    return max(0.0, 1.0 / sqrt(workers) - 1.0 / sqrt(10.0))
