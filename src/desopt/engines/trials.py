"""Single values of a round: the searches of all its workers, driven point by point.

A ``Trial`` is a point to evaluate, an ``Outcome`` what became of it. ``TrialRound`` holds a
round's searches. Whoever evaluates, whether an engine, a function of a matrix or a person, asks it
for trials and tells the outcomes in any order. The answers have the same bits as those of
``Job.work``.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from desopt.contract.errors import Failed, ObjectiveError
from desopt.contract.types import (
    Answer,
    Batches,
    FloatArray,
    LocalSearch,
    Task,
)
from desopt.data import NoData
from desopt.engines.base import Job

#: The number of a value of the full objective, on all data of a worker; not part of a search.
OBJECTIVE = 2**32 - 1

#: How the reason for a failure begins where fun has returned NaN or infinity.
NO_NUMBER = "the value is"

#: Points ahead that a name may refer to.
_FARTHEST = 2**20


#: Brings the workers' searches to their ends; the samples that the values of each are over.
Finish: TypeAlias = Callable[[Mapping[int, LocalSearch]], Sequence[int]]


class Key(NamedTuple):
    """The name of a point: the ``number``-th of its search, after ``basis`` accepted steps."""

    round: int
    worker: int
    number: int
    basis: int

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Key:
        """The key of an id; a ValueError if it is none."""
        parts = text.split(".")
        if len(parts) != len(cls._fields) or not all(p.isascii() and p.isdigit() for p in parts):
            raise ValueError(f"not an id: {text!r:.80}; an id is four numbers such as 3.0.17.2")
        numbers = [*map(int, parts)]
        if max(numbers) > OBJECTIVE:
            raise ValueError(f"not an id: {text!r:.80}; its numbers have 32 bits")
        return cls(*numbers)


@dataclass(frozen=True, slots=True)
class Trial:
    """A point to evaluate. ``iteration``, -1 for x, names the minibatch if each has its own."""

    key: Key
    x: FloatArray
    batches: Batches
    iteration: int

    @property
    def id(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The value of a trial, the mean over ``rows`` samples; ``failed`` says why there is none.

    Where a ``violation`` of the constraints is positive it decides, and no value is needed.

    Of the full objective it is the sum over the rows.
    """

    value: float
    rows: int = 1
    seconds: float = 0.0
    failed: str = ""
    violation: float = 0.0


def outcome_of(job: Job, trial: Trial) -> Outcome:
    """Evaluate a trial, in whatever thread, process or machine."""
    round, worker, number, _ = trial.key
    began, reason = time.perf_counter(), ""
    try:
        if number == OBJECTIVE:
            value, rows = job.total(trial.x, worker)
        else:
            value, rows, reason = job.value(trial.x, round, worker, trial.batches, trial.iteration)
    except Failed as failed:  # on the way to the function: the rows are not known
        value, rows, reason = math.nan, 1, str(failed) or "failed"
    except ObjectiveError as error:
        error.iteration = trial.iteration if trial.iteration >= 0 else None
        raise
    reason = reason or ("" if math.isfinite(value) else f"{NO_NUMBER} {value}")
    return Outcome(value, rows, time.perf_counter() - began, reason)


def is_over_data(job: Job, trial: Trial) -> bool:
    """Whether the value is the full objective over a worker's data, not one of a search."""
    no_data = isinstance(job.shards[trial.key.worker], NoData)
    return trial.key.number == OBJECTIVE and not no_data


class Known(Protocol):
    """Knows single values of an earlier start of the same run."""

    def known(self, trial: Trial) -> Outcome | None:
        """The outcome of this trial, if it has been evaluated."""


class Log(Known, Protocol):
    """Keeps single values as well."""

    def add(self, trial: Trial, outcome: Outcome) -> None:
        """Keep the outcome."""


class NoLog:
    """Keeps nothing."""

    def known(self, trial: Trial) -> Outcome | None:
        return None

    def add(self, trial: Trial, outcome: Outcome) -> None:
        pass


@dataclass
class _Side:
    """One worker's search, and what is known of its points."""

    worker: int
    search: LocalSearch
    rows: int = 1
    open: dict[Key, Trial] = field(default_factory=dict)
    told: dict[Key, Outcome] = field(default_factory=dict)


