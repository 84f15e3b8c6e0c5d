"""Single values on processes and threads: a value that hangs or dies costs only itself."""

import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from helpers.memory_log import Memory
from helpers.searching import bits, make
from numpy.typing import NDArray

import desopt
from desopt import METHODS
from desopt.contract.errors import Failed
from desopt.contract.types import Answer, Batches
from desopt.data import as_shards
from desopt.engines import Job
from desopt.engines.by_value import ByValue
from desopt.engines.processes import messages
from desopt.engines.processes.engine import Processes
from desopt.engines.threads import Threads
from desopt.engines.trials import OBJECTIVE, Key, Outcome, Trial, TrialRound
from desopt.objectives import PythonObjective

Floats = NDArray[np.float64]
N, M, ROWS, BATCH = 4, 3, 20, 5

#: Much more than a value takes, on however busy a machine.
PATIENCE = 2.0


def job_of(fun: Any, workers: int = 1, data: bool = False, method: str = "es-csa") -> Job:
    random = np.random.default_rng(0)
    given = (random.standard_normal((ROWS, N)), random.standard_normal(ROWS)) if data else None
    algorithm = make(method, iterations=12, population=9, radius=0.01)
    objective = fun if isinstance(fun, PythonObjective) else PythonObjective(fun)
    return Job(algorithm, objective, as_shards(given, workers, 0), BATCH, 0, N)


def trial_of(number: int, *start: float) -> Trial:
    x = np.zeros(N)
    x[: len(start)] = start
    x.flags.writeable = False
    return Trial(Key(2, 0, number, 0), x, Batches.ROUND, 0)


def outcomes_of(engine: Any, trials: list[Trial]) -> dict[int, Outcome]:
    """By the number of the trial."""
    for trial in trials:
        engine.submit(trial)
    found: dict[int, Outcome] = {}
    while len(found) < len(trials):
        for trial, outcome in engine.completed():
            assert trial.key.number not in found
            found[trial.key.number] = outcome
    assert not engine.completed()
    return found


def test_messages_keep_all_bits() -> None:
    x = np.array([0.1, -0.0, math.inf, 5e-324])
    trial = Trial(Key(2**40, 7, OBJECTIVE, 3), x, Batches.ITERATION, -1)
    back = messages.unpack_trial(messages.pack_trial(trial))
    assert (back.key, back.batches, back.iteration) == (trial.key, trial.batches, -1)
    assert back.x.tobytes() == x.tobytes()
    assert back.x.flags.aligned
    assert not back.x.flags.writeable
    for outcome in (Outcome(0.1, 12, 3.5), Outcome(5.0, failed="Gitter \u00fcberlappt")):
        assert messages.unpack_outcome(messages.pack_outcome(outcome)) == outcome


# --- values that go wrong --------------------------------------------------------------------

FINE, HANGS, DIES, DIES_ONCE, EXITS, FAILS = range(6)


