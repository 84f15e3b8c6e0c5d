"""A worker's side: its shard bound to the objective, and searches driven by single values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

from desopt.contract.errors import Failed, ObjectiveError
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import (
    Answer,
    Batches,
    FloatArray,
    LocalFunction,
    LocalSearch,
    Objective,
)
from desopt.data import Batch, OpenShard


def drive(
    search: LocalSearch,
    value: Callable[[FloatArray, int], float],
    violation: Callable[[FloatArray], float] | None = None,
) -> None:
    """Run a search point by point; ``value(x, iteration)`` is f_i(x).

    Points with a positive violation are not evaluated. Where values fail, the error carries the
    iteration.
    """
    fresh = search.batches is Batches.ITERATION
    try:
        while points := search.ask():
            if violation is not None and (over := violation(points[0])) > 0.0:
                search.tell([nan], [over])
                continue
            try:
                found = value(points[0], search.iterations[0] if fresh else 0)
            except Failed:
                found = nan
            search.tell([found])
    except ObjectiveError as error:
        k = search.iterations[0]
        error.iteration = k if k >= 0 else None
        raise


@dataclass(frozen=True)
class WorkerData:
    """One worker's data bound to the objective. See ``contract.types.Local``."""

    objective: Objective
    shard: OpenShard
    seed: int
    worker: int
    batch_size: int

    def run(self, search: LocalSearch) -> Answer:
        """The answer of the search, run on the data that it names."""
        f = self.function(search.x, search.round, search.batches)
        f.run(search)
        return search.answer(f.rows)

    def prepare(self, x: FloatArray, round: int) -> None:
        """Call ``setup`` and draw a minibatch: the first value takes no longer than others then."""
        self.function(x, round)
        if not self.objective.compiled:
            stream = Stream(self.seed, round, self.worker, 0, Purpose.BATCH)
            Batch(self.shard, self.batch_size, stream).arguments()

    def function(
        self, x: FloatArray, round: int, batches: Batches = Batches.ROUND
    ) -> LocalFunction:
        """f_i on the worker's data of a round; on a minibatch where data are drawn."""
        stream = Stream(self.seed, round, self.worker, 0, Purpose.BATCH)
        return self.objective.bind(Batch(self.shard, self.batch_size, stream, batches), x)

    def whole(self, x: FloatArray) -> LocalFunction:
        """The function of ``total``."""
        stream = Stream(self.seed, 0, self.worker, 0, Purpose.EVALUATION)
        return self.objective.bind(Batch(self.shard, self.batch_size, stream, Batches.ALL), x)

    def total(self, x: FloatArray) -> tuple[float, int]:
        """Sum of F over the worker's data and their number, for the history.

        Where data are drawn the sum is over one fixed batch per worker, so that values of
        different rounds can be compared. NaN where x violates constraints: F is not known there.
        """
        f = self.whole(x)
        violation = getattr(f, "violation", None)
        if violation is not None and violation(x) > 0.0:
            return nan, f.rows
        try:
            return f.value(x) * f.rows, f.rows
        except Failed:
            return nan, f.rows
