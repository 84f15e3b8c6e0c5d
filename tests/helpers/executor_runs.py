"""Runs on one kind of pool, as a program: its functions are those of ``__main__``.

    python executor_runs.py KIND FOLDER

It prints a line of JSON for each run. A function that is to die notes in FOLDER that it has.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import desopt
from desopt.engines.by_value import ByValue

N, WORKERS = 5, 4
_RANDOM = np.random.default_rng(3)
DATA = _RANDOM.standard_normal((40, N)), _RANDOM.standard_normal(40)
SETTINGS: dict[str, Any] = {
    "workers": WORKERS, "rounds": 3, "iterations": 4, "batch_size": 5, "seed": 2, "eval_every": 1,
    "method": "des-mr", "log_values": False,
}  # fmt: skip


def least_squares(x: Any, batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


def sphere(x: Any) -> float:
    return float(np.sum((x - 1.0) ** 2))


def fails(x: Any, batch: Any) -> float:
    raise ZeroDivisionError("no value here")


def dies(folder: Path, times: int, x: Any, batch: Any) -> float:
    """Ends its process without a word, ``times`` times."""
    for number in range(times):
        try:
            (folder / f"died-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
    return least_squares(x, batch)


_CALLS: list[int] = []


def dies_late(folder: Path, x: Any, batch: Any) -> float:
    """Ends its process once, after a round."""
    _CALLS.append(1)
    return dies(folder, int(len(_CALLS) > 15), x, batch)


def run(engine: Any, fun: Any = least_squares, data: Any = DATA, **more: Any) -> desopt.Result:
    return desopt.minimize(fun, np.zeros(N), data, engine=engine, **(SETTINGS | more))


def summary(result: desopt.Result) -> dict[str, Any]:
    return {
        "x": result.x.tobytes().hex(),
        "fun": result.fun,
        "repeated": result.history[-1]["repeated"],
    }


def told(name: str, call: Callable[[], desopt.Result]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = summary(call())
        except (desopt.ObjectiveError, desopt.EngineError) as error:
            found = {"error": type(error).__name__, "said": str(error)}
    found["warnings"] = [str(w.message) for w in caught if w.category is RuntimeWarning]
    print(json.dumps({"run": name, **found}), flush=True)


def runs(pool: Executor) -> None:
    """What every pool can do."""
    engine = desopt.engines.Executor(pool)
    told("rounds", lambda: run(engine))
    by_value = ByValue(desopt.engines.Executor(pool), always=True)
    told("values", lambda: run(by_value, sphere, None, method="es-csa", workers=1))
    told("error", lambda: run(engine, fails, eval_every=0))


# --- the kinds of pools ------------------------------------------------------------------------


def loky(size: int) -> Executor:
    try:
        from loky import get_reusable_executor
    except ImportError:
        from joblib.externals.loky import get_reusable_executor
    pool: Executor = get_reusable_executor(max_workers=size)
    return pool


def processes(method: str, size: int) -> Executor:
    return ProcessPoolExecutor(size, get_context(method))


def mortal(make: Callable[[int], Executor], folder: Path, quick: bool) -> None:
    """Pools that a dead process breaks."""
    with make(2) as pool:
        runs(pool)
    engine = desopt.engines.Executor
    told("dies", lambda: run(engine(partial(make, 1)), partial(dies, folder, 1)))
    if quick:
        (folder / "often").mkdir()
        often = partial(dies, folder / "often", 100)
        told("dies often", lambda: run(engine(partial(make, 1)), often, eval_every=0))
        (folder / "given").mkdir()
        with make(1) as pool:
            told("given", lambda: run(engine(pool), partial(dies, folder / "given", 1)))


@contextmanager
def dask_cluster() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def dask(folder: Path) -> None:
    with dask_cluster() as client:
        pool = client.get_executor()
        runs(pool)
        told("dies", lambda: run(desopt.engines.Executor(pool), partial(dies, folder, 1)))
        values = ByValue(desopt.engines.Executor(pool), always=True)
        (folder / "values").mkdir()
        told("dies in a value", lambda: run(values, partial(dies, folder / "values", 1)))
        client.cluster.scheduler.allowed_failures = 0  # else Dask repeats the call itself
        (folder / "told").mkdir()
        lost = partial(dies, folder / "told", 1)
        told("dies and is told", lambda: run(desopt.engines.Executor(pool), lost))


def mpi(folder: Path) -> None:
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool:
        runs(pool)
        engine, journal = desopt.engines.Executor(pool), folder / "journal"
        fun = partial(dies_late, folder)
        told("dies", lambda: run(engine, fun, journal=journal, eval_every=0))


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind == "dask":
        dask(folder)
    elif kind == "mpi":
        mpi(folder)
    else:
        mortal(loky if kind == "loky" else partial(processes, kind), folder, kind == "fork")
