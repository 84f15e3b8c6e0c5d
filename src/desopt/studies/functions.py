"""Noisy test functions with a known minimum, as objectives of a study.

============  ===============================================================  ===================
name          F(x; xi)                                                         noise
============  ===============================================================  ===================
sphere        1/2 ||x - 1||^2 + xi^T x                                         of the gradient
ellipsoid     1/2 sum_i 1000^(i/(n-1)) (x_i - 1)^2 + xi^T x                    of the gradient
rosenbrock    sum_i 100 (x_(i+1) - x_i^2)^2 + (1 - x_i)^2 + xi^T x             of the gradient
quadratic     1/2 (z^T (x - 1) + e)^2, z ~ N(0, C), e ~ N(0, 1)                of the curvature too
unsteady      1/2 ||x - 1||^2 + eps, eps new for every x and minibatch         of every value
============  ===============================================================  ===================

x starts at 0 and xi ~ N(0, I). ``draw(rng, b)`` is a minibatch of b samples: where only their mean
enters F, it is that mean. ``exact`` is f, the expectation of F up to a constant.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray

Draw = Callable[[np.random.Generator, int], Any]


@dataclass(frozen=True)
class Function:
    """A test function: F on a minibatch, its data, and where a run starts."""

    n: int
    #: The mean of F over a minibatch.
    fun: Callable[[FloatArray, Any], float]
    draw: Draw
    exact: Callable[[FloatArray], float]

    @property
    def x0(self) -> FloatArray:
        return np.zeros(self.n)

    def scaled(self, value: float = 1.0, x: float = 1.0) -> Function:
        """The function with its values times ``value`` and its variables times ``x``."""
        fun, exact = self.fun, self.exact
        return replace(
            self,
            fun=lambda at, batch: value * fun(at / x, batch),
            exact=lambda at: value * exact(at / x),
        )


def _mean_of_normals(n: int, size: float = 1.0) -> Draw:
    """The mean of b vectors ~ size N(0, I)."""
    return lambda rng, b: size / math.sqrt(b) * rng.standard_normal(n)


def _tilted(n: int, f: Callable[[FloatArray], float], size: float = 1.0) -> Function:
    """f(x) + xi^T x."""
    return Function(n, lambda x, xi: f(x) + float(xi @ x), _mean_of_normals(n, size), f)


def sphere(n: int) -> Function:
    return _tilted(n, lambda x: 0.5 * float(np.sum((x - 1.0) ** 2)))


def ellipsoid(n: int) -> Function:
    weights = 1000.0 ** (np.arange(n) / (n - 1))
    return _tilted(n, lambda x: 0.5 * float(np.sum(weights * (x - 1.0) ** 2)), 10.0)


def rosenbrock(n: int) -> Function:
    def f(x: FloatArray) -> float:
        return float(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))

    return _tilted(n, f)


def quadratic(n: int) -> Function:
    """C is diagonal, from 1 down to 1/n."""
    weights = 1.0 / np.arange(1.0, n + 1.0)

    def fun(x: FloatArray, batch: tuple[FloatArray, FloatArray]) -> float:
        z, e = batch
        return 0.5 * float(np.mean((z @ (x - 1.0) + e) ** 2))

    def draw(rng: np.random.Generator, b: int) -> tuple[FloatArray, FloatArray]:
        return rng.standard_normal((b, n)) * np.sqrt(weights), rng.standard_normal(b)

    return Function(n, fun, draw, lambda x: 0.5 * float(np.sum(weights * (x - 1.0) ** 2)))


def unsteady(n: int, size: float = 1.0) -> Function:
    """eps ~ size N(0, n/b), decided by the bytes of x and of the minibatch: a run can be repeated.

    Its deviation is a share of f(0) that does not depend on n.
    """

    def f(x: FloatArray) -> float:
        return 0.5 * float(np.sum((x - 1.0) ** 2))

    def fun(x: FloatArray, batch: tuple[int, int]) -> float:
        salt, b = batch
        name = hashlib.blake2b(x.tobytes(), digest_size=8, key=salt.to_bytes(8, "little"))
        rng = np.random.Generator(np.random.Philox(key=int.from_bytes(name.digest(), "little")))
        return f(x) + size * math.sqrt(n / b) * float(rng.standard_normal())

    def draw(rng: np.random.Generator, b: int) -> tuple[int, int]:
        return int(rng.integers(2**63)), b

    return Function(n, fun, draw, f)


#: The test functions by name.
FUNCTIONS: dict[str, Function] = {
    "sphere": sphere(100),
    "ellipsoid": ellipsoid(50),
    "rosenbrock": rosenbrock(20),
    "quadratic": quadratic(50),
    **{f"unsteady-{n}": unsteady(n) for n in (10, 100, 1000)},
}
