"""A worker's side: its shard bound to the objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from desopt.contract import streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import FloatArray, LocalFunction, Objective, Walked
from desopt.data import OpenShard, Rows
from desopt.kernels.steps import add_scaled
from desopt.objectives.base import finite_slope


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

    def walk(
        self, at: FloatArray, moved: FloatArray, round: int, scale: FloatArray, radius: float
    ) -> Walked:
        """Estimates on a minibatch each; in one compiled call where the objective has it."""
        stream = Stream(self.seed, round, self.worker, 0, Purpose.NORMAL)
        compiled = getattr(self.objective, "walk", None)
        if compiled is None or not isinstance(self.shard, Rows):
            return self._walk(at, moved, scale, radius, stream)
        slopes, nans = compiled(self.shard, self.batch_size, at, moved, scale, radius, stream)
        evaluations = 2 * scale.size
        return Walked(slopes, evaluations, evaluations * self.batch_size, nans)

    def _walk(
        self, at: FloatArray, moved: FloatArray, scale: FloatArray, radius: float, stream: Stream
    ) -> Walked:
        slopes, u = np.zeros(scale.size), np.empty_like(at)
        evaluations = samples = nans = 0
        for k in range(scale.size):
            f = self.minibatch(at, stream.round, k)
            streams.normals(stream.at(k), u.size, out=u)
            slopes[k] = finite_slope(f, u, radius, k)
            c = scale[k] * slopes[k]
            if c != 0.0:  # as in a replay, which does not draw u for nothing
                add_scaled(moved, c, u)
            evaluations += f.evaluations
            samples += f.evaluations * f.rows
            nans += f.nans
        return Walked(slopes, evaluations, samples, nans)

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
