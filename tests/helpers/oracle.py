"""An oracle for the tests: every method in plain NumPy, written from the pseudo-code.

Nothing is shared with the package but the random streams, so that both sides see the same
minibatches and the same mutation vectors. Clarity comes before speed: every value is computed
from scratch at its point, no step is taken back, no bits are packed.

``loss(x, X, y)`` is the mean of F over the rows of ``X``; ``shards`` is the list of the M
workers' ``(X_i, y_i)``, labels in {-1, +1}, ``X_i`` an array or a CSR matrix. ``T`` rounds of
``K`` iterations with minibatches of ``b`` rows, 0-based ``t``, ``i`` and ``k`` throughout.
``last`` is for a run that ends by its budget: the iterations (estimates, members) of the last
round, where there are fewer than in the others.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desopt.contract.streams import SERVER, Purpose, Stream, integers, normals, words

Vector = NDArray[np.float64]
Shard = tuple[Any, Vector]
Loss = Callable[[Vector, Any, Vector], float]
Mutation = Callable[[Vector, float, int, int, int], Vector]


# Section 5.1: the three losses, each with lam / 2 ||x||^2.


def lr(x: Vector, X: Any, y: Vector, lam: float) -> float:
    """Logistic regression: log(1 + exp(-y x'z))."""
    return float(np.mean(np.logaddexp(0.0, -y * (X @ x))) + lam / 2 * np.sum(x**2))


def nsvm(x: Vector, X: Any, y: Vector, lam: float) -> float:
    """Nonconvex SVM: 1 - tanh(y x'z)."""
    return float(np.mean(1.0 - np.tanh(y * (X @ x))) + lam / 2 * np.sum(x**2))


def lsvm(x: Vector, X: Any, y: Vector, lam: float) -> float:
    """Linear SVM: max(0, 1 - y x'z)."""
    return float(np.mean(np.maximum(0.0, 1.0 - y * (X @ x))) + lam / 2 * np.sum(x**2))


LOSSES = {"lr": lr, "nsvm": nsvm, "lsvm": lsvm}


def loss_of(name: str, lam: float) -> Loss:
    """Return the loss ``name`` as a function of (x, X, y)."""
    return functools.partial(LOSSES[name], lam=lam)


# Mutations: the offspring v + alpha_k u_k, as (v, alpha_k, t, i, k) -> w.


def gaussian(seed: int) -> Mutation:
    """Algorithm 2, line 9: u ~ N(0, I)."""

    def offspring(v: Vector, alpha_k: float, t: int, i: int, k: int) -> Vector:
        return v + alpha_k * normals(Stream(seed, t, i, k, Purpose.NORMAL), len(v))

    return offspring


def mixture(seed: int, l: int, kind: str) -> Mutation:
    """Algorithm 3, lines 9 to 15: l coordinates, with replacement, one after the other."""

    def offspring(v: Vector, alpha_k: float, t: int, i: int, k: int) -> Vector:
        n = len(v)
        coordinates = Stream(seed, t, i, k, Purpose.COORDINATE)
        if kind == "mixture-gaussian":
            z = normals(Stream(seed, t, i, k, Purpose.NORMAL), l)
        else:
            z = np.array([1.0 if int(word) & 1 else -1.0 for word in words(coordinates, l)])
        w = v.copy()
        for j, r in enumerate(integers(coordinates, l, n)):
            w[r] += alpha_k * math.sqrt(n / l) * z[j]
        return w

    return offspring


def mutation(sampler: str, seed: int, l: int) -> Mutation:
    """Return the mutation of a sampler named as in Section 4."""
    return gaussian(seed) if sampler == "gaussian" else mixture(seed, l, sampler)


def minibatch(shard: Shard, b: int, seed: int, t: int, i: int, k: int = 0) -> Shard:
    """Draw b rows of a worker's shard, uniformly and with replacement."""
    X, y = shard
    rows = integers(Stream(seed, t, i, k, Purpose.BATCH), b, X.shape[0])
    return X[rows], y[rows]


def accepts(new: float, old: float) -> bool:
    """Whether a step is kept: NaN and infinity never are, and any value is better than none."""
    return math.isfinite(new) and (not math.isfinite(old) or new <= old)


def spent(t: int, T: int, full: int, last: int | None) -> int:
    """The iterations of round t."""
    return full if last is None or t < T - 1 else last


# Algorithm 1.


def es(
    loss: Loss,
    data: Shard,
    x0: Vector,
    *,
    K: int,
    T: int,
    alpha: float,
    seed: int,
    last: int | None = None,
) -> tuple[Vector, list[NDArray[np.bool_]]]:
    """Algorithm 1 on all the data, its T * K iterations told in T rounds."""
    x, masks = x0.copy(), []
    for t in range(T):
        mask = np.zeros((1, K), dtype=bool)
        for j in range(spent(t, T, K, last)):
            alpha_k = alpha / math.sqrt(t * K + j + 1)  # line 2
            w = gaussian(seed)(x, alpha_k, t, 0, j)  # line 3
            if accepts(loss(w, *data), loss(x, *data)):  # line 4
                x, mask[0, j] = w, True
        masks.append(mask)
    return x, masks


# Algorithms 2 and 3.


def des(
    loss: Loss,
    shards: Sequence[Shard],
    x0: Vector,
    *,
    sampler: str,
    K: int,
    b: int,
    T: int,
    alpha: float,
    beta: float,
    seed: int,
    l: int = 8,
    last: int | None = None,
) -> tuple[Vector, list[NDArray[np.bool_]]]:
    """Algorithms 2 and 3; also returns each round's (M, K) accept decisions."""
    M, offspring = len(shards), mutation(sampler, seed, l)
    x, m, masks = x0.copy(), np.zeros_like(x0), []
    for t in range(T):
        alpha_0 = alpha / math.sqrt(math.sqrt(t + 1))
        mask, finals = np.zeros((M, K), dtype=bool), []
        for i in range(M):
            v, batch = x.copy(), minibatch(shards[i], b, seed, t, i)
            for k in range(spent(t, T, K, last)):
                w = offspring(v, alpha_0 / math.sqrt(k + 1), t, i, k)
                if accepts(loss(w, *batch), loss(v, *batch)):
                    v, mask[i, k] = w, True
            finals.append(v)
        d = np.mean([v - x for v in finals], axis=0)
        m = beta * m + (1.0 - beta) * d
        x = x + m
        masks.append(mask)
    return x, masks


# Section 5.1: the four methods the paper compares with.


def estimate(
    loss: Loss, batch: Shard, v: Vector, mu: float, stream: Stream
) -> tuple[float, Vector]:
    """Central difference along a Gaussian u: the scalar g and u; g u estimates the gradient.

    Where a value is not finite the estimate says nothing: no step.
    """
    u = normals(stream, len(v))
    g = (loss(v + mu * u, *batch) - loss(v - mu * u, *batch)) / (2.0 * mu)
    return (g if math.isfinite(g) else 0.0), u


def _fed_zo(
    loss: Loss,
    shards: Sequence[Shard],
    x0: Vector,
    *,
    K: int,
    b: int,
    T: int,
    alpha_tk: Callable[[int, int], float],
    mu: float,
    seed: int,
    redraw: bool,
    last: int | None = None,
) -> Vector:
    x = x0.copy()
    for t in range(T):
        finals = []
        for i, shard in enumerate(shards):
            v = x.copy()
            for k in range(spent(t, T, K // 2, last)):
                batch = minibatch(shard, b, seed, t, i, k if redraw else 0)
                g, u = estimate(loss, batch, v, mu, Stream(seed, t, i, k, Purpose.NORMAL))
                v = v - alpha_tk(t, k) * g * u
            finals.append(v)
        x = np.mean(finals, axis=0)
    return x


def fed_zo_gd(
    loss: Loss, shards: Sequence[Shard], x0: Vector, *, alpha: float, **rest: Any
) -> Vector:
    """Fed-ZO-GD: one minibatch per round, step alpha / ((k + 1) sqrt(t + 1))."""

    def step(t: int, k: int) -> float:
        return alpha / ((k + 1) * math.sqrt(t + 1))

    return _fed_zo(loss, shards, x0, alpha_tk=step, redraw=False, **rest)


def fed_zo_sgd(
    loss: Loss, shards: Sequence[Shard], x0: Vector, *, alpha: float, **rest: Any
) -> Vector:
    """Fed-ZO-SGD: a new minibatch per iteration, step alpha / sqrt((k + 1)(t + 1))."""

    def step(t: int, k: int) -> float:
        return alpha / math.sqrt((k + 1) * (t + 1))

    return _fed_zo(loss, shards, x0, alpha_tk=step, redraw=True, **rest)


def zo_signsgd(
    loss: Loss,
    shards: Sequence[Shard],
    x0: Vector,
    *,
    K: int,
    b: int,
    T: int,
    alpha: float,
    mu: float,
    seed: int,
    last: int | None = None,
) -> Vector:
    """ZO-signSGD with majority vote: K / 2 estimates at x_t, each on its own minibatch."""
    x = x0.copy()
    for t in range(T):
        votes = np.zeros_like(x)
        for i, shard in enumerate(shards):
            gradients = []
            for k in range(spent(t, T, K // 2, last)):
                batch = minibatch(shard, b, seed, t, i, k)
                g, u = estimate(loss, batch, x, mu, Stream(seed, t, i, k, Purpose.NORMAL))
                gradients.append(g * u)
            votes += np.sign(np.mean(gradients, axis=0))
        x = x - alpha / math.sqrt(t + 1) * np.sign(votes)
    return x


def es_csa(
    loss: Loss,
    shards: Sequence[Shard],
    x0: Vector,
    *,
    K: int,
    b: int,
    T: int,
    alpha: float,
    seed: int,
    last: int | None = None,
) -> Vector:
    """The (mu / mu_w, lambda)-ES with cumulative step-size adaptation, one generation a round."""
    n, M, N = len(x0), len(shards), sum(X.shape[0] for X, _ in shards)
    size = max(round(M * K * b / N), 4 + math.floor(3 * math.log(n)))
    mu = size // 2
    w = np.array([math.log(mu + 0.5) - math.log(i) for i in range(1, mu + 1)])
    w /= w.sum()
    mu_eff = 1.0 / np.sum(w**2)
    c_s = (mu_eff + 2) / (n + mu_eff + 5)
    d_s = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_s
    chi_n = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    x, p, sigma = x0.copy(), np.zeros(n), alpha
    for t in range(T):
        count = spent(t, T, size, last)
        z = [normals(Stream(seed, t, SERVER, j, Purpose.NORMAL), n) for j in range(count)]
        values = [sum(X.shape[0] * loss(x + sigma * u, X, y) for X, y in shards) for u in z]
        best = [j for j in np.argsort(values, kind="stable") if math.isfinite(values[j])][:mu]
        if not best:
            continue
        z_w = sum(w[i] * z[j] for i, j in enumerate(best))
        p = (1 - c_s) * p + math.sqrt(c_s * (2 - c_s) * mu_eff) * z_w
        x = x + sigma * z_w
        sigma = sigma * math.exp(c_s / d_s * (np.linalg.norm(p) / chi_n - 1))
    return x


def unpack(payload: bytes, K: int) -> Iterator[bool]:
    """Read K accept decisions back from packed bits, the first one in the lowest bit."""
    for k in range(K):
        yield bool(payload[k // 8] >> (k % 8) & 1)
