"""The paper's Algorithm 1: a (1+1)-ES with the step size alpha_0 / sqrt(k+1).

For one worker and a function without noise: all the data, or none. Its iterations are divided into
rounds of ``iterations`` each only so that a run can be observed, stopped and resumed; k counts
through all rounds. The parent's value is computed again at the start of each round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, Batches, FloatArray, Task
from desopt.methods.base import BaseAlgorithm, PointState, unmoved
from desopt.methods.samplers import Gaussian, Key, Sampler
from desopt.methods.searches import OnePlusOne, affordable


@dataclass(frozen=True, kw_only=True)
class ES(BaseAlgorithm):
    """Algorithm 1."""

    single_worker = True
    observes: ClassVar[tuple[str, ...]] = ("bounds", "constraints")

    name: str = "es"
    sampler: Sampler = field(default_factory=Gaussian)

    def search(self, task: Task, worker: int) -> OnePlusOne:
        # lines 3-8: sample u, keep x + alpha_k u where f does not rise
        steps = affordable(self.iterations, task.limit, first=1)
        alpha = self.step_sizes(task.round)[:steps]
        proposals = self.sampler.proposals(alpha, Key(self.seed, task.round, worker), task.x.size)
        return OnePlusOne(
            task, worker, proposals, layout=self.layout, batches=Batches.ALL,
            dense=self.sampler.dense, box=self.box,
        )  # fmt: skip

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        given = list(answers)
        if not given:
            return unmoved(state)
        (answer,) = given
        if answer.point is not None:
            x = answer.point.copy()  # the engine may use it again
        else:
            x = state.x.copy()
            accepted = self.layout.decode(answer).bits
            key = Key(self.seed, state.round, answer.worker)
            self.sampler.replay(x, self.step_sizes(state.round), accepted, key, self.box)
        return PointState(state.round + 1, self.kept(x, state.x))

    @property
    def layout(self) -> Layout:
        return Layout(bits=self.iterations)

    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations + 1, whole=True)

    def step_sizes(self, t: int) -> FloatArray:
        """Line 2: alpha_k = alpha_0 / sqrt(k+1), for the k of round t."""
        k = t * self.iterations + np.arange(self.iterations, dtype=np.float64)
        return self.step_size / np.sqrt(k + 1.0)
