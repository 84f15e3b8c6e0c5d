"""The paper's Algorithm 1: a (1+1)-ES with the step size alpha_0 / sqrt(k+1).

For one worker and a function without noise: all the data, or none. Its iterations are divided into
rounds of ``iterations`` each only so that a run can be observed, stopped and resumed; k counts
through all rounds. The parent's value is computed again at the start of each round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, Batches, FloatArray, LocalSearch, Task
from desopt.methods.base import BaseAlgorithm, PointState, unmoved
from desopt.methods.proposals import Proposals
from desopt.methods.samplers import Gaussian, Sampler
from desopt.methods.searches import OnePlusOne
from desopt.methods.step_size import AUTO, Adapted, Fixed, schedule_of


@dataclass(frozen=True)
class AdaptedState(PointState, Adapted):
    """With what ``step_size="auto"`` remembers."""


@dataclass(frozen=True, kw_only=True)
class ES(BaseAlgorithm):
    """Algorithm 1."""

    single_worker = True
    adapts: ClassVar[bool] = True
    observes: ClassVar[tuple[str, ...]] = ("bounds", "constraints")

    name: str = "es"
    step_size: float | Literal["auto"] = 1.0  # type: ignore[assignment]
    sampler: Sampler = field(default_factory=Gaussian)

    @property
    def state_type(self) -> type[PointState]:  # type: ignore[override]
        return AdaptedState if self.step_size == AUTO else PointState

    @property
    def schedule(self) -> Fixed:
        return schedule_of(self)

    def init(self, x0: FloatArray) -> PointState:
        return self.state_type(round=0, x=x0, **self.schedule.start(x0))

    def plan(self, state: PointState) -> Task:
        return Task(state.round, state.x, self.schedule.scalars(state))

    def search(self, task: Task, worker: int) -> LocalSearch:
        # lines 3-8: sample u, keep x + alpha_k u where f does not rise
        def part(task: Task, proposals: Proposals, first: int) -> OnePlusOne:
            return OnePlusOne(
                task, worker, proposals, layout=self.layout, batches=Batches.ALL,
                dense=self.sampler.dense, box=self.box, first=first,
            )  # fmt: skip

        return self.schedule.search(task, worker, part)

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        tally = self.schedule.tally(state, state.x.size)
        given = list(tally.of(answers, lambda answer: (None, self._point(state, answer) - state.x)))
        if not given:
            return unmoved(state)
        (answer,) = given
        x = self._point(state, answer)
        adapted = tally.outcome(x - state.x)
        return self.state_type(round=state.round + 1, x=self.kept(x, state.x), **adapted)

    def _point(self, state: PointState, answer: Answer) -> FloatArray:
        """v_K, as an array of its own."""
        if answer.point is not None:
            return answer.point.copy()  # the engine may use it again
        schedule, x = self.schedule, state.x.copy()
        scalars = schedule.scalars(state)
        proposals = schedule.proposals(state.round, scalars, answer.worker, x.size)
        proposals.replay(x, self.layout.decode(answer).bits, self.box)
        return x

    @property
    def layout(self) -> Layout:
        return Layout(bits=self.iterations)

    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations + 1, whole=True)

    def step_sizes(self, t: int) -> FloatArray:
        """Line 2: alpha_k = alpha_0 / sqrt(k+1), for the k of round t."""
        assert self.step_size != AUTO
        k = t * self.iterations + np.arange(self.iterations, dtype=np.float64)
        return self.step_size / np.sqrt(k + 1.0)
