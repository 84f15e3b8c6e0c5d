"""Evaluation of the full objective: the mean of F over the data of all workers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from desopt.contract.types import Answer
from desopt.engines import Engine
from desopt.run.history import Row
from desopt.run.observers.record import Record

#: Seconds that evaluations may take by default, plus this share of the time of the search.
FREE_SECONDS, SHARE_OF_SEARCH = 0.05, 1 / 20


class Evaluation:
    """Fills in the ``loss`` of rows: f(x0), f(x) when due and after the last round.

    ``workers``: those whose data make up f; without data all have the same function.
    ``every``: rounds between evaluations; 0: never; None: up to 100 times, while that takes
    little of the time. With ``by_rounds`` the clock does not count: rules that end the run
    depend on the values, and the result must not depend on the clock. ``paid``: the values are
    taken from a budget of calls of the user's function; by default there are two then, f(x0) and
    f at the end.
    """

    def __init__(
        self,
        engine: Engine,
        workers: Sequence[int],
        rounds: int,
        every: int | None,
        by_rounds: bool,
        record: Record | None = None,
        paid: bool = False,
    ) -> None:
        self._engine, self._workers, self._rounds = engine, workers, rounds
        self._every = max(1, rounds // 100) if every is None else every
        self._by_rounds = by_rounds or every is not None
        self._only_ends = paid and not self._by_rounds
        self._paid, self.count = paid, 0  # evaluations so far
        self._first = record is None or not record.history  # f(x0) is still to be evaluated
        self._seen = 0  # the last round that was reported, with its evaluation if one was due
        if record is not None and record.history:
            self.count, self._seen = self._count_of(record), record.history[-1]["round"]
        self._spent = self._each = 0.0  # seconds: of all evaluations, of the last one
        self._seconds = 0.0  # of the search before this call
        self._last: Row | None = None
        self._done: Row | None = None  # the last row evaluated here, perhaps in vain

    def values(self, round: int) -> int:
        """Values of the budget that evaluations take, the one after the last round included.

        So many rounds are done. The last of them may not be reported yet: then its evaluation, if
        one is due, is still to come.
        """
        if not self._paid or not self._every:
            return 0
        return self.count + self._first + (round > self._seen and self._on_schedule(round)) + 1

    def begin(self, record: Record) -> None:
        if record.history:
            self._last = record.history[-1]
            self._seconds = self._last["seconds"]
        elif self._every:
            record.initial = self._value()
            self._first = False
            # The first one may have compiled or loaded something: the second one comes when the
            # search has taken as long, and tells what they cost.
            self._spent, self._each = 0.0, SHARE_OF_SEARCH * self._each

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> None:
        self._last = row
        if self._due(row):
            self.complete(row)
        self._seen = row["round"]

    def end(self) -> None:
        if self._last is not None:
            self.complete(self._last)

    def complete(self, row: Row) -> None:
        """Evaluate for this row, the last one, unless that has been done."""
        if self._every and math.isnan(row["loss"]) and row is not self._done:
            row["loss"], self._done = self._value(), row

    def _due(self, row: Row) -> bool:
        if row["round"] == self._rounds:
            return True
        if not self._on_schedule(row["round"]):
            return False
        allowed = FREE_SECONDS + SHARE_OF_SEARCH * (row["seconds"] - self._seconds)
        return self._by_rounds or self._spent + self._each <= allowed

    def _on_schedule(self, round: int) -> bool:
        """Whether ``every`` names the round; the clock may still be against it."""
        return bool(self._every) and not self._only_ends and round % self._every == 0

    def _count_of(self, record: Record) -> int:
        """Evaluations of earlier calls; those that came out as NaN look like none in a journal."""
        initial = bool(self._every) or not math.isnan(record.initial)
        return initial + sum(
            not math.isnan(row["loss"]) or (self._by_rounds and self._on_schedule(row["round"]))
            for row in record.history
        )

    def _value(self) -> float:
        """f at the engine's state."""
        began = time.perf_counter()
        value, count = 0.0, 0
        for total, rows in self._engine.evaluate(self._workers):
            value += total  # one by one: since Python 3.12, sum() of floats rounds otherwise
            count += rows
        self._each = time.perf_counter() - began
        self._spent += self._each
        self.count += 1
        return value / count
