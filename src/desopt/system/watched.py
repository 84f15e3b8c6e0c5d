"""A process that leaves nothing behind when it ends, or when this one does.

This is the side that starts it; ``watcher`` is the program in between.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from desopt.system import watcher

#: Seconds for a watcher to end all its processes and report; its own limit is shorter.
_LIMIT = 30.0


class Watched:
    """The command in a process of its own, with ``fds`` open there.

    ``fileno`` is readable when something happened; ``ended`` says whether it has ended, and
    ``wait`` gives the exit code.
    """

    def __init__(self, command: Sequence[str], fds: Sequence[int] = (), **options: Any) -> None:
        self._owner = os.getpid()
        self._said = b""
        self._over = False
        self._code: int | None = None
        self.popen, self._control = start_watcher(command, fds, **options)
        self._control.setblocking(False)

    def fileno(self) -> int:
        return self._control.fileno()

    @property
    def pid(self) -> int:
        """Of the command, once its watcher has reported it; of the watcher until then."""
        return self._number(0) or self.popen.pid

    @property
    def ended(self) -> bool:
        """Whether the command and all processes it started have ended."""
        with suppress(BlockingIOError, InterruptedError):
            while not self._over:
                self._take()
        return self._over

    def stop(self) -> None:
        """Request the end of everything; ``wait`` waits for it."""
        if os.getpid() != self._owner:  # a fork does not own it
            return
        with suppress(OSError):  # it has ended by itself
            self._control.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            self.popen.send_signal(signal.SIGCONT)  # it may have been stopped

    def wait(self) -> int:
        """End it if it has not; the exit code, negative for a signal."""
        if self._code is not None or os.getpid() != self._owner:
            self._control.close()
            return self._code or 0
        self.stop()
        self._control.settimeout(_LIMIT)
        with suppress(OSError):
            while not self._over:
                self._take()
        code = self._number(1)
        if code is None:  # the watcher was killed, and the kernel has killed the command
            self._kill_group()
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self._control.close()
        self._code = self.popen.returncode if code is None else code
        return self._code

    def _take(self) -> None:
        try:
            news = self._control.recv(64)
        except ConnectionError:
            news = b""
        self._said += news
        # A fork of ours may hold the other end open: stop after the last number.
        self._over = not news or self._number(1) is not None

    def _number(self, index: int) -> int | None:
        said = self._said[index * watcher.NUMBER.size :][: watcher.NUMBER.size]
        return watcher.NUMBER.unpack(said)[0] if len(said) == watcher.NUMBER.size else None

    def _kill_group(self) -> None:
        pid = self._number(0)
        if pid is not None:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


def start_watcher(
    command: Sequence[str], fds: Sequence[int] = (), **options: Any
) -> tuple[subprocess.Popen[Any], socket.socket]:
    """A watcher, and our end of the socket on which it reports."""
    ours, theirs = socket_pair()
    try:
        with theirs:
            popen: subprocess.Popen[Any] = subprocess.Popen(
                [
                    sys.executable, "-S", "-P", watcher.__file__, str(os.getpid()),
                    str(theirs.fileno()), ",".join(map(str, fds)), *command,
                ],
                pass_fds=[theirs.fileno(), *fds],
                start_new_session=True,  # Ctrl-C is for this process alone
                **options,
            )  # fmt: skip
    except BaseException:  # also Ctrl-C after the process has started: it ends
        ours.close()
        raise
    return popen, ours


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends, neither of them descriptor 0, 1 or 2, a program's terminal."""
    one, other = socket.socketpair()
    with one, other:
        return (
            socket.socket(fileno=above_terminal(one.fileno())),
            socket.socket(fileno=above_terminal(other.fileno())),
        )


def above_terminal(fd: int) -> int:
    """A copy of a file descriptor above 2, even if one of 0, 1 and 2 is closed."""
    from fcntl import F_DUPFD_CLOEXEC, fcntl  # here: see ``support``

    return int(fcntl(fd, F_DUPFD_CLOEXEC, 3))
