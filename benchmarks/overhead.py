"""What the library adds to a Python function, per local iteration of des-mr.

A worker's round is timed with a function that does next to nothing, against the bare calls of
that function; the difference, per iteration, is what desopt costs. It must not grow with n:
the last column is the ratio to the smallest n. The O(n) work of a round, the copy of x and
the merge, is outside the K-loop; it is shown on its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from desopt.algorithms import DES
from desopt.data import Nothing
from desopt.objectives import PythonObjective, WorkerData
from desopt.samplers import Key, MixtureRademacher
from desopt.types import FloatArray

ITERATIONS = 2000
LIMIT_MICROSECONDS = 5.0


def first_coordinate(x: FloatArray) -> float:
    """The cheapest function there is: its cost stands for the interpreter's."""
    return float(x[0])


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """The fastest of several runs: the one that the machine disturbed least."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def bare_calls(x: FloatArray) -> None:
    for _ in range(ITERATIONS):
        first_coordinate(x)


def main() -> None:
    print(f"{'n':>10} {'bare us':>8} {'desopt us':>10} {'added us':>9} {'ratio':>6} {'round ms':>9}")
    smallest = None
    for n in (100, 1_000, 10_000, 100_000, 1_000_000):
        x = np.zeros(n)
        algorithm = DES(iterations=ITERATIONS, sampler=MixtureRademacher(8))
        local = WorkerData(PythonObjective(first_coordinate), Nothing(), 0, 0, 1)
        alpha = algorithm.step_sizes(0)

        def search(local: WorkerData = local, x: FloatArray = x, alpha: FloatArray = alpha) -> float:
            f = local.minibatch(x, 0)
            began = time.perf_counter()
            algorithm.sampler.search(f, alpha, Key(0, 0, 0))
            return time.perf_counter() - began

        search()
        loop = min(search() for _ in range(7)) / ITERATIONS
        bare = best_of(7, lambda x=x: bare_calls(x)) / ITERATIONS  # type: ignore[misc]
        state = algorithm.init(x)
        task = algorithm.plan(state)
        whole = best_of(3, lambda a=algorithm, s=state, t=task, w=local: a.merge(s, [a.work(t, w, 0)]))  # type: ignore[misc]
        added = (loop - bare) * 1e6
        smallest = smallest or added
        print(
            f"{n:>10,} {bare * 1e6:8.3f} {loop * 1e6:10.3f} {added:9.3f} "
            f"{added / smallest:6.2f} {(whole - loop * ITERATIONS) * 1e3:9.3f}"
        )
    print(f"allowed: {LIMIT_MICROSECONDS} us added at n = 100,000, and a ratio that stays near 1")


if __name__ == "__main__":
    main()
