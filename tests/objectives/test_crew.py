"""Threads that search without the GIL: the same answers as one worker at a time, and no trouble."""

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import desopt
from desopt.contract.types import Answer, Task
from desopt.data import as_shards
from desopt.data.twins import dense_twin, sparse_twin
from desopt.engines import Job
from desopt.engines.threads import Threads
from desopt.kernels import crew as kernels
from desopt.kernels.atomics import add_and_get_old
from desopt.kernels.jit import exact
from desopt.methods import METHODS
from desopt.objectives import LinearModel, crew

WORKERS = 12
ROWS = 300


def a_job(
    layout: str = "csr", method: str = "des-mr", *, iterations: int = 30, share: float = 1.0
) -> Job:
    X, y = dense_twin(ROWS, 9) if layout == "dense" else sparse_twin(ROWS, 400, 8.0)
    settings = {
        "step_size": 0.3, "iterations": iterations, "momentum": 0.5, "seed": 7, "mixture": 3,
        "sampler": None,
    }  # fmt: skip
    model = LinearModel("lr", 1e-3)
    shards = model.prepare(as_shards((X, y), WORKERS, 7))
    algorithm = METHODS[method].make(method, settings)
    return Job(algorithm, model, shards, 20, 7, X.shape[1], share)


def a_task(job: Job, round: int) -> Task:
    return Task(round, 0.1 * np.random.default_rng(round).standard_normal(job.n))


@pytest.fixture
def engine() -> Iterator[Any]:
    """Makes engines, and sees to it that their threads end."""
    made: list[Threads] = []
    before = threading.active_count()

    def make(job: Job, jobs: int) -> Threads:
        made.append(Threads(jobs))
        made[-1].start(job)
        assert made[-1]._crew is not None
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert threading.active_count() == before


def same(found: Answer, expected: Answer) -> None:
    assert found.bare() == expected.bare()
    assert found.change is not None
    assert expected.change is not None
    columns, change = expected.change
    moved = change != 0.0  # the others need not be said
    np.testing.assert_array_equal(found.change[0], columns[moved])
    assert found.change[1].tobytes() == change[moved].tobytes()


