"""When a run evaluates, saves, reports and ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from desopt.contract.payload import Cost
from desopt.run.history import Row

Callback = Callable[[Row], Any]

#: By default, evaluating for the history may take this long, and this part of the search's time.
FREE_SECONDS, EVALUATION_SHARE = 0.05, 1 / 20


class Status(IntEnum):
    """Why a run ended. All but the last are ends that were asked for."""

    ROUNDS = 0
    TARGET = 1
    PATIENCE = 2
    EVALUATIONS = 3
    SECONDS = 4
    CALLBACK = 5
    INTERRUPTED = 6


@dataclass
class Stopping:
    """The rules besides the number of rounds; None switches a rule off."""

    max_evaluations: int | None = None
    max_seconds: float | None = None
    target: float | None = None
    patience: int | None = None
    _best: float = field(default=math.inf, repr=False)
    _best_round: int = field(default=0, repr=False)

    @property
    def looks_at_loss(self) -> bool:
        return self.target is not None or self.patience is not None

    def start(self, initial: float) -> None:
        """The value that later ones must improve on."""
        if initial < self._best:
            self._best, self._best_round = initial, 0

    def check(self, row: Row) -> tuple[Status, str] | None:
        """Whether the run ends after this round, and why."""
        if not math.isnan(row["loss"]) and (reason := self._by_loss(row["loss"], row["round"])):
            return reason
        if self.max_evaluations is not None and row["evaluations"] >= self.max_evaluations:
            return Status.EVALUATIONS, f"max_evaluations {self.max_evaluations} spent"
        if self.max_seconds is not None and row["seconds"] >= self.max_seconds:
            return Status.SECONDS, f"max_seconds {self.max_seconds:g} spent"
        return None

    def limit(self, spent: int, workers: int, cost: Cost | None) -> int | None:
        """The values that each worker may compute in the next round.

        None: as many as the method takes; 0: too few are left for a round. ``cost`` is the
        algorithm's.
        """
        if self.max_evaluations is None or cost is None:
            return None
        each = max(0, self.max_evaluations - spent) // workers
        if each >= cost.most:
            return None
        return each if each >= cost.least else 0

    def out_of_values(self, spent: int, workers: int) -> tuple[Status, str]:
        """The end of a run whose ``limit`` is 0."""
        left = (self.max_evaluations or 0) - spent
        who = f"{workers} worker{'s' * (workers > 1)}"
        rest = f" but for {left}, too few for a round of {who}" if left > 0 else ""
        return Status.EVALUATIONS, f"max_evaluations {self.max_evaluations} spent{rest}"

    def _by_loss(self, loss: float, round: int) -> tuple[Status, str] | None:
        """The rules on the objective; a round where it was not evaluated says nothing."""
        if loss < self._best:
            self._best, self._best_round = loss, round
        if self.target is not None and loss <= self.target:
            return Status.TARGET, f"target {self.target:g} reached: {loss:g}"
        if self.patience is not None and round - self._best_round >= self.patience:
            return Status.PATIENCE, f"no improvement on {self._best:g} in {self.patience} rounds"
        return None


@dataclass(frozen=True)
class Schedule:
    """What happens after which rounds."""

    rounds: int
    eval_every: int | None
    snapshot_every: int
    callbacks: tuple[Callback, ...]
    stopping: Stopping

    def evaluates(self, round: int, searching: float, evaluating: float, each: float) -> bool:
        """Whether the full objective is due after this round.

        By default at most some 100 times, and only while it takes little of the time; but
        where a rule of stopping looks at it, by the number of rounds alone, so that the result
        does not depend on the clock.
        """
        every = max(1, self.rounds // 100) if self.eval_every is None else self.eval_every
        if every == 0 or round == self.rounds or round % every:
            return every > 0 and round == self.rounds
        by_count = self.eval_every is not None or self.stopping.looks_at_loss
        return by_count or evaluating + each <= FREE_SECONDS + EVALUATION_SHARE * searching
