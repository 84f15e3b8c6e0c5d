"""A worker's side: its shard bound to the objective."""

from __future__ import annotations

from dataclasses import dataclass

from desopt.data import OpenShard
from desopt.rng import Purpose, Stream
from desopt.types import FloatArray, LocalFunction, Objective


@dataclass(frozen=True)
class WorkerData:
    """One worker's data: its minibatches and its full value. See ``types.Local``."""

    objective: Objective
    shard: OpenShard
    seed: int
    worker: int
    batch_size: int

    def minibatch(self, x: FloatArray, round: int, iteration: int = 0) -> LocalFunction:
        """f_i on b rows drawn uniformly with replacement."""
        stream = Stream(self.seed, round, self.worker, iteration, Purpose.BATCH)
        return self.shard.sample(self.objective, x, stream, self.batch_size)

    def everything(self, x: FloatArray, round: int) -> LocalFunction:
        """f_i on all the data; on a batch of the round where data are drawn."""
        stream = Stream(self.seed, round, self.worker, 0, Purpose.BATCH)
        return self.shard.whole(self.objective, x, stream, self.batch_size)

    def total(self, x: FloatArray) -> tuple[float, int]:
        """Sum of F over the worker's data and their number, for the history.

        Where data are drawn the sum runs over one fixed batch per worker, so that values of
        different rounds can be compared.
        """
        stream = Stream(self.seed, 0, self.worker, 0, Purpose.EVALUATION)
        f = self.shard.whole(self.objective, x, stream, self.batch_size)
        return f.value() * f.rows, f.rows
