"""Python functions as objectives: which x and which batch they see."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.searching import TWO_POINT, Floats, make

import desopt
from desopt.contract.errors import ObjectiveError
from desopt.contract.types import Batches, Task
from desopt.data import Draw, NoData, Rows
from desopt.methods import METHODS
from desopt.methods.searches import OnePlusOne
from desopt.objectives import PythonObjective, WorkerData
from desopt.objectives.functions import as_number

X = np.arange(40.0).reshape(20, 2)


def task_of(name: str) -> Task:
    algorithm = make(name)
    task: Task = algorithm.plan(algorithm.init(np.ones(2)))
    return replace(task, round=1)


@pytest.mark.parametrize("name", METHODS)
def test_a_function_cannot_write_into_x(name: str) -> None:
    def greedy(x: Floats) -> float:
        x[0] = 0.0
        return 1.0

    local, task = WorkerData(PythonObjective(greedy), NoData(), 0, 0, 1), task_of(name)
    with pytest.raises(ObjectiveError, match="read-only"):
        make(name).work(task, local, 0)
    with pytest.raises(ObjectiveError, match="read-only"):
        local.total(task.x)
    assert task.x.tolist() == [1.0, 1.0]
    assert task.x.flags.writeable


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("drawn", [False, True])
def test_batches_of_a_round(name: str, drawn: bool) -> None:
    """One for a round, one for each estimate, or all rows; each drawn once."""
    draws: list[int] = []
    seen: list[Any] = []

    def draw(rng: np.random.Generator, b: int) -> Any:
        draws.append(b)
        return rng.random((b, 2))

    def fun(x: Floats, batch: Any) -> float:
        seen.append(batch)
        return float(np.sum(batch @ x))

    shard = Draw(draw) if drawn else Rows((X,), single=True)
    algorithm = make(name, iterations=6, population=5)
    answer = algorithm.work(task_of(name), WorkerData(PythonObjective(fun), shard, 3, 2, 7), 2)
    fresh = algorithm.search(task_of(name), 2).batches is Batches.ITERATION
    assert (
        len({batch.tobytes() for batch in seen})
        == len({id(b) for b in seen})
        == (3 if fresh else 1)
    )
    rows = 20 if algorithm.cost.whole and not drawn else 7
    assert all(len(batch) == rows for batch in seen)
    assert draws == ([7] * (3 if fresh else 1) if drawn else [])
    assert (answer.evaluations, answer.samples) == (len(seen), rows * len(seen))


@pytest.mark.parametrize("fails_at", [1, 2, 4])
@pytest.mark.parametrize("name", METHODS)
def test_a_failure_says_its_iteration(name: str, fails_at: int) -> None:
    """Counted in values: the first of a (1+1) search is that of x, two are an estimate."""
    calls = 0

    def fun(x: Floats) -> float:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise ZeroDivisionError
        return float(calls)

    bits = isinstance(make(name).search(task_of(name), 0), OnePlusOne)
    with pytest.raises(ObjectiveError) as caught:
        make(name).work(task_of(name), WorkerData(PythonObjective(fun), NoData(), 0, 0, 1), 0)
    before: Any = {1: None, 2: 0, 4: 2} if bits else {k: k - 1 for k in (1, 2, 4)}
    if name in TWO_POINT:
        before = {1: 0, 2: 0, 4: 1}
    assert caught.value.iteration == before[fails_at]


def test_a_number_too_large_for_a_float_is_infinite() -> None:
    assert [as_number(value) for value in (10**400, -(10**400), 3)] == [math.inf, -math.inf, 3.0]


def test_what_a_compiled_loss_would_ignore_is_refused() -> None:
    given: dict[str, Any] = {"setup": dict, "vectorized": True}
    for name, value in given.items():
        with pytest.raises(ValueError, match=f"{name} is for a Python function, got fun='lr'"):
            desopt.minimize("lr", None, (X, np.ones(20)), rounds=1, **{name: value})
