"""SciPy's side: the result, the callbacks, and ``scipy.optimize.minimize`` with our methods."""

import copy
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint, OptimizeResult

import desopt
from desopt.run.history import Row, Status
from desopt.run.scipy_constraints import violations

Floats = NDArray[np.float64]

SMALL: dict[str, Any] = {
    "workers": 2, "rounds": 3, "iterations": 4, "engine": "serial", "progress": False,
}  # fmt: skip
OURS: dict[str, Any] = SMALL | {"method": "des-mr"}
START = np.array([1.0, -2.0, 3.0])


def square(x: Floats) -> float:
    return float(x @ x)


def shifted(x: Floats, centre: float, scale: float = 1.0) -> float:
    return scale * float((x - centre) @ (x - centre))


def run(x0: Any = START, **settings: Any) -> desopt.Result:
    return desopt.minimize(square, x0, **OURS | settings)


# --- the result ------------------------------------------------------------------------------


def test_result_is_scipys() -> None:
    result = run()
    assert isinstance(result, OptimizeResult)
    assert set(result) == set(desopt.Result.__annotations__)
    for name, value in result.items():
        assert getattr(result, name) is value
    with pytest.raises(AttributeError, match="jac"):
        _ = result.jac
    assert {*result, "digest", "plot"} == set(dir(result))


def test_result_is_copied_and_pickled() -> None:
    result = run()
    for other in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert type(other) is desopt.Result
        assert other.digest == result.digest
        assert repr(other) == repr(result)
        np.testing.assert_array_equal(other.history["loss"], result.history["loss"])
    assert copy.deepcopy(result).x is not result.x is copy.copy(result).x


def test_result_is_short_in_print() -> None:
    lines = repr(run(np.ones(10_000), rounds=30)).splitlines()
    assert len(lines) < 20
    assert all(len(line) < 150 for line in lines)
    assert lines[0].strip().startswith("message: 30 rounds done (")
    shown = [line.split(":")[0].strip() for line in lines]
    assert shown[1:6] == ["success", "status", "fun", "x", "nit"]
    assert {"best_fun", "engine", "nan_count"} <= set(shown)
    assert not {"history", "best_x"} & set(shown)


def test_scipy_optimize_is_loaded_with_the_first_result() -> None:
    code = (
        "import sys, desopt, desopt.run.minimize, desopt.run.folder\n"
        "seen = []\n"
        "def fun(x):\n"
        "    seen.append('scipy.optimize' in sys.modules)\n"
        "    return 0.0\n"
        "desopt.minimize(fun, [1.0], workers=1, rounds=1, iterations=1, engine='serial')\n"
        "print(any(seen), 'scipy.optimize' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900
    )
    assert done.stdout.strip() == "False True"


# --- callbacks -------------------------------------------------------------------------------


def test_scipys_callback_in_minimize() -> None:
    seen: list[OptimizeResult] = []
    rows: list[Row] = []

    def watch(intermediate_result: OptimizeResult) -> None:
        seen.append(intermediate_result)

    result = run(callbacks=[watch, rows.append], eval_every=1)
    assert [type(each) for each in seen] == [OptimizeResult] * 3
    assert [each.fun for each in seen] == list(result.history["loss"])
    assert [each.nit for each in seen] == [1, 2, 3]
    assert [each.nfev for each in seen] == list(result.history["evaluations"])
    for each, row in zip(seen, rows, strict=True):
        np.testing.assert_array_equal(each.x, row.x)
        assert row.items() <= {**each, "x": None}.items()
    np.testing.assert_array_equal(seen[-1].x, result.x)


def stop_scipy(intermediate_result: OptimizeResult) -> None:
    if intermediate_result.nit == 2:
        raise StopIteration


def stop_row(row: Row) -> None:
    if row["round"] == 2:
        raise StopIteration


def true_scipy(intermediate_result: OptimizeResult) -> bool:
    return bool(intermediate_result.nit == 2)


@pytest.mark.parametrize("callback", [stop_scipy, stop_row, true_scipy])
def test_a_callback_ends_the_run(callback: Any) -> None:
    others: list[Row] = []
    result = run(callbacks=[callback, others.append])
    assert (result.status, result.nit, result.success) == (Status.CALLBACK, 2, True)
    assert len(others) == 2  # all are called in the last round too
    np.testing.assert_array_equal(result.x, run(rounds=2).x)


