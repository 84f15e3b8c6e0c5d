"""The payload of an answer: accept bits or scalars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from desopt.contract.types import Algorithm, Answer, BoolArray, ByteArray, FloatArray


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
            "form, a desopt.contract.payload.Form"
        )
    return form
