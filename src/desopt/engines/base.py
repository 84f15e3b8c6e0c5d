"""What an engine is given, and what it must do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from desopt.contract.codec import digest_of
from desopt.contract.errors import ObjectiveError
from desopt.contract.participation import participants
from desopt.contract.types import Algorithm, Answer, FloatArray, Objective, Task
from desopt.data import Shard
from desopt.data.checks import refuse_width
from desopt.objectives import WorkerData
from desopt.protocol.replica import VERSION
from desopt.protocol.server import Traffic

#: Points handed over in memory may take this much; beyond it answers are replayed.
HANDOVER_BYTES = 2**28

#: A process keeps the data of this many workers; then those used longest ago are let go, and
#: loaded again when they are needed.
OPEN_SHARDS = 1024


@dataclass
class Job:
    """Everything a worker needs to know for a whole run; a task says the rest."""

    algorithm: Algorithm
    objective: Objective
    shards: Sequence[Shard]
    batch_size: int
    seed: int
    n: int
    participation: float = 1.0
    _local: Callable[[int], WorkerData] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._local = lru_cache(maxsize=OPEN_SHARDS)(self._open)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # what was opened there is opened again here

    @property
    def workers(self) -> int:
        return len(self.shards)

    @property
    def handover(self) -> bool:
        """Whether final points may be kept in memory until they are merged."""
        return 8 * self.n * self.workers <= HANDOVER_BYTES

    def asked(self, round: int) -> Sequence[int]:
        """The workers that take part in a round, in order."""
        return participants(self.seed, round, self.workers, self.participation)

    def work(self, task: Task, worker: int) -> Answer:
        """One worker's side of a round."""
        try:
            answer = self.algorithm.work(task, self._local(worker), worker)
        except ObjectiveError as error:
            error.worker, error.round = worker, task.round
            raise
        return answer if self.handover else answer.bare()

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
            f = self._local(0).function(x, 0)
            f.value(x)
            began = time.perf_counter()
            f.value(x)
        except ObjectiveError as error:
            error.worker, error.round = 0, 0
            raise
        return time.perf_counter() - began

    def _open(self, worker: int) -> WorkerData:
        """The worker's data bound to the objective; a loader runs here."""
        shard = self.shards[worker].open(self.objective, worker)
        self._check_width(f"worker {worker}", [shard])
        return WorkerData(self.objective, shard, self.seed, worker, self.batch_size)

    def _check_width(self, who: str, shards: Sequence[Shard]) -> None:
        width = self.objective.dimension(shards)
        if width not in (None, self.n):
            refuse_width(who, width, self.n, getattr(shards[0], "columns", None))


class Engine(Protocol):
    """Takes tasks to workers and brings their answers back.

    It never looks into a task, an answer or an algorithm. A run calls::

        engine.start(job)
        engine.begin(state)                     # of round 0, or of the round it resumes with
        while ...:
            answers = engine.round(task)        # of the state that was begun
            engine.begin(state)                 # merged from these answers
            engine.evaluate(workers)            # in some rounds
            engine.traffic()
        engine.close()
    """

    @property
    def name(self) -> str:
        """As in ``ENGINES`` and in the result."""

    @property
    def repeated(self) -> int:
        """Workers' rounds that were computed again since ``start``, after something died."""

    def start(self, job: Job) -> None:
        """Prepare for rounds of this job; an engine may be started again after ``close``."""

    def begin(self, state: Any, limit: int | None = None) -> None:
        """Begin the round of this state, the one merged from the last round's answers.

        ``limit`` is that of the round's task. 0: no round follows, only evaluations.
        """

    def round(self, task: Task) -> Iterable[Answer]:
        """The answers of ``job.asked(task.round)``, ordered by worker; the caller takes them all.

        An engine with a deadline may return fewer, or none.
        """

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        """``Job.total`` of these workers, in this order, at the x of the state last begun."""

    def traffic(self) -> tuple[int, int]:
        """Bytes up and down since the last call: those of the wire's messages (docs/wire.md)."""

    def close(self) -> None:
        """Release everything; called once per ``start``, also after an error."""


class InMemory:
    """What engines share whose workers need no messages: the state, and the bytes saved."""

    repeated = 0

    def start(self, job: Job) -> None:
        self._job = job
        self._traffic = Traffic(job.algorithm, job.workers, job.asked)

    def begin(self, state: Any, limit: int | None = None) -> None:
        self._state = state

    def traffic(self) -> tuple[int, int]:
        return self._traffic.take()


def describe(job: Job, x0: FloatArray) -> dict[str, Any]:
    """The settings that a run's description holds."""
    return {
        "desopt": VERSION,
        "method": job.algorithm.settings(),
        "objective": job.objective.settings(),
        "workers": job.workers,
        "batch_size": job.batch_size,
        "seed": job.seed,
        "participation": job.participation,
        "n": job.n,
        "x0": digest_of(x0),
    }
