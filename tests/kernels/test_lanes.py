"""Sums by lanes: the order of additions that is written down, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from desopt.kernels import lanes
from desopt.kernels.jit import EXACT
from desopt.kernels.losses import LSVM, sum_losses

Vector = NDArray[np.float64]


def _dots(a: Any, first: int, b: Any, c: Any, n: int) -> Any:
    return lanes.dot(a, first, b, n), lanes.dot_both(a, first, b, c, n)


dots: Any = njit(**EXACT)(_dots)  # without a cache, which would not see a change of lanes


def dot_in_lanes(a: Vector, b: Vector) -> float:
    """Eight lanes; what is left joins the tree on its way: four numbers, two, one."""
    n, width = a.size, 8
    at = n // width * width
    found = np.zeros(width)
    for j in range(0, at, width):
        found = found + a[j : j + width] * b[j : j + width]
    while width > 1:
        width //= 2
        found = found[:width] + found[width:]
        if n & width:
            found = found + a[at : at + width] * b[at : at + width]
            at += width
    return float(found[0])


@pytest.mark.parametrize("n", [*range(36), 54, 780])
def test_scalar_products(n: int) -> None:
    random = np.random.default_rng(n)
    a, b, c = random.standard_normal(n + 5), random.standard_normal(n), random.standard_normal(n)
    of_b, of_c = dot_in_lanes(a[5:], b), dot_in_lanes(a[5:], c)
    assert dots(a, 5, b, c, n) == (of_b, (of_b, of_c))


@pytest.mark.parametrize("n", [0, 1, 7, 15, 16, 17, 31, 32, 33, 1000])
def test_sums_of_losses(n: int) -> None:
    """Sixteen lanes, halved until one is left. The hinge loss of 1 - v is v, exactly."""
    random = np.random.default_rng(n)
    values = random.integers(1, 2**40, n) / 2.0**52 * 2.0 ** random.integers(0, 12, n)
    margin = 1.0 - values
    losses = np.zeros(-(-n // lanes.WIDTH) * lanes.WIDTH)
    losses[:n] = 1.0 - margin
    found = np.zeros(lanes.WIDTH)
    for row in losses.reshape(-1, lanes.WIDTH):
        found = found + row
    while found.size > 1:
        found = found[: found.size // 2] + found[found.size // 2 :]
    assert sum_losses(LSVM, margin) == found[0]


def test_the_order_matters() -> None:
    """Or the tests above could not tell one order from another."""
    random = np.random.default_rng(0)
    pairs = random.standard_normal((20, 2, 780))
    assert any(dot_in_lanes(a, b) != float(np.cumsum(a * b)[-1]) for a, b in pairs)
