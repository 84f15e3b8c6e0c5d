"""Processes that serve one request each at a time, and are replaced when they die or hang.

A request whose process is lost comes back to the caller, who may submit it again.
"""

from __future__ import annotations

import select
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from desopt.contract.errors import EngineError
from desopt.engines.processes import messages
from desopt.engines.processes.messages import Channel
from desopt.engines.processes.python import python
from desopt.system.terminal import warn
from desopt.system.watched import Watched, socket_pair

_MAIN = "from desopt.engines.processes.child import main; main(*map(int, sys.argv[1:]))"
#: Seconds for a process to import the package and unpack the job.
_START_LIMIT = 120.0


@dataclass(eq=False)
class Request:
    """A message for a process; ``about`` is for the caller.

    ``limit``: seconds until the reply. ``value_limit`` takes its place when the process reports
    that data and setup are ready.
    """

    about: Any
    message: bytes
    limit: float | None = None
    value_limit: float | None = None
    failures: int = 0  # processes that were lost with it


@dataclass(frozen=True)
class Lost:
    """What became of a process instead of a reply; ``late``: it exceeded ``value_limit``."""

    pid: int
    reason: str
    late: bool = False


@dataclass(eq=False)
class _Process:
    watched: Watched
    channel: Channel
    deadline: float | None
    ready: bool = False
    request: Request | None = None
    begun: bool = False  # whether the request's value is being computed

    def receive(self) -> tuple[list[bytes], bool]:
        """The messages that have come, and whether the process has ended or hung up."""
        ended = self.watched.ended  # before receive: its last messages are there then
        return self.channel.receive(), ended or self.channel.closed

    def send(self, request: Request) -> None:
        self.request, self.begun = request, False
        self.deadline = _after(request.limit)
        self.channel.send(request.message)

    def end(self) -> int:
        """End the process and whatever it started; its exit code."""
        self.channel.close()
        return self.watched.wait()


@dataclass
class Pool:
    """Processes of one job, whose files are ``fds``; up to ``size`` are started when needed.

    ``attempts``: processes in a row that may die before they are ready.
    """

    fds: Sequence[int]
    environment: Mapping[str, str]
    size: int
    attempts: int
    _processes: list[_Process] = field(default_factory=list)
    _waiting: deque[Request] = field(default_factory=deque)
    _failed_starts: int = 0

    def submit(self, request: Request) -> None:
        """Queue the request; one whose process was lost goes first."""
        if request.failures:
            self._waiting.appendleft(request)
        else:
            self._waiting.append(request)

    def grow(self, count: int) -> None:
        """Start processes until there are so many."""
        with resources_explained():
            while len(self._processes) < count:
                self._processes.append(self._spawn())

    def completed(self) -> list[tuple[Request, bytes | Lost]]:
        """Wait for something to happen; the requests that have a reply, or lost their process."""
        self._hand_out()
        done: list[tuple[Request, bytes | Lost]] = []
        for process in self._wait():
            replies, over = process.receive()
            for message in replies:
                done += self._take(process, message)
            if over:
                done += self._remove(process, "died")
        now = time.monotonic()
        for process in list(self._processes):
            if process.deadline is not None and now > process.deadline:
                done += self._remove(process, "gave no answer in time")
        return done

    @property
    def outstanding(self) -> bool:
        """Whether a request has no reply yet."""
        return bool(self._waiting) or any(p.request is not None for p in self._processes)

    def close(self) -> None:
        self._waiting.clear()
        for process in self._processes:
            process.watched.stop()
        while self._processes:
            self._processes.pop().end()

    def _hand_out(self) -> None:
        """Send what is waiting to free processes; start more of them if there are too few."""
        busy = sum(process.request is not None for process in self._processes)
        self.grow(min(self.size, busy + len(self._waiting)))
        for process in self._processes:
            if process.ready and process.request is None and self._waiting:
                process.send(self._waiting.popleft())

    def _take(self, process: _Process, message: bytes) -> list[tuple[Request, bytes]]:
        """Take a message of the process; the request that it answers, if it does."""
        request = process.request
        if message == messages.READY:
            process.ready, process.deadline = True, None
            self._failed_starts = 0
        elif request is None:
            messages.checked(message)
        elif message == messages.BEGUN:
            if request.value_limit is not None:
                process.begun, process.deadline = True, _after(request.value_limit)
        else:
            process.request = process.deadline = None
            return [(request, message)]
        return []

    def _wait(self) -> list[_Process]:
        """Processes with something to read, or none once a deadline has passed."""
        deadlines = [p.deadline for p in self._processes if p.deadline is not None]
        limit = max(0.0, min(deadlines) - time.monotonic()) + 0.001 if deadlines else None
        events, by_fd = select.poll(), {}
        for process in self._processes:
            more = select.POLLOUT if process.channel.more else 0
            for end, mask in (
                (process.channel, select.POLLIN | more),
                (process.watched, select.POLLIN),
            ):
                events.register(end, mask)
                by_fd[end.fileno()] = process
        found: dict[_Process, None] = {}
        for fd, mask in events.poll(None if limit is None else 1000 * limit):
            if mask & select.POLLOUT:
                by_fd[fd].channel.flush()
            if mask & ~select.POLLOUT:
                found[by_fd[fd]] = None
        return list(found)

    def _remove(self, process: _Process, how: str) -> list[tuple[Request, Lost]]:
        """End a process that died or hangs; its request, if it had one."""
        code = process.end()
        self._processes.remove(process)
        exit_text = f"signal {-code}" if code < 0 else f"exit code {code}"
        lost = Lost(
            process.watched.pid,
            how if how != "died" else f"died ({exit_text})",
            late=process.begun and how != "died",
        )
        if not process.ready:
            self._failed_starts += 1
            if self._failed_starts >= self.attempts:
                raise EngineError(
                    f"process {lost.pid} {lost.reason} before it was ready, "
                    f"{self._failed_starts} in a row; its output on the terminal says why"
                )
        if process.request is not None:
            return [(process.request, lost)]
        warn(f"process {lost.pid} {lost.reason}; it was replaced", RuntimeWarning, stacklevel=2)
        return []

    def _spawn(self) -> _Process:
        ours, theirs = socket_pair()
        try:
            with theirs:
                fds = [theirs.fileno(), *self.fds]
                command = [*python(_MAIN), *map(str, fds)]
                nothing = subprocess.DEVNULL
                watched = Watched(command, fds, stdin=nothing, env=dict(self.environment))
        except BaseException:
            ours.close()
            raise
        return _Process(watched, Channel(ours), time.monotonic() + _START_LIMIT)


def _after(limit: float | None) -> float | None:
    return None if limit is None else time.monotonic() + limit


@contextmanager
def resources_explained() -> Iterator[None]:
    """Explain an error of the system that refuses a process, a file or memory."""
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"a process cannot be started: {error}; use fewer jobs, or raise the limits of "
            "processes and open files (ulimit -u, ulimit -n)"
        ) from error
