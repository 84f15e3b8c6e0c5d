"""Workers or single values spread over processes: for Python functions that are slow.

The processes are spawned, not forked, and do not import the user's script again: functions
travel by cloudpickle, so that those of a notebook work too, and no ``__main__`` guard is
needed. Data are in shared memory once. A process that dies or hangs is replaced, and its work
repeated: same inputs, same bits. Each has a watcher, so that nothing it starts outlives it or
this process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from desopt.contract import checks
from desopt.contract.errors import EngineError
from desopt.contract.payload import layout_of
from desopt.contract.types import Answer, Task
from desopt.engines.base import Job
from desopt.engines.processes import messages
from desopt.engines.processes.memory import anonymous_file, share, shared_arrays, shared_bytes
from desopt.engines.processes.pool import Lost, Pool, Request, resources_explained
from desopt.engines.serial import InMemory
from desopt.engines.trials import Outcome, Trial, is_over_data
from desopt.system.parallel import cores, thread_limits
from desopt.system.support import require_processes
from desopt.system.terminal import warn


class Processes(InMemory):
    """``jobs`` processes (default: one per core).

    ``timeout``: seconds for one worker's part of a round, after which its process counts as
    hung. ``attempts``: how often a part or a value is tried before the run stops, or the value
    counts as failed. ``evaluation_timeout``: seconds for a single value, which fails after that.
    """

    name = "processes"

    def __init__(
        self,
        jobs: int | None = None,
        timeout: float | None = None,
        attempts: int = 3,
        evaluation_timeout: float | None = None,
    ) -> None:
        require_processes(
            "engine 'processes'", "Use engine='serial', 'threads' or desopt.engines.Executor(pool)"
        )
        self.jobs = cores() if jobs is None else checks.whole("jobs", jobs)
        self.timeout = timeout
        self.attempts = checks.whole("attempts", attempts)
        self.evaluation_timeout = evaluation_timeout
        self._pool: Pool | None = None
        self._fds: list[int] = []
        self.repeated = 0

    @property
    def slots(self) -> int:
        return self.jobs

    def start(self, job: Job) -> None:
        super().start(job)
        self.repeated = 0
        self._errors: list[bytes] = []
        with resources_explained():
            self._fds.append(self._job_file())
            self._fds.append(anonymous_file(shared_bytes(job)))
            self._shared = shared_arrays(self._fds[1], job)

    def round(self, task: Task) -> list[Answer]:
        self.count_round()
        self._shared.x[:] = task.x
        if self._shared.memory is not None:
            self._shared.memory[:] = task.memory
        answers: dict[int, Answer] = {}
        layout = layout_of(self._job.algorithm)

        def keep(message: bytes) -> None:
            answer, has_point = messages.unpack_answer(message, self._job.workers, layout)
            point = self._shared.points[answer.worker] if has_point else None
            answers[answer.worker] = replace(answer, point=point)

        workers = self._job.asked(task.round)
        requests = (
            messages.pack_request(messages.WORK, task.round, w, task.scalars, task.limit)
            for w in workers
        )
        self.repeated += self._serve(workers, requests, lambda _worker, message: keep(message))
        return [answers[worker] for worker in workers]

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        self._shared.x[:] = self._state.x
        sums: dict[int, tuple[float, int]] = {}

        def keep(worker: int, message: bytes) -> None:
            sums[worker] = messages.unpack_sum(message)

        requests = (messages.pack_request(messages.TOTAL, 0, w) for w in workers)
        self._serve(workers, requests, keep)
        return [sums[worker] for worker in workers]

    def submit(self, trial: Trial) -> None:
        limit = None if is_over_data(self._job, trial) else self.evaluation_timeout
        message = messages.pack_trial(trial)
        self._started(self.jobs).submit(Request(trial, message, self.timeout, limit))

    def completed(self) -> list[tuple[Trial, Outcome]]:
        pool = self._started(self.jobs)
        done: list[tuple[Trial, Outcome]] = []
        while not done and not self._errors and pool.outstanding:
            for request, reply in pool.completed():
                if isinstance(reply, Lost):
                    done += self._without_value(request, reply)
                elif reply[:1] == messages.ERROR:
                    self._errors.append(reply)
                else:
                    done.append((request.about, messages.unpack_outcome(reply)))
        if self._errors and not done:  # values that came with an error are not lost
            raise messages.unpack_error(self._errors.pop())
        return done

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        while self._fds:
            os.close(self._fds.pop())

    def _started(self, size: int) -> Pool:
        """The processes, of which up to ``size`` are started when they are needed.

        Their shares of the cores are fixed at the first use: all must compute the same bits.
        """
        if self._pool is None:
            environment = os.environ | thread_limits(size)
            self._pool = Pool(self._fds, environment, size, self.attempts)
        self._pool.size = max(self._pool.size, size)
        return self._pool

    def _serve(
        self, workers: Sequence[int], requests: Iterable[bytes], keep: Callable[[int, bytes], None]
    ) -> int:
        """Send each worker's request to a process, until all have a reply.

        Returns the number of requests that were sent again.
        """
        count = min(self.jobs, self._job.workers)
        pool = self._started(count)
        pool.grow(count)  # all at once: each takes a second
        for worker, message in zip(workers, requests, strict=True):
            pool.submit(Request(worker, message, self.timeout))
        left, again = len(workers), 0
        while left:
            for request, reply in pool.completed():
                if isinstance(reply, bytes):
                    keep(request.about, messages.checked(reply))
                    left -= 1
                    continue
                worker, again = request.about, again + 1
                if not self._tried_again(request, reply, f"the work of worker {worker} is done"):
                    raise EngineError(
                        f"worker {worker}: its process {reply.reason} in {self.attempts} attempts "
                        f"of {self.attempts}; the run stops here and can be resumed from its "
                        "journal"
                    )
        return again

    def _without_value(self, request: Request, lost: Lost) -> list[tuple[Trial, Outcome]]:
        """The outcome of a value whose process was lost; none yet if it is tried again."""
        if lost.late:
            reason = f"no value within {request.value_limit:g} s"
        elif self._tried_again(request, lost, f"value {request.about.id} is computed"):
            self.repeated += 1
            return []
        else:
            tries = f" in {self.attempts} attempts" if self.attempts > 1 else ""
            reason = f"its process {lost.reason}{tries}"
        return [(request.about, Outcome(math.nan, failed=reason))]

    def _tried_again(self, request: Request, lost: Lost, what: str) -> bool:
        """Submit a request again whose process was lost; False after the last attempt."""
        request.failures += 1
        if request.failures >= self.attempts:
            return False
        warn(
            f"process {lost.pid} {lost.reason}; it was replaced and {what} again",
            RuntimeWarning,
            stacklevel=2,
        )
        self._started(1).submit(request)
        return True

    def _job_file(self) -> int:
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
