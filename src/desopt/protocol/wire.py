"""Messages between a server and its workers as bytes. docs/wire.md has them byte by byte.

Every message is a head of 24 bytes, a body and the CRC-32 of both. The head names the run, the
round and, by a digest, the sender's task, so that a replica that has diverged is noticed at once.
The CRC finds accidents; it is no signature, and a forger can compute it. The transport decides
who may speak (TLS, keys); here, the contents are checked.

Nothing is used before it is checked, and nothing is allocated by what a message claims: every
length is compared with the bytes that are there.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from desopt.contract import codec
from desopt.contract.payload import Cost, Layout
from desopt.contract.streams import STREAM_VERSION
from desopt.contract.types import Answer, Task

MAGIC = 0xD5
FORMAT_VERSION = 1

ANSWER, TOTAL, ASK = b"A", b"T", b"Q"  # from a worker
UPDATE, SNAPSHOT, DESCRIPTION = b"U", b"S", b"D"  # from the server

_HEAD = struct.Struct("<BcBBI8s8s")  # magic kind format stream round run digest
_CRC = struct.Struct("<I")
_TOTAL = struct.Struct("<IdQ")  # worker total rows
_SPAN = struct.Struct("<II")  # first round, bytes of a payload
_LENGTH = struct.Struct("<I")

#: Bytes of a message besides its body, and of an answer besides its payload.
FRAME = _HEAD.size + _CRC.size
OVERHEAD = FRAME + codec.ANSWER_BYTES

#: Limits of the two JSON texts, a run's settings and the names in a snapshot, and their nesting.
MAX_DESCRIPTION = 2**20
MAX_FIELDS = 2**12
MAX_DEPTH = 32

#: The most rounds in an update, also of rounds without answers, and rows of one worker.
MAX_REPLAY = 2**16
MAX_ROWS = 2**32

#: The digest of a replica without a state.
NOWHERE = bytes(8)

#: The errors of reading what is not a state.
_UNREADABLE = (
    ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error, zlib.error,
)  # fmt: skip


class Reason(StrEnum):
    """Why a message is refused."""

    LENGTH = "length"
    MAGIC = "magic"
    VERSION = "version"
    STREAM = "stream"
    CHECKSUM = "checksum"
    KIND = "kind"
    RUN = "run"
    LATE = "late"  # of a round that is over
    GAP = "gap"  # of a round that the receiver has not reached
    DUPLICATE = "duplicate"
    DIVERGED = "diverged"  # the digest is of another x
    WORKER = "worker"
    PAYLOAD = "payload"
    COUNTS = "counts"  # more than the method can have spent
    STATE = "state"
    DESCRIPTION = "description"


class WireError(ValueError):
    """A message was refused; ``reason`` is for programs, the text for people."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


@dataclass(frozen=True, slots=True)
class Message:
    """A complete message of this run, its body not yet decoded."""

    kind: bytes
    round: int
    digest: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of F over one worker's data at the x of the round, and the number of rows."""

    worker: int
    total: float
    rows: int


def task_digest(task: Task) -> bytes:
    """A digest of all that an answer depends on: the bits of x, the scalars and the memory."""
    digest = hashlib.blake2b(np.ascontiguousarray(task.x, "<f8").data, digest_size=8)
    digest.update(struct.pack(f"<{len(task.scalars)}d", *task.scalars))
    if task.memory is not None:
        digest.update(np.ascontiguousarray(task.memory, "<f8").data)
    return digest.digest()


# --- the frame -------------------------------------------------------------------------------


def seal(kind: bytes, run: bytes, round: int, digest: bytes, body: bytes = b"") -> bytes:
    """A complete message."""
    head = _HEAD.pack(MAGIC, kind, FORMAT_VERSION, STREAM_VERSION, round, run, digest)
    return head + body + _CRC.pack(zlib.crc32(body, zlib.crc32(head)))


