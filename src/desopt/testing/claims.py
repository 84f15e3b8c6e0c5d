"""Shared by the checks: claims with messages, comparisons of bits, and a small problem."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle
import numpy as np

from desopt.contract.types import Algorithm, Answer, Batches, FloatArray, LocalSearch
from desopt.data import as_shards
from desopt.engines import Job
from desopt.objectives import PythonObjective

#: The small problem: 4 workers with 12 rows of 5 columns each, minibatches of 6 rows.
N, WORKERS, ROWS, BATCH, SEED = 5, 4, 48, 6, 3


@dataclass(frozen=True)
class Claims:
    """The claims of a contract about one object, called ``subject`` in the messages."""

    subject: str

    def __call__(self, holds: Any, contract: str, seen: str) -> None:
        """An AssertionError unless the claim holds."""
        if not holds:
            raise AssertionError(f"{self.subject}: {contract}. {seen}.")

    def has(self, thing: Any, *members: str) -> None:
        """It has all of these members."""
        missing = [name for name in members if not hasattr(thing, name)]
        listed = ", ".join(members)
        self(not missing, f"it must have the members {listed}", f"It has no {', '.join(missing)}")

    def plain_settings(self, thing: Any) -> dict[str, Any]:
        """Its settings are plain JSON values with a name; they are returned."""
        settings = thing.settings()
        try:
            written = json.loads(json.dumps(settings, allow_nan=False))
        except (TypeError, ValueError) as error:
            written = error
        self(
            written == settings,
            "settings() must be plain JSON values, equal after a round trip",
            f"settings() is {settings!r}, after the round trip {written!r}",
        )
        self(
            isinstance(settings.get("name"), str) and settings["name"],
            'settings()["name"] must be the name',
            f"settings() is {settings!r}",
        )
        return dict(settings)

    def pickles(self, thing: Any) -> Any:
        """Its copy in another process, as cloudpickle would make it."""
        try:
            return cloudpickle.loads(cloudpickle.dumps(thing))
        except Exception as error:
            raise AssertionError(
                f"{self.subject}: it must pickle by cloudpickle, to reach other processes. "
                f"That raised {type(error).__name__}: {error}."
            ) from error

    @contextmanager
    def no_global_randomness(self) -> Iterator[None]:
        """Nothing inside draws from a global generator."""
        before = _generators()
        yield
        self(
            _generators() == before,
            "randomness is a function of (seed, round, worker, iteration, purpose)",
            "A global random generator was used",
        )


def _generators() -> Any:
    """The state of Python's and NumPy's global generators."""
    _, key, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - only read
    return random.getstate(), bits(key), rest


def bits(value: Any) -> Any:
    """A value for comparisons in every bit: arrays and floats as bytes."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, tuple | list):
        return [bits(item) for item in value]
    return value


def state_bits(state: Any) -> dict[str, Any]:
    """Every field of a state, bit for bit."""
    return {field.name: bits(getattr(state, field.name)) for field in fields(state)}


def sent(answer: Answer) -> tuple[int, bytes, int, int, int]:
    """What an engine would send of an answer."""
    return answer.worker, answer.payload, answer.evaluations, answer.samples, answer.nans


def least_squares(x: FloatArray, batch: Any) -> float:
    """The mean of (z^T x - y)^2: an objective on which every method makes steps."""
    Z, y = batch
    return float(np.mean((Z @ x - y) ** 2))


def small_data() -> tuple[FloatArray, FloatArray]:
    """A linear regression with noise; y is never 0."""
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((ROWS, N))
    return Z, Z @ np.arange(1.0, N + 1.0) + 0.1 * rng.standard_normal(ROWS)


def small_job(
    algorithm: Algorithm, fun: Callable[..., float] = least_squares, participation: float = 1.0
) -> Job:
    """The small problem for this algorithm."""
    workers = 1 if getattr(algorithm, "single_worker", False) else WORKERS
    shards = as_shards(small_data(), workers, SEED)
    return Job(algorithm, PythonObjective(fun), shards, BATCH, SEED, N, participation)


def read_only(x: FloatArray) -> FloatArray:
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def dialogue(
    claim: Claims, search: LocalSearch, value: Callable[[FloatArray, int], float], p: int
) -> None:
    """Bring a search to its end by ``ask(p)`` and ``tell``, checking the conversation."""
    fresh = search.batches is Batches.ITERATION
    while points := search.ask(p):
        claim(1 <= len(points) <= p, "ask(p) gives at most p points", f"ask({p}): {len(points)}")
        writeable = any(point.flags.writeable for point in points)
        claim(not writeable, "the points of ask are read-only", "A point can be written to")
        again = search.ask(p)
        claim(
            bits(list(points)) == bits(list(again)),
            "ask before tell gives the same points again",
            f"The second ask({p}) gave others",
        )
        at: Sequence[int] = search.iterations
        claim(
            len(at) == len(points),
            "iterations has one entry per point",
            f"{len(points)} points, iterations {list(at)}",
        )
        search.tell([value(x, k if fresh else 0) for x, k in zip(points, at, strict=True)])