def test_other_errors_of_callbacks_are_errors() -> None:
    with pytest.raises(ZeroDivisionError):
        run(callbacks=lambda row: 1 / 0)


# --- scipy.optimize.minimize -----------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def scipy_minimize(fun: Any = square, x0: Any = START, method: Any = "des-mr", **more: Any) -> Any:
    ours = desopt.scipy_method(method, **SMALL)
    return optimize.minimize(fun, x0, method=ours, **more)


@pytest.mark.parametrize("method", ["des-mr", "es", "es-csa", "fed-zo-sgd"])
def test_scipy_gives_our_bits(method: str) -> None:
    result = scipy_minimize(method=method)
    assert isinstance(result, desopt.Result)
    ours = run(method=method)
    assert result.digest == ours.digest != run(method=method, seed=1).digest
    assert (result.fun, result.nfev, result.nit) == (ours.fun, ours.nfev, ours.nit)


def test_the_default_method_is_that_of_minimize() -> None:
    theirs = optimize.minimize(square, START, method=desopt.scipy_method(**SMALL))
    assert theirs.digest == desopt.minimize(square, START, **SMALL).digest


def test_arguments_of_the_function() -> None:
    expected = desopt.minimize(partial(shifted, centre=2.0, scale=3.0), START, **OURS)
    assert scipy_minimize(shifted, args=(2.0, 3.0)).digest == expected.digest
    expected = desopt.minimize(partial(shifted, centre=2.0), START, **OURS)
    assert scipy_minimize(shifted, args=2.0).digest == expected.digest


def test_the_function_may_write_and_return_an_array() -> None:
    """As with SciPy's own solvers."""

    def careless(x: Floats) -> Floats:
        x *= x
        return np.array([x.sum()])

    assert scipy_minimize(careless).digest == run().digest


def test_data_of_the_workers() -> None:
    data = np.random.default_rng(0).standard_normal((40, 3))

    def fun(x: Floats, batch: Floats, shift: float) -> float:
        return float(np.square(batch - x - shift).mean())

    ours = desopt.minimize(lambda x, batch: fun(x, batch, 0.5), START, data, **OURS, batch_size=9)
    method = desopt.scipy_method("des-mr", data=data, **SMALL)
    options = {"batch_size": 9}
    theirs = optimize.minimize(fun, START, (0.5,), method=method, options=options)
    assert theirs.digest == ours.digest


