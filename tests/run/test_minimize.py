"""``minimize`` as a user meets it: bad input, odd functions, ends of a run, what is reported."""

import csv
import json
import math
import os
import pty
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import desopt
from desopt.engines.serial import Serial
from desopt.methods import DES, make
from desopt.methods.samplers import Gaussian
from desopt.objectives import LinearModel
from desopt.protocol import wire
from desopt.run.history import COLUMNS, Status

Floats = NDArray[np.float64]

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((40, 3))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
SMALL: dict[str, Any] = {
    "method": "des-mr", "workers": 2, "rounds": 3, "iterations": 4, "batch_size": 25,
    "engine": "serial", "progress": False,
}  # fmt: skip
TWO_POINT = [name for name, method in desopt.METHODS.items() if method.pairs]


def square(x: Floats) -> float:
    return float(x @ x)


def run(fun: Any = square, x0: Any = (1.0, 1.0, 1.0), data: Any = None, **options: Any) -> Any:
    return desopt.minimize(fun, x0, data, **SMALL | options)


class Counted:
    """A function that keeps what it was asked for."""

    def __init__(self, fun: Callable[..., Any] = square) -> None:
        self.fun, self.values = fun, list[Any]()

    def __call__(self, x: Floats, *rest: Any) -> Any:
        self.values.append(self.fun(x, *rest))
        return self.values[-1]

    @property
    def calls(self) -> int:
        return len(self.values)


# --- bad input -------------------------------------------------------------------------------

WHOLE = ("rounds", "iterations", "workers", "batch_size", "attempts", "jobs", "mixture",
         "max_evaluations", "patience")  # fmt: skip
