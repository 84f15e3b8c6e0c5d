"""Everything in the registries keeps the contracts that an outsider's parts are held to."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import desopt
from desopt import testing
from desopt.methods.aggregation import AGGREGATES
from desopt.methods.samplers import SAMPLERS, CustomSampler, MixtureGaussian, MixtureRademacher
from desopt.objectives import LOSSES, LinearModel, PythonObjective
from desopt.objectives.control import CartPole

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((60, 6))
Y = np.sign(X @ RANDOM.standard_normal(6))
CSR = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
SETTINGS: dict[str, Any] = {"iterations": 10, "population": 9, "step_size": 0.3, "mixture": 3}


@pytest.mark.parametrize("iterations", [2, 10, 16])
@pytest.mark.parametrize("name", desopt.METHODS)
def test_methods(name: str, iterations: int) -> None:
    given = SETTINGS | {"iterations": iterations, "seed": 2**64 - 1}
    testing.check_method(desopt.METHODS[name].make(name, given))


@pytest.mark.parametrize("aggregate", [how for how in AGGREGATES if how != "mean"])
@pytest.mark.parametrize("name", [n for n, m in desopt.METHODS.items() if m.aggregates])
def test_methods_with_another_aggregate(name: str, aggregate: str) -> None:
    given = SETTINGS | {"aggregate": aggregate}
    testing.check_method(desopt.METHODS[name].make(name, given))


@pytest.mark.parametrize("name", ["des", "des-mr"])
def test_methods_with_a_state_of_float32(name: str) -> None:
    algorithm: Any = replace(desopt.METHODS[name].make(name, SETTINGS), float32=True)  # type: ignore[type-var]
    testing.check_method(algorithm)


def test_a_method_with_a_sampler_of_the_users_own() -> None:
    given = SETTINGS | {"sampler": CustomSampler(signs)}
    for name, method in desopt.METHODS.items():
        if method.sampler is not None:
            testing.check_method(method.make(name, given))


def signs(rng: np.random.Generator, n: int) -> Any:
    return rng.choice([-1.0, 1.0], n)


def pairs(rng: np.random.Generator, n: int) -> Any:
    return rng.integers(n, size=2), (n / 2) ** 0.5 * rng.standard_normal(2)


OWN = [CustomSampler(signs), CustomSampler(pairs)]
MIXTURES = [mixture(l) for mixture in (MixtureGaussian, MixtureRademacher) for l in (1, 3)]


@pytest.mark.parametrize(
    "sampler", [*(make() for make in SAMPLERS.values()), *MIXTURES, *OWN],
    ids=lambda sampler: str(sampler.settings()),
)  # fmt: skip
def test_samplers(sampler: Any) -> None:
    testing.check_sampler(sampler)


def squares(x: Any, batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


def draw(rng: np.random.Generator, b: int) -> Any:
    X = rng.standard_normal((b, 6))
    return X, np.where(X @ np.arange(1.0, 7.0) > 0, 1.0, -1.0)


DATA: dict[str, Any] = {
    "dense": (X, Y), "csr": (CSR, Y), "draw": draw, "load": lambda worker: (X, Y),
}  # fmt: skip


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("objective", [*LOSSES, "callable"])
def test_objectives(objective: str, data: str) -> None:
    made = PythonObjective(squares) if objective == "callable" else LinearModel(objective, 1e-3)
    testing.check_objective(made, DATA[data], np.linspace(-0.5, 0.5, 6))


def test_cox() -> None:
    time = np.ceil(5.0 * RANDOM.exponential(size=60))
    testing.check_objective(
        desopt.Cox(ridge=0.01, lasso=0.02), (X, time, Y > 0), np.linspace(-0.5, 0.5, 6)
    )


@pytest.mark.parametrize("relaxed", [True, False])
def test_sensors(relaxed: bool) -> None:
    scenarios = RANDOM.standard_normal((60, 6, 2))
    objective = desopt.SensorSelection(3, relaxed=relaxed, prior=0.1)
    testing.check_objective(objective, scenarios, np.linspace(-0.5, 0.5, 6))


def test_a_cart_pole() -> None:
    pole = CartPole(limit=50)
    testing.check_objective(pole, pole.episodes, np.linspace(-0.5, 0.5, 4))


def test_a_function_without_data() -> None:
    testing.check_objective(PythonObjective(lambda x: float(x @ x)), None, np.ones(4))


#: Those on this machine; the tests of Ray and Flower have clusters of their own.
@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("serial", {}),
        ("threads", {"jobs": 1}),
        ("threads", {"jobs": 3}),
        ("processes", {"jobs": 2}),
    ],
)
def test_engines(engine: str, options: dict[str, int]) -> None:
    testing.check_engine(functools.partial(desopt.ENGINES[engine], **options))
