"""The rules that end a run before its last round, and the budget of function values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from desopt.contract.participation import asked
from desopt.contract.types import Answer
from desopt.engines import Job
from desopt.run.history import End, Row, Status
from desopt.run.observers.evaluation import Evaluation
from desopt.run.observers.record import Record

RULES = ("max_evaluations", "max_seconds", "target", "patience")


class Stopping:
    """An observer that ends the run by these rules; None switches a rule off.

    ``max_evaluations`` is never exceeded where the method declares its cost: the last round of
    every worker gets an equal share of what is left.
    """

    def __init__(
        self,
        job: Job,
        rounds: int,
        evaluation: Evaluation,
        *,
        max_evaluations: int | None,
        max_seconds: float | None,
        target: float | None,
        patience: int | None,
    ) -> None:
        self._rounds, self._evaluation = rounds, evaluation
        self._workers = asked(job.workers, job.participation)
        self._cost = getattr(job.algorithm, "cost", None)
        self._max_evaluations, self._max_seconds = max_evaluations, max_seconds
        self._target, self._patience = target, patience
        self._best, self._best_round = math.inf, 0

    def begin(self, record: Record) -> End | None:
        ended = None
        if record.initial < self._best:
            self._best = record.initial
        for row in record.history:
            ended = self._check(row)
        return ended or self._out_of_values(record.history[-1] if record.history else {})

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> End | None:
        ended = self._check(row) or self._out_of_values(row)
        if ended is not None:
            self._evaluation.complete(row)
        return ended

    def end(self) -> None:
        pass

    def limit(self, round: int, spent: int) -> int | None:
        """The values that the round after ``round`` rounds may compute.

        None: as many as the method takes; 0: too few are left for a round.
        """
        if self._max_evaluations is None or self._cost is None or round >= self._rounds:
            return None
        left = self._max_evaluations - self._evaluation.values(round) - spent
        if left >= self._cost.most * self._workers:
            return None
        return left if left >= self._cost.least * self._workers else 0

    def _out_of_values(self, last: dict[str, Any]) -> End | None:
        round, spent = int(last.get("round", 0)), int(last.get("evaluations", 0))
        if self.limit(round, spent) != 0:
            return None
        left = (self._max_evaluations or 0) - self._evaluation.values(round) - spent
        who = f"{self._workers} worker{'s' * (self._workers > 1)}"
        rest = f" but for {left}, too few for a round of {who}" if left > 0 else ""
        return End(Status.EVALUATIONS, f"max_evaluations {self._max_evaluations} spent{rest}")

    def _check(self, row: Row) -> End | None:
        """Whether the run ends after this round; rules on the loss need an evaluated row."""
        if not math.isnan(row["loss"]) and (ended := self._by_loss(row["loss"], row["round"])):
            return ended
        if self._max_evaluations is not None and row["evaluations"] >= self._max_evaluations:
            return End(Status.EVALUATIONS, f"max_evaluations {self._max_evaluations} spent")
        if self._max_seconds is not None and row["seconds"] >= self._max_seconds:
            return End(Status.SECONDS, f"max_seconds {self._max_seconds:g} spent")
        return None

    def _by_loss(self, loss: float, round: int) -> End | None:
        if loss < self._best:
            self._best, self._best_round = loss, round
        if self._target is not None and loss <= self._target:
            return End(Status.TARGET, f"target {self._target:g} reached: {loss:g}")
        if self._patience is not None and round - self._best_round >= self._patience:
            message = f"no improvement on {self._best:g} in {self._patience} rounds"
            return End(Status.PATIENCE, message)
        return None
