"""Every engine brings back the same bits, and what goes wrong in a worker is told or mended."""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from scipy import sparse

import desopt
from desopt.data import as_shards
from desopt.engines import Job
from desopt.engines.threads import Threads
from desopt.methods.des import DES
from desopt.objectives import PythonObjective
from desopt.run import journal as journals

Vector = NDArray[np.float64]
Fun = Callable[..., Any]

N, SIZES = 7, (11, 5, 20, 9)
SETTINGS: dict[str, Any] = {
    "workers": 4, "rounds": 3, "iterations": 6, "batch_size": 5, "step_size": 0.3, "seed": 2,
    "eval_every": 1, "progress": False,
}  # fmt: skip

_RNG = np.random.default_rng(1)
_X = _RNG.standard_normal((sum(SIZES), N))
_Y = np.sign(_X @ _RNG.standard_normal(N))
_ENDS = np.cumsum(SIZES)[:-1]
#: Four workers of different sizes.
SHARDS = list(zip(np.split(_X, _ENDS), np.split(_Y, _ENDS), strict=True))
CSR = [(sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0)), y) for X, y in SHARDS]


def least_squares(x: Vector, batch: Any) -> float:
    X, y = batch
    return float(np.mean((X @ x - y) ** 2))


def run(fun: Any, data: Any, **settings: Any) -> desopt.Result:
    x0 = None if isinstance(fun, str) else np.zeros(N)
    return desopt.minimize(fun, x0, data, **(SETTINGS | settings))


def rows(result: desopt.Result) -> list[dict[str, float]]:
    """The history without what depends on the day: the time, and work that was done again."""
    return [
        {k: v for k, v in row.items() if k not in ("seconds", "repeated")} for row in result.history
    ]


def assert_same(one: desopt.Result, other: desopt.Result) -> None:
    assert one.x.tobytes() == other.x.tobytes()
    assert rows(one) == rows(other)
    assert (one.fun, one.nfev, one.initial_fun) == (other.fun, other.nfev, other.initial_fun)


#: Those on this machine; test_ray.py, test_flower.py and test_executor.py have the others.
HERE = [name for name in desopt.ENGINES if name not in ("ray", "flower", "executor")]
engines = pytest.mark.parametrize("engine", HERE)
#: Processes take a second each to start: one where it does not matter how many share the work.
JOBS = {"serial": 1, "threads": 2, "processes": 1}


# --- the matrix ------------------------------------------------------------------------------

#: Partitioned to four workers, or the unequal shards.
KINDS: dict[str, tuple[Any, Any]] = {
    "dense": ("lr", (_X, _Y)),
    "csr": ("nsvm", CSR),
    "callable": (least_squares, SHARDS),
}


def problem(method: str, kind: str) -> tuple[Any, Any]:
    """What to minimise, and on what: es has one worker, which is given all of it."""
    fun, data = KINDS[kind]
    if not (desopt.METHODS[method].single_worker and isinstance(data, list)):
        return fun, data
    X, y = zip(*data, strict=True)
    return fun, ((sparse.vstack if kind == "csr" else np.vstack)(X), np.concatenate(y))


