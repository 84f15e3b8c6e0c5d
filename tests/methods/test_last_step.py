"""The step-size rule of des-c. The oracle's rule of des-c has fixed step sizes only."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import desopt
from desopt import testing
from desopt.methods.correction import last_step
from desopt.methods.des_c import DESC

RANDOM = np.random.default_rng(4)
X = 1.0 + RANDOM.standard_normal((600, 12))
Y = np.sign((X - 1.0) @ np.ones(12) + 3.0 * RANDOM.standard_normal(600))
SORTED = [(X[rows], Y[rows]) for rows in np.array_split(np.argsort(Y, kind="stable"), 5)]


def run(**options: Any) -> desopt.Result:
    settings: dict[str, Any] = {
        "method": "des-c", "step_size": "auto", "rounds": 25, "iterations": 60, "seed": 3,
        "engine": "serial", "progress": False,
    }  # fmt: skip
    return desopt.minimize("lr", None, SORTED, **settings | options)


@pytest.mark.parametrize("correction", ["full", "bits"])
def test_as_good_as_the_best_of_a_grid(correction: str) -> None:
    """On workers with one label each; x0 has 0.693, the best step size ends at 0.65."""
    fixed = [run(step_size=a, correction=correction).fun for a in (0.01, 0.1, 1.0, 10.0)]
    share = 0.05 if correction == "full" else 0.2  # of what the best one wins: bits are coarse
    assert run(correction=correction).fun < min(fixed) + share * (0.693 - min(fixed))
    assert max(fixed) > 0.67  # not every step size would do


@pytest.mark.parametrize("correction", ["full", "bits"])
def test_contract(correction: str) -> None:
    """Same bits from payloads as from points, pure merges, no liar makes x infinite."""
    testing.check_method(DESC(step_size="auto", iterations=50, correction=correction))


def test_replay_and_messages_are_exact(tmp_path: Path) -> None:
    file = tmp_path / "run.journal"
    result = run(rounds=6, journal=file, participation=0.6)
    assert desopt.replay(file).tobytes() == result.x.tobytes()
    driven = run(rounds=6, participation=0.6, engine="processes", jobs=1)
    assert driven.x.tobytes() == result.x.tobytes()


def test_units_of_f_do_not_matter() -> None:
    """Only ratios of differences count, so that a power of two changes no bit."""

    def value(scale: float) -> Any:
        return lambda x, A: scale * float(np.mean((A @ x - 1.0) ** 2))

    x = [
        desopt.minimize(
            value(scale), np.zeros(3), X[:40, :3], method="des-c", step_size="auto", rounds=5,
            iterations=20, workers=2, batch_size=10, seed=1, engine="serial", progress=False,
        ).x
        for scale in (1.0, 2.0**20)
    ]  # fmt: skip
    assert x[0].tobytes() == x[1].tobytes()


def test_level_after_a_step() -> None:
    """f = (s - s*)^2 at s = -1, 0, 1: the best length of the step from -1 is 1 + s*."""

    def step(best: float, rate: float = 0.5, gain: float = 0.0) -> float:
        back, forth = best**2 - (1 + best) ** 2, (1 - best) ** 2 - best**2
        return last_step.next_level(0.0, back, forth, rate, gain)

    assert step(2.0**0.5 - 1.0) == pytest.approx(0.0, abs=1e-12)  # half an octave longer: the goal
    assert step(2.0**1.5 - 1.0) == pytest.approx(0.25)  # three
    assert step(50.0) == pytest.approx(0.375)  # at most two
    assert step(-50.0) == -0.5
    assert step(50.0, rate=0.1) == pytest.approx(-0.3)  # too few are accepted
    assert step(50.0, rate=0.4, gain=1.0) == pytest.approx(3 * (0.8 - 0.95))
    assert last_step.next_level(0.0, -1.0, -2.0, 0.5, 0.0) == pytest.approx(0.375)  # concave
    assert last_step.next_level(0.0, 2.0, 1.0, 0.5, 0.0) == -0.5
    assert last_step.next_level(0.0, 0.0, 0.0, 0.5, 0.0) == 0.5


def test_the_line_finds_the_minimum_along_it() -> None:
    ends = last_step.distances(20, 100)
    best = 8.0 * 2.0**-3  # alpha = 2^-3
    level = last_step.first_level(ends - 2.0 * best, 100, 0.0)  # secants of (s - best)^2
    assert abs(level + 1.0 + 3.0) <= 1.0  # the sizes of the line are 2 octaves apart


def test_noise_in_every_value_is_noticed() -> None:
    """Without noise nothing is said: warnings are errors."""

    def search(noise: float, correction: str, step_size: Any = "auto") -> None:
        def fun(x: Any) -> float:
            chance = np.random.default_rng(zlib.crc32(x.tobytes())).standard_normal()
            return float(x @ x) + noise * float(chance)

        desopt.minimize(
            fun, np.ones(20), method="des-c", correction=correction, step_size=step_size, workers=3,
            iterations=100, rounds=3, seed=2, engine="serial", progress=False,
        )  # fmt: skip

    for correction in ("full", "bits"):
        search(0.0, correction)
        search(1.0, correction, step_size=0.3)
        with pytest.warns(
            RuntimeWarning, match="close points, .* differ by chance or by jumps; give a number$"
        ):
            search(1.0, correction)


def test_secants_in_sixteen_bits() -> None:
    given = np.array([0.0, 1.0, -3.14159, 1e-30, 2.0**40, -1e300])
    back = last_step.from_bits(last_step.to_bits(given))
    np.testing.assert_allclose(back[:5], given[:5], rtol=2.0**-8)
    assert -np.inf < back[5] < -1e38


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="at least 10 for step_size='auto' and correction='full'"):
        DESC(step_size="auto", iterations=9)
    with pytest.raises(ValueError, match="at least 48 for step_size='auto' and correction='bits'"):
        DESC(step_size="auto", iterations=47, correction="bits")
