"""Which engine ``auto`` takes, and how many threads a process may use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, Batches, Step, Task
from desopt.engines import Job
from desopt.engines.serial import Serial
from desopt.engines.trials import NoLog
from desopt.methods.des import DES
from desopt.methods.samplers import Key, Sampler
from desopt.objectives import LinearModel
from desopt.run import options
from desopt.run.choice import choose
from desopt.system import parallel

Vector = NDArray[np.float64]

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = np.sign(X @ RNG.standard_normal(4))


def run(fun: Any = "lr", data: Any = (X, Y), **settings: Any) -> desopt.Result:
    usual: dict[str, Any] = {
        "workers": 3, "rounds": 2, "iterations": 5, "batch_size": 10, "progress": False, "jobs": 2,
    }  # fmt: skip
    return desopt.minimize(fun, np.zeros(4), data, **(usual | settings))


# --- a function of the user's is never called by two threads at once ----------------------------


class Alone:
    """Notices whether two threads are in here at once, or any but the main thread."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __call__(self, *_: Any) -> None:
        self.threads.add(threading.get_ident())
        time.sleep(0.002)


alone = Alone()


class OwnMethod(DES):
    """Somebody's own, in Python, built on one of ours."""

    def work(self, task: Task, local: Any, worker: int) -> Answer:
        alone()
        return super().work(task, local, worker)


class OwnSampler(Sampler):
    dense = True

    def vector(self, key: Key, k: int, n: int) -> Step:
        alone()
        return None, np.full(n, 1.0)

    def settings(self) -> dict[str, Any]:
        return {"name": "own"}


def draw_step(rng: np.random.Generator, n: int) -> Vector:
    alone()
    return rng.standard_normal(n)


def load(worker: int) -> tuple[Vector, Vector]:
    alone()
    return X[worker::3], Y[worker::3]


def draw(rng: np.random.Generator, b: int) -> tuple[Vector, Vector]:
    alone()
    rows = rng.integers(0, 60, b)
    return X[rows], Y[rows]


def least_squares(x: Vector, batch: Any) -> float:
    alone()
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


OWN: dict[str, dict[str, Any]] = {
    "fun": {"fun": least_squares},
    "method": {"method": OwnMethod(iterations=5, sampler=DES().sampler)},
    "sampler": {"sampler": draw_step, "method": "des"},
    "sampler object": {"method": DES(iterations=5, sampler=OwnSampler())},
    "loader": {"data": load},
    "loaders": {"data": [lambda i=i: load(i) for i in range(3)]},
    "draw": {"data": draw, "eval_every": 0},
}


@pytest.mark.parametrize("own", OWN)
def test_auto_keeps_functions_of_the_user_out_of_threads(own: str) -> None:
    alone.threads.clear()
    result = run(**OWN[own], engine="auto")
    assert result.engine == "serial"
    assert alone.threads == {threading.get_ident()}, "the test sees where it is called"


def test_auto_takes_threads_for_what_is_compiled() -> None:
    assert run(engine="auto").engine == "threads"
    assert run(engine="auto", data=[(X, Y)] * 3).engine == "threads"
    assert run(engine="auto", method=DES(iterations=5)).engine == "threads"


class Compiled(LinearModel):
    """An objective of somebody's own that says it is compiled is believed."""


def test_auto_believes_an_objective_that_says_it_is_compiled() -> None:
    assert run(Compiled("lr", 1e-6), engine="auto").engine == "threads"


# --- any algorithm object ---------------------------------------------------------------------


@dataclass(frozen=True)
class Still:
    round: int
    x: Vector


class AlongOnes:
    """The slope of f along ones, by ``ask`` and ``tell``."""

    batches = Batches.ROUND

    def __init__(self, task: Task, worker: int) -> None:
        self.round, self.x, self.worker = task.round, task.x, worker
        self.values: list[float] = []

    @property
    def iterations(self) -> list[int]:
        return [0]

    def ask(self, p: int = 1) -> list[Vector]:
        return [self.x + 1e-3, self.x - 1e-3][len(self.values) :][:p]

    def tell(self, values: Sequence[float]) -> None:
        self.values += values

    def answer(self, rows: int = 1) -> Answer:
        slope = (self.values[0] - self.values[1]) / 2e-3
        return Answer(self.worker, np.float64(slope).tobytes(), 2, 2 * rows)


class Barest:
    """The contract's verbs and nothing else: takes -1 times the mean slope along ones."""

    name = "barest"
    layout = Layout(float64=1)
    state_type = Still

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def init(self, x0: Vector) -> Still:
        return Still(0, x0)

    def plan(self, state: Still) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Any, worker: int) -> Answer:
        time.sleep(self.seconds)
        answer: Answer = local.run(AlongOnes(task, worker))
        return answer

    def merge(self, state: Still, answers: Iterable[Answer]) -> Still:
        slopes = [np.frombuffer(answer.payload, np.float64)[0] for answer in answers]
        return Still(state.round + 1, state.x - 0.1 * np.mean(slopes))

    def settings(self) -> dict[str, Any]:
        return {"name": self.name}