REAL = ("step_size", "momentum", "radius", "max_seconds", "round_timeout",
        "evaluation_timeout", "target")  # fmt: skip

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(({name: 0}, ValueError, rf"{name} must be .*1.*got 0") for name in WHOLE),
    *(({name: -3}, ValueError, rf"{name} must be .*1.*got -3") for name in WHOLE),
    *(({name: bad}, TypeError, rf"{name} must be a whole number, got ")
      for name in (*WHOLE, "seed", "eval_every", "snapshot_every", "population")
      for bad in (2.5, 3.0, "3", True, [3], np.float64(2), np.array([2, 3]))),
    *(({name: bad}, TypeError, rf"{name} must be a number, got ")
      for name in REAL for bad in ("0.5", [0.5], 1j, True, np.array([0.5, 1.0]))),
    *(({name: math.nan}, ValueError, rf"{name} must be .*got (nan|NaN)") for name in REAL),
    *(({name: bad}, ValueError, rf"{name} must be .*> 0.*got {bad}")
      for name in ("step_size", "radius", "max_seconds", "round_timeout", "evaluation_timeout")
      for bad in (0, -0.5)),
    *(({"evaluation_timeout": 2, "engine": name}, ValueError,
       rf"evaluation_timeout=2 needs .*engine '{name}' does not .*use engine='processes'")
      for name in ("serial", "threads")),
    *(({name: math.inf, "method": "fed-zo-gd"}, ValueError, rf"{name} must be .*finite.*got inf")
      for name in ("step_size", "radius")),
    *(({name: None}, TypeError, rf"{name} must be a .*number, got None")
      for name in ("iterations", "batch_size", "seed", "momentum", "mixture", "radius", "attempts",
                   "snapshot_every")),
    *(({name: -1}, ValueError, rf"{name} must be .*0.*got -1")
      for name in ("seed", "eval_every", "snapshot_every")),
    ({"seed": 2**64}, ValueError, r"seed must be 0 to .*, got 18446744073709551616"),
    ({"seed": -1, "data": X}, ValueError, r"seed must be 0 to .*got -1"),
    ({"rounds": 2**40}, ValueError, r"rounds must be 1 to .*got 1099511627776"),
    ({"iterations": 2**28 + 2}, ValueError, r"iterations must be 1 to 268435456, got"),
    *(({"momentum": bad}, ValueError, rf"momentum must be in \[0, 1\), got {bad}")
      for bad in (-0.1, 1, 1.0, 1.5, math.inf)),
    *(({"method": name, "iterations": 5}, ValueError,
       rf"iterations must be even for {name} .*got 5; use 6") for name in TWO_POINT),
    *(({"method": "es-csa", "population": bad}, ValueError, rf"population must be .*2, got {bad}")
      for bad in (0, 1, -1)),
    ({"method": "DES"}, ValueError, r"unknown method 'DES'.*did you mean 'des'\?"),
    ({"method": "des_mr"}, ValueError, r"choose from es, .*did you mean 'des-mr'\?"),
    ({"method": "fedzo-gd"}, ValueError, r"did you mean 'fed-zo-gd'\?"),
    *(({"method": bad}, TypeError, r"method must be one of es, des, .*got ")
      for bad in (None, 5, b"des", desopt.METHODS["des"], DES)),
    ({"engine": "thread"}, ValueError, r"unknown engine 'thread'.*did you mean 'threads'\?"),
    ({"engine": "Serial"}, ValueError, r"choose from auto, serial.*did you mean 'serial'\?"),
    *(({"engine": bad}, TypeError, r"engine must be one of auto, serial, .*got ")
      for bad in (None, 5, Serial)),
    ({"x0": 1.0}, ValueError, r"x0 must be a vector .*got shape \(\)"),
    ({"x0": np.ones((3, 1))}, ValueError, r"x0 must be a vector .*got shape \(3, 1\)"),
    ({"x0": []}, ValueError, r"x0 must be a vector of at least one number, got shape \(0,\)"),
    ({"x0": [1.0, math.nan]}, ValueError, "x0 must be finite; entry 1 is not"),
    ({"x0": [-math.inf, 1.0]}, ValueError, "x0 must be finite; entry 0 is not"),
    ({"x0": None}, ValueError, "x0 is missing"),
    *(({"x0": bad}, TypeError, "x0 must be a vector of real numbers, got ")
      for bad in ("abc", ["a"], [1j], [[1], [1, 2]], {1: 2}, [None])),
    ({"x0": np.ma.masked_array([1.0, 2.0], [False, True])}, ValueError, "x0 has masked"),
    ({"data": [], "fun": "lr"}, ValueError, "data is an empty list"),
    ({"data": [(X, Y), (X[:0], Y[:0])], "fun": "lr"}, ValueError, r"data\[1\] has no rows"),
    ({"data": (X[:0], Y[:0]), "fun": "lr"}, ValueError, "data has no rows"),
    ({"data": (X[:, :0], Y), "fun": "lr", "x0": None}, ValueError, "data: X must have .* column"),
    ({"data": None, "fun": "lr"}, TypeError, r"data is missing: 'lr' needs data=\(X, y\)"),
    ({"data": X, "fun": "lr"}, ValueError, r"data for 'lr' must be \(X, y\)"),
    ({"data": (X, Y[1:]), "fun": "lr"}, ValueError, r"data: arrays must have one length"),
    ({"data": (np.where(X > 1, np.nan, X), Y), "fun": "lr"}, ValueError, r"data\[0\] contains NaN"),
    ({"data": (X, np.arange(40) % 3), "fun": "lr"}, ValueError, "labels must be two-valued"),
    ({"data": (sparse.csr_array(X), Y), "fun": "lr", "x0": [1.0, 2.0]}, ValueError,
     "x0 has 2 numbers but the data have 3 columns"),
    ({"data": (X, Y), "fun": "lr", "workers": 41}, ValueError,
     "data has 40 rows for 41 workers; .*use fewer workers"),
    ({"data": [X, X], "method": "es"}, ValueError, "es is for one worker: data must be one shard"),
    ({"data": "X.npy"}, TypeError, "data must be an array, got str"),
    ({"data": (X, Y), "fun": "lrr"}, ValueError, r"unknown fun 'lrr'.*did you mean 'lr'\?"),
    ({"fun": None}, TypeError, "fun must be callable, got NoneType"),
    ({"fun": 3.0}, TypeError, "fun must be callable, got float"),
    *(({"data": (X, Y), "fun": "lr", "regularization": bad}, ValueError,
       "regularization must be a .*number") for bad in (-1.0, math.nan, math.inf)),
    ({"data": (X, Y), "fun": "lr", "regularization": "x"}, TypeError, "regularization must be a"),
    *(({"sampler": bad}, TypeError, "sampler must be a Sampler.*got ")
      for bad in (3, Gaussian)),
    ({"sampler": "gaussian"}, ValueError, r"unknown sampler 'gaussian'.*did you mean 'Gaussian'"),
    ({"setup": 3}, TypeError, "setup must be callable, got int"),
    *(({name: bad}, TypeError, rf"{name} must be True or False, got {bad!r}")
      for name in ("log_values", "ahead", "progress", "float32") for bad in (1, "no")),
    ({"callbacks": 3}, TypeError, "callbacks must be a list of functions, got 3"),
    ({"callbacks": [print, 3]}, TypeError, "callbacks must be functions of a row, got 3"),
    ({"stepsize": 0.5}, TypeError, "unexpected keyword argument 'stepsize'"),
]  # fmt: skip


