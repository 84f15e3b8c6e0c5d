"""Workers spread over threads: for compiled objectives, which release the GIL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from desopt.contract import checks
from desopt.contract.types import Answer, Task
from desopt.engines.base import Job
from desopt.engines.serial import InMemory
from desopt.engines.trials import Outcome, Trial, outcome_of
from desopt.system.parallel import cores

T = TypeVar("T")

#: Results per thread that may wait until the main thread hands them out.
_AHEAD = 2


class Threads(InMemory):
    """``jobs`` threads (default: one per core), of which the calling thread is one."""

    name = "threads"

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = cores() if jobs is None else checks.whole("jobs", jobs)
        self._pool: ThreadPoolExecutor | None = None

    @property
    def slots(self) -> int:
        return self.jobs

    def start(self, job: Job) -> None:
        super().start(job)
        self._threads = min(self.jobs, job.workers)
        self._pool = ThreadPoolExecutor(max(1, self._threads - 1), "desopt")
        self._answers: Generator[Answer, None, None] | None = None  # of the last round
        # Apart from the pool of rounds: while a value is computed, the calling thread only waits.
        self._values = ThreadPoolExecutor(self.jobs, "desopt-value")
        self._trials: dict[Future[Outcome], Trial] = {}
        self._by_value = False  # whether there have been single values

    def round(self, task: Task) -> Iterator[Answer]:
        self.count_round()
        self._answers = self._spread(partial(self._job.work, task), self._job.asked(task.round))
        return self._answers

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        return list(self._spread(partial(self._job.total, self._state.x), workers))

    def submit(self, trial: Trial) -> None:
        self._by_value = True
        self._trials[self._values.submit(outcome_of, self._job, trial)] = trial

    def completed(self) -> list[tuple[Trial, Outcome]]:
        done = wait(self._trials, return_when=FIRST_COMPLETED).done if self._trials else set()
        # an error is raised when no value is left that came with it
        values = [future for future in done if future.exception() is None] or done
        return [(self._trials.pop(future), future.result()) for future in values]

    def close(self) -> None:
        if self._pool is not None:
            if self._answers is not None:
                self._answers.close()  # after a failed merge, threads may still wait for room
            self._pool.shutdown(cancel_futures=True)
            self._values.shutdown(cancel_futures=True)

    def _spread(self, call: Callable[[int], T], workers: Sequence[int]) -> Generator[T, None, None]:
        """call(worker) for all workers, in their order; each thread takes the next one left.

        The calling thread works too, and hands out whatever is ready in between, so that answers
        are merged while others are still computed. Each other thread has one future for all its
        workers: waking the calling thread for every answer would take longer than a short search.

        After single values, their threads go on: in other threads, ``setup`` would run again.
        """
        if self._by_value:
            yield from self._values.map(call, workers)
            return
        results: dict[int, tuple[T, bool]] = {}  # by worker, and whether another thread computed it
        left = iter(workers)  # shared: next() on it is atomic under the GIL
        room = threading.Semaphore(_AHEAD * self._threads)  # bounds what waits in results

        def serve() -> None:
            try:
                while room.acquire() and (worker := next(left, None)) is not None:
                    results[worker] = call(worker), True
            finally:
                stop()

        def stop() -> None:  # after the last worker, an error or Ctrl-C
            for _ in left:
                pass
            room.release(self._threads)  # threads that wait for room find no worker left

        assert self._pool is not None
        try:
            futures = [self._pool.submit(serve) for _ in range(self._threads - 1)]
            for worker in workers:
                while worker not in results:
                    if (taken := next(left, None)) is not None:
                        results[taken] = call(taken), False
                    else:
                        stop()
                        wait(futures)
                        for future in futures:
                            future.result()  # raises the error of that thread
                result, by_other = results.pop(worker)
                yield result
                if by_other:
                    room.release()
        finally:
            stop()