@functools.cache
def reference(method: str, kind: str) -> tuple[desopt.Result, Any]:
    """A serial run, and the answers in its journal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.journal"
        result = run(*problem(method, kind), method=method, engine="serial", journal=path)
        return result, journals.read(path).answers


def matrix() -> list[tuple[str, str, str]]:
    """Every engine with every method and kind; processes, which take seconds to start, with one
    kind of each method."""
    return [
        (engine, method, kind)
        for engine in HERE
        for i, method in enumerate(desopt.METHODS)
        for j, kind in enumerate(KINDS)
        if engine != "processes" or i % len(KINDS) == j
    ]


@pytest.mark.parametrize(("engine", "method", "kind"), matrix())
def test_same_bits_with_any_number_of_jobs(
    tmp_path: Path, engine: str, method: str, kind: str
) -> None:
    expected, answers = reference(method, kind)
    # how many share the work is no affair of the method; des-c has a memory for each worker
    few = {"des-mr": (2, 3), "es-csa": (3,), "des-c": (2,)}
    numbers = few.get(method, (1,)) if engine == "processes" else (1, 2, 3)

    def with_jobs(jobs: int) -> desopt.Result:
        settings = {"method": method, "engine": engine, "jobs": jobs}
        return run(*problem(method, kind), journal=tmp_path / str(jobs), **settings)

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(with_jobs, numbers))
    for jobs, result in zip(numbers, results, strict=True):
        assert result.engine == engine
        assert_same(result, expected)
        assert journals.read(tmp_path / str(jobs)).answers == answers
    assert not np.array_equal(expected.x, np.zeros(N)), "runs that do nothing prove nothing"


# --- where data come from --------------------------------------------------------------------


def load(worker: int) -> tuple[Vector, Vector]:
    return SHARDS[worker]


def draw(rng: np.random.Generator, b: int) -> tuple[Vector, Vector]:
    X = rng.standard_normal((b, N))
    return X, X @ np.arange(N)


SOURCES: dict[str, Any] = {
    "load(worker)": load,
    "list of load()": [functools.partial(load, i) for i in range(4)],
    "draw": draw,
    "list of draw": [lambda rng, b, i=i: draw(rng, b + i) for i in range(4)],
}


@pytest.mark.parametrize("source", SOURCES)
@engines
def test_loaders_and_samplers(engine: str, source: str) -> None:
    result = run(least_squares, SOURCES[source], engine=engine, jobs=JOBS[engine])
    assert_same(result, run(least_squares, SOURCES[source], engine="serial"))
    if "load" in source:
        assert_same(result, run(least_squares, SHARDS, engine="serial"))
    assert not np.array_equal(result.x, np.zeros(N))


def test_loaders_run_where_the_data_are_used(tmp_path: Path) -> None:
    def loader(worker: int) -> tuple[Vector, Vector]:
        note(tmp_path, f"{os.getpid()} {worker}")
        return load(worker)

    run(least_squares, loader, engine="processes", jobs=2)
    loads = notes(tmp_path)
    assert len(loads) == len(set(loads)), "at most once in a process"
    assert {line.split()[1] for line in loads} == {"0", "1", "2", "3"}
    assert str(os.getpid()) not in {line.split()[0] for line in loads}


def note(folder: Path, line: str) -> None:
    """Leave a line for the test, from whatever process."""
    with open(folder / "notes", "a") as file:
        file.write(line + "\n")


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


# --- functions that pickle alone cannot send -------------------------------------------------


def test_closures_lambdas_and_local_classes_reach_processes() -> None:
    scale, big = 3.0, np.arange(10_000.0)  # the array is large enough to be shared

    class Model:
        def __call__(self, x: Vector, batch: Any) -> float:
            return penalty(x) + scale * least_squares(x, batch)

    penalty: Callable[[Vector], float] = lambda x: float(big[x.size] * (x @ x))  # noqa: E731
    expected = run(Model(), SHARDS, engine="serial")
    assert_same(run(Model(), SHARDS, engine="processes", jobs=1), expected)


MAIN = """
import sys
import tempfile
import numpy as np
import desopt
print("top")
target = np.arange(5.0)
def fun(x, batch):
    return float(np.mean((batch - target) @ x + x @ x))
data = np.linspace(0, 1, 60).reshape(12, 5)
for engine in ("serial", "processes"):
    result = desopt.minimize(fun, np.zeros(5), data, workers=3, rounds=3, iterations=6,
                             batch_size=4, engine=engine, jobs=1)
    print(result.engine, result.x.tobytes().hex())
