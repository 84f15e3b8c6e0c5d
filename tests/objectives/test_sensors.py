"""Sensor selection against NumPy's determinants, all subsets, and SciPy's convex relaxation."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import desopt
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Batches
from desopt.data import Batch, as_shards
from desopt.objectives.sensors import SensorSelection, swap

RANDOM = np.random.default_rng(3)
SENSORS, PARAMETERS, COUNT = 12, 3, 5
SCENARIOS = RANDOM.standard_normal((4, SENSORS, PARAMETERS))
_MIXED = RANDOM.standard_normal((SENSORS, SENSORS))
NOISE = 0.5 * np.eye(SENSORS) + _MIXED @ _MIXED.T / SENSORS
NOISE = (NOISE + NOISE.T) / 2.0


def criterion(J: Any, name: str) -> float:
    return float(np.trace(np.linalg.inv(J)) if name == "A" else -np.linalg.slogdet(J)[1])


def of_subset(chosen: Any, name: str, noise: Any = None) -> float:
    """The mean criterion of these sensors, by the textbook's formula."""
    R = np.eye(SENSORS) if noise is None else noise
    weight = np.linalg.inv(R[np.ix_(chosen, chosen)])
    return float(np.mean([criterion(A[chosen].T @ weight @ A[chosen], name) for A in SCENARIOS]))


def of_weights(w: Any, name: str) -> float:
    return float(np.mean([criterion(A.T @ (w[:, None] * A), name) for A in SCENARIOS]))


def value(objective: SensorSelection, x: Any) -> float:
    (shard,) = objective.prepare(as_shards(SCENARIOS, 1, 0))
    batch = Batch(shard, 1, Stream(0, 0, 0, 0, Purpose.BATCH), Batches.ALL)  # type: ignore[arg-type]
    return objective.bind(batch, x).value(x)


@pytest.mark.parametrize("noise", [None, NOISE], ids=["independent", "correlated"])
@pytest.mark.parametrize("name", ["D", "A"])
def test_value_of_a_selection(name: Any, noise: Any) -> None:
    x = RANDOM.standard_normal(SENSORS)
    objective = SensorSelection(COUNT, name, noise=noise)
    chosen = np.sort(np.argsort(-x)[:COUNT])
    assert objective.selection(x).tolist() == chosen.tolist()
    assert value(objective, x) == pytest.approx(of_subset(chosen, name, noise), rel=1e-11)


def test_relaxed_value_with_correlated_noise() -> None:
    """A^T (S^-1 - S^-1 (S^-1 + W/a)^-1 S^-1) A, the formula of Liu et al., by inverses."""
    objective = SensorSelection(COUNT, relaxed=True, noise=NOISE, prior=0.1)
    x = RANDOM.standard_normal(SENSORS)
    S, a = objective._noise
    np.testing.assert_allclose(S + a * np.eye(SENSORS), NOISE)
    w, S_inverse = objective.weights(x), np.linalg.inv(S)
    middle = S_inverse - S_inverse @ np.linalg.inv(S_inverse + np.diag(w) / a) @ S_inverse
    J = [A.T @ middle @ A + 0.1 * np.eye(PARAMETERS) for A in SCENARIOS]
    assert value(objective, x) == pytest.approx(np.mean([criterion(j, "D") for j in J]), rel=1e-9)


def test_relaxed_weights_are_the_nearest() -> None:
    x = 2.0 * RANDOM.standard_normal(SENSORS)
    w = SensorSelection(COUNT, relaxed=True).weights(x)
    best = optimize.minimize(
        lambda w: np.sum((w - x) ** 2), np.full(SENSORS, COUNT / SENSORS), method="SLSQP",
        bounds=[(0.0, 1.0)] * SENSORS, tol=1e-12,
        constraints={"type": "eq", "fun": lambda w: np.sum(w) - COUNT},
    )  # fmt: skip
    np.testing.assert_allclose(w, best.x, atol=1e-6)


@pytest.mark.parametrize("name", ["D", "A"])
def test_relaxation_and_swaps_find_the_known_optima(name: Any) -> None:
    relaxed = desopt.minimize(
        SensorSelection(COUNT, name, relaxed=True), None, SCENARIOS, workers=1, rounds=60,
        step_size="auto", momentum=0.0,
    )  # fmt: skip
    convex = optimize.minimize(
        of_weights, np.full(SENSORS, COUNT / SENSORS), (name,), method="SLSQP", tol=1e-10,
        bounds=[(0.0, 1.0)] * SENSORS,
        constraints={"type": "eq", "fun": lambda w: np.sum(w) - COUNT},
    )  # fmt: skip
    # Values are flat near the optimum, and the projection folds the space: 1e-3 is within reach.
    assert convex.fun - 1e-6 <= relaxed.fun <= convex.fun + 1e-3

    swapped = desopt.minimize(
        SensorSelection(COUNT, name), None, SCENARIOS, method="es", sampler=swap, rounds=10,
        bounds=(0.0, 1.0),
    )  # fmt: skip
    best = min(of_subset(list(chosen), name) for chosen in combinations(range(SENSORS), COUNT))
    assert swapped.best_fun == pytest.approx(best, rel=1e-11)
    together = desopt.minimize(  # searches by several workers meet, if each has all scenarios
        SensorSelection(COUNT, name), None, [SCENARIOS] * 3, method="des", sampler=swap, rounds=5,
        bounds=(0.0, 1.0), engine="serial",
    )  # fmt: skip
    assert together.fun == pytest.approx(best, rel=1e-11)
    assert relaxed.fun < best  # a bound for every selection


def test_fewer_sensors_than_parameters_have_no_finite_value() -> None:
    assert value(SensorSelection(2), RANDOM.standard_normal(SENSORS)) == np.inf
    assert np.isfinite(value(SensorSelection(2, prior=1.0), np.arange(float(SENSORS))))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 0}, "count must be"),
        ({"count": 13}, "count=13 of 12 sensors"),
        ({"criterion": "E"}, "criterion"),
        ({"noise": np.ones((12, 12))}, "positive definite"),
        ({"noise": np.eye(3)}, "for each of 12 sensors"),
        ({"prior": -1.0}, "prior must be"),
    ],
)
def test_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        desopt.minimize(SensorSelection(**{"count": 3} | given), None, [SCENARIOS], rounds=1)


def test_refused_data() -> None:
    with pytest.raises(ValueError, match=r"one matrix A is A\[None\]"):
        desopt.minimize(SensorSelection(3), None, [SCENARIOS[0]], rounds=1)


def test_numbers_of_numpy_are_numbers() -> None:
    chosen = SensorSelection(np.int64(3))  # type: ignore[arg-type]  # as from a range of counts
    assert chosen.settings()["count"] == 3
    with pytest.raises(TypeError, match="count must be a whole number"):
        SensorSelection(True)
    wrong: Any = "1"
    with pytest.raises(TypeError, match="prior must be a number"):
        SensorSelection(3, prior=wrong)
