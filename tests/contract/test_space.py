"""Bounds and scales: what is searched, what the user sees, and what is refused."""

import itertools
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from desopt.contract.space import Box, Space, as_bounds
from desopt.kernels.portable import exp, exp_of

MIXED = [(0.0, 8.0), (1e-6, 1e4), (None, 3.0), (2.0, 2.0), (-5.0, 5.0), (None, None), (1e-3, None)]
SCALES = ["linear", "log", "linear", "log", None, "log", "log"]
X0 = [3.0, 1e-2, -7.0, 2.0, 1.0, 12.0, 5.0]


def mixed() -> Space:
    return Space.of(MIXED, SCALES, 7)


def test_units() -> None:
    space = mixed()
    z = space.encode(np.array(X0))
    assert space.size == z.size == 6  # variable 3 is fixed
    unit = math.log(1e10) / 4
    expected = [1.5, math.log(1e4) / unit, -7.0, 1.0, math.log(12.0), math.log(5.0)]
    np.testing.assert_allclose(z, expected, rtol=1e-14)
    assert space.box is not None
    np.testing.assert_allclose(space.box.lower[:5], [0, 0, -np.inf, -5, math.log(4e-308)])
    np.testing.assert_allclose(space.box.lower[5], math.log(1e-3))
    np.testing.assert_allclose(space.box.upper, [4, 4, 3, 5, *[math.log(8e307)] * 2])
    x = space.decode(z)
    np.testing.assert_allclose(x, X0, rtol=1e-13)
    assert x[3] == 2.0


def test_decoded_points_are_in_bounds_and_exactly_on_them() -> None:
    space, random = mixed(), np.random.default_rng(0)
    lower, upper = as_bounds(MIXED, 7)
    assert space.box is not None
    for scale in (1.0, 10.0, 1e3, 1e300):
        for _ in range(300):
            z = scale * random.standard_normal(6)
            for point in (z, z.copy()):
                x = space.decode(point)
                assert np.isfinite(x).all()
                assert ((x >= lower) & (x <= upper)).all()
                space.box.project(z)
    finite = np.isfinite(lower), np.isfinite(upper)
    for side, bound, known in zip(
        (space.box.lower, space.box.upper), (lower, upper), finite, strict=True
    ):
        edge = space.decode(np.where(np.isfinite(side), side, 0.0))
        assert edge[known].tolist() == bound[known].tolist()


@pytest.mark.parametrize("scale", ["linear", "log", "own"])
def test_there_and_back(scale: str) -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        ends = np.sort(10.0 ** random.uniform(-12, 12, (2, 5)), axis=0)
        x = np.clip(random.uniform(*ends), *ends)
        space = Space.of(list(zip(*ends, strict=True)), scale, 5)
        np.testing.assert_allclose(space.decode(space.encode(x)), x, rtol=1e-11)
        for end in ends:
            assert space.decode(space.encode(end)).tolist() == end.tolist()


def test_extreme_ranges() -> None:
    space = Space.of([(-1.7e308, 1.7e308), (5e-324, 1.7e308), (0.0, 5e-324), (1.0, 1.0 + 2**-52)],
                     ["linear", "log", "linear", "log"], 4)  # fmt: skip
    for x0 in ([5e307, 1.0, 0.0, 1.0], [-1e308, 1e-300, 5e-324, 1.0 + 2**-52]):
        x = space.decode(space.encode(np.array(x0)))
        np.testing.assert_allclose(x[:2], x0[:2], rtol=1e-11)
        assert ((x >= space.lower) & (x <= space.upper)).all()


def test_many_exponentials_have_the_bits_of_one() -> None:
    x = np.random.default_rng(2).uniform(-708, 709, 5000)
    assert exp_of(x).tolist() == [exp(v) for v in x.tolist()]


def test_projection_keeps_the_sign_of_zeros() -> None:
    """Which of two zeros is the greater must not be left to the CPU."""
    box = Box(np.array([0.0, -0.0, -1.0]), np.array([1.0, 1.0, 0.0]))
    z = np.array([-0.0, 0.0, -0.0])
    for project in (box.project, lambda v: box.project_at(v, np.array([2, 0, 1, 0]))):
        project(z)
        assert np.signbit(z).tolist() == [True, False, True]


def test_reflection() -> None:
    """At two bounds as often as needed, at one once; inside, and between equal bounds, not."""
    lower = np.array([0.0, 0.0, 0.0, 0.0, -np.inf, -np.inf, 2.0, 0.0, 0.0])
    upper = np.array([1.0, 1.0, 1.0, np.inf, 1.0, np.inf, 2.0, 1.0, 1.0])
    box, z = Box(lower, upper), np.array([-0.25, 1.25, 2.75, -3.0, 4.0, 9.0, 5.0, -5.25, 0.7])
    box.reflect(z)
    assert z.tolist() == [0.25, 0.75, 0.75, 3.0, -2.0, 9.0, 2.0, 0.75, 0.7]
    random = np.random.default_rng(3)
    for scale in (1.0, 1e3, 1e200, np.inf):
        z = scale * random.standard_normal(9)
        box.reflect(z)
        assert ((z >= lower) & (z <= upper)).all()


def test_projection_of_some_coordinates() -> None:
    box, z = Box(np.zeros(4), np.ones(4)), np.array([-1.0, 2.0, -3.0, 0.5])
    box.project_at(z, np.array([1, 1, 3]))
    assert z.tolist() == [-1.0, 1.0, -3.0, 0.5]
    box.project_at(z, None)
    assert z.tolist() == [0.0, 1.0, 0.0, 0.5]


