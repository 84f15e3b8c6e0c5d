"""The engine for functions of a matrix: bits of the plain function, few calls, and its check."""

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.matrices import (
    DATA,
    START,
    Floats,
    M,
    N,
    job_of,
    residual,
    residuals,
    square,
    squares,
)
from helpers.memory_log import Memory
from helpers.searching import TWO_POINT, bits

import desopt
from desopt import METHODS
from desopt.contract.errors import Failed
from desopt.contract.types import Batches
from desopt.engines import Job, matrix
from desopt.engines.by_value import ByValue
from desopt.engines.matrix import Matrix
from desopt.engines.trials import OBJECTIVE, Key, Trial
from desopt.objectives import vectorized


def started(job: Job, engine: Any = None) -> tuple[Any, Any, Any]:
    """The engine, the state and the task of the first round."""
    engine = engine or Matrix()
    state = job.algorithm.init(START.copy())
    engine.start(job)
    engine.begin(state)
    return engine, state, job.algorithm.plan(state)


def answered(engine: Any, task: Any) -> list[Any]:
    return [bits(answer.bare()) for answer in engine.round(task)]


class Counted:
    """A function that keeps the number of points of each call, and fails after some of them."""

    def __init__(self, fun: Any, most: int | None = None) -> None:
        self.fun, self.most, self.calls = fun, most, list[int]()

    def __call__(self, X: Floats, *batch: Any) -> Any:
        if len(self.calls) == self.most:
            raise RuntimeError("enough")
        self.calls.append(len(X))
        return self.fun(X, *batch)


@pytest.mark.parametrize("limit", [None, 23])
@pytest.mark.parametrize("data", [False, True], ids=["plain", "data"])
@pytest.mark.parametrize("name", METHODS)
def test_the_bits_of_the_plain_function(name: str, data: bool, limit: int | None) -> None:
    given = DATA if data else None
    plain = job_of(residual if data else square, name, given, matrix=False)
    job = job_of(residuals if data else squares, name, given)
    state = job.algorithm.init(START.copy())
    for _ in range(3):
        task = plain.algorithm.plan(state)
        answers = [plain.work(task, worker) for worker in plain.asked(task.round)]
        expected = [bits(answer.bare()) for answer in answers]
        kinds: list[dict[str, Any]] = [{"always": True, "ahead": False}, {"ahead": False}, {}]
        engines: list[Any] = [Matrix(), *(ByValue(Matrix(), **kind) for kind in kinds)]
        for engine in engines:
            engine.start(job)
            engine.begin(state)
            assert answered(engine, task) == expected
            assert engine.evaluate([*range(job.workers)]) == [
                plain.total(state.x, worker) for worker in range(job.workers)
            ]
            engine.close()
        assert [bits(job.work(task, w).bare()) for w in job.asked(task.round)] == expected
        state = plain.algorithm.merge(state, answers)


@pytest.mark.parametrize("data", [False, True], ids=["plain", "data"])
@pytest.mark.parametrize("name", METHODS)
def test_all_workers_share_the_calls(name: str, data: bool) -> None:
    """K calls for K steps, as the value at x comes with the first step; one for a population."""
    fun = Counted(residuals if data else squares)
    job = job_of(fun, name, DATA if data else None, population=5)
    engine, _, task = started(job)
    answers = [*engine.round(task)]
    assert len(answers) == job.workers
    evaluations = sum(answer.evaluations for answer in answers)
    assert sum(fun.calls) == evaluations + engine.checked
    calls = [fun.calls[0], *fun.calls[1 + engine.checked :]]
    if name == "es-csa":
        assert calls == [5 * M]
    elif name in TWO_POINT:
        # one estimate at a time
        alone = name in ("fed-zo-gd", "fed-zo-sgd", "fedkseed", "decomfl")
        assert calls == ([2 * M] * 3 if alone else [6 * M])
    elif METHODS[name].sampler is not None:
        assert calls == [2 * job.workers, *[job.workers] * 5]
    assert len(calls) <= 6
    engine.evaluate([*range(job.workers)])
    assert fun.calls[-1] == job.workers


