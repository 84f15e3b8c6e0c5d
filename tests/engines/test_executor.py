"""Any executor brings the bits of serial runs; what its pool loses is done again or told."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import Executor as Pool
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import executor_runs
from helpers.executor_runs import least_squares, run, sphere, summary

import desopt
from desopt import testing
from desopt.contract.types import Batches
from desopt.data import as_shards
from desopt.engines import Executor, Job, executor
from desopt.engines.by_value import ByValue
from desopt.engines.trials import Key, Trial
from desopt.methods.des import DES
from desopt.objectives import PythonObjective


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


def same(one: desopt.Result, other: desopt.Result) -> bool:
    assert not np.array_equal(other.x, np.zeros(other.x.size)), "runs that do nothing prove nothing"
    return (one.x.tobytes(), one.fun, one.nfev) == (other.x.tobytes(), other.fun, other.nfev)


# --- threads -----------------------------------------------------------------------------------


def test_contract(threads: ThreadPoolExecutor) -> None:
    testing.check_engine(lambda: Executor(threads))
    assert threads.submit(int).result() == 0, "a pool that is given is not shut down"


def test_contract_with_a_function_that_makes_the_pool() -> None:
    made: list[Pool] = []

    def make() -> Pool:
        made.append(ThreadPoolExecutor(2))
        return made[-1]

    testing.check_engine(lambda: Executor(make))
    for pool in made:
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(int)


@pytest.mark.parametrize("method", desopt.METHODS)
def test_same_bits_in_rounds_and_in_single_values(threads: ThreadPoolExecutor, method: str) -> None:
    workers = 1 if desopt.METHODS[method].single_worker else 3
    settings = {"method": method, "workers": workers}
    expected = run("serial", **settings)
    assert same(run(Executor(threads), **settings), expected)
    for jobs in (1, 4):
        engine = ByValue(Executor(threads, jobs=jobs), always=True)
        assert same(run(engine, **settings), expected)
    assert not executor._here, "jobs are dropped at the end of a run"


def test_functions_for_threads_need_not_be_sent(threads: ThreadPoolExecutor) -> None:
    lock = threading.Lock()

    def fun(x: Any, batch: Any) -> float:
        with lock:
            return least_squares(x, batch)

    assert same(run(Executor(threads), fun), run("serial"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_function_is_called_in_the_pool_only(threads: ThreadPoolExecutor, jobs: int) -> None:
    """Also after it has turned out to be quick, in a pool of one."""
    here = threading.get_ident()

    def fun(x: Any, batch: Any) -> float:
        assert threading.get_ident() != here
        return least_squares(x, batch)

    result = run(Executor(threads, jobs), fun, log_values=None)
    assert same(result, run("serial"))


def test_slow_functions_are_evaluated_by_single_values(threads: ThreadPoolExecutor) -> None:
    """All workers of a pool share one search: es has one worker, and points ahead."""
    together, most = threading.Barrier(2), 0

    def fun(x: Any) -> float:
        nonlocal most
        with suppress(threading.BrokenBarrierError):
            together.wait(0.05)
            most = 2
        together.reset()
        return sphere(x)

    settings = {"method": "es", "workers": 1, "rounds": 1, "log_values": None}
    run(Executor(threads, jobs=2), fun, None, **settings)
    assert most == 2


def test_error_of_a_single_value_says_where(threads: ThreadPoolExecutor) -> None:
    def fun(x: Any) -> float:
        raise ZeroDivisionError("no value here")

    engine = ByValue(Executor(threads), always=True)
    with pytest.raises(desopt.ObjectiveError, match="no value here") as caught:
        run(engine, fun, None, workers=1, eval_every=0)
    assert (caught.value.worker, caught.value.round) == (0, 0)


# --- a pool whose threads know nothing of the engine ---------------------------------------------


class Elsewhere(Pool):
    """Calls one after the other, through pickle; ``lose`` makes errors of the pool's own."""

    def __init__(self, lose: Callable[[int], Exception | None] = lambda number: None) -> None:
        self.sizes: list[int] = []  # of the calls, in bytes
        self._lose = lose

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = pickle.dumps((fn, args))
        self.sizes.append(len(call))
        future: Future[Any] = Future()
        error = self._lose(len(self.sizes))
        if isinstance(error, CancelledError):
            future.cancel()
            future.set_running_or_notify_cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            function, arguments = pickle.loads(call)
            future.set_result(pickle.loads(pickle.dumps(function(*arguments))))
        return future


