"""The rule of ``zo-nsgd`` for its step size, against NumPy, and what it promises."""

import math
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.contract.streams import SERVER, Purpose, Stream, integers, normals
from desopt.data import partition
from desopt.methods.zo_nsgd import ZONSGD

Vector = NDArray[np.float64]
N, M, K, B, T, SEED = 7, 3, 40, 16, 6, 4


def generated(n: int) -> tuple[Vector, Vector]:
    random = np.random.default_rng(2)
    rows = random.standard_normal((120, n))
    return rows, rows @ np.linspace(-2.0, 2.0, n) + random.standard_normal(120)


X, Y = generated(N)


def loss(x: Vector, batch: tuple[Vector, Vector]) -> float:
    rows, y = batch
    return float(np.mean((rows @ x - y) ** 2))


def run(fun: Any = loss, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "method": "zo-nsgd", "step_size": "auto", "workers": M, "iterations": K, "batch_size": B,
        "rounds": T, "seed": SEED, "engine": "serial", "progress": False,
    }  # fmt: skip
    y = np.sign(Y) if fun == "lr" else Y
    settings |= {"x0": np.zeros(N), "data": (X, y)}
    return desopt.minimize(fun, **settings | options)


def by_the_docstring(N: int, K: int) -> tuple[Vector, list[float]]:
    """x and the lengths of the steps."""
    X, Y = generated(N)
    shards = [(X[rows], Y[rows]) for rows in partition(len(X), M, SEED)]
    x, m, alphas, p = np.zeros(N), np.zeros(N), [], 0.0
    for t in range(T):

        def secant(k: int, u: Vector, above: float, below: float, x: Vector = x, t: int = t) -> Any:
            found = []
            for i, (rows, y) in enumerate(shards):
                drawn = integers(Stream(SEED, t, i, k, Purpose.BATCH), B, len(y))
                batch = rows[drawn], y[drawn]
                rise = loss(x + above * u, batch) - loss(x - below * u, batch)
                found.append(float(np.float32(rise / (above + below))))
            return np.mean(found)

        u = [normals(Stream(SEED, t, SERVER, k, Purpose.NORMAL), N) for k in range(K // 2)]
        if t == 0:
            count = (K // 2 - 1) // 2
            powers = [30 * (2 * i + 1) // (2 * count) - 15 for i in range(count)]
            plain = K // 2 - 2 * count
        else:
            plain = K // 2 - 1
        g = np.array([secant(k, u[k], 1e-6, 1e-6) for k in range(plain)])
        if t == 0:
            alpha = 2.0 ** powers[0]
            for power in powers:
                s = 2.0**power
                sides = secant(0, u[0], s, 0.0), secant(0, u[0], 0.0, s)
                if max(abs(side - g[0]) for side in sides) > 0.4 * abs(g[0]):
                    break
                alpha = s
            typical = math.sqrt(np.mean(g**2))
            alpha *= math.sqrt(N) * min(4.0, max(1.0, typical / abs(g[0])))
        else:
            along = m / np.linalg.norm(m) * math.sqrt(N)
            q = secant(plain, along, 1e-6, 1e-6) / math.sqrt(N)
            r = np.clip(10 * K / N, 1 / 8, 1)
            alpha /= np.clip((1 + q / p) / r, 1 / 16, 16) ** 0.25
        d = -np.sum([slope * v for slope, v in zip(g, u, strict=False)], axis=0)
        m = 0.5 * m + 0.5 * d / np.linalg.norm(d)
        cos = d @ m / np.linalg.norm(d) / np.linalg.norm(m)
        p = np.sum(g**2) / np.linalg.norm(d) * max(0.1, cos)
        x = x + alpha * m
        alphas.append(alpha)
    return x, alphas


@pytest.mark.parametrize(("n", "iterations"), [(N, K), (150, 10), (600, 6)])
def test_the_rule(n: int, iterations: int) -> None:
    """Slopes are differences of values over 2e-6: 1e-16 in these become some 1e-8 in x.

    r is 1, 2/3 and 1/8.
    """
    expected, alphas = by_the_docstring(n, iterations)
    found = run(x0=np.zeros(n), data=generated(n), iterations=iterations).x
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert len(set(alphas)) == T
    assert any(0.5 < after / before < 2.0 for before, after in pairwise(alphas))  # the limits


def test_numbers_of_the_function_do_not_count() -> None:
    """f times 2^20: the same bits; x times 2^10 (and radius): the same decisions."""
    x = run().x
    assert run(lambda x, batch: 2.0**20 * loss(x, batch)).x.tobytes() == x.tobytes()
    far = run(lambda x, batch: loss(x / 1024.0, batch), radius=1024e-6).x / 1024.0
    f0, f, other = (loss(point, (X, Y)) for point in (np.zeros(N), x, far))
    assert abs(f - other) < 0.05 * (f0 - f)


def test_it_finds_a_step_size() -> None:
    """No fixed one of a grid is better by more than a tenth of the way; most are much worse."""
    f0 = loss(np.zeros(N), (X, Y))
    fixed = [run(step_size=alpha, rounds=30).fun for alpha in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)]
    found = run(rounds=30).fun
    assert found - min(fixed) < 0.1 * (f0 - min(fixed))
    assert found < np.median(fixed)


@pytest.mark.parametrize(("engine", "jobs"), [("threads", 2), ("processes", 1)])
def test_engines_and_resuming(engine: str, jobs: int, tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    options: dict[str, Any] = {"fun": "lr", "iterations": 12}
    x = run(**options).x.tobytes()
    assert run(**options, engine=engine, jobs=jobs).x.tobytes() == x
    run(**options, rounds=3, journal=path)
    assert run(**options, journal=path).x.tobytes() == x
    assert desopt.replay(path).tobytes() == x


def test_noise_in_every_value_is_noticed() -> None:
    """Without noise nothing is said, nor of |x|, without a slope in x0: warnings are errors."""

    def noisy(x: Vector, batch: tuple[Vector, Vector]) -> float:
        return loss(x, batch) + np.random.default_rng(zlib.crc32(x.tobytes())).standard_normal()

    run(rounds=2)
    run(lambda x, batch: float(np.abs(x).sum()), rounds=2)
    run(noisy, rounds=2, step_size=0.1)
    with pytest.warns(
        RuntimeWarning, match="differ by chance or by jumps; give a number and a larger radius$"
    ):
        run(noisy, rounds=2)


def test_too_few_iterations() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 6 for step_size='auto'"):
        ZONSGD(step_size="auto", iterations=4)
