"""What an engine is given, and what it must do."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from desopt.data import Shard
from desopt.objectives import WorkerData
from desopt.types import Algorithm, Answer, FloatArray, Objective, ObjectiveError, Task

#: Points handed over in memory may take this much; beyond it answers are replayed.
HANDOVER_BYTES = 2**28


@dataclass
class Job:
    """Everything a worker needs to know for a whole run; a task says the rest."""

    algorithm: Algorithm
    objective: Objective
    shards: Sequence[Shard]
    batch_size: int
    seed: int
    n: int
    _open: dict[int, WorkerData] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_open": {}}  # what was opened here is opened again there

    @property
    def workers(self) -> int:
        return len(self.shards)

    @property
    def handover(self) -> bool:
        """Whether final points may be kept in memory until they are merged."""
        return 8 * self.n * self.workers <= HANDOVER_BYTES

    def work(self, task: Task, worker: int) -> Answer:
        """One worker's side of a round."""
        try:
            answer = self.algorithm.work(task, self._local(worker), worker)
        except ObjectiveError as error:
            error.worker, error.round = worker, task.round
            raise
        return answer if self.handover else replace(answer, point=None, change=None)

    def total(self, x: FloatArray, worker: int) -> tuple[float, int]:
        """Sum of F over one worker's data, and their number."""
        try:
            return self._local(worker).total(x)
        except ObjectiveError as error:
            error.worker = worker
            raise

    def time_of_a_value(self, x: FloatArray) -> float:
        """Seconds that one value on a minibatch takes; the first call, of two, is to warm up."""
        try:
            f = self._local(0).minibatch(x, 0)
            f.value()
            began = time.perf_counter()
            f.value()
        except ObjectiveError as error:
            error.worker, error.round = 0, 0
            raise
        return time.perf_counter() - began

    def _local(self, worker: int) -> WorkerData:
        """The worker's data bound to the objective; a loader runs on first use."""
        local = self._open.get(worker)
        if local is None:
            shard = self.shards[worker].open(self.objective, worker)
            local = WorkerData(self.objective, shard, self.seed, worker, self.batch_size)
            self._open[worker] = local
        return local


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine(Protocol):
    """Takes tasks to workers. It never looks into a task, an answer or an algorithm."""

    @property
    def name(self) -> str: ...

    def start(self, job: Job) -> None:
        """Get ready for rounds of this job."""

    def round(self, task: Task) -> list[Answer]:
        """The answers of all workers, ordered by worker."""

    def totals(self, x: FloatArray, workers: Sequence[int]) -> list[tuple[float, int]]:
        """``Job.total`` of these workers, in this order."""

    def close(self) -> None:
        """Let go of everything; called once, also after an error."""
