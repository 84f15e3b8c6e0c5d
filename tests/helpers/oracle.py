"""An oracle for the tests: every loss and method in plain NumPy, written from the pseudo-code.

Nothing is shared with the package but the random streams, so that both sides see the same
minibatches and the same mutation vectors. Clarity goes before speed: every value is computed
from scratch at its point, no step is taken back, no bits are packed.

``LOSSES`` and ``ORACLE`` have the keys of the package's registries. A method is a function of
``loss(x, X, y)``, the mean of F over the rows of ``X``; of ``shards``, the list of the M workers'
``(X_i, y_i)`` with labels in {-1, +1}, ``X_i`` an array or a CSR matrix; of x_0; and of
``Settings``. It returns x_T and, where the method has them, the accept decisions of each round
as an (M, K) array. ``t``, ``i`` and ``k`` count from 0 throughout.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray

from desopt.contract.streams import SERVER, Purpose, Stream, integers, normals, words

Vector = NDArray[np.float64]
Shard = tuple[Any, Vector]
Loss = Callable[[Vector, Any, Vector], float]
Mutation = Callable[[Vector, float, int, int, int], Vector]
Decisions = list[NDArray[np.bool_]]


class Settings(NamedTuple):
    """The paper's symbols. ``last``: iterations (estimates, members) of a shorter last round."""

    K: int
    b: int
    T: int
    alpha: float
    seed: int
    beta: float = 0.5
    l: int = 8
    mu: float = 1e-6
    last: int | None = None
    P: int = 10
    C: int = 4096
    lower: float | Vector = -math.inf
    upper: float | Vector = math.inf
    correction: str = "full"
    auto: bool = False  # instead of alpha

    def inside(self, x: Vector) -> Vector:
        """The nearest point within the bounds."""
        return np.clip(x, self.lower, self.upper)

    def mirrored(self, x: Vector) -> Vector:
        """The point within two bounds that a walk ends at if it turns round at them."""
        if not np.all(np.isfinite(self.lower)):
            return x
        width = np.asarray(self.upper) - self.lower
        folded = self.lower + width - np.abs(width - np.mod(x - self.lower, 2 * width))
        return np.where(self.inside(x) == x, x, folded)

    def spent(self, t: int, full: int) -> int:
        """The iterations of round t."""
        return full if self.last is None or t < self.T - 1 else self.last


# Section 5.1: the losses as functions of the margin a = y x'z, in the functions of ``m``: those
# of NumPy for vectors, those of ``MPMATH`` for one margin and any number of digits.

MPMATH = SimpleNamespace(exp=mpmath.exp, log1p=mpmath.log1p, maximum=max)

LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "lr": lambda a, m: m.maximum(0, -a) + m.log1p(m.exp(-abs(a))),  # log(1 + exp(-a))
    "nsvm": lambda a, m: 2 / (1 + m.exp(2 * a)),  # 1 - tanh(a)
    "lsvm": lambda a, m: m.maximum(0, 1 - a),
    "l2svm": lambda a, m: m.maximum(0, 1 - a) ** 2,
}


def margin_loss(name: str, a: Any) -> Any:
    """The loss of every margin of an array."""
    with np.errstate(over="ignore"):  # exp(2 a) for nsvm; 2 / infinity is right
        return LOSSES[name](np.asarray(a, np.float64), np)


def exact_loss(name: str, a: float, digits: int = 60) -> Any:
    """The loss of one margin, correct to ``digits`` digits."""
    with mpmath.workdps(digits):
        return LOSSES[name](mpmath.mpf(a), MPMATH)


def loss_of(name: str, lam: float) -> Loss:
    """The mean loss plus lam / 2 ||x||^2, as a function of (x, X, y)."""

    def value(x: Vector, X: Any, y: Vector) -> float:
        return float(np.mean(margin_loss(name, y * (X @ x))) + lam / 2 * np.sum(x**2))

    return value


# Mutations: the offspring v + alpha_k u_k, as (v, alpha_k, t, i, k) -> w.


def gaussian(seed: int) -> Mutation:
    """Algorithm 2, line 9: u ~ N(0, I)."""

    def offspring(v: Vector, alpha_k: float, t: int, i: int, k: int) -> Vector:
        return v + alpha_k * normals(Stream(seed, t, i, k, Purpose.NORMAL), len(v))

    return offspring