@pytest.mark.parametrize(("seconds", "engine"), [(0.0, "serial"), (0.05, "processes")])
def test_auto_takes_any_algorithm_object(seconds: float, engine: str) -> None:
    fun = OWN["fun"]["fun"]
    rounds = 2 if engine == "serial" else 1000
    settings = {"method": Barest(seconds), "rounds": rounds, "callbacks": [lambda row: True],
                "iterations": 100}  # fmt: skip
    result = run(fun, engine="auto", **settings)
    assert result.engine == engine
    assert "a worker takes" in result.message
    assert result.x.tobytes() == run(fun, engine="serial", **settings).x.tobytes()


class Declared(Barest):
    """It declares its cost and keeps to the limit; iterations are nothing it has."""

    cost = Cost(2, 2_000_000)

    def work(self, task: Task, local: Any, worker: int) -> Answer:
        assert task.limit is not None, "a whole round would take an hour"
        return super().work(task, local, worker)


def test_auto_asks_for_no_more_values_than_a_round_needs() -> None:
    jobs: list[Job] = []

    class Keep(Serial):
        def start(self, job: Job) -> None:
            jobs.append(job)
            super().start(job)

    calls = []

    def fun(x: Vector, batch: Any) -> float:
        calls.append(1)
        return least_squares(x, batch)

    run(fun, method=DES(iterations=5), engine=Keep(), jobs=None, eval_every=0)
    calls.clear()
    settings = options.checked("minimize", {"rounds": 2, "jobs": 2})
    job = replace(jobs[0], algorithm=Declared())
    chosen, why = choose("auto", job, job.algorithm.init(np.zeros(4)), NoLog(), settings)
    assert chosen.name == "processes"
    assert "ms a round, 2 processes save about" in why
    assert len(calls) <= 4


# --- threads of a process ---------------------------------------------------------------------

NAMES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",
)  # fmt: skip


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(("processes", "share"), [(1, "6"), (2, "3"), (4, "1"), (9, "1")])
def test_each_process_gets_its_share(
    untold: pytest.MonkeyPatch, processes: int, share: str
) -> None:
    untold.setattr(parallel, "cores", lambda: 6)
    assert parallel.thread_limits(processes) == dict.fromkeys(NAMES, share)


def test_what_the_environment_says_is_left_alone(untold: pytest.MonkeyPatch) -> None:
    untold.setenv("MKL_NUM_THREADS", "5")
    untold.setenv("NUMBA_NUM_THREADS", "")
    limits = parallel.thread_limits(2)
    assert set(limits) == set(NAMES) - {"MKL_NUM_THREADS"}
    untold.setenv("OMP_NUM_THREADS", "5")  # OpenBLAS and others look at it, too
    assert set(parallel.thread_limits(2)) == {"VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS"}


def pools(folder: Path, jobs: int) -> list[int]:
    """The sizes of the pools of BLAS and OpenMP in each process of a run."""

    def setup() -> None:
        import numba
        from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

        sizes = [pool["num_threads"] for pool in threadpool_info()]
        assert sizes, "NumPy comes with a BLAS"
        sizes.append(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        (folder / str(os.getpid())).write_text(" ".join(map(str, sizes)))
        while len(list(folder.iterdir())) < jobs:  # else the first one may do all the work
            time.sleep(0.01)

    run(least_squares, setup=setup, engine="processes", eval_every=0, jobs=jobs)
    return [int(size) for path in folder.iterdir() for size in path.read_text().split()]


def test_an_engine_without_all_verbs_of_an_evaluator_has_whole_rounds() -> None:
    class Own:
        """A serial engine that can evaluate points, but does not count their messages."""

        def __init__(self) -> None:
            inner = Serial()
            for name in dir(inner):
                if not name.startswith("_") and name != "count_round":
                    setattr(self, name, getattr(inner, name))

    result = run(lambda x: float(x @ x), None, engine=Own(), jobs=None, log_values=True)
    assert not result.evaluations


def test_libraries_in_a_process_use_its_share(untold: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("threadpoolctl")
    found = pools(tmp_path, jobs=2)
    share = max(1, parallel.cores() // 2)
    assert len(found) >= 4
    assert set(found) == {share}


def test_libraries_in_a_process_obey_the_environment(
    untold: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("threadpoolctl")
    untold.setenv("OMP_NUM_THREADS", "3")
    untold.setenv("NUMBA_NUM_THREADS", "3")
    most = parallel.cores()  # OpenBLAS takes no more than there are
    assert set(pools(tmp_path, jobs=1)) <= {3, min(3, most)}


@pytest.mark.cpus
def test_compilation_is_not_taken_for_work(tmp_path: Path) -> None:
    """With an empty cache the first round takes seconds, none of them the function's."""
    code = (
        "import numpy as np, desopt\n"
        "print(desopt.minimize(lambda x: float(x @ x), np.ones(5), rounds=2, progress=False,\n"
        "                      engine='auto').message)"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "engine serial" in done.stdout, done.stdout + done.stderr
