"""Workers spread over processes: for Python functions that are slow or not thread-safe.

The processes are spawned, not forked, and do not import the user's script again: functions
travel by cloudpickle, so that those of a notebook work too, and no ``__main__`` guard is
needed. Data are in shared memory once. A process that dies or hangs is replaced, and its work
repeated: same inputs, same bits. Each has a watcher, so that nothing it starts outlives it or
this process.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from desopt.contract.errors import EngineError
from desopt.contract.payload import layout_of
from desopt.contract.types import Answer, Task
from desopt.engines.base import Job
from desopt.engines.processes import messages
from desopt.engines.processes.memory import anonymous_file, share, shared_floats
from desopt.engines.processes.messages import Channel
from desopt.engines.processes.python import python
from desopt.engines.serial import InMemory
from desopt.system.parallel import cores, thread_limits
from desopt.system.terminal import warn
from desopt.system.watched import Watched, socket_pair

_MAIN = "from desopt.engines.processes.child import main; main(*map(int, sys.argv[1:]))"
#: Seconds for a process to import the package and unpack the job.
_START_LIMIT = 120.0


@dataclass(eq=False)
class _Process:
    watched: Watched
    channel: Channel
    deadline: float | None
    ready: bool = False
    worker: int | None = None

    def receive(self) -> tuple[list[bytes], bool]:
        """The messages that have come, and whether the process has ended or hung up."""
        ended = self.watched.ended  # before receive: its last messages are there then
        return self.channel.receive(), ended or self.channel.closed


class Processes(InMemory):
    """``jobs`` processes (default: one per core).

    ``timeout``: seconds for one worker's part of a round, after which its process counts as
    hung. ``attempts``: how often a part is tried before the run stops.
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
        self.repeated = 0

    def start(self, job: Job) -> None:
        super().start(job)
        self.repeated = self._failed_starts = 0
        count = min(self.jobs, job.workers)
        self._environment = os.environ | thread_limits(count)
        with _resources():
            self._fds.append(self._shared())
            slots = job.workers if job.handover else 0
            self._fds.append(anonymous_file(8 * job.n * (1 + slots)))
            self._buffer = shared_floats(self._fds[1], (1 + slots, job.n))
            for _ in range(count):
                self._processes.append(self._spawn())

    def round(self, task: Task) -> list[Answer]:
        self._traffic.count(self._state)
        self._buffer[0] = task.x
        answers: dict[int, Answer] = {}
        layout = layout_of(self._job.algorithm)

        def keep(message: bytes) -> None:
            answer, has_point = messages.unpack_answer(message, self._job.workers, layout)
            point = self._buffer[1 + answer.worker] if has_point else None
            answers[answer.worker] = replace(answer, point=point)

        workers = self._job.asked(task.round)
        requests = {
            w: messages.pack_request(messages.WORK, task.round, w, task.scalars, task.limit)
            for w in workers
        }
        self.repeated += self._serve(requests, lambda _worker, message: keep(message))
        return [answers[worker] for worker in workers]

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        self._buffer[0] = self._state.x
        sums: dict[int, tuple[float, int]] = {}

        def keep(worker: int, message: bytes) -> None:
            sums[worker] = messages.unpack_sum(message)

        self._serve({w: messages.pack_request(messages.TOTAL, 0, w) for w in workers}, keep)
        return [sums[worker] for worker in workers]

    def close(self) -> None:
        for process in self._processes:
            process.watched.stop()
        while self._processes:
            self._end(self._processes.pop())
        while self._fds:
            os.close(self._fds.pop())

    def _serve(self, requests: dict[int, bytes], keep: Callable[[int, bytes], None]) -> int:
        """Send the requests, one per process at a time, until all have a reply.

        Returns the number of requests that were sent again.
        """
        waiting = deque(requests)
        failures = dict.fromkeys(requests, 0)
        left = len(requests)
        while left:
            for process in self._processes:
                if process.ready and process.worker is None and waiting:
                    self._send(process, waiting.popleft(), requests)
            for process in self._wait():
                replies, over = process.receive()
                for message in replies:
                    if message[:1] == messages.ERROR:
                        raise messages.unpack_error(message)
                    if message == messages.READY:
                        process.ready, process.deadline = True, None
                        self._failed_starts = 0
                    elif process.worker is not None:
                        keep(process.worker, message)
                        process.worker = process.deadline = None
                        left -= 1
                if over:
                    self._replace(process, "died", waiting, failures)
            now = time.monotonic()
            for process in list(self._processes):
                if process.deadline is not None and now > process.deadline:
                    self._replace(process, "gave no answer in time", waiting, failures)
        return sum(failures.values())

    def _send(self, process: _Process, worker: int, requests: dict[int, bytes]) -> None:
        process.worker = worker
        process.deadline = None if self.timeout is None else time.monotonic() + self.timeout
        process.channel.send(requests[worker])

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

    def _replace(
        self, process: _Process, how: str, waiting: deque[int], failures: dict[int, int]
    ) -> None:
        """Replace a process that died or hangs; its work is done again."""
        code = self._end(process)
        exit_text = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason = how if how != "died" else f"died ({exit_text})"
        worker = process.worker
        if not process.ready:
            self._failed_starts += 1
            if self._failed_starts >= self.attempts:
                raise EngineError(
                    f"process {process.watched.pid} {reason} before it was ready, "
                    f"{self._failed_starts} in a row; its output on the terminal says why"
                )
        if worker is not None:
            failures[worker] += 1
            waiting.appendleft(worker)
            if failures[worker] >= self.attempts:
                raise EngineError(
                    f"worker {worker}: its process {reason} in {failures[worker]} attempts of "
                    f"{self.attempts}; the run stops here and can be resumed from its journal"
                )
        warn(
            f"process {process.watched.pid} {reason}; it was replaced"
            + ("" if worker is None else f" and the work of worker {worker} is done again"),
            RuntimeWarning,
            stacklevel=2,
        )
        with _resources():
            self._processes[self._processes.index(process)] = self._spawn()

    def _shared(self) -> int:
        """The job, in a file for all processes."""
        try:
            return share(self._job)
        except OSError:
            raise
        except Exception as error:
            raise TypeError(
                f"fun, setup, sampler or a loader cannot be sent to a process: {error}. Make what "
                "cannot be sent in setup(), or use engine='threads' or 'serial'"
            ) from error

    def _spawn(self) -> _Process:
        ours, theirs = socket_pair()
        try:
            with theirs:
                fds = [theirs.fileno(), *self._fds]
                command = [*python(_MAIN), *map(str, fds)]
                nothing = subprocess.DEVNULL
                watched = Watched(command, fds, stdin=nothing, env=self._environment)
        except BaseException:
            ours.close()
            raise
        return _Process(watched, Channel(ours), time.monotonic() + _START_LIMIT)

    @staticmethod
    def _end(process: _Process) -> int:
        """End the process and whatever it started; its exit code."""
        process.channel.close()
        return process.watched.wait()


@contextmanager
def _resources() -> Iterator[None]:
    """Explain an error of the system that refuses a process, a file or memory."""
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"a process cannot be started: {error}; use fewer jobs, or raise the limits of "
            "processes and open files (ulimit -u, ulimit -n)"
        ) from error
