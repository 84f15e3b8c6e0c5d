"""Samplers, small problems and searches driven by hand, for the tests of methods and objectives."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desopt import METHODS
from desopt.contract.payload import Layout
from desopt.contract.types import Answer, Batches, LocalSearch, Task
from desopt.data import as_shards
from desopt.methods.samplers import (
    CustomSampler,
    Gaussian,
    Key,
    MixtureGaussian,
    MixtureRademacher,
    Sampler,
)
from desopt.methods.searches import OnePlusOne
from desopt.objectives import LinearModel, PythonObjective, WorkerData

Floats = NDArray[np.float64]


def draw_dense(random: np.random.Generator, n: int) -> Floats:
    return random.uniform(-(3**0.5), 3**0.5, n)


def draw_sparse(random: np.random.Generator, n: int) -> tuple[Any, Any]:
    """A varying number of coordinates, some of them twice."""
    size = int(random.integers(0, 5))
    return random.integers(0, n, size), random.standard_normal(size)


SAMPLERS: list[Sampler] = [
    Gaussian(),
    *(mixture(l) for mixture in (MixtureGaussian, MixtureRademacher) for l in (1, 3, 8, 50)),
    CustomSampler(draw_dense),
    CustomSampler(draw_sparse),
]
TWO_POINT = tuple(name for name, method in METHODS.items() if method.pairs)
BITS = tuple(name for name, method in METHODS.items() if method.answer.endswith("bits"))


def case_name(value: Any) -> str:
    if isinstance(value, CustomSampler):
        return value.draw.__name__
    return str(value or "own")


def make(name: str, sampler: Sampler | None = None, **changes: Any) -> Any:
    values = {"step_size": 0.5, "iterations": 6, "momentum": 0.5, "seed": 3, "radius": 1e-6,
              "mixture": 8, "population": 5, "perturbations": 1, "sampler": sampler}  # fmt: skip
    return METHODS[name].make(name, values | changes)


def mean_of_squares(x: Floats, batch: Any) -> float:
    X, y = batch
    return float(np.mean((X @ x - y) ** 2))


def locals_of(kind: str, n: int, workers: int, seed: int, b: int = 4) -> list[WorkerData]:
    """The workers' sides for a compiled objective, dense or CSR, or for a callable."""
    random = np.random.default_rng(seed % 1000)
    X = random.standard_normal((3 * workers + 2, n)) * (random.random(n) < 0.7)
    y = np.where(random.random(len(X)) < 0.5, 1.0, -1.0)
    data = (sparse.csr_array(X) if kind == "csr" else X), y
    objective: Any = PythonObjective(mean_of_squares) if kind == "callable" else LinearModel("lr")
    shards: Any = objective.prepare(as_shards(data, workers, seed))
    return [WorkerData(objective, shard, seed, i, b) for i, shard in enumerate(shards)]


def one_plus_one(sampler: Sampler, x: Floats, alpha: Floats, key: Key) -> OnePlusOne:
    """A search on one minibatch."""
    return OnePlusOne(
        Task(key.round, x), key.worker, sampler.proposals(alpha, key, x.size),
        layout=Layout(bits=alpha.size), batches=Batches.ROUND, dense=sampler.dense,
    )  # fmt: skip


def by_hand(search: LocalSearch, value: Callable[[Floats, int], float], p: int = 1) -> Any:
    """Ask for p points at a time until the search is done."""
    while points := search.ask(p):
        assert len(points) <= p
        search.tell([value(x, k) for x, k in zip(points, search.iterations, strict=True)])
    return search


def answer_by_hand(algorithm: Any, task: Task, local: WorkerData, p: int) -> Answer:
    """The answer of ``algorithm.work``, p points at a time."""
    search = algorithm.search(task, local.worker)
    f = local.function(task.x, task.round, search.batches)
    return by_hand(search, f.value, p).answer(f.rows)  # type: ignore[no-any-return]


def bits(value: Any) -> Any:
    """Something that is equal only where every bit is."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return [bits(item) for item in value]
    if is_dataclass(value):
        return type(value), [bits(getattr(value, field.name)) for field in fields(value)]
    return np.float64(value).tobytes() if isinstance(value, float) else value