def bad_name(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    return ",".join(f"{name}={item!r:.20}" for name, item in value.items() if name != "data")


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=bad_name)
def test_bad_input(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    """Refused by name before any work: no value was computed, no file made."""
    fun = Counted()
    given = {"fun": fun, "engine": "auto", "journal": tmp_path / "run.journal"} | options
    with pytest.raises(error, match=message):
        run(**given)
    assert fun.calls == 0
    assert list(tmp_path.iterdir()) == []


def test_bad_journal(tmp_path: Path) -> None:
    fun = Counted()
    cases: list[tuple[Any, type[Exception], str]] = [
        (tmp_path / "no" / "run.journal", FileNotFoundError, "journal: there is no folder .*no"),
        (tmp_path, ValueError, "journal must be a file, got the folder"),
        ("", ValueError, "journal must be a file"),
        (5, TypeError, "journal must be a file's path or None, got 5"),
    ]
    for journal, error, message in cases:
        with pytest.raises(error, match=message):
            run(fun, journal=journal, engine="auto")
    assert fun.calls == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("eval_every", [None, 0])
@pytest.mark.parametrize(
    "value",
    [np.ones(1), np.ones((2, 2)), "0.5", None, 1j, [1.0], (), np.complex128(1 + 2j), np.str_("3"),
     np.array("3"), np.array(None), np.datetime64(3, "s"), sparse.csr_array(np.ones((1, 1)))],
    ids=repr,
)  # fmt: skip
def test_fun_must_return_a_number(value: Any, eval_every: int | None, tmp_path: Path) -> None:
    fun = Counted(lambda x: value)
    for engine in ("auto", "serial"):
        with pytest.raises(TypeError, match=r"fun must return one real number, .* it returned"):
            run(fun, engine=engine, eval_every=eval_every, journal=tmp_path / "run.journal")
    assert fun.calls == 2  # one each
    assert list(tmp_path.iterdir()) == []


KINDS: list[Any] = [
    np.float32, np.float64, np.array, int, np.int64, partial(np.array, dtype=np.float32),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_other_numbers_are_numbers(kind: Callable[[Any], Any]) -> None:
    result = run(lambda x: kind(float(np.round(x @ x * 8))))
    assert isinstance(result.fun, float)
    np.testing.assert_array_equal(result.x, run(lambda x: float(np.round(x @ x * 8))).x)


def test_numpy_scalars_as_settings(tmp_path: Path) -> None:
    """Also where they end up in the journal's header."""
    plain = {"workers": 3, "rounds": 4, "iterations": 6, "batch_size": 7, "seed": 2**64 - 1,
             "mixture": 5, "step_size": 0.5, "momentum": 0.25, "eval_every": 2}  # fmt: skip
    kinds: dict[type, Any] = {int: np.int64, float: np.float32}
    odd = {name: kinds[type(value)](value) for name, value in plain.items() if name != "seed"}
    odd["seed"] = np.uint64(2**64 - 1)
    result = run(data=X, fun=fit, journal=tmp_path / "run.journal", **odd)
    np.testing.assert_array_equal(result.x, run(data=X, fun=fit, **plain).x)
    np.testing.assert_array_equal(result.x, desopt.replay(tmp_path / "run.journal"))
    np.testing.assert_array_equal(run(seed=np.int64(7)).x, run(seed=7).x)


def fit(x: Floats, batch: Floats) -> float:
    """A function of x and data."""
    return float(np.mean((batch @ x - 1.0) ** 2))


# --- x0 and the outside world ----------------------------------------------------------------


@pytest.mark.parametrize(
    "x0", [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3], np.int8), np.array([1, 2, 3], np.float32),
           np.array([1.0, 9, 2, 9, 3, 9])[::2], np.array([1.0, 2.0, 3.0])],
)  # fmt: skip
@pytest.mark.parametrize("method", desopt.METHODS)
def test_x0_is_taken_as_it_is_and_left_alone(method: str, x0: Any) -> None:
    before = np.array(x0)
    if isinstance(x0, np.ndarray):
        x0.flags.writeable = False
    result = run(x0=x0, method=method)
    assert result.x.dtype == np.float64
    np.testing.assert_array_equal(x0, before)
    assert not np.shares_memory(result.x, np.asarray(x0))
    np.testing.assert_array_equal(result.x, run(x0=[1.0, 2.0, 3.0], method=method).x)
    assert result.initial_fun == 14.0


def global_state() -> tuple[str, Any]:
    with np.printoptions(threshold=1000):
        return str(np.random.get_state()), random.getstate()  # noqa: NPY002


def test_global_random_state_does_not_matter() -> None:
    results = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        before = global_state()
        results.append(run(fit, data=X))
        assert global_state() == before
    np.testing.assert_array_equal(results[0].x, results[1].x)
    assert not np.array_equal(results[0].x, run(fit, data=X, seed=1).x)


@pytest.mark.parametrize("method", desopt.METHODS)
def test_fun_cannot_change_x(method: str) -> None:
    def rude(x: Floats) -> float:
        x += 1.0
        return float(x @ x)

    x0 = np.ones(3)
    with pytest.raises(desopt.ObjectiveError, match=r"fun failed.*ValueError: .*read-only"):
        run(rude, x0, method=method)
    np.testing.assert_array_equal(x0, np.ones(3))