def test_many_workers_with_many_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers beyond the memory of a call go one group after the other."""
    fun = Counted(residuals)
    job = job_of(fun, "des", DATA)
    engine, _, task = started(job)
    expected = answered(engine, task)
    monkeypatch.setattr(matrix, "CALL_BYTES", 3 * 16 * N)
    fun.calls.clear()
    assert answered(engine, task) == expected
    assert fun.calls == [6, *[3] * 5, 2, *[1] * 5]


def test_many_points_with_many_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A population beyond the memory of a call goes in several."""
    fun = Counted(residuals)
    engine, _, task = started(job_of(fun, "es-csa", DATA, population=9))
    expected = answered(engine, task)
    monkeypatch.setattr(vectorized, "CALL_BYTES", 8 * 8 * N)  # 2 points of each worker
    fun.calls.clear()
    assert answered(engine, task) == expected
    assert fun.calls == [2] * 4 * M + [1] * M  # copies of the data would be larger still


@pytest.mark.parametrize("name", METHODS)
def test_single_values_are_kept(name: str) -> None:
    """With the calls of whole rounds; and those in the log are not computed again."""
    fun = Counted(residuals)
    job, log = job_of(fun, name, DATA), Memory()
    engine, state, task = started(job, ByValue(Matrix(), log, ahead=False, always=True))
    expected = answered(engine, task)
    by_value, fun.calls = fun.calls, []
    assert answered(started(job)[0], task) == expected
    assert fun.calls == by_value
    engine.evaluate([*range(job.workers)])
    sizes = {key.number: outcome.rows for key, outcome in log.kept.items()}
    assert sizes[OBJECTIVE] == len(DATA[0]) // job.workers
    assert engine.computed == len(log.kept) - job.workers
    fun.calls.clear()
    again, _, _ = started(job, ByValue(Matrix(), log, ahead=False, always=True))
    assert answered(again, task) == expected
    assert again.evaluate([0]) == [job.total(state.x, 0)]
    assert len(fun.calls) == 1  # the one by job.total


def test_outcomes_without_a_value() -> None:
    def holes(X: Floats) -> Floats:
        if len(X) > 2:
            raise Failed("too many")
        return np.where(X[:, 0] == START[0], math.nan, math.inf)

    engine, state, _ = started(job_of(holes, "des"))
    engine.begin(state)
    assert engine.completed() == []
    for count in (2, 3):
        for number in range(count):
            x = START + number
            engine.submit(Trial(Key(0, 0, number, 0), x, Batches.ROUND, 0))
        reasons = [outcome.failed for _, outcome in engine.completed()]
        assert reasons == (["the value is nan", "the value is inf"] if count == 2
                           else ["too many"] * 3)  # fmt: skip


# --- values that depend on their neighbours ---------------------------------------------------


def neighbours(X: Floats) -> Floats:
    found: Floats = squares(X) + 1e-9 * X.sum()
    return found


def minimize(fun: Any, data: Any = None, **settings: Any) -> desopt.Result:
    usual: dict[str, Any] = {
        "method": "des", "workers": 3, "rounds": 4, "iterations": 6, "batch_size": 6,
        "progress": False, "vectorized": True,
    }  # fmt: skip
    return desopt.minimize(fun, data=data, **(usual | {"x0": START} | settings))


@pytest.mark.parametrize("name", METHODS)
def test_values_that_depend_on_other_points_are_noticed(name: str) -> None:
    with pytest.warns(RuntimeWarning, match="depends on the other points of the call") as seen:
        minimize(neighbours, method=name)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimize(squares, method=name)