def test_options_by_scipys_names_and_ours(capsys: pytest.CaptureFixture[str]) -> None:
    result = scipy_minimize(options={"maxiter": 5, "seed": 7, "disp": True})
    assert result.digest == run(rounds=5, seed=7).digest
    assert "des-mr: 5 of 5 rounds" in capsys.readouterr().err
    result = scipy_minimize(options={"maxfev": 20, "disp": 0, "something_new": None})
    assert result.digest == run(max_evaluations=20).digest
    assert result.status == Status.EVALUATIONS
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxitr": 5}, "unknown option 'maxitr': .*; did you mean 'maxiter'?"),
        ({"stepsize": 0.1}, "unknown option 'stepsize': .*; did you mean 'step_size'?"),
        ({"xatol": 1e-4}, "unknown option 'xatol'"),
        ({"maxiter": 5, "rounds": 6}, "maxiter and rounds are one option"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        desopt.scipy_method("es", **options)
    with pytest.raises(ValueError, match=message):
        scipy_minimize(options=options)


@pytest.mark.parametrize(
    ("unused", "name"),
    [({"jac": lambda x: 2 * x}, "jac"), ({"hess": lambda x: 2 * np.eye(3)}, "hess"),
     ({"hessp": lambda x, p: 2 * p}, "hessp"), ({"tol": 1e-6}, "tol; end the run by maxiter")],
)  # fmt: skip
def test_unused_arguments_are_named(unused: dict[str, Any], name: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"do not use {name}") as caught:
        result = scipy_minimize(**unused)
    assert [each.filename for each in caught][:1] == [__file__]
    assert result.digest == run().digest


def test_values_with_gradients() -> None:
    """``jac=True``: SciPy takes the value out of the pair."""
    with pytest.warns(RuntimeWarning, match="do not use jac"):
        result = scipy_minimize(lambda x: (square(x), 2 * x), jac=True)
    assert result.digest == run().digest


def test_scipys_callbacks_with_scipy() -> None:
    seen: list[OptimizeResult] = []
    points: list[Floats] = []
    mine: list[Row] = []

    def watch(intermediate_result: OptimizeResult) -> None:
        seen.append(intermediate_result)

    result = scipy_minimize(callback=watch, options={"callbacks": mine.append, "maxiter": 300})
    assert np.isfinite([each.fun for each in seen]).all()  # even beyond 100 rounds
    assert len(mine) == len(seen) == 300
    same = scipy_minimize(callback=points.append)
    for point, each in zip(points, seen, strict=False):
        np.testing.assert_array_equal(point, each.x)
    assert same.digest == desopt.Result(x=seen[2].x).digest != result.digest
    assert scipy_minimize(callback=lambda x: np.ones(3)).nit == 3  # what it returns is nothing
    stopped = scipy_minimize(callback=stop_scipy)
    assert (stopped.status, stopped.nit) == (Status.CALLBACK, 2)


def test_scipys_front_ends() -> None:
    settings = {"method": desopt.scipy_method("es", **SMALL | {"rounds": 20})}
    found = optimize.basinhopping(square, START, niter=1, minimizer_kwargs=settings)
    assert found.fun <= run(method="es", rounds=20).fun
    assert isinstance(found.lowest_optimization_result, desopt.Result)


# --- bounds and constraints ------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds", [Bounds([0.5, -3, 0], [2, -1, 9]), [(0.5, 2), (-3, -1), (0, None)]]
)
def test_bounds_are_passed_on(bounds: Any) -> None:
    points: list[Floats] = []
    result = scipy_minimize(bounds=bounds, callback=points.append)
    assert result.digest == run(bounds=bounds).digest != run().digest
    assert all(0.5 <= x[0] <= 2.0 and -3.0 <= x[1] <= -1.0 <= 0.0 <= x[2] for x in points)
    np.testing.assert_array_equal(points[-1], result.x)


def test_violations_of_every_kind_of_constraint() -> None:
    x = np.array([1.0, 2.0, 4.0])
    less = {"type": "ineq", "fun": lambda x, most: most - x.sum(), "args": (5.0,)}
    line = LinearConstraint([[1, 1, 0], [0, 0, 1]], [4, -np.inf], [5, 3])
    curve = NonlinearConstraint(lambda x: x[0] * x[1], -1, 0.5)
    for constraint, expected in [
        (less, [2.0]), (line, [1.0, 1.0]), (curve, [1.5]),
        (Bounds([0, 3, 0], [0.25, 9, 9]), [0.75, 1.0, 0.0]),
        (lambda x: x[2] - 3.0, [1.0]), ([less, line], [2.0, 1.0, 1.0]),
        ({"type": "ineq", "fun": lambda x: x}, [0.0, 0.0, 0.0]),
    ]:  # fmt: skip
        function = violations(constraint)
        assert function is not None
        np.testing.assert_array_equal(function(x), expected)
    assert violations(()) is violations([]) is None
    for forgotten in ({"type": "ineq", "fun": print}, NonlinearConstraint(print, 0, 1)):
        function = violations(forgotten)
        assert function is not None
        with pytest.raises(TypeError, match="must return numbers"):
            function(x)


@pytest.mark.parametrize(
    ("constraint", "error", "message"),
    [
        ({"type": "eq", "fun": square}, ValueError, "constraint 0 is an equality"),
        (LinearConstraint(np.eye(2), [0, 1], [1, 1]), ValueError, "constraint 0 is an equality"),
        ([square, {"type": "less", "fun": square}], ValueError, "constraint 1 must have type"),
        ({"type": "ineq"}, ValueError, "constraint 0 must have type 'ineq' and a function"),
        ([3], TypeError, "constraint 0 must be a dict, .* got 3"),
    ],
)
def test_constraints_that_cannot_be_kept(
    constraint: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        scipy_minimize(constraints=constraint)


def test_no_constraints() -> None:
    assert violations(None) is violations(()) is None


def test_constraints_are_passed_on() -> None:
    result = scipy_minimize(
        constraints={"type": "ineq", "fun": lambda x: x[0] - 0.5}, options={"maxiter": 30}
    )
    assert result.x[0] >= 0.5 > run(rounds=30).x[0]
