"""Rounds of single values: the bits of whole rounds, in any order, from a log, with failures."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.memory_log import Memory
from helpers.searching import bits, make
from numpy.typing import NDArray

from desopt import METHODS
from desopt.contract.errors import Failed
from desopt.contract.space import Space
from desopt.contract.types import Answer
from desopt.data import as_shards
from desopt.engines import Job
from desopt.engines.by_value import ByValue
from desopt.engines.serial import Serial
from desopt.engines.threads import Threads
from desopt.engines.trials import Key, Outcome, Trial, TrialRound, outcome_of
from desopt.objectives import PythonObjective
from desopt.objectives.scaled import ScaledObjective

Floats = NDArray[np.float64]
N, M = 6, 3


def squares(x: Floats, batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


def sphere(x: Floats) -> float:
    if x[0] > 1.2:
        raise Failed("the mesh did not close")
    return math.nan if x[1] > 1.2 else float(np.sum(x**2))


def job_of(name: str, data: bool, **changes: Any) -> Job:
    random = np.random.default_rng(0)
    given = (random.standard_normal((20, N)), random.standard_normal(20)) if data else None
    workers = 1 if METHODS[name].single_worker else M
    algorithm = make(name, **{"iterations": 12, "population": 9, "radius": 0.01, **changes})
    fun: Callable[..., float] = squares if data else sphere
    return Job(algorithm, PythonObjective(fun), as_shards(given, workers, 0), 5, 0, N)


def first_task(job: Job, limit: int | None = None) -> Any:
    state = job.algorithm.init(np.linspace(-1, 1, N))
    return replace(job.algorithm.plan(state), limit=limit)


def whole(job: Job, task: Any) -> list[Answer]:
    return [job.work(task, worker) for worker in job.asked(task.round)]


def same(found: list[Answer], expected: list[Answer]) -> bool:
    return [bits(a.bare()) for a in found] == [bits(a.bare()) for a in expected]


@pytest.mark.parametrize("name", METHODS)
def test_failed_values_take_their_samples(name: str) -> None:
    """As in whole rounds, also where none of a worker's values has come out."""

    def fails(x: Floats, batch: Any) -> float:
        if x[0] > -0.9:
            raise Failed("dry")
        return math.nan

    job = replace(job_of(name, data=True), objective=PythonObjective(fails))
    task = first_task(job)
    trials = TrialRound(job, task)
    while not trials.done:
        for trial in trials.ask(3):
            trials.tell(trial, outcome_of(job, trial))
    answers = trials.answers()
    assert same(answers, whole(job, task))
    assert sum(answer.samples for answer in answers) > sum(answer.evaluations for answer in answers)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("limit", [None, 23])
@pytest.mark.parametrize("data", [False, True], ids=["plain", "data"])
@pytest.mark.parametrize("name", METHODS)
def test_outcomes_in_any_order_give_the_bits_of_whole_rounds(
    name: str, data: bool, limit: int | None, ahead: bool
) -> None:
    job = job_of(name, data)
    task = first_task(job, limit)
    random, trials = np.random.default_rng(5), TrialRound(job, task)
    flying: list[Trial] = []
    while not trials.done:
        flying += trials.ask(4 - len(flying), ahead)
        assert 1 <= len(flying) <= 4
        trial = flying.pop(int(random.integers(len(flying))))
        trials.tell(trial, outcome_of(job, trial))
    assert same(trials.answers(), whole(job, task))
    assert not trials.ask(9, ahead)
    if limit is not None:
        assert sum(answer.evaluations for answer in trials.answers()) <= limit


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("data", [False, True], ids=["plain", "data"])
@pytest.mark.parametrize("name", ["es", "des", "des-mr", "es-csa"])
def test_points_that_violate_constraints_are_not_asked_for(
    name: str, data: bool, ahead: bool
) -> None:
    """Also where most of them do: x_0 for one."""
    space = Space.of((-1.5, 1.5), "own", N)
    plain = job_of(name, data, constrained=True, box=space.box)
    objective = ScaledObjective(plain.objective, space, lambda x: [-0.9 - x[0], x[2] - 1.0])
    job = Job(plain.algorithm, objective, plain.shards, 5, 0, N, 1.0, space)
    task, asked = first_task(job), 0
    trials = TrialRound(job, task)
    while not trials.done:
        for trial in trials.ask(3, ahead):
            assert job.violation(trial.x) == 0.0
            trials.tell(trial, outcome_of(job, trial))
            asked += 1
    answers = trials.answers()
    assert same(answers, whole(job, task))
    evaluated = sum(answer.evaluations for answer in answers)
    assert 0 < evaluated < job.algorithm.cost.most * job.workers
    assert asked == evaluated or (ahead and asked > evaluated)