def mixture(seed: int, l: int, *, rademacher: bool) -> Mutation:
    """Algorithm 3, lines 9 to 15: l coordinates, with replacement, one after the other."""

    def offspring(v: Vector, alpha_k: float, t: int, i: int, k: int) -> Vector:
        n = len(v)
        coordinates = Stream(seed, t, i, k, Purpose.COORDINATE)
        if rademacher:
            z = np.array([1.0 if int(word) & 1 else -1.0 for word in words(coordinates, l)])
        else:
            z = normals(Stream(seed, t, i, k, Purpose.NORMAL), l)
        w = v.copy()
        for j, r in enumerate(integers(coordinates, l, n)):
            w[r] += alpha_k * math.sqrt(n / l) * z[j]
        return w

    return offspring


def minibatch(shard: Shard, b: int, seed: int, t: int, i: int, k: int = 0) -> Shard:
    """Draw b rows of a worker's shard, uniformly and with replacement."""
    X, y = shard
    rows = integers(Stream(seed, t, i, k, Purpose.BATCH), b, X.shape[0])
    return X[rows], y[rows]


def accepts(new: float, old: float) -> bool:
    """Whether a step is kept: NaN and infinity never are, and any value is better than none."""
    return math.isfinite(new) and (not math.isfinite(old) or new <= old)


# Algorithm 1.


def es(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, Decisions]:
    """Algorithm 1 on the only shard, its T * K iterations told in T rounds."""
    (data,) = shards
    if run.auto:
        return auto(loss, shards, x0, run, gaussian(run.seed), beta=0.0, drawn=len(x0), whole=True)
    x, masks = x0.copy(), []
    for t in range(run.T):
        mask = np.zeros((1, run.K), dtype=bool)
        for j in range(run.spent(t, run.K)):
            alpha_k = run.alpha / math.sqrt(t * run.K + j + 1)  # line 2
            w = run.inside(gaussian(run.seed)(x, alpha_k, t, 0, j))  # line 3
            if accepts(loss(w, *data), loss(x, *data)):  # line 4
                x, mask[0, j] = w, True
        masks.append(mask)
    return x, masks


# Algorithms 2 and 3.


def _des(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings, offspring: Mutation,
    drawn: int,
) -> tuple[Vector, Decisions]:  # fmt: skip
    if run.auto:
        return auto(loss, shards, x0, run, offspring, beta=run.beta, drawn=drawn)
    x, m, masks = x0.copy(), np.zeros_like(x0), []
    for t in range(run.T):
        alpha_0 = run.alpha / math.sqrt(math.sqrt(t + 1))
        mask, finals = np.zeros((len(shards), run.K), dtype=bool), []
        for i, shard in enumerate(shards):
            v, batch = x.copy(), minibatch(shard, run.b, run.seed, t, i)
            for k in range(run.spent(t, run.K)):
                w = run.inside(offspring(v, alpha_0 / math.sqrt(k + 1), t, i, k))
                if accepts(loss(w, *batch), loss(v, *batch)):
                    v, mask[i, k] = w, True
            finals.append(v)
        d = np.mean([v - x for v in finals], axis=0)
        m = run.beta * m + (1.0 - run.beta) * d
        x = run.inside(x + m)
        masks.append(mask)
    return x, masks


def des(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, Decisions]:
    """Algorithm 2: Gaussian mutations."""
    return _des(loss, shards, x0, run, gaussian(run.seed), len(x0))


def des_mg(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings
) -> tuple[Vector, Decisions]:
    """Algorithm 3 with mixture Gaussian mutations."""
    return _des(loss, shards, x0, run, mixture(run.seed, run.l, rademacher=False), run.l)


def des_mr(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings
) -> tuple[Vector, Decisions]:
    """Algorithm 3 with mixture Rademacher mutations."""
    return _des(loss, shards, x0, run, mixture(run.seed, run.l, rademacher=True), run.l)


# DES-C, from its pseudo-code in docs/heterogeneity.md.


def draws(run: Settings, t: int, i: int, k: int, n: int) -> tuple[NDArray[np.int64], Vector]:
    """The l coordinates of a mixture Rademacher vector, and its entry for each."""
    stream = Stream(run.seed, t, i, k, Purpose.COORDINATE)
    signs = np.array([1.0 if int(word) & 1 else -1.0 for word in words(stream, run.l)])
    return integers(stream, run.l, n), math.sqrt(n / run.l) * signs


def quantised(e: Vector) -> Vector:
    """0 or +-s 2^-j for j = 0..6, the nearest in log2; s the largest as a float32."""
    s = float(np.float32(np.abs(e).max()))
    out = np.zeros_like(e)
    for k in np.flatnonzero(e):
        j = max(0, round(-math.log2(abs(e[k]) / s)))
        out[k] = math.copysign(s * 2.0**-j, e[k]) if j <= 6 else 0.0
    return out