"""


@pytest.mark.parametrize("how", ["file", "-c", "stdin"])
def test_main_script_needs_no_guard(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(MAIN)
    arguments = {"file": [str(tmp_path / "script.py")], "-c": ["-c", MAIN], "stdin": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, *arguments], input=MAIN if how == "stdin" else "", capture_output=True,
        text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    top, serial, processes = done.stdout.splitlines()
    assert (top, serial.split()[0], processes.split()[0]) == ("top", "serial", "processes")
    assert serial.split()[1] == processes.split()[1]


# --- setup -----------------------------------------------------------------------------------


@engines
def test_setup_runs_once_for_each_process_or_thread(tmp_path: Path, engine: str) -> None:
    def setup() -> dict[str, int]:
        note(tmp_path, f"{os.getpid()} {threading.get_ident()}")
        return {"pid": os.getpid()}

    def fun(x: Vector, batch: Any, state: dict[str, int]) -> float:
        assert state["pid"] == os.getpid()
        return least_squares(x, batch)

    result = run(fun, SHARDS, setup=setup, engine=engine, jobs=2)
    assert_same(result, run(least_squares, SHARDS, engine="serial"))
    calls = notes(tmp_path)
    assert len(calls) == len(set(calls))
    assert 1 <= len(calls) <= (1 if engine == "serial" else 2)
    assert (str(os.getpid()) in calls[0]) == (engine != "processes")


def test_setup_that_returns_nothing_adds_no_argument() -> None:
    result = run(least_squares, SHARDS, setup=lambda: None, engine="serial")
    assert_same(result, run(least_squares, SHARDS, engine="serial"))


@engines
def test_failing_setup_is_named(engine: str) -> None:
    def setup() -> None:
        raise ConnectionError("no simulator here")

    with pytest.raises(desopt.ObjectiveError, match=r"setup failed.*no simulator here") as caught:
        run(least_squares, SHARDS, setup=setup, engine=engine, jobs=JOBS[engine])
    assert caught.value.what == "setup"
    assert 'raise ConnectionError("no simulator here")' in str(caught.value)


# --- fun that fails --------------------------------------------------------------------------


@functools.cache
def undisturbed() -> desopt.Result:
    return run(least_squares, SHARDS, engine="serial")


@functools.cache
def moment() -> bytes:
    """The point that worker 2 looks at in iteration 3 of round 1, both counted from 0."""
    seen: list[bytes] = []

    def fun(x: Vector, batch: Any) -> float:
        if batch[0].shape[0] == 5 and (batch[0][:, None] == SHARDS[2][0]).all(-1).any(-1).all():
            seen.append(x.tobytes())
        return least_squares(x, batch)

    run(fun, SHARDS, engine="serial")
    assert len(seen) == 3 * 7, "f(v_0) and six steps a round"
    assert seen.count(seen[7 + 1 + 3]) == 1
    return seen[7 + 1 + 3]


def at_the_moment(act: Callable[[], Any], *, once: Path | None = None) -> Fun:
    """least_squares, but for what is done at the moment; only once where a file is given."""
    when = moment()

    def fun(x: Vector, batch: Any) -> float:
        if x.tobytes() == when and not (once is not None and once.exists()):
            if once is not None:
                once.touch()
            act()
        return least_squares(x, batch)

    return fun


def fail() -> None:
    raise ZeroDivisionError("deep inside")


@pytest.mark.filterwarnings("ignore:.*began with other code of fun:RuntimeWarning")
@engines
def test_error_in_fun_says_where_and_the_journal_resumes(tmp_path: Path, engine: str) -> None:
    journal = tmp_path / "j"
    settings = {"engine": engine, "journal": journal}
    with pytest.raises(desopt.ObjectiveError) as caught:
        run(at_the_moment(fail), SHARDS, jobs=2, **settings)
    error = caught.value
    assert (error.worker, error.round, error.iteration) == (2, 1, 3)
    text = str(error)
    assert "fun failed (worker 2, round 1, iteration 3): ZeroDivisionError: deep inside" in text
    for line in ("Original traceback", "in fun", "act()", "in fail", 'ZeroDivisionError("deep'):
        assert line in text
    assert len(journals.read(journal).rows) == 1
    assert_same(run(least_squares, SHARDS, jobs=JOBS[engine], **settings), undisturbed())
    assert not psutil.Process().children(recursive=True)


class Speechless(Exception):
    def __str__(self) -> str:
        return self.reason  # type: ignore[attr-defined,no-any-return]


@engines
def test_error_that_cannot_say_what_it_is_keeps_its_place(engine: str) -> None:
    def silent() -> None:
        raise Speechless

    with pytest.raises(desopt.ObjectiveError, match=r"Speechless: <exception str") as caught:
        run(at_the_moment(silent), SHARDS, jobs=JOBS[engine], engine=engine)
    assert (caught.value.worker, caught.value.round, caught.value.iteration) == (2, 1, 3)
    assert "raise Speechless" in str(caught.value)


def test_after_an_error_other_threads_begin_nothing_more() -> None:
    began, failing = set(), threading.Event()

    def fun(x: Vector, worker: Any) -> float:
        began.add(int(worker[0]))
        if worker[0] == 0:
            failing.set()
            raise ZeroDivisionError("deep inside")
        failing.wait(300)
        time.sleep(0.5)  # the error is on its way
        return 0.0

    data = [np.full(5, worker) for worker in range(40)]
    with pytest.raises(desopt.ObjectiveError, match="deep inside"):
        run(fun, data, workers=40, engine="threads", jobs=2, eval_every=0)
    assert len(began) <= 4


@pytest.mark.parametrize("value", [np.zeros(3), "0.5", None], ids=["array", "string", "None"])
@engines
def test_value_that_is_no_number_is_refused(engine: str, value: object) -> None:
    said = rf"fun must return one real number.*returned {type(value).__name__}"
    with pytest.raises(TypeError, match=said):
        run(lambda x, batch: value, SHARDS, engine=engine, jobs=JOBS[engine])


@engines
def test_fun_cannot_change_x(engine: str) -> None:
    def fun(x: Vector, batch: Any) -> float:
        x[0] = 1.0
        return 0.0

    with pytest.raises(desopt.ObjectiveError, match="read-only"):
        run(fun, SHARDS, engine=engine, jobs=JOBS[engine])


# --- processes that die or hang --------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep() -> None:
    time.sleep(600)


@functools.cache
def patience() -> float:
    """Seconds after which a process hangs: much more than a part of a round takes here and now.

    That is done in milliseconds by a process which runs already; starting one takes a second
    where nothing else is going on.
    """
    began = time.perf_counter()
    run(least_squares, SHARDS, engine="processes", jobs=2)
    return 1.0 + 3.0 * (time.perf_counter() - began)


@pytest.mark.kills
@pytest.mark.parametrize("jobs", [1, 3])
def test_process_that_dies_in_mid_round_is_replaced(tmp_path: Path, jobs: int) -> None:
    fun = at_the_moment(die, once=tmp_path / "done")
    with pytest.warns(RuntimeWarning) as caught:
        result = run(fun, SHARDS, engine="processes", jobs=jobs)
    assert (tmp_path / "done").exists()
    assert len(caught) == 1
    for word in ("died (signal 9)", "replaced", "worker 2"):
        assert word in str(caught[0].message)
    assert_same(result, undisturbed())
    assert result.history["repeated"].tolist() == [0, 1, 1]
    assert undisturbed().history["repeated"].tolist() == [0, 0, 0]


@pytest.mark.kills
@pytest.mark.parametrize("victims", [1, 2])
def test_processes_killed_between_rounds_are_replaced(victims: int) -> None:
    def kill(row: desopt.Row) -> None:
        if row["round"] == 1:
            for watcher in psutil.Process().children()[:victims]:
                watcher.children()[0].kill()

    with pytest.warns(RuntimeWarning, match="signal 9") as caught:
        result = run(least_squares, SHARDS, engine="processes", jobs=2, callbacks=[kill])
    assert len(caught) == victims
    assert_same(result, undisturbed())


@pytest.mark.kills
@pytest.mark.parametrize("hang", [sleep, freeze])
def test_process_that_hangs_is_replaced(tmp_path: Path, hang: Callable[[], None]) -> None:
    fun = at_the_moment(hang, once=tmp_path / "done")
    with pytest.warns(RuntimeWarning) as caught:
        result = run(fun, SHARDS, engine="processes", jobs=2, round_timeout=patience())
    assert len(caught) == 1
    for word in ("no answer in time", "replaced", "worker 2"):
        assert word in str(caught[0].message)
    assert_same(result, undisturbed())
    assert not psutil.Process().children(recursive=True)


@pytest.mark.kills
@pytest.mark.filterwarnings("ignore:.*began with other code of fun:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*it was replaced:RuntimeWarning")
@pytest.mark.parametrize(("act", "said"), [(die, "died (signal 9)"), (sleep, "no answer in time")])
def test_after_the_last_attempt_the_run_stops_and_can_be_resumed(
    tmp_path: Path, act: Callable[[], None], said: str
) -> None:
    def counted() -> None:
        note(tmp_path, "attempt")
        act()

    journal = tmp_path / "j"
    settings = {"engine": "processes", "jobs": 2, "attempts": 2, "round_timeout": patience()}
    with pytest.raises(desopt.EngineError) as caught:
        run(at_the_moment(counted), SHARDS, journal=journal, **settings)
    for word in ("worker 2", said, "2 attempts", "can be resumed"):
        assert word in str(caught.value)
    assert notes(tmp_path) == ["attempt"] * 2
    assert not psutil.Process().children(recursive=True)
    assert len(journals.read(journal).rows) == 1
    assert_same(run(least_squares, SHARDS, journal=journal, engine="serial"), undisturbed())


class _Broken:
    """A function that ends the process which unpacks it, or fails there."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, x: Vector, batch: Any) -> float:
        return 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {"how": self.how, "parent": os.getpid()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["how"] == "exits":
            os._exit(3)
        raise ModuleNotFoundError("No module named 'simulator'")


@pytest.mark.kills
@pytest.mark.filterwarnings("ignore:.*it was replaced:RuntimeWarning")
def test_processes_that_cannot_start_stop_the_run() -> None:
    with pytest.raises(desopt.EngineError, match=r"exit code 3.*before it was ready"):
        run(_Broken("exits"), SHARDS, engine="processes", jobs=1, attempts=2)
    with pytest.raises(Exception, match="No module named 'simulator'"):
        run(_Broken("fails"), SHARDS, engine="processes", jobs=1, attempts=2)


# --- what processes cost ---------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_data_are_in_memory_once(tmp_path: Path) -> None:
    """Two processes read the same pages of one file in memory, and have none of their own."""
    array = np.ones((1000, 100))

    def where(x: Vector, batch: Any) -> float:
        """Notes the process; the file and the place in it where the data are; pages copied."""
        first, here = batch[0].ctypes.data, ""
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if head := re.match(r"(\w+)-(\w+) \S+ (\w+) (\S+ \d+)", line):
                begin, end, offset = (int(group, 16) for group in head.groups()[:3])
                here = f"{head[4]} {offset + first - begin}" if begin <= first < end else ""
            elif here and line.startswith("Anonymous:"):
                note(tmp_path, f"{os.getpid()} {here} {line.split()[1]}")
        time.sleep(0.01)  # for all processes to get some of the work
        return float(x @ x + 0.0 * batch[0].sum())

    run(
        where, [(array,)] * 6, method="es-csa", workers=6, rounds=3, batch_size=1000,
        eval_every=0, engine="processes", jobs=2,
    )  # fmt: skip
    found = [line.split() for line in notes(tmp_path)]
    assert len({pid for pid, *_ in found}) == 2
    assert len({(device, inode, place) for _, device, inode, place, _ in found}) == 1
    assert {(inode == "0", copied) for _, _, inode, _, copied in found} == {(False, "0")}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_points_are_let_go_once_they_are_merged(engine: str) -> None:
    """150 workers whose points would take 150 vectors if they were kept until the round is over.

    What a round needs does not grow with the workers: 14 vectors on serial, 23 on two threads,
    and on threads up to 10 more if one of them is ahead by as much as it may be.
    """
    n, workers = 20_000, 150
    X = np.random.default_rng(0).standard_normal((workers, n))
    settings = {"method": "des", "workers": workers, "batch_size": 2}
    more = {"engine": engine, "eval_every": 0, "rounds": 2} | (
        {"jobs": 2} if engine == "threads" else {}
    )
    run("lr", (X, np.where(np.arange(workers) % 2, 1.0, -1.0)), **settings, **more)  # compiles
    tracemalloc.start()
    run("lr", (X, np.where(np.arange(workers) % 2, 1.0, -1.0)), **settings, **more)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 8 * n


def test_threads_do_not_run_far_ahead() -> None:
    """While the main thread takes its time, the other one stops after a few, and goes on later."""
    engine, main = Threads(2), threading.get_ident()
    engine.start(Job(DES(), PythonObjective(np.sum), as_shards(None, 200, 0), 1, 0, 1))
    by_main: list[int] = []
    by_other: list[int] = []

    def call(worker: int) -> int:
        if threading.get_ident() != main:
            by_other.append(worker)
        else:
            until = time.monotonic() + 300
            while not by_main and len(by_other) < 4 and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(0.001 if by_main else 0.3)  # enough for many more
            by_main.append(worker)
        return worker

    handed_out = engine._spread(call, range(200))
    first = next(handed_out)
    seen = len(by_other)
    assert [first, *handed_out] == list(range(200))
    engine.close()
    assert seen == 4
    assert sorted(by_main + by_other) == list(range(200))
    assert len(by_other) > 4


def test_data_of_a_run_do_not_wait_for_the_garbage_collector() -> None:
    algorithm = DES(iterations=1)
    job = Job(algorithm, PythonObjective(np.sum), as_shards(None, 2, 0), 1, 0, 1)
    job.work(algorithm.plan(algorithm.init(np.zeros(1))), 0)
    gone = weakref.ref(job)
    gc.disable()
    try:
        del job
        assert gone() is None
    finally:
        gc.enable()


def test_threads_end_after_a_failed_merge() -> None:
    """Close ends a thread that waits for room, even if nobody takes the rest of the answers."""
    computed = threading.Semaphore(0)

    def fun(x: Vector) -> float:
        computed.release()
        return 0.0

    engine, algorithm = Threads(2), DES(iterations=1)
    engine.start(Job(algorithm, PythonObjective(fun), as_shards(None, 200, 0), 1, 0, 1))
    state = algorithm.init(np.zeros(1))
    engine.begin(state)
    answers = iter(engine.round(algorithm.plan(state)))
    next(answers)
    for _ in range(2 * 4):  # two values each of the four workers that there is room for
        assert computed.acquire(timeout=300)
    time.sleep(0.3)  # then the other thread waits
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(60)
    ended = not closing.is_alive()
    assert not list(answers)  # else this ends the threads
    assert ended


def test_threads_end_where_not_all_could_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were started do not wait for a round that never came to be."""
    computed, start, begun = threading.Semaphore(0), threading.Thread.start, list[str]()

    def fun(x: Vector) -> float:
        computed.release()
        return 0.0

    def only_one(thread: threading.Thread) -> None:
        if begun:
            for _ in range(2 * 6):  # two values each of the six workers that there is room for
                assert computed.acquire(timeout=300)
            time.sleep(0.3)  # then the one that was started waits
            raise RuntimeError("can't start new thread")
        begun.append(thread.name)
        start(thread)

    engine, algorithm = Threads(3), DES(iterations=1)
    engine.start(Job(algorithm, PythonObjective(fun), as_shards(None, 200, 0), 1, 0, 1))
    state = algorithm.init(np.zeros(1))
    engine.begin(state)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", only_one)
        with pytest.raises(RuntimeError, match="can't start"):
            list(engine.round(algorithm.plan(state)))
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_processes_leave_nothing_open() -> None:
    me = psutil.Process()
    run(least_squares, SHARDS, engine="processes", jobs=1)
    gc.collect()  # what other tests have left
    before = me.num_fds()
    run(least_squares, SHARDS, engine="processes", jobs=1)
    with pytest.raises(desopt.ObjectiveError):
        run(at_the_moment(fail), SHARDS, engine="processes", jobs=1)
    assert me.num_fds() == before
    assert not me.children(recursive=True)


# --- auto ------------------------------------------------------------------------------------


def slow(x: Vector, batch: Any) -> float:
    time.sleep(0.002)
    return least_squares(x, batch)


AUTO: list[tuple[str, Any, dict[str, Any], str, str]] = [
    ("compiled", "lr", {}, "threads", "compiled objective"),
    ("cheap", least_squares, {}, "serial", "too little for processes to pay"),
    ("slow", slow, {}, "processes", "2 processes save about"),
    ("slow, one job", slow, {"jobs": 1}, "serial", "one core"),
    ("time limit", least_squares, {"round_timeout": 60.0}, "processes", "round_timeout"),
]


@pytest.mark.parametrize(
    ("fun", "settings", "engine", "why"), [c[1:] for c in AUTO], ids=[c[0] for c in AUTO]
)
def test_auto_takes_what_pays_and_says_so(
    fun: Any, settings: dict[str, Any], engine: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow function pays in the long run, of which one round is enough here.
    rounds = 10_000 if fun is slow else 3
    if fun is least_squares:  # others that use this machine do not make it any slower
        monkeypatch.setattr(time, "perf_counter", time.thread_time)
    settings = {"batch_size": 100, "rounds": rounds, "jobs": 2, "eval_every": 0, **settings}
    result = run(fun, SHARDS, engine="auto", callbacks=[lambda row: True], **settings)
    assert result.engine == engine
    assert f"engine {engine}: " in result.message
    assert why in result.message


def test_auto_stays_here_with_a_function_that_cannot_be_sent() -> None:
    lock = threading.Lock()

    def fun(x: Vector, batch: Any) -> float:
        with lock:
            return slow(x, batch)

    settings: dict[str, Any] = {"batch_size": 100, "rounds": 10_000, "jobs": 2, "eval_every": 0}
    result = run(fun, SHARDS, engine="auto", callbacks=[lambda row: True], **settings)
    assert result.engine == "serial"
    assert "cannot be sent to a process" in result.message


def test_flower_by_name_says_where_it_runs() -> None:
    with pytest.raises(ValueError, match=r"desopt\.federate\.server_app.*flwr run"):
        run(least_squares, SHARDS, engine="flower")


def test_named_engine_is_taken_and_said() -> None:
    result = run(least_squares, SHARDS, engine="threads", jobs=2)
    assert result.engine == "threads"
    assert "engine threads" in result.message


@pytest.mark.parametrize(
    ("engine", "setting", "value"),
    [("threads", "jobs", 0), ("processes", "jobs", -1), ("processes", "attempts", 0)],
)
def test_a_number_of_jobs_or_attempts_that_does_nothing_is_refused(
    engine: str, setting: str, value: int
) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be at least 1, got {value}"):
        desopt.ENGINES[engine](**{setting: value})