def disturbed(folder: Path) -> Any:
    """x @ x; the first coordinate says what else happens, and every attempt is noted."""

    def fun(x: Floats) -> float:
        act, number = int(x[0]), int(x[1])
        with open(folder / str(number), "a") as notes:
            notes.write("x")
            notes.flush()
            attempt = notes.tell()
        if act == HANGS:
            time.sleep(600)
        if act == DIES or (act == DIES_ONCE and attempt == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if act == EXITS:
            sys.exit(4)
        if act == FAILS:
            raise Failed("the mesh did not close")
        return float(x @ x)

    return fun


@pytest.mark.kills
def test_a_value_that_goes_wrong_costs_only_itself(tmp_path: Path) -> None:
    acts = [FINE, HANGS, DIES, FINE, DIES_ONCE, EXITS, FAILS, FINE]
    trials = [trial_of(number, act, number) for number, act in enumerate(acts)]
    engine = Processes(2, attempts=2, evaluation_timeout=PATIENCE)
    engine.start(job_of(disturbed(tmp_path)))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = outcomes_of(engine, trials)
        assert len(psutil.Process().children()) <= 2
    finally:
        engine.close()
    failed = {number: outcome.failed for number, outcome in found.items() if outcome.failed}
    assert failed == {
        1: "no value within 2 s",
        2: "its process died (signal 9) in 2 attempts",
        5: "its process died (exit code 4) in 2 attempts",
        6: "the mesh did not close",
    }
    assert all(math.isnan(found[number].value) for number in failed)
    fine = {number: found[number].value for number in (0, 3, 4, 7)}
    assert fine == {number: float(trials[number].x @ trials[number].x) for number in fine}
    attempts = [len((tmp_path / str(number)).read_text()) for number in range(8)]
    assert attempts == [1, 1, 2, 1, 2, 2, 1, 1], "nothing else is computed again"
    assert engine.repeated == 3
    again = sorted(str(warning.message).partition("; ")[2] for warning in caught)
    assert again == [f"it was replaced and value 2.0.{i}.0 is computed again" for i in (2, 4, 5)]
    assert not psutil.Process().children(recursive=True)


def test_setup_and_an_objective_over_data_may_take_longer() -> None:
    def setup() -> None:
        time.sleep(1.5)

    def fun(x: Floats, batch: Any) -> float:
        time.sleep(1.5 if len(batch[1]) == ROWS else 0.0)
        return float(np.mean((batch[0] @ x - batch[1]) ** 2))

    job = job_of(PythonObjective(fun, setup), data=True)
    engine = Processes(2, attempts=1, evaluation_timeout=1.0)
    engine.start(job)
    objective = Trial(Key(2, 0, OBJECTIVE, 0), np.ones(N), Batches.ALL, 0)
    try:
        found = outcomes_of(engine, [objective, trial_of(1, 0.5)])
    finally:
        engine.close()
    assert {outcome.failed for outcome in found.values()} == {""}
    assert (found[OBJECTIVE].value, found[OBJECTIVE].rows) == job.total(np.ones(N), 0)
    assert found[1].rows == BATCH
    assert found[1].seconds < 1.5


@pytest.mark.kills
def test_round_timeout_ends_a_value_too(tmp_path: Path) -> None:
    """With no limit for single values, a process that hangs is one that is lost."""
    engine = Processes(1, timeout=PATIENCE, attempts=1)
    engine.start(job_of(disturbed(tmp_path)))
    try:
        (outcome,) = outcomes_of(engine, [trial_of(0, HANGS)]).values()
    finally:
        engine.close()
    assert outcome.failed == "its process gave no answer in time"


@pytest.mark.kills
@pytest.mark.filterwarnings("ignore:(1 value failed|fun returned NaN):RuntimeWarning")
def test_a_run_with_a_value_that_hangs() -> None:
    """After values that would be quick enough for whole rounds."""
    settings: dict[str, Any] = {
        "method": "es-csa", "workers": 1, "population": 6, "rounds": 3, "eval_every": 0,
        "progress": False,
    }  # fmt: skip
    points: list[bytes] = []

    def noted(x: Floats) -> float:
        points.append(x.tobytes())
        return float(x @ x)

    desopt.minimize(noted, np.ones(N), engine="serial", **settings)
    when = points[-3]

    def hanging(x: Floats) -> float:
        if x.tobytes() == when:
            time.sleep(600)
        return float(x @ x)

    def failing(x: Floats) -> float:
        return math.nan if x.tobytes() == when else float(x @ x)

    engine = Processes(2, evaluation_timeout=PATIENCE)
    result = desopt.minimize(hanging, np.ones(N), engine=engine, **settings)
    expected = desopt.minimize(failing, np.ones(N), engine="serial", **settings)
    assert result.x.tobytes() == expected.x.tobytes()
    assert result.history["nans"].tolist() == [0, 0, 1]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT is ignored where tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_errors_and_interrupts_keep_the_values_before_them(
    tmp_path: Path, interruptible: None
) -> None:
    """The fifth value of a population of nine fails, or is interrupted by Ctrl-C."""
    parent = os.getpid()

    def fun(x: Floats) -> float:
        with open(tmp_path / "calls", "a") as calls:
            calls.write("x")
            calls.flush()
            called = calls.tell()
        if called == 5:
            raise ZeroDivisionError("deep inside")
        if called == 10:
            os.kill(parent, signal.SIGINT)
            time.sleep(600)
        return float(x @ x)

    job = job_of(fun)
    state = job.algorithm.init(np.ones(N))
    log = Memory()
    engine = ByValue(Processes(1), log, always=True)
    engine.start(job)
    engine.begin(state)
    try:
        with pytest.raises(desopt.ObjectiveError, match="deep inside") as caught:
            list(engine.round(job.algorithm.plan(state)))
        assert (caught.value.worker, caught.value.round) == (0, 0)
        assert len(log.kept) == 4
        engine.close()
        engine.start(job)
        engine.begin(state)
        with pytest.raises(KeyboardInterrupt):
            list(engine.round(job.algorithm.plan(state)))
    finally:
        engine.close()
    assert len(log.kept) == 4 + 4
    assert not psutil.Process().children(recursive=True)


# --- bits ------------------------------------------------------------------------------------


def squares(x: Floats, batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


def sphere(x: Floats) -> float:
    return math.nan if x[1] > 1.2 else float(np.sum(x**2))


def task_of(job: Job) -> Any:
    return job.algorithm.plan(job.algorithm.init(np.linspace(-1, 1, N)))


def same(found: list[Answer], job: Job) -> bool:
    expected = [job.work(task_of(job), worker) for worker in job.asked(0)]
    return [bits(a.bare()) for a in found] == [bits(a.bare()) for a in expected]


@pytest.mark.parametrize("data", [False, True], ids=["plain", "data"])
def test_values_of_processes_give_the_bits_of_whole_rounds(data: bool) -> None:
    """Of all methods on the same processes: a value does not depend on who asks for it.

    They start one after the other; then come whole rounds on those that are there.
    """
    fun: Any = squares if data else sphere
    engine = Processes(2)
    engine.start(job_of(fun, M, data))
    try:
        for method in METHODS:
            if data and METHODS[method].single_worker:
                continue  # it has other shards
            job = job_of(fun, 1 if METHODS[method].single_worker else M, data, method)
            trials, flying = TrialRound(job, task_of(job)), 0
            while not trials.done:
                for trial in trials.ask(engine.slots - flying, ahead=True):
                    engine.submit(trial)
                    flying += 1
                for trial, outcome in engine.completed():
                    trials.tell(trial, outcome)
                    flying -= 1
            while flying:
                flying -= len(engine.completed())
            assert same(trials.answers(), job)
        assert len(psutil.Process().children()) == 2
        first = job_of(fun, M, data)
        engine.begin(first.algorithm.init(np.linspace(-1, 1, N)))
        assert same(engine.round(task_of(first)), first)
    finally:
        engine.close()


@pytest.mark.parametrize("data", [False, True], ids=["plain", "data"])
@pytest.mark.parametrize("method", METHODS)
def test_values_of_threads_give_the_bits_of_whole_rounds(method: str, data: bool) -> None:
    job = job_of(
        squares if data else sphere, 1 if METHODS[method].single_worker else M, data, method
    )
    engine = ByValue(Threads(2), always=True)
    engine.start(job)
    engine.begin(job.algorithm.init(np.linspace(-1, 1, N)))
    try:
        assert same(list(engine.round(task_of(job))), job)
        assert engine.evaluate([0]) == [job.total(np.linspace(-1, 1, N), 0)]
    finally:
        engine.close()


def test_errors_in_threads_come_after_the_values() -> None:
    def fun(x: Floats) -> float:
        if x[0] == 1.0:
            raise ZeroDivisionError("deep inside")
        return float(x @ x)

    engine = Threads(2)
    engine.start(job_of(fun))
    try:
        for number in range(4):
            engine.submit(trial_of(number, number))
        wait(engine._trials)
        found: list[float] = []
        while len(found) < 3:
            found += [outcome.value for _, outcome in engine.completed()]
        assert sorted(found) == [0.0, 4.0, 9.0]
        with pytest.raises(desopt.ObjectiveError, match="deep inside"):
            engine.completed()
    finally:
        engine.close()
