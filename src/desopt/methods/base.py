"""What the methods share: settings and their checks, and the two forms of an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from desopt.contract.payload import Cost, Layout
from desopt.contract.streams import MAX_ITERATIONS
from desopt.contract.types import (
    Answer,
    FloatArray,
    LocalFunction,
    Task,
    Walked,
)
from desopt.methods.samplers import Key, Sampler


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyper-parameters of every method: alpha, K and the seed of all random streams."""

    name: str
    step_size: float = 1.0
    iterations: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be a finite number > 0, got {self.step_size!r}")
        if not 1 <= self.iterations <= MAX_ITERATIONS:
            raise ValueError(f"iterations must be 1 to {MAX_ITERATIONS}, got {self.iterations!r}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be 0 to 2**64 - 1, got {self.seed!r}")

    def settings(self) -> dict[str, Any]:
        """All hyper-parameters as plain JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v.settings() if isinstance(v, Sampler) else v for k, v in values.items()}


@dataclass(frozen=True, kw_only=True)
class TwoPointSettings(Settings):
    """Methods on central differences: two values per estimate, so K/2 of them."""

    radius: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations % 2:
            raise ValueError(
                f"iterations must be even for {self.name} (K/2 two-point estimates), "
                f"got {self.iterations}; use {self.iterations + 1}"
            )
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"radius must be a finite number > 0, got {self.radius!r}")

    @property
    def estimates(self) -> int:
        """K' = K/2."""
        return self.iterations // 2

    @property
    def layout(self) -> Layout:
        return Layout(float64=self.estimates)

    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations)

    def affordable(self, task: Task) -> int:
        """The estimates of this round."""
        return affordable(self.estimates, task.limit, each=2)


@dataclass(frozen=True, kw_only=True)
class ProblemSize:
    """What a method may work out its defaults from: n, N (None: no rows), M, K and b."""

    n: int
    rows: int | None
    workers: int
    iterations: int
    batch_size: int


StateT = TypeVar("StateT", bound=Any)


def unmoved(state: StateT) -> StateT:
    """The state after a round in which nobody answered: the round counts, nothing else changes."""
    return replace(state, round=state.round + 1)


def finite_or(new: FloatArray, old: FloatArray) -> FloatArray:
    """``new``, and ``old`` where it is not finite: no merge leaves the finite numbers."""
    finite = np.isfinite(new)
    return new if finite.all() else np.where(finite, new, old)


def affordable(count: int, limit: int | None, *, each: int = 1, first: int = 0) -> int:
    """Of ``count`` iterations those that a task's limit allows, and at least one.

    An iteration takes ``each`` values, and ``first`` come before them.
    """
    return count if limit is None else max(1, min(count, (limit - first) // each))


def search_answer(
    sampler: Sampler, f: LocalFunction, alpha: FloatArray, key: Key, limit: int | None
) -> Answer:
    """Run a (1+1) search of K steps on f; the answer is its accept bits."""
    steps = affordable(alpha.size, limit, first=1)
    accepted = sampler.search(f, alpha[:steps], key)
    return Answer(
        key.worker,
        Layout(bits=alpha.size).encode(accepted),
        evaluations=f.evaluations,
        samples=f.evaluations * f.rows,
        nans=f.nans,
        point=f.point if sampler.dense else None,
        change=f.change,
    )


def slopes_answer(worker: int, walked: Walked, point: FloatArray, count: int) -> Answer:
    """The answer of a worker that made two-point estimates: its slopes; 0 where it made none."""
    slopes, evaluations, samples, nans = walked
    payload = Layout(float64=count).encode(float64=slopes)
    return Answer(worker, payload, evaluations, samples, nans, point)
