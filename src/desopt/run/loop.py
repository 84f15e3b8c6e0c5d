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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from desopt.contract.errors import EngineError
from desopt.contract.types import Answer, Task
from desopt.engines import Engine, Job
from desopt.run.history import End, Row, Status
from desopt.run.observers import Observer, Record

#: limit(rounds done, evaluations spent): the values that each worker may compute next, or None.
Budget: TypeAlias = Callable[[int, int], int | None]

_NOTHING = dict.fromkeys(
    ("evaluations", "samples", "nans", "bytes_up", "bytes_down", "seconds", "repeated"), 0
)


def loop(
    job: Job,
    engine: Engine,
    rounds: int,
    record: Record,
    observers: Sequence[Observer],
    budget: Budget,
) -> End:
    """Run the rounds after those of the record, up to the last one or an observer's end."""
    try:
        engine.start(job)
        return _rounds(job, engine, rounds, record, observers, budget)
    finally:
        engine.close()


def _rounds(
    job: Job, engine: Engine, rounds: int, record: Record, observers: Sequence[Observer],
    budget: Budget,
) -> End:  # fmt: skip
    algorithm, state = job.algorithm, record.state
    last: Mapping[str, Any] = record.history[-1] if record.history else _NOTHING
    repeated = last["repeated"]
    limit = budget(state.round, last["evaluations"])
    engine.begin(state, limit)
    ended = _last_end(observer.begin(record) for observer in observers)
    while ended is None and state.round < rounds:
        began = time.perf_counter()
        task = replace(algorithm.plan(state), limit=limit)
        answers: list[Answer] = []
        arriving = _arriving(job, engine, task, answers)
        state = algorithm.merge(state, arriving)
        for _ in arriving:  # whatever the merge left
            pass
        row = _row(last, state.round, answers)
        limit = budget(state.round, row["evaluations"])
        engine.begin(state, limit)
        up, down = engine.traffic()
        row["bytes_up"] += up
        row["bytes_down"] += down
        row["repeated"] = repeated + engine.repeated
        row["seconds"] += time.perf_counter() - began
        ended = _last_end(observer.round(row, state, answers) for observer in observers)
        last = row
    for observer in observers:
        observer.end()
    return ended or End(Status.ROUNDS, f"{state.round} rounds done")


def _last_end(ends: Iterator[End | None]) -> End | None:
    """The reason of the last observer that ends the run; all of them are told."""
    ended = None
    for end in ends:
        ended = end or ended
    return ended


def _arriving(job: Job, engine: Engine, task: Task, answers: list[Answer]) -> Iterator[Answer]:
    """A round's answers as they arrive; ``answers`` keeps what a journal needs of them.

    Points and changes are dropped once they are merged. An engine may lose answers, but not
    invent or reorder them.
    """
    asked = iter(job.asked(task.round))
    for answer in engine.round(task):
        answers.append(answer.bare())
        if answer.worker not in asked:  # searches from where the last one was found
            workers = [each.worker for each in answers[-20:]]
            raise EngineError(
                f"engine {engine.name} returned answers of workers {workers} in round "
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
