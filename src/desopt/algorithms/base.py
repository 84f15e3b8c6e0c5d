"""What the methods share: settings and their checks, and the two forms of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from desopt.rng import MAX_ITERATIONS
from desopt.samplers import Key, Sampler
from desopt.types import (
    Algorithm,
    Answer,
    BoolArray,
    ByteArray,
    FloatArray,
    LocalFunction,
    Task,
    Walked,
)


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
    def form(self) -> Form:
        return Form(scalars=self.estimates, each=2)

    @property
    def cost(self) -> tuple[int, int]:
        return 2, self.iterations

    def affordable(self, task: Task) -> int:
        """The estimates of this round."""
        return affordable(self.estimates, task.limit, each=2)


StateT = TypeVar("StateT", bound=Any)


def unmoved(state: StateT) -> StateT:
    """The state after a round in which nobody answered: the round counts, nothing else changes."""
    return replace(state, round=state.round + 1)


def finite_or(new: FloatArray, old: FloatArray) -> FloatArray:
    """``new``, and ``old`` where it is not finite: no merge leaves the finite numbers."""
    finite = np.isfinite(new)
    return new if finite.all() else np.where(finite, new, old)


def pack_bits(accepted: BoolArray, count: int = 0) -> bytes:
    """K accept bits in K/8 bytes; bit k is bit k % 8 of byte k // 8. Up to ``count``, 0 follow."""
    return np.packbits(accepted, bitorder="little").tobytes().ljust((count + 7) // 8, b"\0")


def unpack_bits(answer: Answer, count: int) -> BoolArray:
    """The accept bits of an answer, refused where they are not ``count`` bits."""
    size = (count + 7) // 8
    if len(answer.payload) != size:
        raise ValueError(
            f"answer of worker {answer.worker} has {len(answer.payload)} bytes; "
            f"{count} accept bits take {size}"
        )
    bits = np.unpackbits(np.frombuffer(answer.payload, np.uint8), bitorder="little")
    if bits[count:].any():
        raise ValueError(f"answer of worker {answer.worker} has bits set beyond bit {count - 1}")
    return bits[:count].astype(np.bool_)


def packed_bits(answers: Sequence[Answer], count: int) -> ByteArray:
    """The payloads as the rows of a matrix, refused as ``unpack_bits`` does."""
    size, used = (count + 7) // 8, count % 8 or 8
    for answer in answers:
        if len(answer.payload) != size or answer.payload[-1] >> used:
            unpack_bits(answer, count)  # says what is wrong
    return np.frombuffer(b"".join(a.payload for a in answers), np.uint8).reshape(-1, size)


def pack_scalars(values: FloatArray) -> bytes:
    """Little-endian float64."""
    return values.astype("<f8").tobytes()


def unpack_scalars(answer: Answer, count: int, missing: bool = False) -> FloatArray:
    """The scalars of an answer, refused where they are not ``count`` finite numbers.

    ``missing`` allows +inf, for a value that could not be had.
    """
    if len(answer.payload) != 8 * count:
        raise ValueError(
            f"answer of worker {answer.worker} has {len(answer.payload)} bytes; "
            f"{count} scalars take {8 * count}"
        )
    values = np.frombuffer(answer.payload, "<f8").astype(np.float64)
    legal = np.isfinite(values) | (missing & (values == np.inf))
    if not legal.all():
        odd = values[~legal][0]
        said = "a NaN" if np.isnan(odd) else "an infinite"
        raise ValueError(f"answer of worker {answer.worker} has {said} scalar")
    return values


@dataclass(frozen=True)
class Form:
    """What every answer of a run holds: accept bits or scalars, how many, and what they cost.

    ``each``: function values that a scalar takes; K bits take K + 1. ``whole``: these are over
    all of a worker's data, not over a minibatch. ``missing``: a scalar may be +inf, for a value
    that could not be had.
    """

    bits: int = 0
    scalars: int = 0
    each: int = 2
    whole: bool = False
    missing: bool = False

    @property
    def size(self) -> int:
        """Bytes of a payload."""
        return (self.bits + 7) // 8 + 8 * self.scalars

    @property
    def evaluations(self) -> int:
        """The most function values that an answer can have taken."""
        return self.bits + 1 if self.bits else self.each * self.scalars

    def check(self, answer: Answer) -> None:
        """Refuse a payload that ``merge`` could not read."""
        if self.bits:
            unpack_bits(answer, self.bits)
        else:
            unpack_scalars(answer, self.scalars, self.missing)


def form_of(algorithm: Algorithm) -> Form:
    """The form of the algorithm's answers, without which they could not be checked."""
    form = getattr(algorithm, "form", None)
    if not isinstance(form, Form):
        raise TypeError(
            f"method {algorithm.name!r} has no form; to be sent, its answers need a property "
            "form, a desopt.algorithms.base.Form"
        )
    return form


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
        pack_bits(accepted, alpha.size),
        evaluations=f.evaluations,
        samples=f.evaluations * f.rows,
        nans=f.nans,
        point=f.point if sampler.dense else None,
        change=f.change,
    )


def slopes_answer(worker: int, walked: Walked, point: FloatArray, count: int) -> Answer:
    """The answer of a worker that made two-point estimates: its slopes; 0 where it made none."""
    slopes, evaluations, samples, nans = walked
    payload = pack_scalars(slopes).ljust(8 * count, b"\0")
    return Answer(worker, payload, evaluations, samples, nans, point)
