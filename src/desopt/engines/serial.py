"""All workers one after the other, in this thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from desopt.contract.types import Answer, Task
from desopt.engines.base import InMemory


class Serial(InMemory):
    """The reference: every other engine must give the same bits."""

    name = "serial"

    def round(self, task: Task) -> Iterator[Answer]:
        self._traffic.count(self._state)
        return (self._job.work(task, worker) for worker in self._job.asked(task.round))

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        return [self._job.total(self._state.x, worker) for worker in workers]

    def close(self) -> None:
        pass