def weights(estimate: Vector, unknown: float) -> Vector:
    size = np.abs(estimate)
    return size + 0.1 * size.mean() if size.any() else np.full_like(size, unknown)


def des_c(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings
) -> tuple[Vector, Decisions]:
    """Corrected comparisons, with mixture Rademacher mutations."""
    n, M, K, full = len(x0), len(shards), run.K, run.correction == "full"
    p = np.array([len(y) for _, y in shards]) / sum(len(y) for _, y in shards)
    x, m, masks = x0.copy(), np.zeros(n), []
    g, h, delta = np.zeros(n), np.zeros(n), np.zeros((M, n))
    for t in range(run.T):
        alpha = run.alpha / math.sqrt(math.sqrt(t + 1)) / np.sqrt(np.arange(1, K + 1))
        mask, finals, y = np.zeros((M, K), dtype=bool), [], np.zeros((M, K))
        for i, shard in enumerate(shards):
            batch, v, c = minibatch(shard, run.b, run.seed, t, i), x.copy(), n / (n + K) * g
            c = c - delta[i]
            mu = 0.15 * np.linalg.norm(delta[i]) / (alpha[0] * K**0.5) * (K / (n + K)) ** 2 * full
            change, expected = np.zeros(K), np.zeros(K)
            for k in range(K):
                r, u = draws(run, t, i, k, n)
                expected[k] = (g + delta[i])[r] @ u + math.sqrt(alpha[k]) * (h[r] @ np.abs(u))
                if not full:
                    expected[k] = -(c[r] @ u)
                if k >= run.spent(t, K):
                    continue
                s = np.zeros(n)
                np.add.at(s, r, alpha[k] * u)
                w, old = run.inside(v + s), loss(v, *batch)
                new = loss(w, *batch)
                known = math.isfinite(new) and math.isfinite(old)
                change[k] = new - old if known else 0.0
                away = ((v + s - x) ** 2).sum() - ((v - x) ** 2).sum()
                if math.isfinite(new) and (not known or change[k] + c @ s + mu / 2 * away <= 0):
                    mask[i, k] = True
                    v = w if t else v
            spent = run.spent(t, K)
            e = (change / alpha - expected)[:spent]
            if full:
                y[i] = expected
                y[i, :spent] += quantised(e) if e.any() else 0.0
            else:
                size = float(np.float32((e**2).sum() / np.abs(e).sum()))
                y[i] = expected + np.where(mask[i], -size, size)
            finals.append(v)
        wg, wh = weights(g, 1.0), weights(h, 1.0 / alpha[0])
        wd, eta = weights(np.abs(delta).mean(axis=0), 1.0), 0.5 * min(1.0, n / K)
        for i in range(M):
            for k in range(K):
                (r, u), a = draws(run, t, i, k, n), alpha[k]
                left = y[i, k] - (g + delta[i])[r] @ u - math.sqrt(a) * (h[r] @ np.abs(u))
                share = eta * left / (u**2 @ (wg + wd + a * wh)[r])
                for j, q in zip(r, u, strict=True):
                    g[j] += share * wg[j] * q
                    delta[i, j] += share * wd[j] * q
                    h[j] = max(0.0, h[j] + share * wh[j] * abs(q) * math.sqrt(a))
        mean = p @ delta
        g, delta = g + mean, delta - mean
        masks.append(mask)
        if t == 0:
            continue
        d = np.mean([v - x for v in finals], axis=0)
        d = d + (n / (n + K)) ** 2 * min(0.0, d @ g) / (g @ g) * g
        m = run.beta * m + (1.0 - run.beta) * d
        x = run.inside(x + m)
    return x, masks


# step_size="auto": the pseudo-code of docs/step-size.md.


def ramp_size(k: float, k0: int) -> float:
    r = (2 * k + 1) / k0 - 1
    return float(2.0 ** (20 * r * abs(r)))


