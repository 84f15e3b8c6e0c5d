"""Functions of a matrix: the points of all workers in one call, in this thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from desopt.contract.errors import Failed, ObjectiveError
from desopt.contract.types import Answer, Batches, FloatArray, LocalFunction, LocalSearch, Task
from desopt.engines.base import Job
from desopt.engines.serial import InMemory
from desopt.engines.trials import NO_NUMBER, OBJECTIVE, Outcome, Trial
from desopt.objectives.vectorized import CALL_BYTES, MatrixObjective, lockstep
from desopt.system.terminal import warn


class Matrix(InMemory):
    """For objectives with ``values`` (see ``objectives.vectorized``); workers go in lockstep.

    In the first call of a run, some values are compared with those of the same points alone
    (``checked`` of them): if they differ, the run cannot be repeated with other calls.
    ``lockstep``: False for an algorithm whose rounds are code of its own, not local searches.
    """

    name = "matrix"
    slots = 2**31 - 1

    def __init__(self, lockstep: bool = True) -> None:
        self._lockstep = lockstep

    def start(self, job: Job) -> None:
        super().start(job)
        objective: Any = job.objective
        if not getattr(objective, "vectorized", False):
            raise TypeError(
                f"engine matrix is for functions of a matrix (vectorized=True), got {objective!r}"
            )
        self._objective: MatrixObjective = objective
        self._violation: Callable[[FloatArray], float] | None
        self._violation = getattr(objective, "violation", None)
        self._submitted: list[Trial] = []
        self._functions: dict[tuple[int, int, Batches | None], LocalFunction] = {}
        self._begun = False
        self._unchecked = True
        self.checked = 0

    def begin(self, state: Any, limit: int | None = None) -> None:
        if not self._begun and state.round > 0:
            self._unchecked = False  # a resumed run has been warned
        self._begun = True
        super().begin(state, limit)

    def submit(self, trial: Trial) -> None:
        self._submitted.append(trial)

    def completed(self) -> list[tuple[Trial, Outcome]]:
        trials, self._submitted = self._submitted, []
        if not trials:
            return []
        began = time.perf_counter()
        functions = [self._function(trial) for trial in trials]
        iterations = [trial.iteration for trial in trials]
        searched = trials[0].key.number != OBJECTIVE
        evaluated = self._values if searched else self._full
        try:
            values = evaluated([trial.x for trial in trials], functions, iterations)
        except ObjectiveError as error:
            _locate(error, trials)
            raise
        seconds = (time.perf_counter() - began) / len(trials)
        return [
            (trial, _outcome(trial, f, value, seconds))
            for trial, f, value in zip(trials, functions, values, strict=True)
        ]

    def round(self, task: Task) -> Iterator[Answer]:
        self.count_round()
        job, workers = self._job, self._job.asked(task.round)
        if not self._lockstep:
            yield from (job.work(task, worker) for worker in workers)
            return
        # a search has v and a point; all of them at once need no more memory than a call
        together = max(1, CALL_BYTES // (16 * job.n))
        for begin in range(0, len(workers), together):
            searches = {w: job.search(task, w) for w in workers[begin : begin + together]}
            found = self.finish(searches)
            for search, rows in zip(searches.values(), found, strict=True):
                answer = search.answer(rows)
                yield answer if job.handover else answer.bare()

    def finish(self, searches: Mapping[int, LocalSearch]) -> list[int]:
        """Bring searches to their ends in lockstep; the samples that values of each are over."""
        functions = [
            self._job.function(search.x, search.round, worker, search.batches)
            for worker, search in searches.items()
        ]
        try:
            lockstep([*searches.values()], functions, self._values, self._violation)
        except ObjectiveError as error:
            error.round = self._state.round
            if error.worker is None and len(searches) == 1:
                (error.worker,) = searches
            raise
        return [f.rows for f in functions]

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        x, job = self._state.x, self._job
        functions = [job.function(x, self._state.round, worker, None) for worker in workers]
        values = self._full([x] * len(functions), functions, [0] * len(functions))
        return [
            (math.nan if isinstance(value, Failed) else value * f.rows, f.rows)
            for f, value in zip(functions, values, strict=True)
        ]

    def close(self) -> None:
        self._submitted, self._functions = [], {}

    def _function(self, trial: Trial) -> LocalFunction:
        """The trial's function, whose minibatch is drawn once in a round."""
        round, worker, number, _ = trial.key
        if self._functions and next(iter(self._functions))[0] != round:
            self._functions = {}
        batches = None if number == OBJECTIVE else trial.batches
        key = round, worker, batches
        if key not in self._functions:
            self._functions[key] = self._job.function(trial.x, round, worker, batches)
        return self._functions[key]

    def _full(
        self,
        points: Sequence[FloatArray],
        functions: Sequence[LocalFunction],
        iterations: Sequence[int],
    ) -> list[float | Failed]:
        """Values of the full objective, all at one x; NaN where it violates the constraints."""
        if self._violation is not None and self._violation(points[0]) > 0.0:
            return [math.nan] * len(points)
        return self._objective.values(points, functions, iterations)

    def _values(
        self,
        points: Sequence[FloatArray],
        functions: Sequence[LocalFunction],
        iterations: Sequence[int],
    ) -> list[float | Failed]:
        """The values; those of the first call of a search are checked."""
        found = self._objective.values(points, functions, iterations)
        if self._unchecked and len(points) > 1:
            self._unchecked = False
            for row in sorted({0, len(points) // 2, len(points) - 1}):
                point, f, k = points[row : row + 1], functions[row : row + 1], iterations[row]
                (alone,) = self._objective.values(point, f, [k])
                self.checked += 1
                if not _same(found[row], alone):
                    _warn(found[row], alone, len(points))
                    break
        return found


def _locate(error: ObjectiveError, trials: Sequence[Trial]) -> None:
    """Where the call was, as far as its points agree."""
    error.round, workers = trials[0].key.round, {trial.key.worker for trial in trials}
    if error.worker is None and len(workers) == 1:
        (error.worker,) = workers
    first = trials[0].iteration
    error.iteration = first if first >= 0 and trials[0].key.number != OBJECTIVE else None


def _outcome(trial: Trial, f: LocalFunction, value: float | Failed, seconds: float) -> Outcome:
    if isinstance(value, Failed):
        return Outcome(math.nan, f.rows, seconds, value.reason or "failed")
    reason = "" if math.isfinite(value) else f"{NO_NUMBER} {value}"
    whole = f.rows if trial.key.number == OBJECTIVE else 1
    return Outcome(value * whole, f.rows, seconds, reason)


def _same(value: float | Failed, other: float | Failed) -> bool:
    if isinstance(value, Failed) or isinstance(other, Failed):
        return isinstance(value, Failed) and isinstance(other, Failed)
    return value == other or (math.isnan(value) and math.isnan(other))


def _warn(value: float | Failed, alone: float | Failed, points: int) -> None:
    warn(
        f"a value of fun depends on the other points of the call: {value!r} among {points} points, "
        f"{alone!r} alone. Products of matrices do so on GPUs, and random numbers in fun. The run "
        "goes on; it can be repeated bit for bit only with the same workers in the same calls, on "
        "the same machine",
        RuntimeWarning,
        stacklevel=2,
    )
