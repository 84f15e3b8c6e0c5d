"""What an answer holds, and what it costs: both declared once, by the algorithm.

An answer's payload is packed accept bits, then float32, then float64 numbers, all
little-endian. Every answer of a run has the same ``Layout``, so a payload needs no lengths of
its own, and whoever receives one can check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desopt.contract.types import Algorithm, Answer, BoolArray, ByteArray, FloatArray


@dataclass(frozen=True)
class Cost:
    """Function values per worker and round.

    ``least``: the fewest with which a round can do anything. ``most``: all that it computes
    without a limit. ``whole``: each value is over all of a worker's data, not over a minibatch.
    """

    least: int
    most: int
    whole: bool = False


class Payload(NamedTuple):
    """The contents of an answer."""

    bits: BoolArray
    float32: NDArray[np.float32]
    float64: FloatArray


class Packed(NamedTuple):
    """The contents of many answers, a row for each; the bits are still packed."""

    bits: ByteArray
    float32: NDArray[np.float32]
    float64: FloatArray


@dataclass(frozen=True)
class Layout:
    """How many bits, float32 and float64 numbers every answer of a run holds.

    Bit k is bit k % 8 of byte k // 8. With ``missing``, a number may be +inf, which stands for
    a value that could not be computed; all others are finite.
    """

    bits: int = 0
    float32: int = 0
    float64: int = 0
    missing: bool = False

    def __post_init__(self) -> None:
        if min(self.bits, self.float32, self.float64) < 0:
            raise ValueError(f"a layout has no negative counts, got {self}")

    @property
    def size(self) -> int:
        """Bytes of a payload."""
        return self._bit_bytes + 4 * self.float32 + 8 * self.float64

    def encode(
        self, bits: ArrayLike = (), float32: ArrayLike = (), float64: ArrayLike = ()
    ) -> bytes:
        """The payload. Trailing values that are not given are 0."""
        packed = np.packbits(_values(bits, np.bool_, self.bits), bitorder="little")
        singles = _values(float32, np.dtype("<f4"), self.float32)
        doubles = _values(float64, np.dtype("<f8"), self.float64)
        return packed.tobytes() + singles.tobytes() + doubles.tobytes()

    def decode(self, answer: Answer) -> Payload:
        """The contents of an answer; a ValueError if they do not fit this layout."""
        payload, start = answer.payload, self._bit_bytes
        if len(payload) != self.size:
            raise ValueError(
                f"answer of worker {answer.worker} has {len(payload)} bytes; "
                f"{self._contents()} take {self.size}"
            )
        bits = np.unpackbits(np.frombuffer(payload, np.uint8, start), bitorder="little")
        if bits[self.bits :].any():
            last = self.bits - 1
            raise ValueError(f"answer of worker {answer.worker} has bits set beyond bit {last}")
        singles = np.frombuffer(payload, "<f4", self.float32, start).astype(np.float32)
        doubles = np.frombuffer(payload, "<f8", self.float64, start + 4 * self.float32)
        for numbers in (singles, doubles):
            self._check_numbers(answer, numbers)
        accepted = bits[: self.bits].astype(np.bool_)
        return Payload(accepted, singles, doubles.astype(np.float64))

    def packed(self, answers: Sequence[Answer]) -> Packed:
        """Many answers at once, checked as ``decode`` does."""
        start, used = self._bit_bytes, self.bits % 8 or 8
        for answer in answers:
            payload = answer.payload
            if len(payload) != self.size or (start and payload[start - 1] >> used):
                self.decode(answer)  # it raises an error that says what is wrong
        rows = np.frombuffer(b"".join(a.payload for a in answers), np.uint8)
        rows = rows.reshape(len(answers), self.size)
        middle = start + 4 * self.float32
        singles = np.ascontiguousarray(rows[:, start:middle]).view("<f4")
        doubles = np.ascontiguousarray(rows[:, middle:]).view("<f8")
        if not (self._legal(singles).all() and self._legal(doubles).all()):
            for answer in answers:
                self.decode(answer)
        return Packed(rows[:, :start], singles, doubles)

    @property
    def _bit_bytes(self) -> int:
        return (self.bits + 7) // 8

    def _check_numbers(self, answer: Answer, numbers: NDArray[Any]) -> None:
        legal = self._legal(numbers)
        if not legal.all():
            odd = "a NaN" if np.isnan(numbers[~legal][0]) else "an infinite"
            raise ValueError(f"answer of worker {answer.worker} has {odd} scalar")

    def _legal(self, numbers: NDArray[Any]) -> BoolArray:
        legal: BoolArray = np.isfinite(numbers) | (self.missing & (numbers == np.inf))
        return legal

    def _contents(self) -> str:
        counts = {"accept bits": self.bits, "float32": self.float32, "float64": self.float64}
        named = [f"{count} {name}" for name, count in counts.items() if count]
        return " and ".join(named) or "no values"


def _values(given: ArrayLike, dtype: Any, count: int) -> NDArray[Any]:
    """The values, followed by zeros up to ``count``."""
    values = np.asarray(given, dtype)
    if values.ndim != 1 or values.size > count:
        raise ValueError(f"values of shape {values.shape} for a layout with {count} of this type")
    if values.size == count:
        return values
    return np.concatenate([values, np.zeros(count - values.size, dtype)])


def layout_of(algorithm: Algorithm) -> Layout:
    """The layout of the algorithm's answers; without one they cannot be checked."""
    layout = getattr(algorithm, "layout", None)
    if not isinstance(layout, Layout):
        raise TypeError(
            f"method {algorithm.name!r} declares no layout: give it an attribute layout, a "
            "desopt.contract.payload.Layout with the numbers of values in an answer"
        )
    return layout