def ramp_drop(accepts: NDArray[np.int64]) -> float:
    """Where acceptance drops, of (W, k0) decisions in a ramp: a number of steps."""
    W, k0 = accepts.shape
    e = min(k0, max(3, k0 // 6))
    per = accepts.sum(axis=0)
    tiny, huge = per[:e].sum() / (W * e), per[-e:].sum() / (W * e)
    if tiny < 1 / 3:
        above = [k + 1 for k in range(k0) if per[k:].sum() >= max(1, W / 10)]
        drop = float(max(above, default=0))
    else:
        score = np.append(np.cumsum((W * (tiny + huge) / 2 - per)[::-1])[::-1], 0.0)
        best = np.flatnonzero(score == score.max())
        drop = float(best[0] + best[-1]) / 2
    limited: float = max(0.5, min(drop, k0 - 0.5))
    return limited


def lacking(M: int) -> float:
    return max(0.0, 1 / math.sqrt(M) - 1 / math.sqrt(10))


def first_level(size: float, K: int, M: int) -> float:
    return math.log2(size) + math.log2(K) / 4 + 0.75 - 3.2 * lacking(M)


def size_at(drop: float, k0: int) -> float:
    """Between the sizes of two steps."""
    return ramp_size(drop - 0.5, k0)


def sweeps(accepts: NDArray[Any], K: int) -> bool:
    """Whether a worker goes down again, of its k0 decisions in a ramp."""
    up_to_last = 1 + np.flatnonzero(accepts).max(initial=-1)
    few = accepts.sum() <= 5 and accepts.sum() < 0.3 * up_to_last
    return K >= 97 and bool(few and up_to_last > 10)


def down_size(k: int, K: int) -> float:
    """Of step k = 64..K-2 on the way down."""
    return ramp_size(K - 2 - k, K - 65)


def noisy(accepts: NDArray[np.int64]) -> bool:
    """Whether few tiny steps of (W, k0) decisions in a ramp were accepted."""
    k0 = accepts.shape[1]
    return bool(accepts[:, : min(k0, max(3, k0 // 6))].mean() < 1 / 3)


def found(mask: NDArray[Any]) -> tuple[float, float, float]:
    """A, T1 and T0 after a first round with these (M, K) decisions."""
    (M, K), k0 = mask.shape, min(mask.shape[1], 64)
    e = min(k0, max(3, k0 // 6))
    down = [row for row in mask if sweeps(row[:k0], K)]
    size = size_at(ramp_drop(mask[:, :k0]), k0)
    if noisy(mask[:, :k0]) and down:
        sizes = [max([down_size(k, K) for k in range(64, K - 1) if row[k]], default=2.0**-20)
                 for row in down]  # fmt: skip
        size = 2 * 2 ** float(np.median(np.log2(sizes)))
    A = first_level(size, K, M)
    p0 = (6 + mask[:, :e].sum()) / (12 + M * e)
    T0 = max(4, 24 / M) if noisy(mask[:, :k0]) else 24.0
    return A, T0 * min(p0, 0.5), T0


def auto(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings, offspring: Mutation,
    *, beta: float, drawn: int, whole: bool = False,
) -> tuple[Vector, Decisions]:  # fmt: skip
    """DES with step_size="auto"; with beta = 0, one worker and all rows (``whole``) it is ES.

    ``drawn``: the coordinates of a step.
    """
    x, m, h, masks = x0.copy(), np.zeros_like(x0), np.zeros_like(x0), []
    M, K, k0 = len(shards), run.K, min(run.K, 64)
    A, T1, T0, agree = math.nan, 0.0, 0.0, 1.0
    for t in range(run.T):
        mask, finals = np.zeros((M, K), dtype=bool), []
        luck = T1 < 0.25 * T0
        control = [
            (k + 7 * t) % (max(48, min(M, 10) * K // 40) if luck else 24) == 0 for k in range(K)
        ]
        for i, shard in enumerate(shards):
            batch = shard if whole else minibatch(shard, run.b, run.seed, t, i)

            def walk(v: Vector, alpha: dict[int, float], i: int = i, t: int = t,
                     batch: Shard = batch, mask: Any = mask) -> Vector:  # fmt: skip
                for k in alpha:
                    w = run.inside(offspring(v, alpha[k], t, i, k))
                    if accepts(loss(w, *batch), loss(v, *batch)):
                        v, mask[i, k] = w, True
                return v

            if t > 0:
                a = [2**A / math.sqrt(k + 1) * (2**-5 if control[k] else 1) for k in range(K)]
                finals.append(walk(x, dict(enumerate(a))))
                continue
            walk(x, {k: ramp_size(k, k0) for k in range(k0)})
            drop, v = ramp_drop(mask[i : i + 1, :k0]), x
            for k in range(k0):
                if mask[i, k] and k < drop:
                    v = run.inside(offspring(v, ramp_size(k, k0), t, i, k))
            own = 2 ** first_level(size_at(drop, k0), K, 10)
            sizes = {k: own / math.sqrt(k + 1) for k in range(k0, K - 1)}
            if sweeps(mask[i, :k0], K):
                v, sizes = x, {k: down_size(k, K) for k in sizes}
            finals.append(walk(v, sizes))
        w = min(0.25, M / 40)
        rare = min(w, M * K * drawn / len(x0))
        if t == 0:
            A, T1, T0 = found(mask)
        else:
            controls, votes = M * sum(control), [np.sign((v - x) @ h) for v in finals]
            fade = 1 - (min(1, controls / 50) if luck else min(0.1, controls / 200))
            T1, T0 = fade * T1 + mask[:, control].sum(), fade * T0 + controls
            p0, p = T1 / T0, mask[:, np.logical_not(control)].mean()
            if p0 > 0.5:
                p0 = max(0.5, p0 - 1.5 * lacking(M) / math.sqrt(T0))
            least = max(0.0, 2 * p0 - 1)
            u = (p - least) / max(0.02, p0 - least)
            if p0 > 0.5 and p0 - least < 0.02:
                u = float(p >= p0 - 0.02)
            agree = (1 - rare) * agree + rare * float(np.mean(votes))
            clear = max(agree, min(1, agree * math.sqrt(w / rare)))
            low = 0.3 + 0.8 * lacking(M)
            sure = np.clip(clear / 0.3, 0, 1)
            goal = min(max(p0, 0.2), 0.3) if p0 < 0.4 else max(low, low + (0.5 - low) * (1 - sure))
            step = min(1, M * K / 100) * np.clip(3 * (u - goal), -1.5, 3.0 if p0 < 0.4 else 1.5)
            A += step if p0 < 0.4 else min(step, clear)
        d = np.mean([v - x for v in finals], axis=0)
        if d.any():
            h = (1 - rare) * h + rare * d / np.linalg.norm(d)
        m = beta * m + (1 - beta) * d
        x = run.inside(x + m)
        masks.append(mask)
    return x, masks


# Section 5.1: the four methods the paper compares with.


def estimate(
    loss: Loss, batch: Shard, v: Vector, run: Settings, stream: Stream
) -> tuple[float, Vector]:
    """Central difference along a Gaussian u: the scalar g and u; g u estimates the gradient.

    Where a value is not finite the estimate says nothing: no step.
    """
    u = normals(stream, len(v))
    above, below = run.inside(v + run.mu * u), run.inside(v - run.mu * u)
    g = (loss(above, *batch) - loss(below, *batch)) / (2.0 * run.mu)
    return (g if math.isfinite(g) else 0.0), u


def gd_step(run: Settings, t: int, k: int) -> float:
    """Step sizes of Fed-ZO-GD."""
    return run.alpha / ((k + 1) * math.sqrt(t + 1))


def sgd_step(run: Settings, t: int, k: int) -> float:
    """Step sizes of Fed-ZO-SGD."""
    return run.alpha / math.sqrt((k + 1) * (t + 1))


def fed_zo_gd(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings, *, redraw: bool = False
) -> tuple[Vector, None]:
    """Fed-ZO-GD: one minibatch per round. With ``redraw`` Fed-ZO-SGD: one per iteration."""
    x, step = x0.copy(), sgd_step if redraw else gd_step
    for t in range(run.T):
        finals = []
        for i, shard in enumerate(shards):
            v = x.copy()
            for k in range(run.spent(t, run.K // 2)):
                batch = minibatch(shard, run.b, run.seed, t, i, k if redraw else 0)
                stream = Stream(run.seed, t, i, k, Purpose.NORMAL)
                g, u = estimate(loss, batch, v, run, stream)
                v = run.inside(v - step(run, t, k) * g * u)
            finals.append(v)
        x = run.inside(np.mean(finals, axis=0))
    return x, None


def fed_zo_sgd(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings
) -> tuple[Vector, None]:
    """Fed-ZO-SGD: a new minibatch per iteration."""
    return fed_zo_gd(loss, shards, x0, run, redraw=True)


def zo_signsgd(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings
) -> tuple[Vector, None]:
    """ZO-signSGD with majority vote: K / 2 estimates at x_t, each on its own minibatch."""
    x = x0.copy()
    for t in range(run.T):
        votes = np.zeros_like(x)
        for i, shard in enumerate(shards):
            gradients = []
            for k in range(run.spent(t, run.K // 2)):
                batch = minibatch(shard, run.b, run.seed, t, i, k)
                stream = Stream(run.seed, t, i, k, Purpose.NORMAL)
                g, u = estimate(loss, batch, x, run, stream)
                gradients.append(g * u)
            votes += np.sign(np.mean(gradients, axis=0))
        x = run.inside(x - run.alpha / math.sqrt(t + 1) * np.sign(votes))
    return x, None


def feedsign(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, None]:
    """A vote of every worker on each of K / 2 shared directions; x moves by the majorities."""
    x = x0.copy()
    for t in range(run.T):
        step = np.zeros_like(x)
        for k in range(run.spent(t, run.K // 2)):
            votes = 0.0
            for i, shard in enumerate(shards):
                batch = minibatch(shard, run.b, run.seed, t, i, k)
                stream = Stream(run.seed, t, SERVER, k, Purpose.NORMAL)
                g, u = estimate(loss, batch, x, run, stream)
                votes += np.sign(g)
            step += np.sign(votes) * u
        x = run.inside(x - run.alpha / math.sqrt(t + 1) / (run.K // 2) * step)
    return x, None


def zo_nsgd(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, None]:
    """Slopes of all workers along K / 2 shared directions; a step of fixed length by the means."""
    x, m = x0.copy(), np.zeros_like(x0)
    for t in range(run.T):
        d = np.zeros_like(x)
        for k in range(run.spent(t, run.K // 2)):
            stream, slopes = Stream(run.seed, t, SERVER, k, Purpose.NORMAL), []
            for i, shard in enumerate(shards):
                batch = minibatch(shard, run.b, run.seed, t, i, k)
                g, u = estimate(loss, batch, x, run, stream)
                slopes.append(np.float64(np.float32(g)))
            d -= np.mean(slopes) * u
        if d.any():
            d /= np.linalg.norm(d)
        m = run.beta * m + (1.0 - run.beta) * d
        x = run.inside(x + run.alpha / math.sqrt(t + 1) * m)
    return x, None


def nsgd_step(run: Settings, t: int, k: int) -> float:
    """Step sizes of ZO-NSGD where d, a sum of slopes times directions, is no shorter than 4."""
    return run.alpha / math.sqrt(t + 1) / 4


def constant_step(run: Settings, t: int, k: int) -> float:
    """Step sizes of FedKSeed."""
    return run.alpha


def decomfl_step(run: Settings, t: int, k: int) -> float:
    """Step sizes of DeComFL: alpha over the number of directions in the local step of k."""
    first = k - k % run.P
    return run.alpha / min(run.P, run.K // 2 - first)


def decomfl(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, None]:
    """DeComFL: the scalars of every worker's local steps on shared directions, averaged."""
    x = x0.copy()
    for t in range(run.T):
        count, scalars = run.spent(t, run.K // 2), []
        for i, shard in enumerate(shards):
            v, g = x.copy(), np.zeros(count)
            for first in range(0, count, run.P):
                group = range(first, min(first + run.P, count))
                batch = minibatch(shard, run.b, run.seed, t, i, first // run.P)
                step = np.zeros_like(v)
                for k in group:
                    stream = Stream(run.seed, t, SERVER, k, Purpose.NORMAL)
                    g[k], u = estimate(loss, batch, v, run, stream)
                    step += decomfl_step(run, t, k) * g[k] * u
                v = run.inside(v - step)
            scalars.append(g.astype(np.float32).astype(np.float64))
        for k, g_k in enumerate(np.mean(scalars, axis=0)):
            u = normals(Stream(run.seed, t, SERVER, k, Purpose.NORMAL), len(x))
            x = x - decomfl_step(run, t, k) * g_k * u
        x = run.inside(x)
    return x, None


def fedkseed(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, None]:
    """FedKSeed: local steps along candidates; their scalars are accumulated, one per candidate."""

    def candidate(j: int) -> Stream:
        return Stream(run.seed, 0, SERVER, j, Purpose.NORMAL)

    x = x0.copy()
    for t in range(run.T):
        a = np.zeros(run.C)
        for i, shard in enumerate(shards):
            drawn = integers(Stream(run.seed, t, i, 0, Purpose.CANDIDATE), run.K // 2, run.C)
            v = x.copy()
            for k in range(run.spent(t, run.K // 2)):
                batch = minibatch(shard, run.b, run.seed, t, i, k)
                g, z = estimate(loss, batch, v, run, candidate(int(drawn[k])))
                v = run.inside(v - run.alpha * g * z)
                a[drawn[k]] += float(np.float32(g)) / len(shards)
        for j in np.flatnonzero(a):
            x = x - run.alpha * a[j] * normals(candidate(int(j)), len(x))
        x = run.inside(x)
    return x, None


def fedavg_es(
    loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings
) -> tuple[Vector, None]:
    """Generations of a (mu / mu_I, lambda)-ES by every worker; the mean of their final points."""
    n = len(x0)
    count = max(1, run.K // (4 + math.floor(3 * math.log(n))))
    ends = np.arange(count + 1) * run.K // count
    x = x0.copy()
    for t in range(run.T):
        points = []
        for i, shard in enumerate(shards):
            batch, v = minibatch(shard, run.b, run.seed, t, i, 0), x.copy()
            for g in range(count):
                sigma = run.alpha / (t + 1) ** 0.25 / math.sqrt(g + 1)
                members = range(ends[g], min(ends[g + 1], run.spent(t, run.K)))
                z = [normals(Stream(run.seed, t, i, j, Purpose.NORMAL), n) for j in members]
                values = [loss(run.mirrored(v + sigma * u), *batch) for u in z]
                best = [j for j in np.argsort(values) if math.isfinite(values[j])]
                if best and len(members) > 1:
                    parents = [z[j] for j in best[: max(1, len(members) // 4)]]
                    v = run.inside(v + sigma * np.mean(parents, axis=0))
            points.append(v)
        x = run.inside(np.mean(points, axis=0))
    return x, None


def es_csa(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, None]:
    """The (mu / mu_w, lambda)-ES with cumulative step-size adaptation, one generation a round."""
    n, M, N = len(x0), len(shards), sum(X.shape[0] for X, _ in shards)
    size = max(round(M * run.K * run.b / N), 4 + math.floor(3 * math.log(n)))
    mu = size // 2
    w = np.array([math.log(mu + 0.5) - math.log(i) for i in range(1, mu + 1)])
    w /= w.sum()
    mu_eff = 1.0 / np.sum(w**2)
    c_s = (mu_eff + 2) / (n + mu_eff + 5)
    d_s = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_s
    chi_n = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    x, p, sigma = x0.copy(), np.zeros(n), run.alpha
    for t in range(run.T):
        count = run.spent(t, size)
        z = [normals(Stream(run.seed, t, SERVER, j, Purpose.NORMAL), n) for j in range(count)]
        points = [run.mirrored(x + sigma * u) for u in z]
        values = [sum(X.shape[0] * loss(point, X, y) for X, y in shards) for point in points]
        best = [j for j in np.argsort(values, kind="stable") if math.isfinite(values[j])][:mu]
        if not best:
            continue
        z_w = sum(w[i] * z[j] for i, j in enumerate(best))
        p = (1 - c_s) * p + math.sqrt(c_s * (2 - c_s) * mu_eff) * z_w
        x = run.inside(x + sigma * z_w)
        sigma = sigma * math.exp(c_s / d_s * (np.linalg.norm(p) / chi_n - 1))
    return x, None


class Ranking(NamedTuple):
    """The weights of a CMA-ES before they are normalised; positive for the first mu."""

    raw: Vector
    mu: int
    mu_eff: float
    mu_bad: float

    def rates(self, n: int, faster: float, freedom: float) -> tuple[float, float, Vector]:
        """c_1, c_mu and weights: ``faster`` times the tutorial's, or those for the freedom."""
        raw, mu, mu_eff, mu_bad = self
        other = 1 / (2 * (freedom / n + 1) * (n + 1) ** 0.75 + mu_eff / 2)
        one = max(2 * faster / ((n + 1.3) ** 2 + mu_eff), other)
        other *= mu_eff + 1 / mu_eff - 2 + raw.size / (2 * (raw.size + 5))
        rank_mu = 2 * faster * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) ** 2 + mu_eff)
        rank_mu = min(1 - one, max(rank_mu, other))
        positive_definite = (1 - one - rank_mu) / (n * rank_mu)
        bad = min(1 + one / rank_mu, 1 + 2 * mu_bad / (mu_eff + 2), positive_definite)
        w = np.where(raw > 0, raw / raw[:mu].sum(), raw * bad / np.abs(raw[mu:].sum()))
        return one, rank_mu, w


def ranking_of(size: int) -> Ranking:
    raw = math.log((size + 1) / 2) - np.log(np.arange(1, size + 1))
    mu = int(np.sum(raw > 0))
    return Ranking(raw, mu, *(np.sum(w) ** 2 / np.sum(w**2) for w in (raw[:mu], raw[mu:])))


def cma_es(loss: Loss, shards: Sequence[Shard], x0: Vector, run: Settings) -> tuple[Vector, None]:
    """CMA-ES with the covariance matrix D C D, as matrices; C = I for more than 256 variables."""
    n, M, N = len(x0), len(shards), sum(X.shape[0] for X, _ in shards)
    size = max(round(M * run.K * run.b / N), 4 + math.floor(3 * math.log(n)))
    ranking = ranking_of(size)
    mu, mu_eff = ranking.mu, ranking.mu_eff
    c_s = (mu_eff + 2) / (n + mu_eff + 5)
    d_s = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_s
    c_p = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)
    chi_n = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    one, rank_mu, w = ranking.rates(n, 1.0, n * (n + 1) / 2)
    one_d, rank_mu_d, w_d = ranking.rates(n, (n + 2) / 3, n)
    x, sigma, p_s, p_c, D = x0.copy(), run.alpha, np.zeros(n), np.zeros(n), np.ones(n)
    C = np.eye(n if n <= 256 else 1)
    for t in range(run.T):
        A = np.linalg.cholesky(C) if n <= 256 else np.float64(1.0)
        z = [normals(Stream(run.seed, t, SERVER, j, Purpose.NORMAL), n) for j in range(size)]
        y = [np.dot(A, u) for u in z]
        points = [run.mirrored(x + sigma * D * v) for v in y[: run.spent(t, size)]]
        values = [sum(X.shape[0] * loss(p, X, b) for X, b in shards) for p in points]
        best = [j for j in np.argsort(values, kind="stable") if math.isfinite(values[j])]
        if not best:
            continue
        z_w = sum(w[i] * z[j] for i, j in enumerate(best[:mu]))
        p_s = (1 - c_s) * p_s + math.sqrt(c_s * (2 - c_s) * mu_eff) * z_w
        length = float(np.linalg.norm(p_s)) / chi_n
        moves = length < (1.4 + 2 / (n + 1)) * math.sqrt(1 - (1 - c_s) ** (2 * (t + 1)))
        x = run.inside(x + sigma * D * np.dot(A, z_w))
        sigma = sigma * math.exp(min(1.0, c_s / d_s * (length - 1)))
        p_c = (1 - c_p) * p_c + moves * math.sqrt(c_p * (2 - c_p) * mu_eff) * D * np.dot(A, z_w)
        kept = 1.0 if moves else 1 - c_p * (2 - c_p)
        far = [1.0 if i < mu else n / np.sum(z[j] ** 2) for i, j in enumerate(best)]
        q = p_c / D
        d = one_d * ((np.linalg.solve(A, q) if A.size > 1 else q) ** 2 - kept)
        d += rank_mu_d * sum(w_d[i] * (far[i] * z[j] ** 2 - 1) for i, j in enumerate(best))
        beta = max(1.0, 2 * math.sqrt(np.trace(np.linalg.inv(C)) / len(C)) - 1)
        D = D * np.sqrt(np.maximum(1 + d / beta, 0.25))
        if n <= 256:
            S = one * (np.outer(q, q) - kept * C)
            for i, j in enumerate(best):
                S += rank_mu * w[i] * (far[i] * np.outer(y[j], y[j]) - C)
            root = np.sqrt(np.diag(C + S))
            C, D = (C + S) / np.outer(root, root), D * root
    return x, None


class Reference(NamedTuple):
    """A method of the oracle.

    ``alpha``: a step size with which a good part of the steps is accepted and nothing diverges.
    ``slope_step``: the step size alpha_k^t by which slopes enter x, for the methods that divide
    differences of values by 2 mu: rounding of the values is visible in x.
    """

    run: Callable[[Loss, Sequence[Shard], Vector, Settings], tuple[Vector, Decisions | None]]
    alpha: float = 0.5
    slope_step: Callable[[Settings, int, int], float] | None = None


ORACLE: dict[str, Reference] = {
    "es": Reference(es),
    "des": Reference(des),
    "des-mg": Reference(des_mg),
    "des-mr": Reference(des_mr),
    "des-c": Reference(des_c),
    "fed-zo-gd": Reference(fed_zo_gd, 0.1, gd_step),
    "fed-zo-sgd": Reference(fed_zo_sgd, 0.05, sgd_step),
    "zo-signsgd": Reference(zo_signsgd, 0.02),
    "es-csa": Reference(es_csa),
    "feedsign": Reference(feedsign, 0.02),
    "zo-nsgd": Reference(zo_nsgd, 0.04, nsgd_step),
    "decomfl": Reference(decomfl, 0.05, decomfl_step),
    "fedkseed": Reference(fedkseed, 0.02, constant_step),
    "fedavg-es": Reference(fedavg_es),
    "cma-es": Reference(cma_es),
}


def unpack(payload: bytes, K: int) -> Iterator[bool]:
    """Read K accept decisions back from packed bits, the first one in the lowest bit."""
    for k in range(K):
        yield bool(payload[k // 8] >> (k % 8) & 1)
