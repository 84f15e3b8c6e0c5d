"""The paper's Algorithm 1: a (1+1)-ES with the step size alpha_0 / sqrt(k+1).

For one worker and a function without noise: all the data, or none. Its iterations are cut
into rounds of ``iterations`` each only so that a run can be watched, stopped and resumed;
k counts through all rounds. The parent's value is computed anew at the start of a round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, FloatArray, Local, Task
from desopt.methods.base import Settings, finite_or, search_answer, unmoved
from desopt.methods.samplers import Gaussian, Key, Sampler


@dataclass(frozen=True)
class ESState:
    """x after ``round`` rounds."""

    round: int
    x: FloatArray


@dataclass(frozen=True, kw_only=True)
class ES(Settings):
    """Algorithm 1."""

    single_worker = True

    name: str = "es"
    sampler: Sampler = field(default_factory=Gaussian)

    def init(self, x0: FloatArray) -> ESState:
        return ESState(0, x0)

    def plan(self, state: ESState) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        f = local.everything(task.x, task.round)
        key = Key(self.seed, task.round, worker)
        # lines 3-8: sample u, keep x + alpha_k u where f does not rise
        return search_answer(self.sampler, f, self.step_sizes(task.round), key, task.limit)

    def merge(self, state: ESState, answers: Iterable[Answer]) -> ESState:
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
            self.sampler.replay(x, self.step_sizes(state.round), accepted, key)
        return ESState(state.round + 1, finite_or(x, state.x))

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