@pytest.mark.parametrize("jobs", [1, 2, 7])
@pytest.mark.parametrize("method", ["des-mr", "des-mg"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_answers_are_those_of_one_worker_at_a_time(
    layout: str, method: str, jobs: int, engine: Any
) -> None:
    job = a_job(layout, method)
    threads = engine(job, jobs)
    for t in range(4):
        task = a_task(job, t)
        answers = list(threads.round(task))
        assert [answer.worker for answer in answers] == list(range(WORKERS))
        for answer in answers:
            same(answer, job.work(task, answer.worker))


def test_nans_are_counted(engine: Any) -> None:
    job = a_job()
    threads = engine(job, 2)
    task = a_task(job, 0)
    task.x[:100] = np.nan
    answers = list(threads.round(task))
    assert sum(answer.nans for answer in answers) > 0
    for answer in answers:  # point by point, since the value at x is not finite
        assert answer.bare() == job.work(task, answer.worker).bare()
        assert answer.change is not None
        assert answer.change[0].size == 0


def test_only_those_who_are_asked(engine: Any) -> None:
    job = a_job(share=0.4)
    threads = engine(job, 2)
    for t in range(5):
        task = a_task(job, t)
        answers = list(threads.round(task))
        assert [answer.worker for answer in answers] == list(job.asked(t))
        for answer in answers:
            same(answer, job.work(task, answer.worker))


def test_more_workers_than_places(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several turns in a round; answers of the first are not overwritten by the last."""
    monkeypatch.setattr(crew, "_TOUCHED", 5 * 30 * 3)
    job = a_job()
    threads = engine(job, 2)
    for t in range(3):
        task = a_task(job, t)
        for answer in list(threads.round(task)):
            same(answer, job.work(task, answer.worker))
        assert threads._crew._board.done.size == 5


def test_hundreds_of_rounds_in_a_hurry(engine: Any) -> None:
    """Short searches, pauses of all lengths, more threads than cores and as many."""
    job = a_job(iterations=3)
    tasks = [a_task(job, t) for t in range(20)]
    expected = [[job.work(task, w).payload for w in range(WORKERS)] for task in tasks]
    pause = random.Random(0)
    for jobs in (2, 3, 9):
        threads = engine(job, jobs)
        for k in range(400):
            answers = threads.round(tasks[k % 20])
            assert [answer.payload for answer in answers] == expected[k % 20]
            if k % 10 == 0:
                time.sleep(pause.choice([0.0, 1e-4, 1e-3, 3e-3]))


def test_a_round_may_be_left_in_the_middle(engine: Any) -> None:
    job = a_job(iterations=300)
    threads = engine(job, 2)
    for t in range(6):
        answers = threads.round(a_task(job, t))
        for _ in range(t):
            next(answers)
        answers.close()
        assert not threads._crew._threads  # nobody looks at x any more
        task = a_task(job, t)
        for answer in threads.round(task):
            same(answer, job.work(task, answer.worker))


def test_closing_begins_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody still holds the round that was not taken to its end."""
    iterations = 100_000  # long searches, and all workers in one turn
    monkeypatch.setattr(crew, "_TOUCHED", WORKERS * iterations * 3)
    job = a_job(iterations=iterations)
    threads = Threads(2)
    threads.start(job)
    answers = threads.round(a_task(job, 0))
    next(answers)
    crew_ = threads._crew
    assert crew_ is not None
    threads.close()
    assert not crew_._threads
    assert np.count_nonzero(crew_._board.done) < len(crew_._board.done) == WORKERS


def test_waiting_threads_sleep(engine: Any) -> None:
    """They look for the next round for about half a millisecond only."""
    job = a_job()
    threads = engine(job, 2)
    list(threads.round(a_task(job, 0)))
    until = time.monotonic() + 300
    while threads._crew._asleep != 1:
        assert time.monotonic() < until, "it is still looking"
        time.sleep(0.01)
    task = a_task(job, 1)
    for answer in threads.round(task):
        same(answer, job.work(task, answer.worker))


def test_a_thread_that_fails_is_heard(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a worker, and ran out of memory, say: nobody waits for it for ever."""
    job = a_job()
    threads = engine(job, 2)
    serve, main = kernels.serve, threading.get_ident()
    taken = threading.Event()

    def fails(board: Any, found: Any, *rest: Any) -> Any:
        if threading.get_ident() == main:
            taken.wait(300)
            return serve(board, found, *rest)
        while add_one(board.state) >> 32 == 0:
            time.sleep(0.001)
        taken.set()
        raise MemoryError("no room")

    monkeypatch.setattr(kernels, "serve", fails)
    with pytest.raises(MemoryError, match="no room"):
        list(threads.round(a_task(job, 0)))
    monkeypatch.undo()
    task = a_task(job, 1)
    for answer in threads.round(task):
        same(answer, job.work(task, answer.worker))


def _add_one(state: Any) -> Any:
    return add_and_get_old(state, 0, 1)


def _add_many(state: Any, times: int) -> None:
    for _ in range(times):
        add_and_get_old(state, 0, 1)


add_one: Any = exact(_add_one)
add_many: Any = exact(_add_many)


def test_additions_of_several_threads_are_not_lost() -> None:
    state, times = np.zeros(1, np.int64), 300_000
    add_many(state, 0)  # compiles
    threads = [threading.Thread(target=add_many, args=(state, times)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state[0] == 3 * times


@pytest.mark.parametrize(
    "changed",
    [{"method": "des"}, {"method": "fed-zo-sgd"}, {"fun": lambda x, batch: float(x @ x)}],
    ids=["gaussian", "other method", "function"],
)
def test_others_go_on_in_a_pool(changed: dict[str, Any]) -> None:
    X, y = dense_twin(ROWS, 9)
    settings: dict[str, Any] = {"fun": "lr", "method": "des-mr", "rounds": 2, "iterations": 4}
    settings |= changed
    results = [
        desopt.minimize(x0=np.ones(9), data=(X, y), workers=3, engine=engine, **settings)
        for engine in ("serial", "threads")
    ]
    assert results[0].x.tobytes() == results[1].x.tobytes()
