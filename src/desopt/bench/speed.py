"""Time per local iteration: desopt's compiled code against the NumPy baselines.

Both do a worker's complete round: drawing and gathering the minibatch, mutations, losses,
decisions, the final point. They alternate in one process and one thread, and the fastest of
several turns counts, so that other load on the machine affects the ratio little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from desopt.bench import baselines
from desopt.contract.types import FloatArray, Task
from desopt.data import Rows
from desopt.data.twins import dense_twin, sparse_twin
from desopt.methods import METHODS, ProblemSize
from desopt.objectives import LOSSES, LinearModel, WorkerData

BATCH = 1000


@dataclass(frozen=True)
class DataShape:
    """Generated data with the shape of one of the paper's sets."""

    name: str
    n: int
    iterations: int
    nonzeros: float | None  # per row; None: dense
    rows: int = 20_000

    def data(self) -> tuple[Any, FloatArray]:
        return _data(self)


@cache
def _data(shape: DataShape) -> tuple[Any, FloatArray]:
    if shape.nonzeros is None:
        return dense_twin(shape.rows, shape.n)
    return sparse_twin(shape.rows, shape.n, shape.nonzeros)


RCV1 = DataShape("rcv1-like", 47_236, 500, 70.0)
MNIST = DataShape("mnist-like", 780, 500, 0.19 * 780)
COVTYPE = DataShape("covtype-like", 54, 100, None)
IJCNN1 = DataShape("ijcnn1-like", 22, 100, None)


@dataclass(frozen=True)
class Benchmark:
    """A line of the table: a method, its baseline, and the least ratio of their times."""

    shape: DataShape
    method: str
    against: str
    at_least: float
    loss: str = "lr"


BENCHMARKS = (
    Benchmark(RCV1, "des-mr", "mixture", 100.0),
    Benchmark(RCV1, "des-mg", "mixture", 100.0),
    Benchmark(RCV1, "des-mr", "des", 500.0),
    Benchmark(RCV1, "des", "des", 4.0),
    Benchmark(RCV1, "fed-zo-sgd", "fed-zo-sgd", 3.0),
    Benchmark(RCV1, "zo-signsgd", "zo-signsgd", 3.0),
    Benchmark(MNIST, "des-mr", "mixture", 12.0),
    Benchmark(COVTYPE, "des-mr", "mixture", 3.0),
    Benchmark(IJCNN1, "des-mr", "mixture", 3.0),
    Benchmark(COVTYPE, "des", "des", 2.0),
    Benchmark(IJCNN1, "des", "des", 2.0),
    *(Benchmark(shape, "es-csa", "es-csa", 1.5) for shape in (RCV1, MNIST, COVTYPE, IJCNN1)),
)

#: The losses against each other: none slower than the first, up to measurement noise.
LOSS_BENCHMARKS = tuple(
    (shape, method)
    for shape in (RCV1, COVTYPE)
    for method in ("des-mr", "des", "fed-zo-sgd", "zo-signsgd", "es-csa")
)


def worker_round(shape: DataShape, method: str, loss: str = "lr") -> tuple[Callable[[], Any], int]:
    """desopt's side: some rounds of one worker, and their number of local iterations."""
    X, y = shape.data()
    entry, problem = METHODS[method], _problem(shape)
    algorithm = entry.make(method, {"iterations": shape.iterations}, problem)
    model = LinearModel(loss)
    (shard,) = model.prepare([Rows((X, y))])
    local = WorkerData(model, shard, 0, 0, BATCH)  # type: ignore[arg-type]
    # Consecutive rounds, each with its own minibatch, as in a run. A single short round would be
    # timed with caches filled by the other side.
    x = np.zeros(shape.n)
    sparse = entry.sampler is not None and not entry.sampler.dense
    tasks = [Task(t, x, (1.0,)) for t in range(20 if sparse else 1)]

    def rounds() -> None:
        for task in tasks:
            algorithm.work(task, local, 0)

    return rounds, len(tasks) * entry.derived(problem).get("population", shape.iterations)


def _problem(shape: DataShape) -> ProblemSize:
    """Ten workers with this many rows each."""
    return ProblemSize(
        n=shape.n, rows=10 * shape.rows, workers=10, iterations=shape.iterations, batch_size=BATCH
    )


def baseline_round(benchmark: Benchmark) -> tuple[Callable[[], Any], int]:
    """NumPy's side: a round, with at most 100 iterations for large n."""
    shape = benchmark.shape
    X, y = shape.data()
    most = shape.iterations if shape.n < 1000 else 100
    count = METHODS[benchmark.method].derived(_problem(shape)).get("population", most)
    baseline = baselines.BASELINES[benchmark.against]
    rng = np.random.default_rng(0)
    return partial(baseline, X, y, np.zeros(shape.n), BATCH, count, benchmark.loss, rng), count


def alternate(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The fastest turn of each call; they alternate for about this long."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()  # compiles, fills caches
    until = time.perf_counter() + seconds
    turns = 0
    while turns < 3 or time.perf_counter() < until:
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - began)
        turns += 1
    return best


def measure(benchmark: Benchmark, seconds: float) -> dict[str, Any]:
    """One line of the table."""
    ours, our_count = worker_round(benchmark.shape, benchmark.method, benchmark.loss)
    theirs, their_count = baseline_round(benchmark)
    best = alternate({"desopt": ours, "numpy": theirs}, seconds)
    us, numpy_us = best["desopt"] / our_count * 1e6, best["numpy"] / their_count * 1e6
    return {
        "shape": benchmark.shape.name,
        "method": benchmark.method,
        "loss": benchmark.loss,
        "baseline": benchmark.against,
        "desopt_us": us,
        "numpy_us": numpy_us,
        "ratio": numpy_us / us,
        "at_least": benchmark.at_least,
    }


def measure_losses(seconds: float) -> Iterator[dict[str, Any]]:
    """The other losses against the first."""
    first, *others = LOSSES
    for shape, method in LOSS_BENCHMARKS:
        rounds = {loss: worker_round(shape, method, loss) for loss in LOSSES}
        best = alternate({loss: call for loss, (call, _) in rounds.items()}, seconds)
        count = rounds[first][1]
        for loss in others:
            yield {
                "shape": shape.name,
                "method": method,
                "loss": loss,
                "baseline": first,
                "desopt_us": best[loss] / count * 1e6,
                "numpy_us": best[first] / count * 1e6,
                "ratio": best[first] / best[loss],
                "at_least": 1.0,
            }


def measure_scaling(seconds: float) -> dict[str, list[dict[str, float]]]:
    """Times of des-mr by n, at 70 non-zeros per row, and by non-zeros per row, at rcv1's n."""
    by_n = [
        DataShape(f"n {n}", n, 500, 70.0, rows=10_000)
        for n in (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
    ]
    by_nonzeros = [
        DataShape(f"nnz {nnz}", 47_236, 500, float(nnz), rows=5_000)
        for nnz in (5, 20, 70, 200, 700)
    ]
    out: dict[str, list[dict[str, float]]] = {"by_n": [], "by_nonzeros": []}
    for name, shapes in (("by_n", by_n), ("by_nonzeros", by_nonzeros)):
        rounds = {shape.name: worker_round(shape, "des-mr") for shape in shapes}
        best = alternate({key: call for key, (call, _) in rounds.items()}, seconds)
        for shape in shapes:
            us = best[shape.name] / rounds[shape.name][1] * 1e6
            out[name].append({"n": shape.n, "nonzeros": shape.nonzeros or 0.0, "us": us})
    return out
