"""Rounds made of single values, for functions that are expensive to evaluate.

An engine that can evaluate single trials (``Evaluator``) is wrapped in ``ByValue``: the searches
run here, and only points and values travel. Every value is kept as soon as it is known; a value
that fails, hangs or kills its process costs nothing but itself; a population spreads over all
cores; idle cores compute ahead. The bits are those of whole rounds.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from desopt.contract.types import Answer, Batches, Task
from desopt.engines.base import Engine, Job
from desopt.engines.trials import OBJECTIVE, Key, Log, NoLog, Outcome, Trial, TrialRound

#: The members that an ``Evaluator`` has besides those of an engine.
MEMBERS = ("slots", "count_round", "submit", "completed")

#: Seconds of a value from which on single values are worth a message and a line in a log.
SLOW = 0.01

#: Values by which a function is judged slow or quick.
_JUDGED = 5

#: The part of its usual time after which a value is expected at any moment.
_NEARLY = 0.8


class Evaluator(Engine, Protocol):
    """An engine that also evaluates single trials."""

    @property
    def slots(self) -> int:
        """Trials that are evaluated at the same time, at most."""

    def count_round(self) -> None:
        """Count the messages of a whole round: the traffic does not depend on what drives it."""

    def submit(self, trial: Trial) -> None:
        """Begin to evaluate the trial."""

    def completed(self) -> Iterable[tuple[Trial, Outcome]]:
        """Wait until trials are evaluated, and return these; in any order."""


class ByValue:
    """An engine whose rounds are single values, evaluated by another one.

    ``log`` keeps every value. ``ahead``: whether idle slots evaluate points that are needed only if
    steps before them are rejected. ``always``: else a function that turns out to be quick is
    evaluated in whole rounds, without a log, after the first one.
    """

    def __init__(
        self, inner: Evaluator, log: Log | None = None, *, ahead: bool = True, always: bool = False
    ) -> None:
        self._inner, self._log, self._ahead, self._always = inner, log or NoLog(), ahead, always
        self._flying: dict[Key, float] = {}  # trials being evaluated, and since when
        self._seconds: deque[float] = deque(maxlen=_JUDGED)
        self.quick = False  # whether rounds are whole ones
        self.computed = 0  # values of searches computed here, those ahead included

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def slots(self) -> int:
        """Values computed at the same time, at most."""
        return self._inner.slots

    @property
    def repeated(self) -> int:
        return self._inner.repeated

    def start(self, job: Job) -> None:
        self._job = job
        self._flying = {}
        self._inner.start(job)

    def begin(self, state: Any, limit: int | None = None) -> None:
        self._state = state
        self._inner.begin(state, limit)

    def round(self, task: Task) -> Iterable[Answer]:
        if self.quick:
            return self._inner.round(task)
        self._inner.count_round()
        trials = TrialRound(self._job, task, self._log, in_order=self._inner.slots == 1)
        while not trials.done:
            free = self._inner.slots - len(self._flying)
            ahead = self._ahead and not self._value_expected()
            for trial in trials.ask(free, ahead) if free > 0 else ():
                self._submit(trial)
            for trial, outcome in self._completed():
                trials.tell(trial, outcome)
            if not self.quick and self._is_quick():
                self.quick = True  # from the next round on, or at once if that is possible
                # those that call fun in this thread have it; else fun belongs into another process
                if (finish := getattr(self._inner, "finish", None)) and not self._flying:
                    trials.complete(finish)
        if self.quick:
            while self._flying:
                self._completed()
        return trials.answers()

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        if self.quick:
            return self._inner.evaluate(workers)
        x = self._state.x.copy()
        x.flags.writeable = False
        wanted = [
            Trial(Key(self._state.round, worker, OBJECTIVE, 0), x, Batches.ALL, 0)
            for worker in workers
        ]
        known = {trial.key: self._log.known(trial) for trial in wanted}
        waiting = deque(trial for trial in wanted if known[trial.key] is None)
        while None in known.values():
            while waiting and len(self._flying) < self._inner.slots:
                self._submit(waiting.popleft())
            for trial, outcome in self._completed():
                known[trial.key] = outcome
        outcomes = [known[trial.key] for trial in wanted]
        return [(outcome.value, outcome.rows) for outcome in outcomes if outcome is not None]

    def traffic(self) -> tuple[int, int]:
        return self._inner.traffic()

    def close(self) -> None:
        self._inner.close()

    def _submit(self, trial: Trial) -> None:
        self._flying[trial.key] = time.monotonic()
        self._inner.submit(trial)

    def _completed(self) -> list[tuple[Trial, Outcome]]:
        """Trials whose values have come, also those of an earlier round; all are kept."""
        done = []
        for trial, outcome in self._inner.completed():
            del self._flying[trial.key]
            self._log.add(trial, outcome)
            if trial.key.number != OBJECTIVE:
                self.computed += 1
            if not outcome.failed:
                self._seconds.append(outcome.seconds)
            done.append((trial, outcome))
        return done

    def _value_expected(self) -> bool:
        """Whether a value must come at any moment, which may be an accepted step.

        Then points ahead had better wait for it: those in flight are lost at an accepted step.
        Where all values take the same time, this keeps the slots in step.
        """
        usual = statistics.median(self._seconds) if self._seconds else 0.0
        now = time.monotonic()
        return any(
            _NEARLY * usual < now - since < (2 - _NEARLY) * usual for since in self._flying.values()
        )

    def _is_quick(self) -> bool:
        """Whether the function is too quick to be evaluated by single values."""
        judged = len(self._seconds) == _JUDGED and not self._always
        return judged and statistics.median(self._seconds) < SLOW
