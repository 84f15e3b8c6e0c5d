"""The noisy test functions: unbiased, reproducible, and with the minimum they claim."""

import numpy as np
import pytest

from desopt.studies.functions import FUNCTIONS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_expectation_and_minimum(name: str) -> None:
    function = FUNCTIONS[name]
    x = np.linspace(-1.0, 0.5, function.n)
    ones = np.ones(function.n)
    assert function.exact(ones) == 0.0 < function.exact(x)
    draws = [function.draw(np.random.default_rng(i), 100) for i in range(400)]
    rises = [function.fun(x, batch) - function.fun(ones, batch) for batch in draws]
    error = np.std(rises) / np.sqrt(len(rises))  # of the mean, which 5 of them never exceed
    assert abs(np.mean(rises) - function.exact(x)) < 5 * error
    batch = function.draw(np.random.default_rng(7), 100)
    assert function.fun(x, batch) == function.fun(x.copy(), batch)


def test_scaled() -> None:
    function, x = FUNCTIONS["unsteady-10"], np.linspace(-1.0, 0.5, 10)
    other = function.scaled(value=2.0**20, x=2.0**-10)
    batch = function.draw(np.random.default_rng(7), 100)
    assert other.fun(x * 2.0**-10, batch) == 2.0**20 * function.fun(x, batch)
    assert other.exact(x * 2.0**-10) == 2.0**20 * function.exact(x)
