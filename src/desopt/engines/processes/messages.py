"""Messages between an engine and its processes: what they say, and how they travel.

No pickle: a request is a few numbers or a point, a reply an answer as in ``contract.codec``, a
sum, the outcome of a trial, or an error as JSON. On a socket, each follows its length. The engine
never waits for one process while it sends or receives: one that was stopped in the middle of a
message would block it for ever. A process has nobody else to talk to, and waits.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterable, Iterator

import numpy as np

from desopt.contract import codec
from desopt.contract.errors import ObjectiveError
from desopt.contract.payload import Layout
from desopt.contract.types import Answer, Batches
from desopt.engines.trials import Key, Outcome, Trial

WORK, TOTAL, VALUE = b"W", b"T", b"V"
#: POINT is an ANSWER whose final point is in shared memory. BEGUN: data and setup are ready, and
#: the value of a trial is being computed.
READY, BEGUN, ANSWER, POINT, SUM, OUTCOME, ERROR = b"r", b"b", b"a", b"p", b"s", b"o", b"e"

_REQUEST = struct.Struct("<cQIQ")  # kind round worker limit
_SUM = struct.Struct("<cdQ")  # kind total rows
_TRIAL = struct.Struct("<cQIIIBq")  # kind round worker number basis batches iteration; then x
_OUTCOME = struct.Struct("<cdQd")  # kind value rows seconds; then why it failed
_BATCHES = tuple(Batches)
_LENGTH = struct.Struct("<Q")

#: Where an error of the user's function occurred.
_PLACES = ("worker", "round", "iteration")


# --- what they say ---------------------------------------------------------------------------


def pack_request(
    kind: bytes,
    round: int,
    worker: int,
    scalars: tuple[float, ...] = (),
    limit: int | None = None,
) -> bytes:
    """A task for one worker; x is in shared memory."""
    head = _REQUEST.pack(kind, round, worker, limit or 0)
    return head + struct.pack(f"<{len(scalars)}d", *scalars)


def unpack_request(message: bytes) -> tuple[bytes, int, int, tuple[float, ...], int | None]:
    """Kind, round, worker, scalars and limit."""
    kind, round, worker, limit = _REQUEST.unpack_from(message)
    tail = message[_REQUEST.size :]
    return kind, round, worker, struct.unpack(f"<{len(tail) // 8}d", tail), limit or None


def pack_answer(answer: Answer) -> bytes:
    """All but the point, which is left in shared memory."""
    return (ANSWER if answer.point is None else POINT) + codec.pack_answer(answer)


def unpack_answer(message: bytes, workers: int, layout: Layout) -> tuple[Answer, bool]:
    """The answer, and whether its point is in shared memory."""
    return codec.unpack_answer(message[1:], workers, layout), message[:1] == POINT


def pack_sum(total: float, rows: int) -> bytes:
    """The sum of F over a worker's data."""
    return _SUM.pack(SUM, total, rows)


def unpack_sum(message: bytes) -> tuple[float, int]:
    """The sum, and the number of rows."""
    _, total, rows = _SUM.unpack(message)
    return total, rows


def pack_trial(trial: Trial) -> bytes:
    """A point to evaluate, with its name."""
    batches = _BATCHES.index(trial.batches)
    x = np.ascontiguousarray(trial.x, "<f8")
    return _TRIAL.pack(VALUE, *trial.key, batches, trial.iteration) + x.tobytes()


def unpack_trial(message: bytes) -> Trial:
    """The other side of ``pack_trial``."""
    _, *key, batches, iteration = _TRIAL.unpack_from(message)
    x = np.frombuffer(message, "<f8", offset=_TRIAL.size).astype(np.float64)  # aligned
    x.flags.writeable = False
    return Trial(Key(*key), x, _BATCHES[batches], iteration)


def pack_outcome(outcome: Outcome) -> bytes:
    """What became of a trial."""
    head = _OUTCOME.pack(OUTCOME, outcome.value, outcome.rows, outcome.seconds)
    return head + outcome.failed.encode(errors="replace")


def unpack_outcome(message: bytes) -> Outcome:
    """The other side of ``pack_outcome``."""
    _, value, rows, seconds = _OUTCOME.unpack_from(message)
    return Outcome(value, rows, seconds, message[_OUTCOME.size :].decode())


def pack_error(error: Exception) -> bytes:
    """An exception without its objects."""
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


def checked(message: bytes) -> bytes:
    """The message; an error is raised here as it was where it occurred."""
    if message[:1] == ERROR:
        raise unpack_error(message)
    return message


# --- how they travel -------------------------------------------------------------------------


def pack_list(messages: Iterable[bytes]) -> bytes:
    """Several messages as one."""
    return b"".join(_LENGTH.pack(len(message)) + message for message in messages)


def unpack_list(data: bytes | memoryview) -> Iterator[bytes]:
    """The messages of ``pack_list``; what follows the last whole one is ignored."""
    at = 0
    while len(data) - at >= _LENGTH.size:
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(data, at)[0]
        if at > len(data):
            return
        yield bytes(data[begin:at])


class Channel:
    """The engine's end of a socket."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._sent = bytearray()
        self._received = bytearray()
        self.closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Send what the socket takes; ``flush`` continues with the rest, if there is ``more``."""
        self._sent += pack_list([message])
        self.flush()

    @property
    def more(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._sent)

    def flush(self) -> None:
        try:
            while self._sent:
                del self._sent[: self._socket.send(self._sent)]
        except BlockingIOError:
            pass
        except OSError:  # the process is gone, which the next receive notices
            self._sent.clear()

    def receive(self) -> list[bytes]:
        """The messages that are complete; ``closed`` says whether no more will come."""
        try:
            while not self.closed:
                data = self._socket.recv(1 << 18)
                self._received += data
                self.closed = not data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        with memoryview(self._received) as received:
            messages = [*unpack_list(received)]
        del self._received[: sum(_LENGTH.size + len(message) for message in messages)]
        return messages

    def close(self) -> None:
        self._socket.close()


def write(fd: int, message: bytes) -> None:
    """Send a message, from the process's end."""
    left = memoryview(pack_list([message]))
    while left:
        left = left[os.write(fd, left) :]


def read(fd: int) -> bytes:
    """The next message, at the process's end; EOFError or OSError if the engine is gone."""
    return _exactly(fd, _LENGTH.unpack(_exactly(fd, _LENGTH.size))[0])


def _exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
