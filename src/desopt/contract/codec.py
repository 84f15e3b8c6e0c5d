"""Answers and states as bytes: for pipes, messages and journals.

Three encodings of answers, all little-endian::

    answer   = worker (4 bytes) evaluations (4) samples (8) NaNs (4) payload
    round    = answers (4) worker (4) for each, payload for each     in a message
    round    = (gap, length: varints, payload) for each              in a journal

A single answer has counts; the answers of a round, from which a state is rebuilt, need none.
In a message all payloads of a round have the run's size. A journal has the length of each, and
workers as the gap to the previous one: one byte if most workers answered.

Decoding trusts nothing: lengths are compared with the bytes present before memory is allocated,
and anything that does not fit is ``Malformed``.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.scattered import PIECE, Scattered, pieces_of
from desopt.contract.types import Answer, FloatArray

_ANSWER = struct.Struct("<IIQI")  # worker evaluations samples NaNs
_COUNT = struct.Struct("<I")
_WORKER = 4  # bytes of a worker's number in a round

#: Bytes of an answer besides its payload.
ANSWER_BYTES = _ANSWER.size


class Malformed(ValueError):
    """Bytes that do not decode; ``what`` is "length", "worker" or "payload"."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(text)
        self.what = what


def digest_of(x: FloatArray) -> str:
    """A short name for the bits of an array."""
    digest = hashlib.blake2b(digest_size=8)
    for piece in pieces_of(x):
        digest.update(np.ascontiguousarray(piece, "<f8").data)
    return digest.hexdigest()


# --- one answer ------------------------------------------------------------------------------


def pack_answer(answer: Answer) -> bytes:
    """An answer with its counts."""
    counts = answer.worker, answer.evaluations, answer.samples, answer.nans
    return _ANSWER.pack(*counts) + answer.payload


def unpack_answer(data: bytes, workers: int, layout: Layout) -> Answer:
    """The answer of a worker below ``workers``, its payload of this layout."""
    if len(data) < _ANSWER.size:
        raise Malformed("length", f"an answer of {len(data)} bytes has no counts")
    worker, *counts = _ANSWER.unpack_from(data)
    answer = Answer(check_worker(worker, workers), data[_ANSWER.size :], *counts)
    try:
        layout.decode(answer)
    except ValueError as error:
        raise Malformed("payload", str(error)) from None
    return answer


def check_worker(worker: int, workers: int) -> int:
    """The worker's number; refused unless it is below ``workers``."""
    if worker >= workers:
        raise Malformed("worker", f"worker {worker} of {workers}")
    return worker


# --- the answers of a round, in a message ----------------------------------------------------


def round_bytes(answers: int, size: int) -> int:
    """Bytes of a round with this many answers of ``size`` bytes."""
    return _COUNT.size + answers * (_WORKER + size)


def pack_round(answers: Sequence[Answer]) -> bytes:
    """A round's answers, their payloads of equal length."""
    sizes = {len(answer.payload) for answer in answers}
    if len(sizes) > 1:
        raise ValueError(f"the payloads of a round must be equally long, got {sorted(sizes)} bytes")
    workers = np.array([answer.worker for answer in answers], "<u4").tobytes()
    return _COUNT.pack(len(answers)) + workers + b"".join(answer.payload for answer in answers)


def split_rounds(data: bytes, size: int, most: int) -> list[bytes]:
    """The rounds that follow one another, at most ``most``, with payloads of ``size`` bytes."""
    rounds: list[bytes] = []
    at = 0
    while at < len(data):
        left = len(data) - at
        count = _COUNT.unpack_from(data, at)[0] if left >= _COUNT.size else 0
        end = at + round_bytes(count, size)
        if end > len(data):
            raise Malformed("length", f"{count} answers claimed in the {left} bytes left")
        if len(rounds) == most:
            raise Malformed("length", f"more than {most} rounds")
        rounds.append(data[at:end])
        at = end
    return rounds


def unpack_round(data: bytes, workers: int) -> list[Answer]:
    """The answers of one round of ``split_rounds``, in order of their workers."""
    (count,) = _COUNT.unpack_from(data)
    who = np.frombuffer(data, "<u4", count, _COUNT.size)
    if (who >= workers).any() or (who[1:] <= who[:-1]).any():
        raise Malformed("worker", f"workers must rise and stay below {workers}")
    at = round_bytes(count, 0)
    size = (len(data) - at) // max(count, 1)
    return [Answer(int(w), data[at + i * size : at + (i + 1) * size]) for i, w in enumerate(who)]


# --- the answers of a round, in a journal ----------------------------------------------------


def pack_entries(answers: Sequence[Answer]) -> bytes:
    """A round's answers as gaps, lengths and payloads; their number is written elsewhere."""
    parts: list[bytes] = []
    expected = 0
    for answer in answers:
        parts += _varint(answer.worker - expected), _varint(len(answer.payload)), answer.payload
        expected = answer.worker + 1
    return b"".join(parts)


def unpack_entries(data: bytes, count: int, workers: int) -> list[Answer]:
    """The ``count`` answers, in order of their workers; nothing may follow them."""
    answers: list[Answer] = []
    at, worker = 0, -1
    for _ in range(count):
        gap, at = _read_varint(data, at)
        length, at = _read_varint(data, at)
        worker = check_worker(worker + gap + 1, workers)
        if at + length > len(data):
            raise Malformed("length", f"an answer of worker {worker}, {length} bytes long")
        answers.append(Answer(worker, data[at : at + length]))
        at += length
    if at != len(data):
        raise Malformed("length", f"{len(data) - at} bytes follow the last answer")
    return answers