def unseal(data: bytes, kinds: Sequence[bytes], limit: int, run: bytes | None = None) -> Message:
    """Check the frame: one of these kinds, at most ``limit`` bytes, of this run (None: any)."""
    if not FRAME <= len(data) <= limit:
        raise WireError(Reason.LENGTH, f"{len(data)} bytes; {FRAME} to {limit} are allowed")
    magic, kind, version, stream, round, of_run, digest = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise WireError(Reason.MAGIC, f"starts with {magic:#04x}, not {MAGIC:#04x}")
    if version != FORMAT_VERSION:
        raise WireError(Reason.VERSION, f"wire format {version}; this is {FORMAT_VERSION}")
    body = data[_HEAD.size : -_CRC.size]
    if _CRC.pack(zlib.crc32(data[: -_CRC.size])) != data[-_CRC.size :]:
        raise WireError(Reason.CHECKSUM, "the bytes do not match their CRC-32")
    if stream != STREAM_VERSION:
        raise WireError(Reason.STREAM, f"random streams {stream}; these are {STREAM_VERSION}")
    if kind not in kinds:
        raise WireError(Reason.KIND, f"{kind!r} is none of {b''.join(kinds)!r}, expected here")
    if run is not None and of_run != run:
        raise WireError(Reason.RUN, f"run {of_run.hex()}; this is run {run.hex()}")
    return Message(kind, round, digest, body)


def run_of(data: bytes) -> bytes:
    """The run that a message with a good frame names."""
    return data[8:16]


# --- from workers ----------------------------------------------------------------------


def pack_answer(run: bytes, round: int, digest: bytes, answer: Answer) -> bytes:
    """The answer: its payload and 48 bytes."""
    return seal(ANSWER, run, round, digest, codec.pack_answer(answer))


def unpack_answer(body: bytes, workers: int, layout: Layout) -> Answer:
    """The answer, its worker below ``workers``, its payload of the run's layout."""
    with _refusing():
        return codec.unpack_answer(body, workers, layout)


@contextmanager
def _refusing() -> Iterator[None]:
    """Bytes that do not decode, as a refusal."""
    try:
        yield
    except codec.Malformed as error:
        raise WireError(Reason(error.what), str(error)) from None


def check_counts(answer: Answer, cost: Cost, rows: int) -> None:
    """Refuse counts beyond what the method spends: they enter journals and stopping rules.

    ``rows``: the most rows that one function value can be over.
    """
    most = cost.most, answer.evaluations * rows, answer.evaluations
    said = answer.evaluations, answer.samples, answer.nans
    for name, count, limit in zip(("evaluations", "samples", "NaNs"), said, most, strict=True):
        if count > limit:
            text = f"worker {answer.worker} says {count} {name}; at most {limit} are possible"
            raise WireError(Reason.COUNTS, text)


def pack_total(run: bytes, round: int, digest: bytes, total: Total) -> bytes:
    """A sum over one worker's data."""
    body = _TOTAL.pack(total.worker, total.total, total.rows)
    return seal(TOTAL, run, round, digest, body)


def unpack_total(body: bytes, workers: int, *, finite: bool = True) -> Total:
    """The sum of a worker below ``workers``, over at least one row."""
    if len(body) != _TOTAL.size:
        raise WireError(Reason.LENGTH, f"a total has {_TOTAL.size} bytes, not {len(body)}")
    worker, total, rows = _TOTAL.unpack(body)
    if not 1 <= rows <= MAX_ROWS:
        raise WireError(Reason.COUNTS, f"a total over {rows} rows; 1 to {MAX_ROWS} are allowed")
    if finite and not math.isfinite(total):
        raise WireError(Reason.PAYLOAD, f"a total of {total}: it must be finite")
    with _refusing():
        return Total(codec.check_worker(worker, workers), total, rows)


# --- from the server --------------------------------------------------------------------


