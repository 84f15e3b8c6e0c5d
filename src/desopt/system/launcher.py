"""Programs of the user, one after the other, that leave nothing behind.

A watcher starts each of them, so that it ends, with all that it has started, when its time is
over, when this process ends, however it does, and when it has ended itself.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from desopt.system.watched import start_watcher
from desopt.system.watcher import NUMBER

#: Seconds for a watcher to end all its processes and itself; its own limit is shorter.
_LIMIT = 30.0
#: Seconds for a watcher to be ready.
_START_LIMIT = 120.0
#: Seconds that a poll may wait.
_LONG = 86400.0
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, negative for a signal, None after its time was over.

    Of its output these are the ends, ``cut`` where there was more.
    """

    code: int | None
    stdout: bytes
    stderr: bytes
    cut: tuple[bool, bool]


class Launcher:
    """Runs programs one at a time. One that had to be stopped takes the launcher along."""

    def __init__(self) -> None:
        if not sys.executable:
            raise OSError(
                "programs are started by a Python program, and sys.executable is empty: set it to "
                "the path of one"
            )
        self._owner = os.getpid()
        self._said = b""
        nothing = subprocess.DEVNULL
        self._popen, self._control = start_watcher((), stdin=nothing, stdout=nothing)

    @property
    def alive(self) -> bool:
        """Whether it can run a program; not in a fork of the process that it belongs to."""
        if os.getpid() != self._owner:
            return False
        return self._control.fileno() >= 0 and self._popen.poll() is None

    def run(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        stdin: int,
        timeout: float | None,
        limits: tuple[int, int],
    ) -> Ended:
        """Run a program in a folder to its end; OSError if it cannot be started.

        ``limits``: bytes to keep of stdout and of stderr.
        """
        tails = _Tail(limits[0]), _Tail(limits[1])
        try:
            # ASCII, with escapes for what a name or a variable has of no encoding
            request = json.dumps([program, [*arguments], {**environment}, folder]).encode()
            self._send(request, [stdin, *(tail.writer for tail in tails)])
            for tail in tails:
                tail.close_writer()
            code = self._wait(tails, timeout)
            for tail in tails:
                tail.read_all()
        except BaseException:
            if (self._number(0) or 0) >= 0:  # otherwise there was nothing to start
                self.close()
            raise
        finally:
            for tail in tails:
                tail.close()
        cut = tails[0].cut, tails[1].cut
        return Ended(code, tails[0].content(), tails[1].content(), cut)

    def close(self) -> None:
        """End the watcher, and with it what it has started."""
        if self._control.fileno() < 0 or os.getpid() != self._owner:
            self._control.close()
            return
        with suppress(OSError):  # it has ended by itself
            self._control.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            self._popen.send_signal(signal.SIGCONT)  # it may have been stopped
        try:
            self._popen.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._control.close()

    def _send(self, request: bytes, fds: list[int]) -> None:
        self._said = b""
        message = NUMBER.pack(len(request)) + request
        sent = socket.send_fds(self._control, [message], fds)
        self._control.sendall(message[sent:])

    def _wait(self, tails: Sequence[_Tail], timeout: float | None) -> int | None:
        """The exit code, or None if it took too long; output is read meanwhile."""
        events = select.poll()
        readers = {tail.reader: tail for tail in tails}
        for fd in (self._control.fileno(), *readers):
            events.register(fd, select.POLLIN)
        began, limit = time.monotonic(), _START_LIMIT
        started = False
        while True:
            left = began + limit - time.monotonic()
            found = events.poll(1000 * min(max(0.0, left), _LONG) + 1)
            for fd, _ in found:
                if fd in readers and not readers[fd].read():
                    events.unregister(fd)
            if self._control.fileno() in dict(found) and self._has_ended():
                return self._number(1)
            if not started and self._said:  # a new watcher takes its time: that does not count
                began, limit = time.monotonic(), math.inf if timeout is None else timeout
                started = True
            if time.monotonic() > began + limit:
                if not started:
                    raise TimeoutError(f"no program was started within {_START_LIMIT:g} s")
                self.close()
                return None

    def _has_ended(self) -> bool:
        news = self._control.recv(2 * NUMBER.size)
        self._said += news
        child = self._number(0)
        if child is not None and child < 0:
            raise OSError(-child, os.strerror(-child))
        if not news:  # the watcher was killed, and the kernel has killed the program
            if child is None:
                raise ChildProcessError("the program that starts others has ended")
            with suppress(OSError):
                os.killpg(child, signal.SIGKILL)
            self._said += NUMBER.pack(-signal.SIGKILL)
        return len(self._said) == 2 * NUMBER.size

    def _number(self, index: int) -> int | None:
        said = self._said[index * NUMBER.size :][: NUMBER.size]
        return NUMBER.unpack(said)[0] if len(said) == NUMBER.size else None


class _Tail:
    """A pipe whose last bytes are kept. It takes any amount, so no program has to wait for it."""

    def __init__(self, limit: int) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.cut = False
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def read(self) -> bool:
        """Read once; False if there is nothing now, or never again."""
        try:
            chunk = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return False
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())
            self.cut = True
        return bool(chunk)

    def read_all(self) -> None:
        while self.read():
            pass

    def content(self) -> bytes:
        whole = b"".join(self._chunks)
        self.cut = self.cut or len(whole) > self._limit
        return whole[-self._limit :]

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.close_writer()
        os.close(self.reader)
