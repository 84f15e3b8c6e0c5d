"""All workers one after the other, in this thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from desopt.contract.types import Answer, LocalSearch, Task
from desopt.engines.base import Job
from desopt.engines.trials import Outcome, Trial, outcome_of
from desopt.protocol.server import Traffic


class InMemory:
    """Common to engines on this machine: the state is at hand, and messages are only counted."""

    repeated = 0

    def start(self, job: Job) -> None:
        self._job = job
        self._traffic = Traffic(job.algorithm, job.workers, job.asked)

    def begin(self, state: Any, limit: int | None = None) -> None:
        self._state = state

    def count_round(self) -> None:
        """Count the messages of a round."""
        self._traffic.count(self._state)

    def traffic(self) -> tuple[int, int]:
        return self._traffic.take()


class Serial(InMemory):
    """The reference: every other engine must give the same bits."""

    name = "serial"
    slots = 1

    def start(self, job: Job) -> None:
        super().start(job)
        self._submitted: list[Trial] = []

    def submit(self, trial: Trial) -> None:
        self._submitted.append(trial)

    def completed(self) -> list[tuple[Trial, Outcome]]:
        trials, self._submitted = self._submitted, []
        return [(trial, outcome_of(self._job, trial)) for trial in trials]

    def round(self, task: Task) -> Iterator[Answer]:
        self.count_round()
        return (self._job.work(task, worker) for worker in self._job.asked(task.round))

    def finish(self, searches: Mapping[int, LocalSearch]) -> list[int]:
        """Bring searches to their ends; the samples that the values of each are over."""
        return [self._job.finish(search, worker) for worker, search in searches.items()]

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        return [self._job.total(self._state.x, worker) for worker in workers]

    def close(self) -> None:
        pass
