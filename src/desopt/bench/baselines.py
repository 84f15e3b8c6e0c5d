"""The paper's methods in plain NumPy and SciPy, written as efficiently as these allow.

One function per method: a worker's whole round from drawing its minibatch to its final point,
from the pseudo-code. They use NumPy's own generator and share nothing with the package but the
losses in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.objectives import LOSSES

Value = Callable[[FloatArray], float]


def bind(X: Any, y: FloatArray, rows: Any, loss: str, penalty: float = 1e-6) -> Value:
    """f_i on a minibatch, which is gathered once."""
    batch, sign = X[rows], y[rows]
    of = LOSSES[loss].reference

    def value(x: FloatArray) -> float:
        return float(of(sign * (batch @ x)).mean() + 0.5 * penalty * (x @ x))

    return value


def des(
    X: Any,
    y: FloatArray,
    x: FloatArray,
    b: int,
    K: int,
    loss: str,
    rng: np.random.Generator,
    alpha: float = 1.0,
) -> FloatArray:
    """Gaussian mutations; no temporaries of size n in the loop."""
    f = bind(X, y, rng.integers(len(y), size=b), loss)
    v, w, u = x.copy(), np.empty_like(x), np.empty_like(x)
    best = f(v)
    for k in range(K):
        rng.standard_normal(out=u)
        u *= alpha / np.sqrt(k + 1.0)
        np.add(v, u, out=w)
        value = f(w)
        if value <= best:
            v, w, best = w, v, value
    return v


def mixture(
    X: Any,
    y: FloatArray,
    x: FloatArray,
    b: int,
    K: int,
    loss: str,
    rng: np.random.Generator,
    alpha: float = 1.0,
    l: int = 8,
    gaussian: bool = False,
) -> FloatArray:
    """Mixture mutations: l coordinates changed in place and restored on rejection."""
    n = x.size
    f = bind(X, y, rng.integers(len(y), size=b), loss)
    v = x.copy()
    index = rng.integers(n, size=(K, l))
    z = rng.standard_normal((K, l)) if gaussian else rng.choice([-1.0, 1.0], (K, l))
    step = z * (alpha * np.sqrt(n / l) / np.sqrt(np.arange(1.0, K + 1.0)))[:, None]
    best = f(v)
    for k in range(K):
        old = v[index[k]]
        np.add.at(v, index[k], step[k])
        value = f(v)
        if value <= best:
            best = value
        else:
            v[index[k]] = old
    return v


def fed_zo_sgd(
    X: Any,
    y: FloatArray,
    x: FloatArray,
    b: int,
    K: int,
    loss: str,
    rng: np.random.Generator,
    alpha: float = 1.0,
    mu: float = 1e-6,
) -> FloatArray:
    v, w, u = x.copy(), np.empty_like(x), np.empty_like(x)
    for k in range(K // 2):
        f = bind(X, y, rng.integers(len(y), size=b), loss)
        rng.standard_normal(out=u)
        np.multiply(u, mu, out=w)
        w += v
        above = f(w)
        np.multiply(u, -mu, out=w)
        w += v
        g = (above - f(w)) / (2.0 * mu)
        u *= -alpha / np.sqrt(k + 1.0) * g
        v += u
    return v


def zo_signsgd(
    X: Any,
    y: FloatArray,
    x: FloatArray,
    b: int,
    K: int,
    loss: str,
    rng: np.random.Generator,
    mu: float = 1e-6,
) -> FloatArray:
    total, w, u = np.zeros_like(x), np.empty_like(x), np.empty_like(x)
    for _ in range(K // 2):
        f = bind(X, y, rng.integers(len(y), size=b), loss)
        rng.standard_normal(out=u)
        np.multiply(u, mu, out=w)
        w += x
        above = f(w)
        np.multiply(u, -mu, out=w)
        w += x
        u *= (above - f(w)) / (2.0 * mu)
        total += u
    return np.asarray(np.sign(total))


def es_csa(
    X: Any,
    y: FloatArray,
    x: FloatArray,
    b: int,
    K: int,
    loss: str,
    rng: np.random.Generator,
    sigma: float = 1.0,
    penalty: float = 1e-6,
) -> FloatArray:
    """K members on all rows at once: one product of the data with a matrix of points."""
    points = rng.standard_normal((K, x.size))
    points *= sigma
    points += x
    margin = np.asarray(X @ points.T) * y[:, None]
    norms = np.einsum("ij,ij->i", points, points)
    return np.asarray(LOSSES[loss].reference(margin).sum(axis=0) + len(y) * 0.5 * penalty * norms)


BASELINES: dict[str, Callable[..., FloatArray]] = {
    "des": des,
    "mixture": mixture,
    "fed-zo-sgd": fed_zo_sgd,
    "zo-signsgd": zo_signsgd,
    "es-csa": es_csa,
}