def _varint(number: int) -> bytes:
    """7 bits a byte, lowest first; the top bit says that more follow."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where the next one starts."""
    number = shift = 0
    while shift < 64 and at < len(data):
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    raise Malformed("length", "a number of more than 64 bits, or cut off")


# --- states ----------------------------------------------------------------------------------


def in_float32(algorithm: Any) -> bool:
    """Whether the states of an algorithm have numbers of float32 only."""
    return bool(getattr(algorithm, "float32", False))


def state_bytes(state: Any, float32: bool = False) -> int:
    """Bytes of all arrays of a state."""
    total: int = sum(value.nbytes for value in _arrays(_fields(state)).values())
    return total // 2 if float32 else total


def pack_state(state: Any, float32: bool = False) -> bytes:
    """A state: its names, sizes and scalars as JSON, then its arrays, compressed.

    ``float32``: all numbers are of float32, and are stored so.
    """
    values = _fields(state)
    arrays = _arrays(values)
    plain = {name: value for name, value in values.items() if name not in arrays}
    kind = {"type": _FLOAT32} if float32 else {}
    meta = json.dumps(
        {"plain": plain, "arrays": {name: a.size for name, a in arrays.items()}} | kind
    ).encode()
    size = "<f4" if float32 else "<f8"
    packer = zlib.compressobj(1)
    body = [
        packer.compress(np.ascontiguousarray(piece, size).data)
        for array in arrays.values()
        for piece in pieces_of(array)
    ]
    return b"".join((_COUNT.pack(len(meta)), meta, *body, packer.flush()))


#: The type of numbers in a state that is not float64.
_FLOAT32 = "float32"


def unpack_state(payload: bytes, like: Any) -> Any:
    """The state, with the fields, types and sizes of ``like``.

    Raises ValueError, or what the parsers raise: ``struct.error``, ``zlib.error``, KeyError,
    TypeError, AttributeError, RecursionError. Nothing is unpacked beyond the sizes of ``like``.
    """
    meta, body = state_parts(payload)
    wanted = _fields(like)
    sizes = {name: value.size for name, value in _arrays(wanted).items()}
    if meta["arrays"] != sizes or meta["plain"].keys() != wanted.keys() - sizes.keys():
        raise ValueError(f"its fields or their sizes are not those of {type(like).__name__}")
    values = meta["plain"] | _unpack_arrays(body, _arrays(wanted), "type" in meta)
    for name, value in wanted.items():
        if not _same_kind(values[name], value):
            raise ValueError(f"{name} cannot have the value {values[name]!r:.40}")
    return type(like)(**values)


def state_parts(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Names, sizes and scalars of a state, checked, and its arrays, still compressed."""
    (size,) = _COUNT.unpack_from(payload)
    start = _COUNT.size
    meta = json.loads(payload[start : start + size])
    if meta.get("type", _FLOAT32) != _FLOAT32:
        raise ValueError(f"numbers of the type {meta['type']!r:.20}")
    if meta.keys() - {"type"} != {"plain", "arrays"} or not isinstance(meta["plain"], dict):
        raise ValueError("not the fields of a state")
    if not all(type(each) is int and each >= 0 for each in meta["arrays"].values()):
        raise ValueError("sizes of arrays must be whole numbers")
    return meta, payload[start + size :]


def _unpack_arrays(body: bytes, like: Mapping[str, Any], float32: bool) -> dict[str, Any]:
    """Arrays of the sizes of ``like``, and scattered as these are."""
    kind = np.dtype("<f4" if float32 else "<f8")
    total = kind.itemsize * sum(array.size for array in like.values())
    unpacker = zlib.decompressobj()
    left = body

    def taken(count: int) -> bytes:
        nonlocal left
        found = unpacker.decompress(left, count) if count else b""
        left = unpacker.unconsumed_tail
        return found

    def pieces(size: int) -> Iterator[FloatArray]:
        for begin in range(0, size, PIECE):
            wanted = min(PIECE, size - begin) * kind.itemsize
            data = taken(wanted)
            while len(data) < wanted and (more := taken(wanted - len(data))):
                data += more
            if len(data) != wanted:
                raise ValueError(f"its arrays do not have the {total} bytes that it declares")
            yield np.frombuffer(data, kind).astype(np.float64)

    found: dict[str, Any] = {}
    for name, array in like.items():
        if isinstance(array, Scattered):
            found[name] = Scattered.of(pieces(array.size))
        else:
            found[name] = np.concatenate([np.empty(0), *pieces(array.size)])
    if taken(1) or not unpacker.eof:
        raise ValueError(f"its arrays do not have the {total} bytes that it declares")
    return found


def _fields(state: Any) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state)}


def _arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    return {n: value for n, value in values.items() if isinstance(value, np.ndarray | Scattered)}


def _same_kind(found: Any, like: Any) -> bool:
    """Whether ``found`` is a possible value of a field that starts as ``like``."""
    if type(like) in (int, float):  # a scalar may start as 1 and become 0.5
        return isinstance(found, float) or (type(found) is int and abs(found) < 2**63)
    return type(found) is type(like)