@pytest.mark.parametrize("bounds", [
    SimpleNamespace(lb=[0, -np.inf], ub=[1, 5]),
    SimpleNamespace(lb=np.array([0.0, -np.inf]), ub=np.array([1, 5])),
    [(0, 1), (None, 5)],
    ((0.0, 1.0), [-math.inf, 5]),
    np.array([[0.0, 1.0], [-np.inf, 5.0]]),
    zip([0, None], [1, 5], strict=True),
])  # fmt: skip
def test_forms_of_bounds(bounds: Any) -> None:
    lower, upper = as_bounds(bounds, 2)
    assert (lower.tolist(), upper.tolist()) == ([0.0, -math.inf], [1.0, 5.0])


@pytest.mark.parametrize("bounds", [
    (0, 1), [0.0, 1.0], np.array([0, 1]), SimpleNamespace(lb=0, ub=1),
    SimpleNamespace(lb=[0], ub=np.ones(3)), [(0, 1)] * 3,
])  # fmt: skip
def test_one_pair_for_all(bounds: Any) -> None:
    lower, upper = as_bounds(bounds, 3)
    assert (lower.tolist(), upper.tolist()) == ([0.0] * 3, [1.0] * 3)


def test_scipys_bounds() -> None:
    from scipy.optimize import Bounds

    lower, upper = as_bounds(Bounds([1, 2], [3, np.inf]), 2)
    assert (lower.tolist(), upper.tolist()) == ([1.0, 2.0], [3.0, math.inf])


def test_settings() -> None:
    """One number where it is the same for all, plain JSON, and the same space again."""
    assert Space.of((0, 1), None, 1000).settings() == {
        "n": 1000, "lower": 0.0, "upper": 1.0, "scale": "linear",
    }  # fmt: skip
    assert Space.of((None, 1), "own", 3).settings()["lower"] is None
    space = mixed()
    again = Space.restore(json.loads(json.dumps(space.settings(), allow_nan=False)))
    z = space.encode(np.array(X0))
    assert again.settings() == space.settings()
    assert again.decode(z).tobytes() == space.decode(z).tobytes()
    assert again.box == space.box
    assert hash(again.box) == hash(space.box)
    assert space.box != Space.of((0, 1), None, 6).box
    assert space.box is not None
    assert Box.restore(json.loads(json.dumps(space.box.settings(), allow_nan=False))) == space.box
    with pytest.raises(ValueError, match="2 bounds for 3 variables"):
        Box.restore({"n": 3, "lower": [0.0, 1.0], "upper": 2.0})


def test_nothing_is_bounded() -> None:
    space = Space.of(None, None, 3)
    assert space.box is None
    assert space.decode(space.encode(np.array([1.5, -2.0, 1e300]))).tolist() == [1.5, -2.0, 1e300]


BAD: list[tuple[Any, Any, str]] = [
    ([(0, 1)] * 3, None, "bounds are for 3 variables, x0 has 2"),
    (SimpleNamespace(lb=[0, 0, 0], ub=1), None, "bounds are for 3 variables"),
    ([(0, 1), (3, 2)], None, r"bounds of variable 1 are \[3, 2\]: no number is between"),
    ([(0, 1), (math.inf, math.inf)], None, "variable 1"),
    ([(0, 1), (0, math.nan)], None, "a bound of variable 1 is nan; give a number or None"),
    ([(0, 1), ("a", 2)], None, "a bound of variable 1 is 'a'"),
    ([(True, 1), (1, 2)], None, "a bound of variable 0 is True"),
    ([(1, 1), (2, 2)], None, r"fix all variables \(lower = upper\): nothing is left"),
    ([(0, 1), (0, 10)], "log", "variable 0 has scale 'log' and the lower bound 0; give a bound"),
    ([(1, 2), (None, -1)], "log", "variable 1 has scale 'log' and the upper bound -1"),
    ([(0, 1), (0, 10)], "logarithmic", "scale must be one of linear, log, own"),
    ([(0, 1), (0, 10)], ["log"], "scale has 1 entries, x0 has 2 numbers"),
    ([(0, 1), (0, 10)], ["linear", 3], "scale must be one of linear, log, own"),
    ([(0, 1), (0, 10)], 3, "scale must be one of linear, log, own"),
]  # fmt: skip


@pytest.mark.parametrize(("bounds", "scale", "message"), BAD)
def test_bad_input(bounds: Any, scale: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space.of(bounds, scale, 2)


@pytest.mark.parametrize("bounds", [3, "0,1", [1, 2, 3], [(1, 2, 3), (1, 2, 3)], [(1,), (2,)]])
def test_bounds_that_are_no_pairs(bounds: Any) -> None:
    with pytest.raises(TypeError, match="bounds must be pairs"):
        Space.of(bounds, None, 2)


@pytest.mark.parametrize(("x0", "message"), [
    ([0.5, 7.0], r"x0\[1\] = 7 is outside its bounds \[1, 5\]; the nearest allowed value is 5$"),
    ([-0.1, 2.0], r"x0\[0\] = -0.1\d* is outside its bounds \[0, 1\].* value is 0$"),
])  # fmt: skip
def test_starting_points_outside(x0: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space.of([(0, 1), (1, 5)], None, 2).encode(np.array(x0))


def test_starting_points_of_fixed_and_log_variables() -> None:
    with pytest.raises(ValueError, match=r"x0\[0\] = 1 .* nearest allowed value is 2"):
        Space.of([(2, 2), (0, 1)], None, 2).encode(np.array([1.0, 0.5]))
    for x, bounds in itertools.product((0.0, -1.0), (None, (None, 3.0))):
        with pytest.raises(ValueError, match=r"x0\[0\] = .* scale is 'log': it must be > 0"):
            Space.of(bounds, "log", 1).encode(np.array([x]))
