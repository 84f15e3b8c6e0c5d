"""``step_size="auto"``: contracts, exact bits, scales, and what hostile answers can do."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import oracle
from numpy.typing import NDArray

import desopt
from desopt.contract.types import Answer
from desopt.methods import DES, ES
from desopt.methods.samplers import (
    CustomSampler,
    Gaussian,
    MixtureGaussian,
    MixtureRademacher,
)
from desopt.methods.step_size import RAMP
from desopt.testing import check_method

Vector = NDArray[np.float64]

SAMPLERS: dict[str, Any] = {
    "gaussian": Gaussian(),
    "mixture-gaussian": MixtureGaussian(),
    "mixture-rademacher": MixtureRademacher(),
    "own": CustomSampler(lambda rng, n: rng.standard_normal(n)),
}
X = np.random.default_rng(3).standard_normal((300, 12))
Y = np.where(X @ np.linspace(-1, 2, 12) + np.random.default_rng(4).standard_normal(300) > 0, 1, -1)


def run(fun: Any = "lr", **options: Any) -> Any:
    """A short run with a ramp, a part after it, and control steps."""
    settings: dict[str, Any] = {
        "method": "des-mr", "workers": 3, "rounds": 6, "iterations": RAMP + 40, "batch_size": 30,
        "seed": 5, "engine": "serial", "progress": False, "step_size": "auto",
    }  # fmt: skip
    return desopt.minimize(fun, np.zeros(12), (X, Y), **settings | options)


def squares(x: Vector, batch: tuple[Vector, Vector]) -> float:
    Z, y = batch
    return float(np.mean((Z @ x - y) ** 2))


@pytest.mark.parametrize("iterations", [10, RAMP + 40])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_contract(sampler: str, iterations: int) -> None:
    check_method(DES(step_size="auto", iterations=iterations, sampler=SAMPLERS[sampler]))


@pytest.mark.parametrize(
    "method",
    [
        ES(step_size="auto", iterations=10),
        DES(step_size="auto", iterations=10, aggregate="median"),
        DES(step_size="auto", iterations=1),
    ],
)
def test_contract_of_others(method: Any) -> None:
    check_method(method)


@pytest.mark.parametrize("method", ["es", "des", "des-mg", "des-mr"])
def test_compiled_and_python_agree_and_replay_is_exact(method: str, tmp_path: Path) -> None:
    """A linear model through its kernels, and through ask and tell; then from the journal."""

    def logistic(x: Vector, batch: tuple[Vector, Vector]) -> float:
        Z, y = batch
        return float(np.mean(np.logaddexp(0.0, -y * (Z @ x))) + 5e-7 * np.sum(x**2))

    file = tmp_path / "run.journal"
    seen: list[Vector] = []

    def see(row: Any) -> None:
        seen.append(row.x.copy())

    compiled = run(method=method, journal=file, callbacks=[see])
    assert np.max(np.abs(compiled.x - run(logistic, method=method).x)) < 1e-12
    for t, x in enumerate(seen, 1):
        assert desopt.replay(file, round=t).tobytes() == x.tobytes()


@pytest.mark.parametrize("options", [{}, {"aggregate": "trimmed-mean"}, {"participation": 0.6}])
def test_engines_and_resuming(options: Any, tmp_path: Path) -> None:
    expected = run(**options).x.tobytes()
    assert run(engine="threads", **options).x.tobytes() == expected
    assert run(engine="processes", jobs=1, **options).x.tobytes() == expected
    file = tmp_path / "run.journal"
    run(rounds=2, journal=file, **options)
    assert run(journal=file, **options).x.tobytes() == expected


def test_scaled_values_give_the_same_bits() -> None:
    once, often = run(squares), run(lambda x, batch: 2.0**20 * squares(x, batch))
    assert once.x.tobytes() == often.x.tobytes()


@pytest.mark.parametrize("scale", [2.0**-10, 2.0**10])
def test_scaled_variables_are_found(scale: float) -> None:
    """Where a fixed step size of 1 is far too large, or too small to get anywhere."""
    best = squares(np.asarray(np.linalg.lstsq(X, Y, rcond=None)[0], np.float64), (X, Y))
    result = run(lambda x, batch: squares(x / scale, batch), rounds=30, batch_size=300)
    assert result.fun - best < 0.02 * (squares(np.zeros(12), (X, Y)) - best)


@pytest.mark.parametrize(("n", "weight"), [(4, 3 / 40), (4000, 3 * 16 / 4000)])
def test_the_heading_remembers_for_a_coordinate_to_be_drawn_once(n: int, weight: float) -> None:
    method = DES(step_size="auto", iterations=16, sampler=MixtureRademacher(l=1))
    state = method.merge(method.init(np.zeros(n)), [Answer(i, b"\xff\xff") for i in range(3)])
    heading: Vector = state.heading  # type: ignore[attr-defined]
    assert np.linalg.norm(heading) == pytest.approx(weight)


@pytest.mark.parametrize("iterations", [20, RAMP, RAMP + 40])
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.5])
def test_the_first_round_of_noisy_values(iterations: int, rate: float) -> None:
    """Accepted by luck, and less and less often: the level and p0, as in the oracle."""
    random = np.random.default_rng(iterations)
    method = DES(step_size="auto", iterations=iterations)
    for workers in (1, 3, 10):
        chance = np.where(np.arange(iterations) < 5, rate, rate / 5)
        bits = random.random((workers, iterations)) < chance
        bits[:, -1] = False  # the last value is that of the new start
        answers = [Answer(i, np.packbits(row, bitorder="little").tobytes())
                   for i, row in enumerate(bits)]  # fmt: skip
        state: Any = method.merge(method.init(np.zeros(4)), answers)
        expected = oracle.found(bits)
        assert (state.level, state.tiny, state.controls) == pytest.approx(expected)


@pytest.mark.parametrize(("workers", "period"), [(1, 48), (8, 80), (100, 100)])
def test_every_round_has_control_steps(workers: int, period: int) -> None:
    """Fewer in noise, but not so few with many workers that p0 would be out of date."""
    method = DES(step_size="auto", iterations=400)
    state: Any = method.init(np.zeros(4))
    for _ in range(60):
        state = method.merge(state, [Answer(i, bytes(50)) for i in range(workers)])
    assert state.period == period


def test_the_level_falls_where_nothing_is_accepted() -> None:
    """Not even a control step: a level that is far too high must not rise further."""
    method = DES(step_size="auto", iterations=100)
    state: Any = method.init(np.zeros(4))
    ramp = np.packbits(np.arange(100) % 2 == 0, bitorder="little").tobytes()
    state, levels = method.merge(state, [Answer(i, ramp) for i in range(10)]), []
    for _ in range(60):
        state = method.merge(state, [Answer(i, bytes(13)) for i in range(10)])
        levels.append(state.level)
    assert np.all(np.diff(levels) < 0)


def test_hostile_answers_move_the_level_only_so_far() -> None:
    method = DES(step_size="auto", iterations=16)
    for bit in (0x00, 0xFF):
        state = method.init(np.zeros(4))
        for _ in range(1000):
            state = method.merge(state, [Answer(i, bytes([bit] * 2)) for i in range(3)])
        level: float = state.level  # type: ignore[attr-defined]
        assert math.isfinite(level)
        assert np.isfinite(state.x).all()


def test_warnings_where_the_rule_is_known_to_fail() -> None:
    with pytest.warns(RuntimeWarning, match="10 accept bits a round say little"):
        run(workers=1, iterations=10, rounds=1)
    with pytest.warns(RuntimeWarning, match="use a larger mixture or a penalty"):
        run(mixture=1, regularization=0.0, rounds=1)


def test_methods_without_a_rule() -> None:
    with pytest.raises(ValueError, match="zo-signsgd has no rule for step_size='auto'"):
        run(method="zo-signsgd")
    with pytest.raises(TypeError, match=r"step_size must be .*'atuo'; 'auto' is allowed"):
        run(step_size="atuo")