class _Forgets(dict[Any, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        return default


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of this process are as ignorant as another process."""
    monkeypatch.setattr(executor, "_here", _Forgets())
    monkeypatch.setattr(executor, "_received", type(executor._received)())


@pytest.mark.usefixtures("elsewhere")
def test_the_job_travels_once() -> None:
    ballast: Any = np.ones(100_000)

    def fun(x: Any, batch: Any) -> float:
        return least_squares(x, batch) + 0.0 * float(ballast[0])

    pool = Elsewhere()
    assert same(run(Executor(pool, jobs=2), fun), run("serial", fun))
    large = [size for size in pool.sizes if size > ballast.nbytes]
    assert len(large) <= 2, "as many as were asked before the first reply"
    assert max(size for size in pool.sizes if size < ballast.nbytes) < 2_000
    for seed in range(6):
        run(Executor(pool), rounds=1, seed=seed)
    assert len(executor._received) == 4


@pytest.mark.usefixtures("elsewhere")
def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    def fun(x: Any, batch: Any) -> float:
        with lock:
            return 0.0

    with pytest.raises(TypeError, match=r"cannot be sent to a pool: .*lock"):
        run(Executor(Elsewhere()), fun)


def lost(*numbers: int) -> Callable[[int], Exception | None]:
    """The calls of these numbers are lost, in one way or another."""
    ways = (ConnectionError("gone"), CancelledError())
    return lambda number: ways[number % 2] if number in numbers else None


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("single", [False, True])
def test_lost_calls_are_repeated(single: bool) -> None:
    engine = Executor(Elsewhere(lost(1, 4, 13, 14)))
    with pytest.warns(RuntimeWarning, match=r"was lost \(.*\) and is done again") as caught:
        result = run(ByValue(engine, always=True) if single else engine)
    assert len(caught) == 4
    assert result.history[-1]["repeated"] == engine.repeated == 4
    assert same(result, run("serial"))


@pytest.mark.filterwarnings("ignore:.*was lost")
def test_calls_that_are_always_lost_end_the_run() -> None:
    pool = Elsewhere(lambda number: ConnectionError("gone"))
    said = r"worker \d in round 0 was lost in 2 attempts of 2, at last by ConnectionError: gone"
    with pytest.raises(desopt.EngineError, match=said + ".*resumed from its journal"):
        run(Executor(pool, jobs=1, attempts=2), eval_every=0)


# --- pools that break ----------------------------------------------------------------------------


class Breaks(Elsewhere):
    """Takes ``calls`` calls, and no more."""

    def __init__(self, calls: int) -> None:
        self.taken = threading.Semaphore(calls)
        super().__init__(lambda number: BrokenExecutor("a process died"))
        self._lose = self._broken
        self._over = False

    def _broken(self, number: int) -> Exception | None:
        self._over = not self.taken.acquire(blocking=False)
        return BrokenExecutor("a process died") if self._over else None

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._over:
            raise BrokenExecutor("a process died before")
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize("single", [False, True])
def test_broken_pool_is_replaced(single: bool) -> None:
    made: list[Pool] = []

    def make() -> Pool:
        made.append(Breaks(9))
        return made[-1]

    engine = Executor(make, jobs=2)
    with pytest.warns(RuntimeWarning, match="the pool broke .*a process died.*was replaced"):
        result = run(ByValue(engine, always=True) if single else engine)
    assert same(result, run("serial"))
    assert len(made) > 2
    assert engine.repeated >= len(made) - 1


def test_broken_pool_that_was_given_ends_the_run(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    said = r"the pool broke \(BrokenExecutor: a process died.*journal.*Executor\(make_pool\)"
    with pytest.raises(desopt.EngineError, match=said):
        run(Executor(Breaks(20), jobs=2), journal=journal)
    assert same(run("serial", journal=journal), run("serial"))


@pytest.mark.filterwarnings("ignore:the pool broke")
def test_pools_that_never_work_end_the_run() -> None:
    broken = Breaks(0)
    with pytest.raises(desopt.EngineError, match=r"\d (pools in a row|attempts of 3)"):
        run(Executor(lambda: broken))


# --- single values -------------------------------------------------------------------------------


def started(engine: Executor, fun: Callable[..., float], count: int) -> Job:
    """The engine with ``count`` values under way, of workers 0, 1, ..."""
    job = Job(DES(iterations=4), PythonObjective(fun), as_shards(None, count, 0), 1, 0, 2)
    engine.start(job)
    for worker in range(count):
        engine.submit(Trial(Key(0, worker, 0, 0), np.full(2, worker + 1.0), Batches.ALL, 0))
    return job


def test_values_that_came_with_an_error_are_not_lost() -> None:
    """All are done when they are taken: the values first, then the error."""

    def fun(x: Any) -> float:
        if x[0] == 2.0:
            raise ZeroDivisionError("no value here")
        return float(x[0])

    engine = Executor(Elsewhere())
    started(engine, fun, 3)
    found = {trial.key.worker: outcome.value for trial, outcome in engine.completed()}
    assert found == {0: 1.0, 2: 3.0}
    with pytest.raises(desopt.ObjectiveError, match="no value here") as caught:
        engine.completed()
    assert (caught.value.worker, caught.value.round) == (1, 0)
    engine.close()


def test_nothing_under_way_is_not_waited_for(threads: ThreadPoolExecutor) -> None:
    engine = Executor(threads)
    started(engine, sphere, 0)
    assert engine.completed() == []
    engine.close()


def test_close_cancels_what_is_queued() -> None:
    begun, go = threading.Semaphore(0), threading.Event()
    calls: list[float] = []

    def fun(x: Any) -> float:
        calls.append(x[0])
        begun.release()
        assert go.wait(600)
        return 0.0

    futures: list[Future[Any]] = []

    class Watched(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
            futures.append(super().submit(*arguments, **options))
            return futures[-1]

    with Watched(1) as pool:
        engine = Executor(pool)
        started(engine, fun, 4)
        assert begun.acquire(timeout=600)
        engine.close()
        go.set()
    assert calls == [1.0]
    assert [future.cancelled() for future in futures] == [False, True, True, True]


def test_forks_do_not_use_the_job_of_their_parent(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Executor(threads)
    job = started(engine, sphere, 1)
    engine.completed()
    ((own, token),) = executor._here
    assert executor._known(token, None) is job
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    assert executor.serve(token, 0, None, Job.total, np.ones(2), 0).unknown
    monkeypatch.undo()
    engine.close()


# --- what is given -------------------------------------------------------------------------------


def test_by_name_it_asks_for_a_pool() -> None:
    with pytest.raises(ValueError, match=r"needs a pool: engine=desopt\.engines\.Executor\(pool\)"):
        run("executor")
    assert desopt.ENGINES["executor"](pool=Elsewhere()).name == "executor"


def test_wrong_pools_and_numbers() -> None:
    with pytest.raises(TypeError, match=r"client\.get_executor\(\).*got int"):
        Executor(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must return a concurrent\.futures\.Executor, got int"):
        run(Executor(lambda: 3))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        Executor(ThreadPoolExecutor, jobs=0)


def test_slots_are_those_of_the_pool(threads: ThreadPoolExecutor) -> None:
    class Mpi(Elsewhere):
        num_workers = 7

    class Client:
        def nthreads(self) -> dict[str, int]:
            return {"one": 2, "other": 3}

    class Dask(Elsewhere):
        _client = Client()

    for pool, size in ((threads, 3), (Mpi(), 7), (Dask(), 5)):
        engine = Executor(pool)
        run(engine, rounds=1)
        assert engine.slots == size
    assert executor._size(Elsewhere()) >= 1


# --- processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["fork", *(pytest.param(kind, marks=pytest.mark.kills) for kind in ("spawn", "loky"))]
)
def test_processes(kind: str, tmp_path: Path) -> None:
    """In a program of their own: some leave helpers, which end with it."""
    if kind == "loky":
        pytest.importorskip("joblib", reason="joblib, which brings loky, is not installed")
    done = subprocess.run(
        [sys.executable, executor_runs.__file__, kind, str(tmp_path)],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = {line.pop("run"): line for line in map(json.loads, done.stdout.splitlines())}
    rounds = summary(run("serial"))
    assert told["rounds"] == rounds | {"warnings": []}
    values = summary(run("serial", sphere, None, method="es-csa", workers=1))
    assert told["values"] == values | {"warnings": []}
    assert told["error"]["error"] == "ObjectiveError"
    assert re.search(r"worker \d, round 0\): ZeroDivisionError", told["error"]["said"])
    found = told["dies"]
    assert (found["x"], found["fun"]) == (rounds["x"], rounds["fun"])
    assert found["repeated"] >= 1
    assert any("the pool broke" in text for text in found["warnings"])
    if "dies often" in told:
        assert "in 3 attempts of 3, at last by BrokenProcessPool" in told["dies often"]["said"]
        assert "the pool broke (BrokenProcessPool" in told["given"]["said"]