def test_an_exception_in_fun_says_where_it_happened(tmp_path: Path) -> None:
    def fragile(x: Floats, batch: Floats) -> float:
        if counted.calls == 2 + 3 * 5 + 2:  # two totals, three workers' rounds, two values
            raise ZeroDivisionError("on purpose")
        return fit(x, batch)

    counted = Counted(fragile)
    with pytest.raises(desopt.ObjectiveError) as caught:
        run(counted, data=X, eval_every=10, journal=tmp_path / "run.journal")
    error = caught.value
    assert (error.worker, error.round, error.iteration) == (1, 1, 1)
    for part in ("fun failed (worker 1, round 1, iteration 1)", "on purpose", "in fragile"):
        assert part in str(error)
    with pytest.warns(RuntimeWarning, match="began with other code of fun"):  # mended, it goes on
        result = run(fit, data=X, eval_every=10, journal=tmp_path / "run.journal")
    np.testing.assert_array_equal(result.x, run(fit, data=X).x)


# --- NaN and infinity ------------------------------------------------------------------------


@pytest.mark.parametrize("method", desopt.METHODS)
def test_nan_everywhere(method: str) -> None:
    """Nothing is accepted, everything is counted."""
    fun, x0 = Counted(lambda x: math.nan), np.ones(3)
    with pytest.warns(RuntimeWarning, match=r"fun returned NaN or infinity \d+ times"):
        result = run(fun, x0, method=method, eval_every=0)
    assert result.x.tolist() == [1.0, 1.0, 1.0]
    assert not np.shares_memory(result.x, x0)
    assert result.nan_count == result.nfev == fun.calls
    assert result.history["nans"][-1] == fun.calls
    assert f"{fun.calls} values failed or were not finite" in result.message


@pytest.mark.parametrize(
    ("value", "warned"),
    [(math.nan, "fun returned NaN or infinity once"), ("why", "1 value failed because of: why$")],
)
def test_one_failure_is_singular(value: Any, warned: str) -> None:
    calls: list[int] = []

    def fun(x: NDArray[np.float64]) -> float:
        calls.append(1)
        if len(calls) == 3 and value == "why":
            raise desopt.Failed("why")
        return math.nan if len(calls) == 3 else float(x @ x)

    with pytest.warns(RuntimeWarning, match=warned):
        result = desopt.minimize(
            fun, np.ones(3), method="es-csa", rounds=1, engine="serial", log_values=True
        )
    assert result.message.startswith("1 round done; 1 value failed or was not finite (")


def sparse_draw(random: np.random.Generator, n: int) -> Any:
    return random.integers(n, size=2), random.standard_normal(2)


