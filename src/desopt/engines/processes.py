"""Workers spread over processes: for Python functions that are slow or not thread-safe.

The processes are spawned, not forked, and do not import the user's script again: functions
travel by cloudpickle, so that those of a notebook work too, and no ``__main__`` guard is
needed. Data are in shared memory once. A process that dies or hangs is replaced, and its work
done again: same inputs, same bits.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

from desopt.engines import messages
from desopt.engines.base import Job
from desopt.engines.memory import anonymous_file, share, shared_floats
from desopt.parallel import cores
from desopt.types import Answer, EngineError, FloatArray, Task

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from desopt.engines.child import main; main(*map(int, sys.argv[2:]))"
)
#: Seconds for a process to import the package and unpack the job.
_START_LIMIT = 120.0


@dataclass(eq=False)
class _Process:
    popen: subprocess.Popen[bytes]
    connection: Connection
    ready: bool = False
    worker: int | None = None
    deadline: float | None = None


class Processes:
    """``jobs`` processes (default: one per core).

    ``timeout``: seconds that one worker's part of a round may take before its process counts
    as hung. ``attempts``: how often a worker's part is tried before the run stops.
    """

    name = "processes"

    def __init__(
        self, jobs: int | None = None, timeout: float | None = None, attempts: int = 3
    ) -> None:
        self.jobs = cores() if jobs is None else jobs
        self.timeout = timeout
        self.attempts = attempts
        self._processes: list[_Process] = []
        self._fds: list[int] = []
        self._failed_starts = 0
        self.repeated = 0

    def start(self, job: Job) -> None:
        self._job = job
        self.repeated = 0
        try:
            self._message, arrays_fd = share(job)
        except Exception as error:
            raise TypeError(
                f"fun, setup, sampler or a loader cannot be sent to a process: {error}. Make what "
                "cannot be sent in setup(), or use engine='threads' or 'serial'"
            ) from error
        slots = job.workers if job.handover else 0
        buffer_fd = anonymous_file(8 * job.n * (1 + slots))
        life_read, life_write = os.pipe()
        self._fds = [arrays_fd, buffer_fd, life_read, life_write]
        self._inherited = [life_read, arrays_fd, buffer_fd]
        self._buffer = shared_floats(buffer_fd, (1 + slots, job.n))
        for _ in range(min(self.jobs, job.workers)):
            self._processes.append(self._spawn())

    def round(self, task: Task) -> list[Answer]:
        self._buffer[0] = task.x
        answers: dict[int, Answer] = {}

        def keep(message: bytes) -> None:
            answer, has_point = messages.unpack_answer(message)
            point = self._buffer[1 + answer.worker] if has_point else None
            answers[answer.worker] = replace(answer, point=point)

        workers = self._job.asked(task.round)
        requests = {
            w: messages.pack_request(messages.WORK, task.round, w, task.scalars, task.limit)
            for w in workers
        }
        self.repeated += self._serve(requests, lambda _worker, message: keep(message))
        return [answers[worker] for worker in workers]

    def totals(self, x: FloatArray, workers: Sequence[int]) -> list[tuple[float, int]]:
        self._buffer[0] = x
        sums: dict[int, tuple[float, int]] = {}

        def keep(worker: int, message: bytes) -> None:
            sums[worker] = messages.unpack_sum(message)

        self._serve({w: messages.pack_request(messages.TOTAL, 0, w) for w in workers}, keep)
        return [sums[worker] for worker in workers]

    def close(self) -> None:
        for process in self._processes:
            self._end(process)
        self._processes.clear()
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def _serve(self, requests: dict[int, bytes], keep: Callable[[int, bytes], None]) -> int:
        """Give out the requests, one per process at a time, until all have a reply.

        Returns how many were given out again.
        """
        waiting = deque(requests)
        failures = dict.fromkeys(requests, 0)
        left = len(requests)
        while left:
            for process in self._processes:
                if process.ready and process.worker is None and waiting:
                    self._send(process, waiting.popleft(), requests)
            for process in self._wait():
                try:
                    message = process.connection.recv_bytes()
                except (EOFError, OSError):
                    self._replace(process, "died", waiting, failures)
                    continue
                if message[:1] == messages.ERROR:
                    raise messages.unpack_error(message)
                if message == messages.READY:
                    process.ready, process.deadline = True, None
                elif process.worker is not None:
                    keep(process.worker, message)
                    process.worker = process.deadline = None
                    left -= 1
            now = time.monotonic()
            for process in list(self._processes):
                if process.deadline is not None and now > process.deadline:
                    self._replace(process, "gave no answer in time", waiting, failures)
        return sum(failures.values())

    def _send(self, process: _Process, worker: int, requests: dict[int, bytes]) -> None:
        process.worker = worker
        process.deadline = None if self.timeout is None else time.monotonic() + self.timeout
        with suppress(OSError):  # it died while idle; the wait that follows sees that
            process.connection.send_bytes(requests[worker])

    def _wait(self) -> list[_Process]:
        """Processes with something to read, or none once a deadline has passed."""
        deadlines = [p.deadline for p in self._processes if p.deadline is not None]
        limit = max(0.0, min(deadlines) - time.monotonic()) + 0.001 if deadlines else None
        by_connection = {p.connection: p for p in self._processes}
        return [by_connection[c] for c in wait(list(by_connection), limit)]  # type: ignore[index]

    def _replace(
        self, process: _Process, how: str, waiting: deque[int], failures: dict[int, int]
    ) -> None:
        """Put a new process in the place of one that died or hangs; its work is done again."""
        self._end(process)
        code = process.popen.returncode
        exit_text = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        reason = how if how != "died" else f"died ({exit_text})"
        worker = process.worker
        if not process.ready:
            self._failed_starts += 1
            if self._failed_starts >= self.attempts:
                raise EngineError(
                    f"process {process.popen.pid} {reason} before it was ready, as "
                    f"{self._failed_starts} did; its output on the terminal says why"
                )
        if worker is not None:
            failures[worker] += 1
            waiting.appendleft(worker)
            if failures[worker] >= self.attempts:
                raise EngineError(
                    f"worker {worker}: its process {reason} in {failures[worker]} attempts of "
                    f"{self.attempts}; the run stops here and can be resumed from its journal"
                )
        warnings.warn(
            f"process {process.popen.pid} {reason}; it was replaced"
            + ("" if worker is None else f" and the work of worker {worker} is done again"),
            RuntimeWarning,
            stacklevel=2,
        )
        self._processes[self._processes.index(process)] = self._spawn()

    def _spawn(self) -> _Process:
        ours, theirs = socket.socketpair()
        with theirs:
            fds = [theirs.fileno(), *self._inherited]
            popen = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent alone
            )
        process = _Process(popen, Connection(ours.detach()))
        process.deadline = time.monotonic() + _START_LIMIT
        with suppress(OSError):  # it died already; the first wait sees that
            process.connection.send_bytes(self._message)
        return process

    @staticmethod
    def _end(process: _Process) -> None:
        """Kill the process and whatever it started."""
        with suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        process.connection.close()
