"""The loop over rounds::

state = algorithm.init(x0)
for t in range(rounds):
    task    = algorithm.plan(state)            # what every worker needs to know
    answers = engine.round(task)               # of those who answered, ordered by worker
    state   = algorithm.merge(state, answers)  # pure; also run by workers that replay
    observers see (row, state, answers)        # everything else
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from desopt.contract.errors import EngineError
from desopt.contract.types import Answer, Task
from desopt.engines import Engine, Job
from desopt.run.history import End, Row, Status
from desopt.run.observers import Observer, Record
from desopt.system.terminal import warn

#: limit(rounds done, evaluations spent): the values that each worker may compute next, or None.
Budget: TypeAlias = Callable[[int, int], int | None]

_NOTHING = dict.fromkeys(
    ("evaluations", "samples", "nans", "bytes_up", "bytes_down", "seconds", "repeated"), 0
)


class Rounds:
    """The server's side of a run, one round at a time; the answers may come from anywhere.

    ::

        rounds.begin()
        while (task := rounds.task()) is not None:
            row = rounds.merge(task, answers)
            rounds.finish(row)
        rounds.close()
    """

    def __init__(
        self, job: Job, rounds: int, record: Record, observers: Sequence[Observer], budget: Budget
    ) -> None:
        self._job, self._rounds, self._record = job, rounds, record
        self._observers, self._budget = observers, budget
        self.state = record.state
        self._last: Mapping[str, Any] = record.history[-1] if record.history else _NOTHING
        self._answers: list[Answer] = []
        self._ended: End | None = None
        self.repeated = int(self._last["repeated"])
        self.limit = budget(self.state.round, self._last["evaluations"])

    @property
    def evaluations(self) -> int:
        """Values computed so far."""
        return int(self._last["evaluations"])

    def go_on_from(self, state: Any, evaluations: int) -> None:
        """Continue from the state of another run that took so many values."""
        self.state, self._last = state, {**self._last, "evaluations": evaluations}
        self.limit = self._budget(state.round, evaluations)

    def begin(self) -> None:
        """Tell the observers; some of them evaluate the objective at x0."""
        self._ended = _last_end(observer.begin(self._record) for observer in self._observers)

    def task(self) -> Task | None:
        """The next round's task; None when the run has ended."""
        if self._ended is not None or self.state.round >= self._rounds:
            return None
        return replace(self._job.algorithm.plan(self.state), limit=self.limit)

    def merge(self, task: Task, answers: Iterable[Answer], name: str = "asked") -> Row:
        """The state after the answers, and the row as far as they tell it."""
        self._answers = []
        arriving = _arriving(self._job, name, task, answers, self._answers)
        self.state = self._job.algorithm.merge(self.state, arriving)
        for _ in arriving:  # whatever the merge left
            pass
        doubt = getattr(self._job.algorithm, "doubt", _none)(task, self._answers)
        if doubt:
            warn(doubt, RuntimeWarning, stacklevel=2)
        row = _row(self._last, self.state.round, self._answers)
        self.limit = self._budget(self.state.round, row["evaluations"])
        return row

    def finish(self, row: Row) -> None:
        """Tell the observers of the round."""
        self._last = row
        ended = (observer.round(row, self.state, self._answers) for observer in self._observers)
        self._ended = _last_end(ended)

    def close(self) -> End:
        """Tell the observers of the end; why it ended."""
        for observer in self._observers:
            observer.end()
        done = self.state.round
        return self._ended or End(Status.ROUNDS, f"{done} round{'s' * (done != 1)} done")


def loop(
    job: Job,
    engine: Engine,
    rounds: int,
    record: Record,
    observers: Sequence[Observer],
    budget: Budget,
) -> End:
    """Run the rounds after those of the record, up to the last one or an observer's end."""
    server = Rounds(job, rounds, record, observers, budget)
    try:
        engine.start(job)
        return _loop(server, engine)
    finally:
        engine.close()


def _loop(server: Rounds, engine: Engine) -> End:
    repeated = server.repeated
    engine.begin(server.state, server.limit)
    server.begin()
    while (task := server.task()) is not None:
        began = time.perf_counter()
        row = server.merge(task, engine.round(task), engine.name)
        engine.begin(server.state, server.limit)
        up, down = engine.traffic()
        row["bytes_up"] += up
        row["bytes_down"] += down
        row["repeated"] = repeated + engine.repeated
        row["seconds"] += time.perf_counter() - began
        server.finish(row)
    return server.close()


def _none(task: Task, answers: Sequence[Answer]) -> str:
    """The doubt of a method that has none."""
    return ""


def _last_end(ends: Iterator[End | None]) -> End | None:
    """The reason of the last observer that ends the run; all of them are told."""
    ended = None
    for end in ends:
        ended = end or ended
    return ended


def _arriving(
    job: Job, name: str, task: Task, given: Iterable[Answer], answers: list[Answer]
) -> Iterator[Answer]:
    """A round's answers as they arrive; ``answers`` keeps what a journal needs of them.

    Points and changes are dropped once they are merged. An engine may lose answers, but not
    invent or reorder them.
    """
    asked = iter(job.asked(task.round))
    for answer in given:
        answers.append(answer.bare())
        if answer.worker not in asked:  # searches from where the last one was found
            workers = [each.worker for each in answers[-20:]]
            raise EngineError(
                f"engine {name} returned answers of workers {workers} in round "
                f"{task.round}; it must return those of job.asked(round), once each and in order"
            )
        yield answer


def _row(last: Mapping[str, Any], round: int, answers: Sequence[Answer]) -> Row:
    """The totals after a round, as far as its answers tell them."""
    return Row(
        round=round,
        evaluations=last["evaluations"] + sum(answer.evaluations for answer in answers),
        samples=last["samples"] + sum(answer.samples for answer in answers),
        nans=last["nans"] + sum(answer.nans for answer in answers),
        bytes_up=last["bytes_up"],
        bytes_down=last["bytes_down"],
        seconds=last["seconds"],
        loss=math.nan,
        answers=len(answers),
        repeated=last["repeated"],
    )