def pack_update(run: bytes, round: int, digest: bytes, size: int, rounds: Sequence[bytes]) -> bytes:
    """The rounds that lead to ``round``, each by ``codec.pack_round``; payloads of ``size``."""
    body = _SPAN.pack(round - len(rounds), size) + b"".join(rounds)
    return seal(UPDATE, run, round, digest, body)


def unpack_update(message: Message, size: int) -> tuple[int, list[bytes]]:
    """The first round that follows, and each round's answers for ``unpack_round``."""
    body = message.body
    if len(body) < _SPAN.size:
        raise WireError(Reason.LENGTH, f"an update of {len(body)} bytes names no rounds")
    first, length = _SPAN.unpack_from(body)
    if length != size:
        raise WireError(Reason.PAYLOAD, f"payloads of {length} bytes; this run's have {size}")
    with _refusing():
        rounds = codec.split_rounds(body[_SPAN.size :], size, MAX_REPLAY)
    if first + len(rounds) != message.round:
        raise WireError(Reason.LENGTH, f"{len(rounds)} rounds from {first} to {message.round}")
    return first, rounds


def unpack_round(block: bytes, workers: int) -> list[Answer]:
    """One round's answers, ordered by worker."""
    with _refusing():
        return codec.unpack_round(block, workers)


def update_bytes(rounds: int) -> int:
    """Bytes of an update whose rounds take ``rounds`` bytes."""
    return FRAME + _SPAN.size + rounds


def largest_update(state_bytes: int) -> int:
    """The longest message from the server for a state of this many bytes.

    zlib lengthens incompressible data by less than a part in a thousand.
    """
    return FRAME + MAX_FIELDS + state_bytes + state_bytes // 1000 + 64


def pack_snapshot(run: bytes, digest: bytes, state: Any, float32: bool = False) -> bytes:
    """The state itself, as the journal writes it; ``float32``: in half the bytes."""
    return seal(SNAPSHOT, run, state.round, digest, codec.pack_state(state, float32))


def unpack_snapshot(message: Message, like: Any) -> Any:
    """The state, with the fields and sizes that ``like`` has."""
    body = message.body
    try:
        (length,) = _LENGTH.unpack_from(body)
        if length > MAX_FIELDS:
            raise ValueError(f"{length} bytes of names; {MAX_FIELDS} are allowed")
        _read_json(body[_LENGTH.size : _LENGTH.size + length])
        state = codec.unpack_state(body, like)
    except _UNREADABLE as error:
        raise WireError(Reason.STATE, f"not a state of this run: {error}") from None
    if type(state.round) is not int or state.round != message.round:
        text = f"a state of round {state.round!r:.20} in a message of round {message.round}"
        raise WireError(Reason.STATE, text)
    return state


def pack_description(run: bytes, settings: Mapping[str, Any]) -> bytes:
    """The run's settings as JSON, for a worker that joins."""
    body = json.dumps(settings).encode()
    if len(body) > MAX_DESCRIPTION:
        raise ValueError(f"settings of {len(body)} bytes; at most {MAX_DESCRIPTION} are allowed")
    return seal(DESCRIPTION, run, 0, NOWHERE, body)


def unpack_description(data: bytes) -> tuple[bytes, dict[str, Any]]:
    """The run and its settings."""
    message = unseal(data, [DESCRIPTION], FRAME + MAX_DESCRIPTION)
    try:
        settings = _read_json(message.body)
    except (ValueError, RecursionError) as error:
        raise WireError(Reason.DESCRIPTION, f"not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise WireError(Reason.DESCRIPTION, "not a JSON object")
    return run_of(data), settings


def _read_json(text: bytes) -> Any:
    """Plain JSON: no NaN or infinity, not even as 1e999, no name twice, limited nesting."""
    found = json.loads(
        text, object_pairs_hook=_distinct, parse_float=_finite, parse_constant=_finite
    )
    level = [found]
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        if not level:
            return found
    raise ValueError(f"nested more than {MAX_DEPTH} deep")


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice in an object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.20} is not a finite number")
    return number
