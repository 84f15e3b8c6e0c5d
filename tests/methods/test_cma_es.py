"""What CMA-ES learns, and what it leaves alone. Its steps are those of the oracle: test_oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.contract.types import Answer
from desopt.methods import CMAES
from desopt.testing import check_method

Floats = NDArray[np.float64]
N = 8
WEIGHT = 10.0 ** np.linspace(0, 6, N)
TURN = np.linalg.qr(np.random.default_rng(3).standard_normal((N, N)))[0]


def ellipsoid(x: Floats) -> float:
    return float(np.sum(WEIGHT * (x - 1.0) ** 2))


def rotated(x: Floats) -> float:
    return ellipsoid(TURN @ (x - 1.0) + 1.0)


def found(fun: Any, method: str, values: int, **settings: Any) -> float:
    result = desopt.minimize(
        fun, np.zeros(N), method=method, workers=1, rounds=10**6, max_evaluations=values,
        step_size=0.5, eval_every=0, **settings,
    )  # fmt: skip
    return float(fun(result.x))


def test_scales_are_learnt() -> None:
    """In about 150 n values, with and without correlations; es-csa is far from that."""
    assert found(ellipsoid, "cma-es", 1200) < 1e-2
    assert found(ellipsoid, "cma-es", 1200, correlations=0) < 1e-2
    assert found(ellipsoid, "es-csa", 1200) > 10.0


def test_correlations_are_learnt() -> None:
    """In about 500 n values; a diagonal cannot express them."""
    assert found(rotated, "cma-es", 4000) < 1e-6
    assert found(rotated, "cma-es", 4000, correlations=0) > 1e-2


def test_the_number_of_variables_decides() -> None:
    """Correlations as long as there are at most so many variables."""
    for correlations, size in ((N, N * (N + 1) // 2), (N - 1, 0), (0, 0)):
        algorithm = CMAES(population=8, correlations=correlations)
        assert algorithm.init(np.zeros(N)).factor.size == size
    assert CMAES(population=8).init(np.zeros(257)).factor.size == 0


@pytest.mark.parametrize("correlations", [0, 256])
@pytest.mark.parametrize("population", [4, 9])
def test_contract(population: int, correlations: int) -> None:
    check_method(CMAES(population=population, correlations=correlations))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"population": 3}, "population must be at least 4"),
     ({"population": 8, "correlations": -1}, "correlations must be 0 to 4096"),
     ({"population": 8, "correlations": 5000}, "correlations must be 0 to 4096")],
)  # fmt: skip
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CMAES(**settings)


def test_members_without_a_value_have_no_weight() -> None:
    """Neither a positive nor a negative one; the ranks are those of the others."""
    algorithm = CMAES(population=6, seed=4)
    state = algorithm.init(np.zeros(N))

    def merged(values: list[float]) -> Any:
        payload = algorithm.layout.encode(float64=np.array(values))
        return algorithm.merge(state, [Answer(0, payload)])

    some = merged([3.0, math.inf, 1.0, 2.0, math.inf, 4.0])
    worse = merged([3.0, 9.0, 1.0, 2.0, 8.0, 4.0])
    assert some.x.tobytes() == worse.x.tobytes(), "the three best are the same"
    assert some.scale.tobytes() != worse.scale.tobytes()
    nobody = merged([math.inf] * 6)
    assert nobody.x.tobytes() == state.x.tobytes()
    assert nobody.factor.tobytes() == state.factor.tobytes()


def test_a_factor_that_cannot_be_updated_stays() -> None:
    """Its diagonal is learnt all the same, and everything stays finite."""
    algorithm = CMAES(population=6)
    state = replace(algorithm.init(np.zeros(N)), path_full=np.full(N, 1e200))
    payload = algorithm.layout.encode(float64=np.arange(6.0))
    with np.errstate(over="ignore"):
        after = algorithm.merge(state, [Answer(0, payload)])
    assert after.factor.tobytes() == state.factor.tobytes()
    assert after.scale.tobytes() != state.scale.tobytes()
    assert np.isfinite(after.scale).all()
