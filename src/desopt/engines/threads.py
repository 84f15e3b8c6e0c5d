"""Workers spread over threads: for compiled objectives, which release the GIL."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from desopt.engines.base import Job, cores
from desopt.types import Answer, FloatArray, Task


class Threads:
    """A pool of ``jobs`` threads (default: one per core)."""

    name = "threads"

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = cores() if jobs is None else jobs

    def start(self, job: Job) -> None:
        self._job = job
        self._pool = ThreadPoolExecutor(min(self.jobs, job.workers), "desopt")

    def round(self, task: Task) -> list[Answer]:
        return list(self._pool.map(partial(self._job.work, task), range(self._job.workers)))

    def totals(self, x: FloatArray, workers: Sequence[int]) -> list[tuple[float, int]]:
        return list(self._pool.map(partial(self._job.total, x), workers))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
