"""Workers spread over threads: for compiled objectives, which release the GIL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from desopt.contract.types import Answer, Task
from desopt.engines.base import InMemory, Job
from desopt.system.parallel import cores

T = TypeVar("T")

#: Results of each thread that may wait to be handed out.
_AHEAD = 2


class Threads(InMemory):
    """A pool of ``jobs`` threads (default: one per core)."""

    name = "threads"

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = cores() if jobs is None else jobs
        self._pool: ThreadPoolExecutor | None = None

    def start(self, job: Job) -> None:
        super().start(job)
        self._threads = min(self.jobs, job.workers)
        self._pool = ThreadPoolExecutor(max(1, self._threads - 1), "desopt")

    def round(self, task: Task) -> Iterator[Answer]:
        self._traffic.count(self._state)
        return self._spread(partial(self._job.work, task), self._job.asked(task.round))

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        return list(self._spread(partial(self._job.total, self._state.x), workers))

    def _spread(self, call: Callable[[int], T], workers: Sequence[int]) -> Iterator[T]:
        """call(worker) for all workers, in their order; a thread takes the next when it is free.

        This thread is one of them, and hands out what is ready before it takes the next: so a
        merge goes on while others still search. One future per thread, not per worker: waking
        the main thread for each would cost more than a short search.
        """
        results: dict[int, T] = {}
        theirs: set[int] = set()
        left = iter(workers)  # shared: next() on it is one step under the GIL
        # Others may be so far ahead of what was handed out: results take memory.
        ahead = threading.Semaphore(_AHEAD * self._threads)

        def serve() -> None:
            try:
                while ahead.acquire() and (taken := next(left, None)) is not None:
                    results[taken] = call(taken)
                    theirs.add(taken)
            finally:
                stop()

        def stop() -> None:  # after an error or Ctrl-C nobody needs to begin anything more
            for _ in left:
                pass
            ahead.release(self._threads)  # whoever waits finds nothing left

        assert self._pool is not None
        futures = [self._pool.submit(serve) for _ in range(self._threads - 1)]
        try:
            for worker in workers:
                while worker not in results:
                    taken = next(left, None)
                    if taken is not None:
                        results[taken] = call(taken)
                    else:
                        stop()
                        wait(futures)
                        for future in futures:
                            future.result()  # raises what went wrong there
                yield results.pop(worker)
                if worker in theirs:
                    theirs.discard(worker)
                    ahead.release()
        finally:
            stop()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
