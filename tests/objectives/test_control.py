"""The compiled cart-pole against plain Python, and policies that balance it."""

import math
from typing import Any

import numpy as np
import pytest

import desopt
from desopt.kernels.cart_pole import sine_and_cosine
from desopt.objectives.control import CartPole

RANDOM = np.random.default_rng(7)


def plain_steps(policy: Any, start: Any, limit: int = 500) -> int:
    """Euler's steps of the standard equations, with the library's sine and cosine."""
    x, x_dot, theta, theta_dot = map(float, start)
    for step in range(limit):
        if abs(x) > 2.4 or abs(theta) > 12 * 2 * math.pi / 360:
            return step
        force = 10.0 if policy(x, x_dot, theta, theta_dot) > 0 else -10.0
        temp = (force + 0.05 * theta_dot**2 * math.sin(theta)) / 1.1
        theta_acc = (9.8 * math.sin(theta) - math.cos(theta) * temp) / (
            0.5 * (4.0 / 3.0 - 0.1 * math.cos(theta) ** 2 / 1.1)
        )
        x_acc = temp - 0.05 * theta_acc * math.cos(theta) / 1.1
        x, x_dot = x + 0.02 * x_dot, x_dot + 0.02 * x_acc
        theta, theta_dot = theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc
    return limit


def test_episodes_end_when_plain_python_says() -> None:
    """Linear policies, from hopeless to good ones.

    After hundreds of pushes the last bit of a sine has grown to a step more or less.
    """
    task, seen = CartPole(limit=150), set()
    for gain in np.linspace(0.0, 1.0, 25):
        x = gain * np.array([0.1, 0.5, 5.0, 1.0]) + 0.5 * RANDOM.standard_normal(4)
        start = RANDOM.uniform(-0.05, 0.05, 4)
        steps = plain_steps(lambda *state, x=x: float(np.dot(x, state)), start, 150)
        assert task.balanced(x, start) == steps
        seen.add(steps)
    assert len(seen) > 3
    assert max(seen) == 150


def test_sines_are_those_of_the_library() -> None:
    """To the last digits, although a pole falls at 0.21: episodes of any length end alike."""
    for angle in np.linspace(-0.5, 0.5, 41):
        assert sine_and_cosine(angle) == pytest.approx(
            (math.sin(angle), math.cos(angle)), rel=3e-16, abs=0.0
        )


def test_hidden_units() -> None:
    task = CartPole(hidden=3, limit=150)
    for _ in range(10):
        x, start = RANDOM.standard_normal(18), RANDOM.uniform(-0.05, 0.05, 4)

        def policy(*state: float, x: Any = x) -> float:
            z = x[:15].reshape(3, 5) @ np.array([*state, 1.0])
            return float(x[15:] @ (z / (1.0 + np.abs(z))))

        assert task.balanced(x, start) == plain_steps(policy, start, 150)


def test_a_trained_policy_balances() -> None:
    task = CartPole(hidden=4, spread=0.1)
    x0 = 0.1 * np.random.default_rng(0).standard_normal(24)
    result = desopt.minimize(
        task, x0, task.episodes, workers=4, rounds=20, iterations=50, batch_size=10, step_size=1.0
    )
    assert result.initial_fun > 0.5
    starts = task.episodes(np.random.default_rng(1), 50)
    assert np.mean([task.balanced(result.x, start) for start in starts]) > 475


@pytest.mark.parametrize(
    ("given", "x0", "data", "message"),
    [
        ({"hidden": -1}, None, None, "hidden must be"),
        ({"spread": 0.5}, None, None, "spread must be"),
        ({"spread": "0.1"}, None, None, "spread must be a number"),
        ({"hidden": True}, None, None, "hidden must be a whole number"),
        ({}, None, None, "data is missing"),
        ({}, None, (np.zeros((5, 4)), np.zeros(5)), "states of 4 numbers"),
        ({}, None, np.zeros((5, 3)), "states of 4 numbers"),
        ({}, np.zeros(5), np.zeros((5, 4)), "x has 5 numbers|5"),
    ],
)
def test_refused(given: Any, x0: Any, data: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, desopt.ObjectiveError), match=message):
        desopt.minimize(CartPole(**given), x0, data, workers=1, rounds=1)


def test_an_episode_starts_at_four_numbers() -> None:
    none: Any = np.int64(0)  # as from a range
    task = CartPole(hidden=none)
    assert task.settings()["hidden"] == 0
    assert task.balanced([1, 1, 1, 1], [0, 0, 0, 0]) == task.balanced(np.ones(4), np.zeros(4))
    for wrong in (np.zeros(3), np.zeros((2, 4))):  # compiled code would read beyond the first
        with pytest.raises(ValueError, match="start must have 4 numbers"):
            task.balanced(np.ones(4), wrong)
