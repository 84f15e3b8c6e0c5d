"""Single values of an expensive function on several processes, against one after the other.

A value takes 50 ms of sleep, so more processes than cores show the same. First `es`, whose steps
depend on each other: idle processes evaluate the next steps as if the open ones were rejected. The
function has two values, and each step is accepted with a given probability a. With p processes,
(1 - (1 - a)^p) / a steps are decided at a time on average, the theory's speed-up. Then `es-csa`,
whose population is spread over the processes. Every run has the bits of the serial one.

    python benchmarks/ahead.py
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np

from desopt.contract.types import Algorithm, Batches, FloatArray
from desopt.data import as_shards
from desopt.engines import Job
from desopt.engines.by_value import ByValue
from desopt.engines.processes.engine import Processes
from desopt.engines.serial import Serial
from desopt.engines.trials import OBJECTIVE, Key, Trial
from desopt.methods import ES, ESCSA
from desopt.objectives import PythonObjective

SECONDS = 0.05
N, STEPS, POPULATION = 10, 160, 100


def lottery(x: FloatArray, a: float) -> float:
    """0 with probability a, else 1; from 0, a step is accepted if it draws 0 again."""
    time.sleep(SECONDS)
    return float(zlib.crc32(x.tobytes()) / 2**32 >= a)


def sphere(x: FloatArray) -> float:
    time.sleep(SECONDS)
    return float(x @ x)


def fair_start(a: float) -> FloatArray:
    """A point where the lottery gives 0."""
    starts = (np.full(N, float(i)) for i in range(10**6))
    return next(x for x in starts if zlib.crc32(x.tobytes()) / 2**32 < a)


def job_of(algorithm: Algorithm, fun: Callable[[FloatArray], float]) -> Job:
    return Job(algorithm, PythonObjective(fun), as_shards(None, 1, 0), 1, 0, N)


def serial(job: Job, x: FloatArray) -> tuple[float, bytes]:
    """The seconds of a round, and its answer."""
    engine, state = Serial(), job.algorithm.init(x)
    engine.start(job)
    engine.begin(state)
    began = time.perf_counter()
    (answer,) = engine.round(job.algorithm.plan(state))
    return time.perf_counter() - began, answer.payload


def by_value(job: Job, x: FloatArray, processes: int) -> tuple[float, bytes, int]:
    """The seconds of a round on these processes, its answer, and the values computed."""
    pool, state = Processes(processes), job.algorithm.init(x)
    engine = ByValue(pool, always=True)
    engine.start(job)
    try:
        engine.begin(state)
        start(pool, processes)
        began = time.perf_counter()
        (answer,) = engine.round(job.algorithm.plan(state))
        seconds = time.perf_counter() - began
    finally:
        engine.close()
    return seconds, answer.payload, engine.computed


def start(pool: Processes, processes: int) -> None:
    """Start all processes, which takes a second and is not what is measured."""
    for basis in range(processes):
        pool.submit(Trial(Key(0, 0, OBJECTIVE, basis), np.zeros(N), Batches.ALL, 0))
    left = processes
    while left:
        left -= len(pool.completed())


def show(*cells: object) -> None:
    print("| " + " | ".join(f"{c:.2f}" if isinstance(c, float) else str(c) for c in cells) + " |",
          flush=True)  # fmt: skip


def ahead() -> None:
    show("es: accepted steps a", "processes p", "speed-up", "theory", "values computed of counted")
    show(*["---:"] * 5)
    for a in (0.05, 0.2, 0.5):
        job = job_of(ES(iterations=STEPS), partial(lottery, a=a))
        x = fair_start(a)
        alone, payload = serial(job, x)
        rate = float(np.unpackbits(np.frombuffer(payload, np.uint8)).sum()) / STEPS
        for p in (2, 4):
            seconds, found, computed = by_value(job, x, p)
            assert found == payload, "other bits"
            theory = (1 - (1 - rate) ** p) / rate
            show(rate, p, alone / seconds, theory, f"{computed} of {STEPS + 1}")


def population() -> None:
    show("es-csa: population", "processes p", "speed-up", "bound")
    show(*["---:"] * 4)
    job = job_of(ESCSA(population=POPULATION), sphere)
    alone, payload = serial(job, np.ones(N))
    for p in (2, 4):
        seconds, found, _ = by_value(job, np.ones(N), p)
        assert found == payload, "other bits"
        show(POPULATION, p, alone / seconds, POPULATION / math.ceil(POPULATION / p))


if __name__ == "__main__":
    ahead()
    print()
    population()
