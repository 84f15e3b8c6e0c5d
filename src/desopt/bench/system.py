"""Costs of a whole run: threads, memory, evaluation of the loss, start-up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from desopt.bench.speed import MNIST, RCV1, DataShape
from desopt.data import as_shards
from desopt.engines import ENGINES, Engine, Job
from desopt.methods import METHODS
from desopt.objectives import LinearModel


def two_threads(seconds: float) -> list[dict[str, Any]]:
    """Rounds of M = 10 workers with two threads against one, merge included.

    They alternate every ten rounds: after a pause, a round would include the wake-up of a core.
    The fastest round of each counts; ``medians`` is the ratio of the median rounds.
    """
    lines = []
    model = LinearModel("lr")
    for shape, method, iterations in (
        (RCV1, "des-mr", 500),
        (MNIST, "des-mr", 500),
        (RCV1, "des", 40),
    ):
        X, y = shape.data()
        shards = model.prepare(as_shards((X, y), 10, 0))
        settings = {
            "step_size": 1.0, "iterations": iterations, "momentum": 0.5, "seed": 0,
            "mixture": 8, "sampler": None,
        }  # fmt: skip
        algorithm = METHODS[method].make(method, settings)
        job = Job(algorithm, model, shards, 1000, 0, X.shape[1])
        engines = {jobs: ENGINES["threads"](jobs=jobs) for jobs in (1, 2)}
        times: dict[int, list[float]] = {jobs: [] for jobs in engines}
        for engine in engines.values():
            engine.start(job)
            _time_rounds(job, engine)  # compiles
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for jobs, engine in engines.items():
                times[jobs] += _time_rounds(job, engine)
        for engine in engines.values():
            engine.close()
        one, two = (1e3 * np.array(times[jobs]) for jobs in engines)
        lines.append(
            {"shape": shape.name, "method": method, "one_ms": one.min(), "two_ms": two.min(),
             "ratio": one.min() / two.min(), "at_least": 1.7,
             "medians": np.median(one) / np.median(two)}
        )  # fmt: skip
    return lines


def _time_rounds(job: Job, engine: Engine) -> list[float]:
    """Seconds of each of ten consecutive rounds."""
    algorithm = job.algorithm
    state, seconds = algorithm.init(np.zeros(job.n)), []
    for _ in range(10):
        began = time.perf_counter()
        engine.begin(state)
        state = algorithm.merge(state, engine.round(algorithm.plan(state)))
        seconds.append(time.perf_counter() - began)
    return seconds


_MEMORY = """
import json, sys
import numpy as np
from scipy import sparse
import desopt

saved = np.load(sys.argv[1])
X = sparse.csr_matrix((saved["data"], saved["indices"], saved["indptr"]), shape=(60000, 47236))
y = saved["y"]
desopt.minimize("lr", None, (X, y), method="des-mr", progress=False, engine="threads", jobs=2,
                workers=int(sys.argv[2]), rounds=3, iterations=500, batch_size=1000)
status = dict(line.split(":") for line in open("/proc/self/status"))
kilobytes = {name: int(status[name].split()[0]) for name in ("VmRSS", "VmHWM", "RssAnon")}
data = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes
print(json.dumps({"data": data / 1024, **kilobytes}))
"""


def memory() -> list[dict[str, Any]]:
    """Memory of runs of M = 10 and 100 workers on rcv1-like data of 60,000 rows.

    The whole process counts: the interpreter, NumPy, SciPy, numba, the kernels from the cache, the
    data. ``private`` excludes the pages of libraries and files, which processes share.
    """
    X, y = DataShape("rcv1-like", 47_236, 500, 70.0, rows=60_000).data()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.npz")
        np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, y=y)
        for workers in ("10", "10", "100"):  # the first one compiles
            said = json.loads(_python(_MEMORY, path, workers).stdout)
            size = {name: value * 1024 / 1e6 for name, value in said.items()}
            lines.append(
                {"workers": int(workers), "data MB": size["data"], "resident MB": size["VmRSS"],
                 "private": size["RssAnon"], "peak": size["VmHWM"],
                 "at_most": 1.3 * size["data"] + 150.0}
            )  # fmt: skip
    return lines[1:]


def evaluation_share(rounds: int = 542) -> dict[str, float]:
    """The share of a des-mr run on rcv1-like data that is spent on the training loss.

    The paper's scale: N = 541,919 training rows and T = 542 rounds of M = 10, K = 500,
    b = 1000.
    """
    from desopt.run.minimize import minimize

    X, y = DataShape("rcv1-like", 47_236, 500, 70.0, rows=541_919).data()
    seconds = {}
    for label, every in (("default", None), ("never", 0)):
        began = time.perf_counter()
        result = minimize(
            "lr", None, (X, y), method="des-mr", rounds=rounds, iterations=500, seed=1,
            eval_every=every, progress=False,
        )  # fmt: skip
        seconds[label] = time.perf_counter() - began
        if every is None:
            evaluated = len(result.history.evaluated())
    share = 1.0 - seconds["never"] / seconds["default"]
    return {**seconds, "share": share, "at_most": 0.15, "evaluations": evaluated}


_IMPORT = "import time; t = time.perf_counter(); import desopt; print(time.perf_counter() - t)"
_FIRST = """
import time; t = time.perf_counter()
import numpy as np, desopt
from scipy import sparse
rng = np.random.default_rng(0)
X = sparse.random(500, 50, 0.2, format="csr", random_state=0)
y = np.where(rng.random(500) > 0.5, 1.0, -1.0)
desopt.minimize("lr", None, (X, y), method={method!r}, rounds=2, iterations=10, batch_size=50,
                workers=2, progress=False)
print(time.perf_counter() - t)
"""


def start_up(methods: tuple[str, ...] = tuple(METHODS)) -> list[dict[str, Any]]:
    """Import, the first run of each method with an empty cache, and the next one."""
    lines: list[dict[str, Any]] = []
    took = min(float(_python(_IMPORT).stdout) for _ in range(3))
    lines.append({"what": "import desopt", "seconds": took, "at_most": 0.7})
    for method in methods:
        with tempfile.TemporaryDirectory() as folder:
            code = _FIRST.format(method=method)
            first, again = (float(_python(code, NUMBA_CACHE_DIR=folder).stdout) for _ in range(2))
        lines.append({"what": f"{method}, first run", "seconds": first, "at_most": 10.0})
        lines.append({"what": f"{method}, from the cache", "seconds": again, "at_most": 1.0})
    return lines


def _python(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True,
        env={**os.environ, **env},
    )  # fmt: skip