#: Those that move in the first round.
SEARCHES: dict[str, dict[str, Any]] = {
    **{
        name: {"method": name}
        for name, m in desopt.METHODS.items()
        if m.sampler and name != "des-c"
    },
    "sparse sampler": {"sampler": sparse_draw},
    "dense sampler": {"sampler": lambda random, n: random.standard_normal(n)},
}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_a_round_that_begins_without_a_value(options: dict[str, Any], bad: float) -> None:
    """The first finite value is the parent from then on; it may be as large as it likes."""
    values = iter([bad, bad, 1e300, bad, 2e300, 1.0, 1.0, 2.0, bad])
    with pytest.warns(RuntimeWarning, match="fun returned NaN or infinity 4 times"):
        result = run(lambda x: next(values), workers=1, rounds=1, iterations=8, eval_every=0,
                     **options)  # fmt: skip
    values = iter([5.0, 6.0, 4.0, 6.0, 6.0, 4.0, 4.0, 6.0, 6.0])  # the same decisions
    expected = run(lambda x: next(values), workers=1, rounds=1, iterations=8, eval_every=0,
                   **options)  # fmt: skip
    np.testing.assert_array_equal(result.x, expected.x)
    assert result.x.tolist() != [1.0, 1.0, 1.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_a_region_without_values_is_never_entered(method: str, bad: float) -> None:
    """Whatever is averaged lies on the good side of a plane, and so does the average."""
    fun = Counted(lambda x: square(x - [2.0, 0.0, 0.0]) if x[0] < 1.2 else bad)
    step = {"fed-zo-gd": 0.05, "fed-zo-sgd": 0.05, "zo-signsgd": 0.2}.get(method, 0.5)
    options: dict[str, Any] = {"method": method, "momentum": 0.0, "rounds": 6, "eval_every": 0,
                               "step_size": step}  # fmt: skip
    with pytest.warns(RuntimeWarning, match="fun returned NaN or infinity"):
        result = run(fun, **options)
    finite = sum(map(math.isfinite, fun.values))
    assert result.nan_count == len(fun.values) - finite > 0
    assert finite > 0
    assert np.isfinite(result.x).all()
    if method not in TWO_POINT:  # which step over it, but not because of it
        assert result.x[0] < 1.2
    assert result.success


def test_es_csa_takes_no_step_along_members_without_a_value() -> None:
    """Only the first of seven has one, and three would be averaged."""
    points = list[Floats]()

    def fun(x: Floats) -> float:
        points.append(x - 1.0)
        return 1.0 if len(points) == 1 else math.nan

    with pytest.warns(RuntimeWarning, match="fun returned NaN or infinity 6 times"):
        result = run(fun, method="es-csa", workers=1, rounds=1, population=7, eval_every=0)
    part = (result.x - 1.0) / points[0]
    assert 0.5 < part[0] < 1.0  # the weight of the best
    np.testing.assert_allclose(part, part[0], rtol=1e-12)


@pytest.mark.parametrize(
    "method", [name for name, method in desopt.METHODS.items() if not method.single_worker]
)
def test_infinite_values_of_both_signs(method: str) -> None:
    """inf - inf in the sums of es-csa is a member that cannot be ranked, not an error."""
    shards = [np.ones((2, 1)), -np.ones((2, 1))]
    with pytest.warns(RuntimeWarning, match="fun returned NaN or infinity"):
        result = run(lambda x, batch: math.inf * batch[0, 0], data=shards, method=method)
    assert np.isfinite(result.x).all()


# --- methods and data ------------------------------------------------------------------------


@pytest.mark.parametrize("method", desopt.METHODS)
def test_a_function_without_data(method: str) -> None:
    small = {
        "fed-zo-gd": 0.3,
        "fed-zo-sgd": 0.1,
        "zo-signsgd": 0.3,
        "decomfl": 0.03,
        "fedkseed": 0.02,
    }
    step = small.get(method, 0.5)
    result = run(x0=[1.0, -2.0, 0.5, 3.0], method=method, rounds=40, step_size=step)
    assert result.initial_fun == 14.25
    assert result.fun == square(result.x) < 0.3 * result.initial_fun
    assert result.nit == 40


@pytest.mark.parametrize("method", desopt.METHODS)
def test_number_of_evaluations(method: str) -> None:
    """The declared ones, what was really evaluated, and what the history says are the same."""
    M, K, T, b, population = 3, 6, 4, 5, 7
    fun = Counted(fit)
    result = run(fun, data=X, method=method, workers=M, iterations=K, rounds=T, batch_size=b,
                 population=population, eval_every=0)  # fmt: skip
    declared = make(method, {"iterations": K, "population": population})
    workers = 1 if desopt.METHODS[method].single_worker else M
    expected = workers * declared.cost.most
    assert result.nfev == fun.calls == T * expected
    assert result.history["evaluations"].tolist() == [t * expected for t in range(1, T + 1)]
    rows = len(X) / workers if declared.cost.whole else b  # per value
    np.testing.assert_allclose(result.history["samples"], result.history["evaluations"] * rows)
    up = workers * (wire.OVERHEAD + declared.layout.size)
    assert result.history["bytes_up"].tolist() == [t * up for t in range(1, T + 1)]


@pytest.mark.parametrize("layout", [np.array, sparse.csr_array], ids=["dense", "csr"])
def test_es_has_all_the_data(layout: Callable[[Any], Any]) -> None:
    result = run("lr", None, (layout(X), Y), method="es", rounds=5)
    again = run("lr", None, [(layout(X), Y)], method="es", rounds=5, workers=7, batch_size=1)
    np.testing.assert_array_equal(result.x, again.x)  # one shard, and no batches
    assert result.fun < result.initial_fun == pytest.approx(math.log(2.0))


def test_shards_and_loaders_are_the_same_data() -> None:
    cuts = [slice(0, 3), slice(3, 30), slice(30, 40)]
    shards = [X[cut] for cut in cuts]
    expected = run(fit, data=shards)
    assert expected.initial_fun == pytest.approx(fit(np.ones(3), X), rel=1e-12)  # by rows
    loaders = [partial(X.__getitem__, cut) for cut in cuts]
    for data in (loaders, lambda worker: shards[worker], [shards[0], *loaders[1:]]):
        result = run(fit, data=data, workers=3)
        np.testing.assert_array_equal(result.x, expected.x)
        assert result.fun == expected.fun


def test_drawn_data() -> None:
    """Fresh samples for every worker and round; the history looks at fixed ones."""
    seen = []

    def draw(random: np.random.Generator, b: int) -> Floats:
        seen.append(random.standard_normal((b, 3)))
        return seen[-1]

    first = run(fit, data=draw)
    distinct = {batch.tobytes() for batch in seen}
    assert len(distinct) == 2 * 3 + 2  # workers x rounds, and one per worker for the history
    np.testing.assert_array_equal(first.x, run(fit, data=draw).x)
    assert {batch.tobytes() for batch in seen} == distinct


def test_parts_as_objects() -> None:
    algorithm = DES(name="des", sampler=Gaussian(), step_size=0.5, iterations=4, momentum=0.5)
    by_object = run(LinearModel("lr", 1e-6), None, (X, Y), method=algorithm, engine=Serial())
    by_name = run("lr", None, (X, Y), method="des", step_size=0.5)
    np.testing.assert_array_equal(by_object.x, by_name.x)


def test_setup_is_called_once_and_passed_on() -> None:
    made = []

    def setup() -> list[float]:
        made.append([2.0])
        return made[-1]

    result = run(lambda x, state: state[0] * square(x), setup=setup)
    assert made == [[2.0]]
    assert result.initial_fun == 6.0


# --- the end of a run ------------------------------------------------------------------------


def slow(x: Floats) -> float:
    time.sleep(0.002)
    return square(x)


@pytest.mark.parametrize(
    ("options", "status", "nit", "message"),
    [
        ({"rounds": 4}, Status.ROUNDS, 4, "4 rounds done"),
        ({"max_evaluations": 21}, Status.EVALUATIONS, 2, "max_evaluations 21 spent ("),
        ({"max_evaluations": 25}, Status.EVALUATIONS, 2,
         "max_evaluations 25 spent but for 3, too few for a round of 2 workers"),
        ({"max_evaluations": 26}, Status.EVALUATIONS, 3, "max_evaluations 26 spent ("),
        ({"max_evaluations": 20, "eval_every": 7}, Status.EVALUATIONS, 2, "max_evaluations 20"),
        ({"max_seconds": 0.05, "fun": slow}, Status.SECONDS, None, "max_seconds 0.05 spent"),
        ({"target": 2.0}, Status.TARGET, None, "target 2 reached: "),
        ({"target": 2.0, "eval_every": 4}, Status.TARGET, 4, "target 2 reached: "),
        ({"patience": 3, "fun": lambda x: 1.0, "eval_every": 1}, Status.PATIENCE, 3,
         "no improvement on 1 in 3 rounds"),
        ({"patience": 3, "fun": lambda x: 1.0, "eval_every": 5}, Status.PATIENCE, 5, "in 3 rounds"),
        ({"patience": 2, "eval_every": 5, "rounds": 12}, Status.ROUNDS, 12, "12 rounds done"),
        ({"patience": 2, "target": 0.0, "eval_every": 0, "rounds": 9}, Status.ROUNDS, 9, "9 r"),
        ({"callbacks": [lambda row: row["round"] == 6]}, Status.CALLBACK, 6, "by a callback"),
        ({"callbacks": lambda row: row["round"] == 6, "eval_every": 4}, Status.CALLBACK, 6, "by a"),
    ],
)  # fmt: skip
def test_ends(options: dict[str, Any], status: Status, nit: int | None, message: str) -> None:
    """Each reason by its number and in words; fun is the value at the last point."""
    result = run(**{"rounds": 500} | options)
    assert result.status == status
    assert message in result.message
    assert result.success
    assert result.nit == len(result.history) < 500
    assert nit is None or result.nit == nit
    if options.get("eval_every") != 0:
        assert result.fun == options.get("fun", square)(result.x)
        assert result.history[-1]["loss"] == result.fun
    if "target" in options and status is Status.TARGET:
        assert result.fun <= 2.0
        assert all(row["loss"] > 2.0 for row in result.history.evaluated()[:-1])
    if "max_seconds" in options:
        assert (result.history["seconds"] >= 0.05).tolist() == [False] * (result.nit - 1) + [True]


def test_patience_begins_anew_with_every_improvement() -> None:
    values = iter([9.0, 8.0, 8.0, 8.0, 7.0, 7.5, 7.0, 7.0, 0.0])

    def fun(x: Floats, batch: Floats) -> float:
        return next(values) if len(batch) == 40 else 0.0  # the history's, or a minibatch

    result = run(fun, data=[X], patience=3, rounds=99, batch_size=10)
    assert result.nit == 7  # best in round 4
    assert result.fun == 7.0


def test_callbacks_see_every_row() -> None:
    rows, points, others = [], [], list[Any]()  # the last: rows that are kept as they are

    def watch(row: Any) -> None:
        rows.append(dict(row))
        points.append(row.x.copy())
        with pytest.raises(ValueError, match="read-only"):
            row.x[0] = 5.0

    result = run(rounds=5, callbacks=[lambda row: row["round"] >= 4, watch, others.append])
    assert rows == [dict(row) for row in result.history]
    assert [row["round"] for row in rows] == [1, 2, 3, 4] == [row["round"] for row in others]
    for t, point in enumerate(points, 1):
        np.testing.assert_array_equal(point, run(rounds=t).x)
    assert not hasattr(result.history[0], "x")  # a point per round would fill the memory
    result.x[:] = 7.0
    for row, point in zip(others, points, strict=True):
        np.testing.assert_array_equal(row.x, point)
        assert not row.x.flags.writeable


def test_a_callback_cannot_change_the_history() -> None:
    def meddle(row: Any) -> None:
        row["evaluations"] = -1
        row["note"] = "mine"

    history = run(callbacks=meddle).history
    assert [row["evaluations"] for row in history] == [10, 20, 30]
    assert "note" not in history[0]


# --- the best point --------------------------------------------------------------------------


def wave(x: Floats, batch: Floats) -> float:
    """For the history it falls and rises along the way: the last point is not the best."""
    return float(np.cos(9.0 * x.sum())) if len(batch) == 40 else square(x)


@pytest.mark.parametrize("snapshot_every", [0, 2])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_best_point(method: str, snapshot_every: int, tmp_path: Path) -> None:
    """Of x0 and all points that were evaluated; the same after any resume."""
    points = [np.ones(3)]
    steps = {"es": 4.0, "es-csa": 4.0, "cma-es": 4.0, "fed-zo-gd": 0.05, "fed-zo-sgd": 0.05,
             "des-c": 3.0}  # fmt: skip
    step = steps.get(method, 0.7)
    options: dict[str, Any] = {"method": method, "rounds": 9, "eval_every": 1, "momentum": 0.3,
                               "step_size": step, "data": [X]}  # fmt: skip
    whole = run(wave, callbacks=lambda row: points.append(row.x), **options)
    losses = [whole.initial_fun, *whole.history["loss"].tolist()]
    np.testing.assert_allclose(losses, [wave(x, X) for x in points], rtol=1e-12)
    best = losses.index(min(losses))
    assert best < 9 or method == "es", "on all the data, that one only falls"
    assert whole.best_fun == losses[best] <= whole.fun
    np.testing.assert_array_equal(whole.best_x, points[best])
    for cut in (1, best or 1, min(best + 1, 9), 8, 9):
        path = tmp_path / f"{cut}"
        parts = {"journal": path, "snapshot_every": snapshot_every}
        run(wave, **options | parts | {"rounds": cut})
        again = run(wave, **options | parts)
        assert again.best_x.tobytes() == whole.best_x.tobytes()
        assert again.best_fun == whole.best_fun


def test_best_point_of_a_run_that_only_rises() -> None:
    values = iter([3.0, 5.0, 4.0, math.nan, 3.0])
    result = run(lambda x, batch: next(values) if len(batch) == 40 else 0.0, data=[X],
                 batch_size=5, rounds=4, eval_every=1)  # fmt: skip
    assert (result.best_fun, result.fun) == (3.0, 3.0)
    assert result.best_x.tolist() == [1.0, 1.0, 1.0], "the first of equals"
    result.best_x[:] = 0.0  # memory of its own


def test_best_point_where_nothing_was_evaluated() -> None:
    result = run(eval_every=0)
    assert math.isnan(result.best_fun)
    np.testing.assert_array_equal(result.best_x, result.x)
    assert not np.shares_memory(result.best_x, result.x)


@pytest.mark.filterwarnings("ignore:fun returned NaN or infinity")
def test_an_infinite_value_is_not_the_best() -> None:
    values = iter([3.0, -math.inf, 2.0, math.inf])
    result = run(lambda x, batch: next(values) if len(batch) == 40 else 0.0, data=[X],
                 batch_size=5, rounds=3, eval_every=1)  # fmt: skip
    assert result.best_fun == 2.0


@pytest.mark.parametrize(
    ("rounds", "eval_every", "evaluated"),
    [(7, 3, [3, 6, 7]), (7, 7, [7]), (7, 100, [7]), (4, 1, [1, 2, 3, 4]), (4, 0, []),
     (4, None, [1, 2, 3, 4]), (250, None, list(range(2, 251, 2)))],
)  # fmt: skip
def test_eval_every(rounds: int, eval_every: int | None, evaluated: list[int]) -> None:
    fun = Counted()
    # A target makes the default go by rounds alone, whatever the clock says.
    result = run(fun, rounds=rounds, eval_every=eval_every, target=-1.0)
    assert [row["round"] for row in result.history.evaluated()] == evaluated
    assert [row["round"] for row in result.history if row["loss"] == row["loss"]] == evaluated
    assert result.nfev == rounds * 2 * 5
    initial = 0 if eval_every == 0 else 1
    assert fun.calls == result.nfev + len(evaluated) + initial  # no search in these
    assert (result.initial_fun == 3.0) is bool(initial)
    assert math.isnan(result.initial_fun) is math.isnan(result.fun) is not initial


def test_by_default_evaluating_takes_little_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own, 40 rows take 0.03 s, and a minibatch a microsecond."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def fun(x: Floats, batch: Floats) -> float:
        nonlocal now
        now += 0.03 if len(batch) == 40 else 1e-6
        return fit(x, batch)

    seldom = run(fun, data=[X], rounds=10)
    assert 1 <= len(seldom.history.evaluated()) <= 4
    assert seldom.fun == fit(seldom.x, X)
    for options in ({"eval_every": 1}, {"patience": 50}):  # asked for, or needed
        often = run(fun, data=[X], rounds=10, **options)
        assert len(often.history.evaluated()) == 10
        np.testing.assert_array_equal(often.x, seldom.x)


# --- what is reported ------------------------------------------------------------------------


def test_result() -> None:
    result = run()
    names = ("x", "fun", "nfev", "nit", "success", "status", "message", "history", "engine",
             "initial_fun", "nan_count", "best_x", "best_fun", "digest")  # fmt: skip
    kinds = [type(getattr(result, name)) for name in names]
    assert kinds == [np.ndarray, float, int, int, bool, int, str, desopt.History, str, float, int,
                     np.ndarray, float, str]  # fmt: skip
    assert (result.nfev, result.nit, result.status, result.success) == (30, 3, 0, True)
    assert (result.engine, result.nan_count, result.initial_fun) == ("serial", 0, 3.0)


def test_engine_says_which_and_why() -> None:
    quick = run(engine="auto")
    assert quick.engine == "serial"
    assert "engine serial: " in quick.message
    compiled = run("lr", None, (X, Y), engine="auto")
    assert compiled.engine == "threads"
    assert "engine threads: compiled objective" in compiled.message
    np.testing.assert_array_equal(compiled.x, run("lr", None, (X, Y)).x)


def test_history(tmp_path: Path) -> None:
    """Columns, rows, and files that read back exactly."""
    history = run(rounds=5, eval_every=2).history
    assert tuple(history[0]) == ("round", "evaluations", "samples", "nans", "bytes_up",
                                 "bytes_down", "seconds", "loss", "answers",
                                 "repeated")  # fmt: skip
    assert sorted(history[0]) == sorted(COLUMNS)
    assert len(history) == 5
    assert [row["round"] for row in history[1:3]] == [2, 3]
    assert (np.diff(history["seconds"]) > 0).all()
    with pytest.raises(KeyError, match="'x' is no column; there are round, "):
        history["x"]
    history.to_csv(tmp_path / "h.csv")
    history.to_jsonl(tmp_path / "h.jsonl")
    with open(tmp_path / "h.csv", newline="") as file:
        from_csv = list(csv.DictReader(file))
    from_jsonl = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert list(from_csv[0]) == list(from_jsonl[0]) == list(COLUMNS)
    for row, one, two in zip(history, from_csv, from_jsonl, strict=True):
        for name in COLUMNS:
            if math.isnan(row[name]):
                assert (one[name], two[name]) == ("", None)
            else:
                assert float(one[name]) == two[name] == row[name]


def test_warnings_outside_the_theory() -> None:
    with pytest.warns(desopt.TheoryWarning, match=r"momentum 0.6 .*momentum < 0.5946") as caught:
        run(momentum=0.6)
    assert [warning.filename for warning in caught] == [__file__]  # the line that called
    with pytest.warns(desopt.TheoryWarning, match=r"batch_size 2 .*sqrt\(rounds\) = 2.236"):
        run(fit, data=X, rounds=5, batch_size=2)
    run(momentum=0.59)  # warnings are errors here
    run(rounds=5, batch_size=2)  # there are no batches
    run(fit, data=X, rounds=4, batch_size=2)
    without = [name for name in desopt.METHODS if "momentum" not in desopt.METHODS[name].settings]
    for method in without:
        run(fit, data=X, method=method, momentum=0.9, rounds=5, batch_size=2)


# --- the progress bar ------------------------------------------------------------------------


def test_silent_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    run(progress=None)
    run(progress=False)
    assert capfd.readouterr() == ("", "")


def test_bar_on_demand(capfd: pytest.CaptureFixture[str]) -> None:
    result = run(progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert f"des-mr: 3 of 3 rounds, best {result.fun:.6g}" in err


SCRIPT = """
import desopt
from desopt.system import progress
progress.PATIENCE = 0.0
desopt.minimize(
    lambda x: float(x @ x), [1.0, 2.0], method="des-mr", rounds=3, iterations=4, engine="serial"
)
print("done")
"""


def test_bar_on_a_terminal() -> None:
    """A real pseudo-terminal as stderr: the bar appears by itself, and stdout stays clean."""
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:  # how Linux says that the other side is closed
                break
            if not piece:
                break
            shown += piece
        assert process.stdout is not None
        assert process.stdout.read() == b"done\n"
        assert process.wait() == 0
    os.close(master)
    for part in ("des-mr", "3 of 3 rounds", "best"):
        assert part in shown.decode()