def test_nan_and_failed_points_are_equal_to_themselves() -> None:
    def holes(X: Floats) -> Floats:
        return np.full(len(X), math.nan)

    def fails(X: Floats) -> Floats:
        raise Failed("no device")

    def alone(X: Floats) -> Floats:
        return np.full(len(X), math.nan if len(X) > 1 else 1.0)

    for fun, differs in ((holes, False), (fails, False), (alone, True)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            minimize(fun)
        assert any("depends on" in str(warning.message) for warning in seen) is differs


# --- runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, DATA], ids=["plain", "data"])
@pytest.mark.parametrize("name", ["des-mr", "es-csa", "zo-signsgd"])
def test_a_run_is_resumed(name: str, data: Any, tmp_path: Path) -> None:
    fun = Counted(squares if data is None else residuals)
    journal = tmp_path / "run.journal"
    expected = minimize(fun, data, method=name)
    minimize(fun, data, method=name, rounds=2, journal=journal)
    fun.calls.clear()
    resumed = minimize(fun, data, method=name, journal=journal)
    assert resumed.digest == expected.digest
    np.testing.assert_array_equal(desopt.replay(journal), expected.x)
    evaluations = resumed.history["evaluations"]
    # of the two rounds, and of the full objective: no check, which the first run had
    assert sum(fun.calls) == evaluations[-1] - evaluations[1] + 2 * (1 if data is None else 3)
    assert resumed.engine == "matrix"


@pytest.mark.parametrize("name", ["des-mr", "es-csa", "fed-zo-sgd"])
def test_values_of_a_run_are_kept_on_request(name: str, tmp_path: Path) -> None:
    data = tuple(array[:48] for array in DATA)  # batches of one size
    expected = minimize(residuals, data, method=name)
    fun, journal = Counted(residuals, most=6), tmp_path / "run.journal"
    with pytest.raises(RuntimeError, match="enough"):
        minimize(fun, data, method=name, journal=journal, log_values=True)
    fun.most = None
    result = minimize(fun, data, method=name, journal=journal, log_values=True)
    assert (result.digest, result.fun) == (expected.digest, expected.fun)
    full = sum(row["loss"] == row["loss"] for row in result.history) + 1  # of the objective
    checks = 3 if name == "es-csa" else 6  # another one where the first round was not complete
    assert sum(fun.calls) == result.nfev + 3 * full + checks


@pytest.mark.parametrize("budget", [1, 7, 40, 41, 44, 59])
def test_the_budget_is_that_of_the_plain_function(budget: int) -> None:
    for name in ("des", "es-csa", "fed-zo-sgd"):
        settings: dict[str, Any] = {"method": name, "max_evaluations": budget, "eval_every": 0}
        fun = Counted(squares)
        found = minimize(fun, **settings)
        plain = minimize(square, vectorized=False, engine="serial", **settings)
        assert (found.digest, found.nfev) == (plain.digest, plain.nfev)
        assert found.nfev <= budget
        assert sum(fun.calls) - found.nfev <= 3  # those of the check


RESTRICTED: dict[str, dict[str, Any]] = {
    "bounds": {"bounds": (-1.0, 1.5)},
    "scale": {"bounds": [(0.25, 9.0)] * 2 + [(None, None)] * 2 + [(1.0, 1.0)],
              "scale": ["log", "linear", "own", "own", "linear"], "x0": [1.0, 1.0, 0.0, 0.5, 1.0]},
    "constraints": {"constraints": lambda x: [x[0] + 0.5, x[1] - 1.0]},
    "far": {"constraints": lambda x: x[0] + 2.0, "bounds": (-4.0, 4.0)},  # x0 violates them
}  # fmt: skip
CASES = [
    (name, case) for name, method in METHODS.items() for case, settings in RESTRICTED.items()
    if {"bounds", "constraints"} & settings.keys() <= {*getattr(method.algorithm, "observes", ())}
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:fun returned NaN")
@pytest.mark.parametrize(("name", "case"), CASES)
def test_bounds_scales_and_constraints(name: str, case: str) -> None:
    """The function has a matrix of the user's variables, and no points that violate them."""
    for data, single, many in ((None, square, squares), (DATA, residual, residuals)):
        settings = {"method": name, "rounds": 2, **RESTRICTED[case]}
        plain = {"vectorized": False, "engine": "serial", "log_values": False}
        expected, fun = minimize(single, data, **settings, **plain), Counted(many)
        for log_values in (False, True):
            found = minimize(fun, data, log_values=log_values, **settings)
            assert (found.digest, found.nfev) == (expected.digest, expected.nfev)
            losses = [found.initial_fun, *found.history["loss"]]
            np.testing.assert_equal(losses, [expected.initial_fun, *expected.history["loss"]])
            assert found.engine == "matrix"
        assert max(fun.calls) > 1 or name == "es"  # whose points come one after the other


def test_an_algorithm_with_code_of_its_own() -> None:
    """Its workers go one after the other, each with a matrix."""

    @dataclass(frozen=True, kw_only=True)
    class Own(desopt.methods.DES):
        def work(self, task: Any, local: Any, worker: int) -> Any:
            return super().work(task, local, worker)

    fun = Counted(squares)
    settings: dict[str, Any] = {"method": Own(iterations=6), "eval_every": 0}
    found = minimize(fun, **settings)
    assert found.digest == minimize(square, vectorized=False, engine="serial", **settings).digest
    assert set(fun.calls) == {2, 1}


def test_a_plain_function_is_refused() -> None:
    with pytest.raises(TypeError, match="engine matrix is for functions of a matrix"):
        Matrix().start(job_of(square, "des", matrix=False))
