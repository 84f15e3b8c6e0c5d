"""The few bytes that pass between an engine and its processes. No pickle."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator

from desopt.contract.errors import ObjectiveError
from desopt.contract.types import Answer

WORK, TOTAL = b"W", b"T"
READY, ANSWER, SUM, ERROR = b"r", b"a", b"s", b"e"

_REQUEST = struct.Struct("<cQIQ")
_ANSWER = struct.Struct("<cIQQQ?")
_SUM = struct.Struct("<cdQ")
_LENGTH = struct.Struct("<I")


def pack_request(
    kind: bytes,
    round: int,
    worker: int,
    scalars: tuple[float, ...] = (),
    limit: int | None = None,
) -> bytes:
    head = _REQUEST.pack(kind, round, worker, limit or 0)
    return head + struct.pack(f"<{len(scalars)}d", *scalars)


def unpack_request(message: bytes) -> tuple[bytes, int, int, tuple[float, ...], int | None]:
    kind, round, worker, limit = _REQUEST.unpack_from(message)
    tail = message[_REQUEST.size :]
    return kind, round, worker, struct.unpack(f"<{len(tail) // 8}d", tail), limit or None


def pack_answer(answer: Answer) -> bytes:
    """All but the point, which is left in shared memory."""
    numbers = answer.evaluations, answer.samples, answer.nans
    return _ANSWER.pack(ANSWER, answer.worker, *numbers, answer.point is not None) + answer.payload


def unpack_answer(message: bytes) -> tuple[Answer, bool]:
    """The answer, and whether its point is in shared memory."""
    _, worker, evaluations, samples, nans, has_point = _ANSWER.unpack_from(message)
    return Answer(worker, message[_ANSWER.size :], evaluations, samples, nans), has_point


def pack_sum(total: float, rows: int) -> bytes:
    return _SUM.pack(SUM, total, rows)


def unpack_sum(message: bytes) -> tuple[float, int]:
    _, total, rows = _SUM.unpack(message)
    return total, rows


def pack_list(messages: Iterable[bytes]) -> bytes:
    """Several messages as one."""
    return b"".join(_LENGTH.pack(len(message)) + message for message in messages)


def unpack_list(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(data, at)[0]
        yield data[begin:at]


def pack_error(error: Exception) -> bytes:
    if isinstance(error, ObjectiveError):
        fields = {name: getattr(error, name) for name in _PLACES}
        text = [error.what, error.error, error.traceback]
    else:
        fields = {}
        text = [type(error).__name__, str(error)]
    return ERROR + json.dumps([text, fields]).encode()


def unpack_error(message: bytes) -> Exception:
    """The exception as the worker raised it: ours by class, anything else as RuntimeError."""
    text, fields = json.loads(message[1:])
    if fields:
        error = ObjectiveError(*text)
        for name, value in fields.items():
            setattr(error, name, value)
        return error
    known: dict[str, type[Exception]] = {"ValueError": ValueError, "TypeError": TypeError}
    name, description = text
    if name in known:
        return known[name](description)
    return RuntimeError(f"{name}: {description}")


_PLACES = ("worker", "round", "iteration")