@pytest.mark.parametrize("name", METHODS)
def test_values_in_the_log_are_not_computed_again(name: str) -> None:
    """Stopped after any number of values, also with points ahead."""
    job = job_of(name, False)
    task = first_task(job)
    for stop in (1, 5, 11, 30):
        log, computed = Memory(), 0
        for last in (stop, 10**6):
            trials = TrialRound(job, task, log)
            while not trials.done and computed < last:
                for trial in trials.ask(3, True):
                    log.add(trial, outcome := outcome_of(job, trial))  # which refuses a second one
                    trials.tell(trial, outcome)
                    computed += 1
        assert same(trials.answers(), whole(job, task))
        assert computed == len(log.kept)


def test_trials_have_names_for_ever() -> None:
    job = job_of("des", False)
    trials = TrialRound(job, first_task(job))
    asked = trials.ask(99)
    assert [trial.id for trial in asked] == ["0.0.0.0", "0.0.1.0", "0.1.0.0", "0.1.1.0",
                                             "0.2.0.0", "0.2.1.0"]  # fmt: skip
    assert [trial.id for trial in trials.open()] == [trial.id for trial in asked]
    assert Key.parse(asked[3].id) == asked[3].key
    found = trials.find(Key(0, 0, 5, 0))  # ahead, and not handed out
    assert found is not None
    again = TrialRound(job, first_task(job)).find(Key(0, 0, 5, 0))
    assert again is not None
    assert again.x.tobytes() == found.x.tobytes()
    assert trials.find(Key(1, 0, 0, 0)) is trials.find(Key(0, 9, 0, 0)) is None
    assert trials.find(Key(0, 0, 13, 0)) is trials.find(Key(0, 0, 1, 4)) is None
    assert trials.tell(asked[0], Outcome(1.0))
    assert not trials.tell(asked[0], Outcome(2.0))
    with pytest.raises(ValueError, match=r"not an id: '0\.x\.1\.0'"):
        Key.parse("0.x.1.0")


def test_points_from_before_an_accepted_step_are_discarded() -> None:
    job = job_of("es", False)
    trials = TrialRound(job, first_task(job))
    x, first, second, third, fourth = trials.ask(5, ahead=True)
    for trial, value in ((x, 5.0), (second, 1.0), (third, 0.0)):
        assert trials.tell(trial, Outcome(value))
    assert [trial.id for trial in trials.open()] == [first.id, fourth.id]
    assert trials.tell(first, Outcome(4.0))
    assert not trials.open()
    assert not trials.tell(fourth, Outcome(0.0))
    assert [trial.id for trial in trials.ask(2, ahead=True)] == ["0.0.2.1", "0.0.3.1"]


@pytest.mark.parametrize("name", METHODS)
def test_the_engine(name: str) -> None:
    """Round, evaluation, failures; and a quick function goes over to whole rounds."""
    job = job_of(name, False)
    state = job.algorithm.init(np.linspace(-1, 1, N))
    task = first_task(job)
    for always in (True, False):
        log = Memory()
        engine = ByValue(Serial(), log, always=always)
        engine.start(job)
        engine.begin(state)
        assert same(list(engine.round(task)), whole(job, task))
        assert engine.evaluate([0]) == [job.total(state.x, 0)]
        assert engine.quick is not always
        if always:
            reasons = {outcome.failed for outcome in log.kept.values()}
            assert reasons <= {"", "the mesh did not close", "the value is nan"}
            assert len(log.kept) == engine.computed + 1
        engine.close()


@pytest.mark.parametrize(
    ("age", "expected"), [(0.0, False), (0.7, False), (0.9, True), (1.1, True), (1.3, False)]
)
def test_points_ahead_wait_for_a_value_that_is_about_to_come(
    monkeypatch: pytest.MonkeyPatch, age: float, expected: bool
) -> None:
    """The slots stay in step; a value that takes longer than usual is not waited for."""

    class Two(Serial):
        slots = 2

    job = job_of("es", False)
    now = [100.0]
    monkeypatch.setattr("desopt.engines.by_value.time.monotonic", lambda: now[0])
    engine = ByValue(Two(), always=True)
    engine.start(job)
    assert not engine._value_expected()
    engine._seconds.extend([1.0] * 5)
    (trial,) = TrialRound(job, first_task(job)).ask(1)
    engine._submit(trial)
    now[0] += age
    assert engine._value_expected() is expected


def test_one_thread_loads_the_data_that_others_wait_for() -> None:
    calls: list[int] = []

    def load(worker: int) -> tuple[Floats, Floats]:
        calls.append(worker)
        time.sleep(0.2)  # time for the others to begin
        return np.ones((20, N)), np.ones(20)

    algorithm = make("es-csa", population=9)
    job = Job(algorithm, PythonObjective(squares), as_shards(load, 1, 0), 5, 0, N)
    engine = ByValue(Threads(4), always=True)
    engine.start(job)
    try:
        task = first_task(job)
        engine.begin(job.algorithm.init(task.x))
        assert same(list(engine.round(task)), whole(job, task))
    finally:
        engine.close()
    assert calls == [0]
