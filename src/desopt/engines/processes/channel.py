"""Messages between an engine and its processes, each after its length.

The engine never waits for one process while it sends or receives: one that was stopped in the
middle of a message would keep it for ever. A process has nobody else to talk to, and waits.
"""

from __future__ import annotations

import os
import socket
import struct

_LENGTH = struct.Struct("<Q")


class Channel:
    """The engine's end."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._sent = bytearray()
        self._received = bytearray()
        self.closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Send what can be sent; ``flush`` goes on with the rest, if there is ``more``."""
        self._sent += _LENGTH.pack(len(message)) + message
        self.flush()

    @property
    def more(self) -> bool:
        return bool(self._sent)

    def flush(self) -> None:
        try:
            while self._sent:
                del self._sent[: self._socket.send(self._sent)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone; whoever receives sees that
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
        messages, at = [], 0
        while len(self._received) - at >= _LENGTH.size:
            begin = at + _LENGTH.size
            end = begin + _LENGTH.unpack_from(self._received, at)[0]
            if end > len(self._received):
                break
            messages.append(bytes(self._received[begin:end]))
            at = end
        del self._received[:at]
        return messages

    def close(self) -> None:
        self._socket.close()


def write(fd: int, message: bytes) -> None:
    """Send a message, from the process's end."""
    left = memoryview(_LENGTH.pack(len(message)) + message)
    while left:
        left = left[os.write(fd, left) :]


def read(fd: int) -> bytes:
    """The next message, at the process's end; EOFError or OSError where there is nobody left."""
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
