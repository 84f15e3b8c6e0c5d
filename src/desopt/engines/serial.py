"""All workers one after the other, in this thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from desopt.contract.types import Answer, FloatArray, Task
from desopt.engines.base import Job


class Serial:
    """The reference: every other engine must give the same bits."""

    name = "serial"
    repeated = 0

    def start(self, job: Job) -> None:
        self._job = job

    def round(self, task: Task) -> Iterator[Answer]:
        return (self._job.work(task, worker) for worker in self._job.asked(task.round))

    def totals(self, x: FloatArray, workers: Sequence[int]) -> list[tuple[float, int]]:
        return [self._job.total(x, worker) for worker in workers]

    def close(self) -> None:
        pass