class TrialRound:
    """A round as single values: trials out, outcomes in, at last the answers.

    ``in_order``: one worker after the other, as in whole rounds; else all go on side by side.
    """

    def __init__(
        self, job: Job, task: Task, log: Known | None = None, in_order: bool = False
    ) -> None:
        self.round, self._log, self._in_order = task.round, log or NoLog(), in_order
        self._job = job
        self._sides = {
            worker: _Side(worker, job.search(task, worker)) for worker in job.asked(task.round)
        }
        self._ready = deque(self._sides.values())  # sides with needed points not handed out
        self._left = len(self._sides)

    @property
    def done(self) -> bool:
        """Whether all searches have their values."""
        while self._ready:  # the values in the log may be all that is needed
            side = self._ready[0]
            if next(self._fresh(side, 0), None) is not None:
                return False
            self._ready.popleft()
        return self._left == 0

    def ask(self, count: int, ahead: bool = False) -> list[Trial]:
        """Up to ``count`` trials that were not handed out before.

        First those that are needed in any case. ``ahead``: then those that are needed if the
        steps before them are rejected.
        """
        trials: list[Trial] = []
        while self._ready and len(trials) < count:
            for fresh in self._fresh(self._ready[0], 0):
                trials.append(self._handed(fresh))
                if len(trials) == count:
                    break
            else:
                self._ready.popleft()
        depth = 0
        while ahead and len(trials) < count:
            depth += 1
            found = [
                trial
                for side in self._sides.values()
                if side.search.needed and (trial := next(self._fresh(side, depth), None))
            ]
            if not found and not any(self._reaches(s, depth) for s in self._sides.values()):
                break
            trials += map(self._handed, found[: count - len(trials)])
        return trials

    def open(self) -> list[Trial]:
        """The trials handed out and not told, in order."""
        return sorted(
            (trial for side in self._sides.values() for trial in side.open.values()),
            key=lambda trial: trial.key,
        )

    def find(self, key: Key) -> Trial | None:
        """The trial of this name, if its value can be used; handed out or not."""
        side = self._sides.get(key.worker)
        if key.round != self.round or side is None:
            return None
        next(self._fresh(side, 0), None)  # takes what the log knows
        if key.basis != side.search.basis:
            return None
        if key in side.open:
            return side.open[key]
        position = key.number - side.search.index
        if not 0 <= position < _FARTHEST or position >= len(_points(side, position + 1)):
            return None
        return _trial(self.round, side, position)

    def is_past(self, key: Key) -> bool:
        """Whether a trial of this name has been decided on or discarded."""
        side = self._sides.get(key.worker)
        if key.round != self.round or side is None:
            return key.round < self.round
        return key.basis < side.search.basis or key.number < side.search.index

    def tell(self, trial: Trial, outcome: Outcome) -> bool:
        """Take the outcome of a trial; False if it is of no use: told before, or discarded."""
        key = trial.key
        side = self._sides.get(key.worker)
        if side is None or key.round != self.round or self.is_past(key) or key in side.told:
            return False
        side.open.pop(key, None)
        self._take(side, key, outcome)
        return True

    def complete(self, finish: Finish) -> None:
        """Bring all searches to their ends in this thread; no trial may be open."""
        sides = [side for side in self._sides.values() if side.search.needed]
        found = finish({side.worker: side.search for side in sides})
        for side, rows in zip(sides, found, strict=True):
            side.rows = rows
        self._left = 0
        self._ready.clear()

    def answers(self) -> list[Answer]:
        """The answers of all workers, in their order, when the round is ``done``."""
        return [side.search.answer(side.rows) for side in self._sides.values()]

    def _fresh(self, side: _Side, ahead: int) -> Iterator[Trial]:
        """Points of the side that are neither handed out nor told; values in the log are told."""
        position = 0
        while position < (reach := side.search.needed + ahead if side.search.needed else 0):
            if position >= len(_points(side, reach)):
                return
            key = _key(self.round, side, position)
            if key in side.open or key in side.told:
                position += 1
                continue
            trial = _trial(self.round, side, position)
            if (outcome := self._log.known(trial) or self._violated(trial)) is None:
                yield trial
                position += 1
            else:
                self._take(side, key, outcome)
                position = 0  # the search may have moved on

    def _violated(self, trial: Trial) -> Outcome | None:
        """The outcome of a trial that violates the constraints, which is known at once."""
        over = self._job.violation(trial.x)
        return Outcome(math.nan, 0, 0.0, "violates the constraints", over) if over > 0.0 else None

    @staticmethod
    def _reaches(side: _Side, depth: int) -> bool:
        """Whether the search has points that far ahead."""
        needed = side.search.needed
        return bool(needed) and len(_points(side, needed + depth)) >= needed + depth

    def _handed(self, trial: Trial) -> Trial:
        self._sides[trial.key.worker].open[trial.key] = trial
        return trial

    def _take(self, side: _Side, key: Key, outcome: Outcome) -> None:
        """Tell the search all values that are next in its order."""
        side.told[key] = outcome
        side.rows = max(side.rows, outcome.rows)  # less where it is not known, as after a crash
        search = side.search
        if key.number == search.index:
            values: list[float] = []
            violations: list[float] = []
            while (told := side.told.pop(_key(self.round, side, len(values)), None)) is not None:
                values.append(math.nan if told.failed else told.value)
                violations.append(told.violation)
            before = search.basis
            search.tell(values, *([violations] if any(violations) else []))
            if search.basis != before:  # points from the old v are of no use
                side.open, side.told = {}, {}
            if not search.needed:
                self._left -= 1
            elif self._in_order:
                self._ready.appendleft(side)
            else:
                self._ready.append(side)


def _key(round: int, side: _Side, position: int) -> Key:
    return Key(round, side.worker, side.search.index + position, side.search.basis)


def _points(side: _Side, count: int) -> Sequence[FloatArray]:
    """Up to ``count`` points; never a single one, which a search may write into its own v."""
    return side.search.ask(max(2, count))[:count]


def _trial(round: int, side: _Side, position: int) -> Trial:
    """The point at this position of the search's ``ask``; a copy, as the search goes on."""
    search = side.search
    x = _points(side, position + 1)[position].copy()
    x.flags.writeable = False
    return Trial(_key(round, side, position), x, search.batches, search.iterations[position])
