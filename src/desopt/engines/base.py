"""The contract of engines: the job that they are given, and the protocol that they implement."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import Lock
from typing import Any, Protocol

from desopt.contract.codec import digest_of
from desopt.contract.errors import Failed, ObjectiveError
from desopt.contract.participation import participants
from desopt.contract.space import Space
from desopt.contract.types import (
    Algorithm,
    Answer,
    Batches,
    FloatArray,
    LocalFunction,
    LocalSearch,
    Objective,
    Task,
)
from desopt.data import Shard
from desopt.data.checks import refuse_width
from desopt.objectives import WorkerData
from desopt.protocol.replica import VERSION

#: The members of an engine, by which one is known.
MEMBERS = ("name", "repeated", "start", "begin", "round", "evaluate", "traffic", "close")

#: Memory for final points of workers until they are merged; beyond it, points are replayed.
HANDOVER_BYTES = 2**28

#: Workers whose data a process keeps open; the least recently used are closed, and loaded again
#: when needed.
OPEN_SHARDS = 1024


@dataclass
class Job:
    """A run from the workers' side; a task adds what changes from round to round.

    >>> from desopt.methods import DES
    >>> from desopt.objectives import as_objective
    >>> shards = desopt.data.as_shards(np.ones((40, 2)), workers=4, seed=0)
    >>> fun = as_objective(lambda x, batch: float(x @ x), 0.0, None)
    >>> job = desopt.engines.Job(DES(), fun, shards, batch_size=5, seed=0, n=2, participation=0.5)
    >>> job.workers, list(job.asked(round=0))
    (4, [1, 2])
    """

    algorithm: Algorithm
    objective: Objective
    shards: Sequence[Shard]
    batch_size: int
    seed: int
    n: int
    participation: float = 1.0
    #: Between the user's x and what is searched; None where these are the same.
    space: Space | None = None
    _local: Callable[[int], WorkerData] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # not a bound method: in a cycle, the data of a run would wait for the garbage collector
        parts = self.objective, self.shards, self.seed, self.batch_size, self.n
        self._local = _in_turn(lru_cache(maxsize=OPEN_SHARDS)(partial(_open, *parts)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # data opened there are opened again here

    @property
    def workers(self) -> int:
        return len(self.shards)

    @property
    def handover(self) -> bool:
        """Whether final points stay in memory until they are merged."""
        return 8 * self.n * self.workers <= HANDOVER_BYTES

    def asked(self, round: int) -> Sequence[int]:
        """The workers that take part in a round, in order."""
        return participants(self.seed, round, self.workers, self.participation)

    def shown(self, x: FloatArray) -> FloatArray:
        """A searched point as the user sees it; a copy."""
        return x.copy() if self.space is None else self.space.decode(x)

    def share(self, task: Task, worker: int) -> Task:
        """The task with the worker's share of the values that are left for the round."""
        if task.limit is None:
            return task
        asked = self.asked(task.round)
        each, rest = divmod(task.limit, len(asked))
        if self.algorithm.cost.whole:  # all must evaluate the same points
            rest = 0
        return replace(task, limit=each + (bisect_left(asked, worker) < rest))

    def search(self, task: Task, worker: int) -> LocalSearch:
        """One worker's round as a search, for drivers that evaluate single points."""
        search: LocalSearch = self.algorithm.search(self.share(task, worker), worker)  # type: ignore[attr-defined]
        return search

    def function(
        self, x: FloatArray, round: int, worker: int, batches: Batches | None
    ) -> LocalFunction:
        """f_i on the data of one worker and round, for points of the size of x.

        None: the function of ``total``, which all rounds share.
        """
        try:
            local = self._local(worker)
            return local.whole(x) if batches is None else local.function(x, round, batches)
        except ObjectiveError as error:
            error.worker, error.round = worker, round
            raise

    def prepare(self, x: FloatArray, round: int, worker: int) -> None:
        """Load the worker's data and call ``setup``, unless that has been done here."""
        try:
            self._local(worker).prepare(x, round)
        except ObjectiveError as error:
            error.worker, error.round = worker, round
            raise

    def value(
        self, x: FloatArray, round: int, worker: int, batches: Batches, iteration: int
    ) -> tuple[float, int, str]:
        """One value of one worker's function, the samples that it is over, and why it failed."""
        f = self.function(x, round, worker, batches)
        try:
            return f.value(x, iteration if batches is Batches.ITERATION else 0), f.rows, ""
        except Failed as failed:
            return math.nan, f.rows, str(failed) or "failed"
        except ObjectiveError as error:
            error.worker, error.round = worker, round
            raise

    def violation(self, x: FloatArray) -> float:
        """How much x violates the constraints; where it does, it is not evaluated."""
        violation = getattr(self.objective, "violation", None)
        return 0.0 if violation is None else float(violation(x))

    def finish(self, search: LocalSearch, worker: int) -> int:
        """Bring a search to its end; the samples that its values are the means over."""
        try:
            f = self.function(search.x, search.round, worker, search.batches)
            f.run(search)
        except ObjectiveError as error:
            error.worker, error.round = worker, search.round
            raise
        return f.rows

    def work(self, task: Task, worker: int) -> Answer:
        """One worker's side of a round."""
        try:
            answer = self.algorithm.work(self.share(task, worker), self._local(worker), worker)
        except ObjectiveError as error:
            error.worker, error.round = worker, task.round
            raise
        return answer if self.handover else answer.bare()

    def total(self, x: FloatArray, worker: int) -> tuple[float, int]:
        """The sum of F over one worker's data, and the number of rows."""
        try:
            return self._local(worker).total(x)
        except ObjectiveError as error:
            error.worker = worker
            raise


