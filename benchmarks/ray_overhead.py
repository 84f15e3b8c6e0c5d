"""The overhead of a round on Ray: our engine, bare calls, and a dense exchange.

Ten workers do nothing. *Bare*: ten actors, one call each without arguments or result. *Ours*: the
engine with ten actors, and with one per CPU. *Dense*: ten actors that receive x, stored once per
round, and return n numbers each. They alternate; times are medians. Bytes are those of the
messages, or of the arrays, in a round, without Ray's own. The goal for ours is at most 1.3 times
the bare calls.

    python benchmarks/ray_overhead.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

try:
    import ray
except ImportError:
    raise SystemExit("needs Ray: pip install 'desopt[ray]'") from None

from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, FloatArray, Task
from desopt.data import as_shards
from desopt.engines import Job
from desopt.engines.ray.cluster import connect
from desopt.engines.ray.engine import Ray
from desopt.methods.base import BaseAlgorithm, PointState, unmoved
from desopt.objectives.functions import PythonObjective
from desopt.system.parallel import cores

WORKERS, ITERATIONS = 10, 500
SIZES = (10_000, 47_236, 1_000_000)
ROUNDS, WANTED = 50, 1.3


@dataclass(frozen=True, kw_only=True)
class Idle(BaseAlgorithm):
    """A method whose workers answer at once with K zero bits, which change nothing."""

    name: str = "idle"
    layout = Layout(bits=ITERATIONS)
    cost = Cost(1, 1)

    def work(self, task: Task, local: Any, worker: int) -> Answer:
        return Answer(worker, bytes(self.layout.size))

    def merge(self, state: PointState, answers: Any) -> PointState:
        return unmoved(state)


class Bare:
    def call(self) -> None:
        pass

    def exchange(self, x: FloatArray) -> FloatArray:
        return x.copy()


@contextmanager
def idle_rounds(jobs: int, n: int) -> Iterator[Callable[[], tuple[int, int]]]:
    """A function that does one round on this many actors and returns its bytes up and down."""
    engine, algorithm = Ray(jobs=jobs), Idle(iterations=ITERATIONS)
    state = algorithm.init(np.random.default_rng(0).standard_normal(n))

    def one() -> tuple[int, int]:
        nonlocal state
        state = algorithm.merge(state, engine.round(algorithm.plan(state)))
        engine.begin(state)
        return engine.traffic()

    try:
        engine.start(Job(algorithm, PythonObjective(np.sum), as_shards(None, WORKERS, 0), 1, 0, n))
        engine.begin(state)
        yield one
    finally:
        engine.close()


def milliseconds(actions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each; they alternate, so that all see the same load."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(ROUNDS + 3):
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            if turn >= 3:
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: median(values) for name, values in times.items()}


def measure(n: int, actors: list[Any]) -> None:
    x = np.random.default_rng(0).standard_normal(n)

    def dense() -> None:
        stored = ray.put(x)
        ray.get([actor.exchange.remote(stored) for actor in actors])

    def bare() -> None:
        ray.get([actor.call.remote() for actor in actors])

    with idle_rounds(WORKERS, n) as ten, idle_rounds(cores(), n) as few:
        found = milliseconds({"bare": bare, "ten": ten, "few": few, "dense": dense})
        up, down = ten()
        few_up, few_down = few()
    array = 8 * n * WORKERS
    print(f"n = {n:,}")
    print(f"  {'ten bare calls':24} {found['bare']:8.1f} ms")
    for label, name, sent in (
        ("ours, ten actors", "ten", (up, down)),
        (f"ours, {cores()} actors", "few", (few_up, few_down)),
        ("dense exchange", "dense", (array, array)),
    ):
        ratio = found[name] / found["bare"]
        verdict = "" if name == "dense" else "holds" if ratio <= WANTED else "FAILS"
        print(f"  {label:24} {found[name]:8.1f} ms {ratio:6.2f} x {verdict:6} {sent[0]:12,} B up "
              f"{sent[1]:12,} B down", flush=True)  # fmt: skip


def main() -> None:
    os.environ.setdefault("RAY_worker_niceness", "0")  # else Ray's workers yield to all others
    connect("local", {"object_store_memory": 1_000_000_000})
    actors = [ray.remote(Bare).options(num_cpus=0).remote() for _ in range(WORKERS)]
    for n in SIZES:
        measure(n, actors)
    ray.shutdown()


if __name__ == "__main__":
    main()
