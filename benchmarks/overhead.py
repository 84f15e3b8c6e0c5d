"""The overhead of desopt per call of a Python function, with des-mr.

A worker's K-loop with a trivial function is timed against bare calls of that function. The
difference per iteration is the overhead, which must not grow with n; the ratio is to that of the
smallest n. The costs of a round outside the K-loop, the copy of x and the merge, are proportional
to n and shown separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from desopt.contract.types import FloatArray
from desopt.data import NoData
from desopt.methods import DES
from desopt.methods.samplers import MixtureRademacher
from desopt.objectives import PythonObjective, WorkerData

ITERATIONS = 2000
LIMIT_MICROSECONDS = 5.0


def first_coordinate(x: FloatArray) -> float:
    """The cheapest function: it costs the interpreter's call and little else."""
    return float(x[0])


def bare_calls(x: FloatArray) -> float:
    """Seconds for as many bare calls as a round has iterations."""
    began = time.perf_counter()
    for _ in range(ITERATIONS):
        first_coordinate(x)
    return time.perf_counter() - began


def search(algorithm: DES, local: WorkerData, x: FloatArray) -> float:
    """Seconds for the K-loop alone."""
    f = local.function(x, 0)
    steps = algorithm.search(algorithm.plan(algorithm.init(x)), 0)
    began = time.perf_counter()
    f.run(steps)
    return time.perf_counter() - began


def whole_round(algorithm: DES, local: WorkerData, x: FloatArray) -> float:
    """Seconds for a round of one worker, merge included."""
    state = algorithm.init(x)
    began = time.perf_counter()
    algorithm.merge(state, [algorithm.work(algorithm.plan(state), local, 0)])
    return time.perf_counter() - began


def best(measure: Callable[[], float], turns: int = 7) -> float:
    """The fastest turn, the least disturbed one."""
    return min(measure() for _ in range(turns))


def main() -> None:
    print(
        f"{'n':>10} {'bare us':>8} {'desopt us':>10} {'added us':>9} {'ratio':>6} {'round ms':>9}"
    )
    algorithm = DES(iterations=ITERATIONS, sampler=MixtureRademacher(8))
    local = WorkerData(PythonObjective(first_coordinate), NoData(), 0, 0, 1)
    smallest = None
    for n in (100, 1_000, 10_000, 100_000, 1_000_000):
        x = np.zeros(n)
        bare = best(partial(bare_calls, x))
        loop = best(partial(search, algorithm, local, x))
        outside = best(partial(whole_round, algorithm, local, x)) - loop
        added = (loop - bare) / ITERATIONS * 1e6
        smallest = smallest or added
        print(
            f"{n:>10,} {bare / ITERATIONS * 1e6:8.3f} {loop / ITERATIONS * 1e6:10.3f} "
            f"{added:9.3f} {added / smallest:6.2f} {outside * 1e3:9.3f}"
        )
    print(f"allowed: {LIMIT_MICROSECONDS} us added at n = 100,000, and a ratio that stays near 1")


if __name__ == "__main__":
    main()