def _in_turn(opened: Callable[[int], WorkerData]) -> Callable[[int], WorkerData]:
    """The same, where threads that need one worker's data wait for the first: it loads them."""
    locks = [Lock() for _ in range(64)]

    def wait_and_open(worker: int) -> WorkerData:
        with locks[worker % len(locks)]:
            return opened(worker)

    return wait_and_open


def _open(
    objective: Objective, shards: Sequence[Shard], seed: int, batch_size: int, n: int, worker: int
) -> WorkerData:
    """The worker's data bound to the objective; a loader runs here."""
    shard = shards[worker].open(objective, worker)
    width = objective.dimension([shard])
    if width not in (None, n):
        refuse_width(f"worker {worker}", width, n, getattr(shard, "columns", None))
    return WorkerData(objective, shard, seed, worker, batch_size)


class Engine(Protocol):
    """Takes tasks to workers and brings their answers back.

    It never looks into a task, an answer or an algorithm: ``Job.work`` makes an answer, in
    whatever thread, process or machine. A run calls, all from one thread::

        engine.start(job)
        engine.begin(state)                # of round 0, or of the round that a run resumes with
        while ...:
            answers = engine.round(task)   # the task of that state
            engine.begin(state)            # the one merged from these answers
            engine.evaluate(workers)       # in some rounds
            engine.traffic()
        engine.close()

    Same inputs, same bits: an answer depends on the job, the task and the worker only, so lost
    work can be repeated anywhere. Errors of the user's function (``ObjectiveError``) are passed
    on; an engine's own are ``EngineError``. If workers need no messages, inherit from
    ``engines.serial.InMemory``; if they keep the state themselves, use ``protocol.server.Server``.

    >>> engine = desopt.ENGINES["threads"]()
    >>> engine.name
    'threads'
    """

    @property
    def name(self) -> str:
        """As in ``ENGINES``, in the result and in messages."""

    @property
    def repeated(self) -> int:
        """Workers' rounds that were computed again since ``start``, because a process died."""

    def start(self, job: Job) -> None:
        """Prepare for the rounds of this job; possible again after ``close``."""

    def begin(self, state: Any, limit: int | None = None) -> None:
        """Begin the round of this state, the one merged from the last round's answers.

        ``limit`` is that of the round's task. 0: no round follows, only evaluations.
        """

    def round(self, task: Task) -> Iterable[Answer]:
        """The answers of ``job.asked(task.round)``, ordered by worker.

        It may be a generator: the run takes all answers, one at a time, and merges each before it
        takes the next. An engine with a deadline may return fewer answers, or none.
        """

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        """``Job.total`` of these workers, in this order, at the x of the state last begun."""

    def traffic(self) -> tuple[int, int]:
        """Bytes of the wire's messages (docs/wire.md) up and down since the last call.

        Counted by a ``Server``, or by ``protocol.server.Traffic`` if no messages are sent.
        """

    def close(self) -> None:
        """Release everything; called once per ``start``, also after an error."""


def describe(job: Job, x0: FloatArray) -> dict[str, Any]:
    """The settings in a run's description."""
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
