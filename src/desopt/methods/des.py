"""DES, distributed evolution strategies: Algorithms 2 and 3 of the paper, and its samplers.

======  =============  ==========================================================
symbol  name           meaning
======  =============  ==========================================================
alpha   step_size      alpha_0^t = alpha / (t+1)^0.25, alpha_k^t = alpha_0^t / (k+1)^0.5;
                       "auto": alpha_0^t by the accept bits (``methods.step_size``)
beta    momentum       0 <= beta < 1; the theory covers beta < 0.595
K       iterations     (1+1) steps of a worker per round
u       sampler        mutation vectors with mean 0 and covariance I
x, m    state          the server's point and momentum
M                      those who answered; ``aggregate`` says how their v_i become one
======  =============  ==========================================================

A worker's answer is its K accept bits: with the sampler they determine its final point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.payload import Cost, Layout
from desopt.contract.scattered import PIECE, Scattered, window, zeros_like
from desopt.contract.types import (
    Answer,
    Batches,
    FloatArray,
    IndexArray,
    LocalSearch,
    Step,
    Task,
)
from desopt.kernels.steps import add_at, momentum_step
from desopt.methods.aggregation import AGGREGATES, combine
from desopt.methods.base import BaseAlgorithm, in_float32, unmoved
from desopt.methods.proposals import Proposals
from desopt.methods.samplers import MixtureGaussian, MixtureRademacher, Sampler
from desopt.methods.searches import OnePlusOne
from desopt.methods.step_size import AUTO, Adapted, Fixed, schedule_of
from desopt.system.parallel import in_chunks


@dataclass(frozen=True)
class DESState:
    """The server's side after ``round`` rounds."""

    round: int
    x: FloatArray
    m: FloatArray


@dataclass(frozen=True)
class AdaptedDESState(DESState, Adapted):
    """With what ``step_size="auto"`` remembers."""


@dataclass(frozen=True, kw_only=True)
class DES(BaseAlgorithm):
    """Distributed evolution strategy with any sampler."""

    adapts: ClassVar[bool] = True
    observes: ClassVar[tuple[str, ...]] = ("bounds", "constraints", "float32")

    name: str = "des-mr"
    step_size: float | Literal["auto"] = 1.0  # type: ignore[assignment]
    momentum: float = 0.5
    sampler: Sampler = field(default_factory=MixtureRademacher)
    aggregate: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        check_name("aggregate", self.aggregate, AGGREGATES)

    @property
    def state_type(self) -> type[DESState]:  # type: ignore[override]
        return AdaptedDESState if self.step_size == AUTO else DESState

    @property
    def scatters(self) -> bool:
        """Whether the vectors of its states may be ``Scattered``: what few coordinates move."""
        sparse = isinstance(self.sampler, MixtureGaussian | MixtureRademacher)
        plain = self.box is None and not self.constrained and not self.float32
        return type(self) is DES and sparse and plain and self.aggregate == "mean"

    @property
    def schedule(self) -> Fixed:
        return schedule_of(self)

    def init(self, x0: FloatArray) -> DESState:
        more = self.schedule.start(x0)
        return self.state_type(round=0, x=x0, m=zeros_like(x0), **more)

    def plan(self, state: DESState) -> Task:
        return Task(state.round, state.x, self.schedule.scalars(state))

    def search(self, task: Task, worker: int) -> LocalSearch:
        # lines 3, 5, 6: v_0 = x_t; f_i on one minibatch, fixed for the round
        # lines 7-14 (Algorithm 3: 7-20): keep v + alpha_k u where f_i does not rise
        def part(task: Task, proposals: Proposals, first: int) -> OnePlusOne:
            return OnePlusOne(
                task, worker, proposals, layout=self.layout, batches=Batches.ROUND,
                dense=self.sampler.dense, box=self.box, first=first,
            )  # fmt: skip

        return self.schedule.search(task, worker, part)

    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        if isinstance(state.x, Scattered):
            return self._merge_scattered(state, answers)
        return self._merge(state, answers, state.x.size)

    def _merge_scattered(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        """The merge of the coordinates that anything has moved; all others are 0 and stay so."""
        x: Any = state.x
        proposals = self._proposals(state, x.size)
        given = [(answer, *self._change(x, proposals, answer)) for answer in answers]
        values = {f.name: getattr(state, f.name) for f in fields(state)}
        vectors = {name: v for name, v in values.items() if isinstance(v, Scattered)}
        moved: list[Any] = [index for _, index, _ in given]
        dots = isinstance(state, Adapted)  # of the heading
        here = window(x.size, [*moved, *(v.columns for v in vectors.values())], dots)
        inside: dict[str, Any] = {name: v[here] for name, v in vectors.items()}
        answers = [
            replace(answer, change=(np.searchsorted(here, index), change))
            for (answer, _, change), index in zip(given, moved, strict=True)
        ]
        merged = self._merge(replace(state, **inside), answers, x.size)
        outside: dict[str, Any] = {
            name: _scattered(x.size, here, getattr(merged, name)) for name in vectors
        }
        return replace(merged, **outside)

    def _proposals(self, state: DESState, n: int) -> Proposals:
        """The steps of all workers: changes() takes their numbers, not this one."""
        return self.schedule.proposals(state.round, self.schedule.scalars(state), 0, n)

    def _merge(self, state: DESState, answers: Iterable[Answer], n: int) -> DESState:
        x, schedule, proposals = state.x, self.schedule, self._proposals(state, n)
        if self.aggregate == "mean" and proposals.at_once:
            answers = self._rebuilt(x, proposals, answers)
        tally = schedule.tally(state, n)
        answers = tally.of(answers, partial(self._change, x, proposals))
        add = partial(self._add, x, proposals)
        total, count = combine(self.aggregate, answers, add, x.size)
        if count == 0:
            return unmoved(state)
        # line 17: d = (1/M) sum_i v_i,K - x_t; line 18: m = beta m + (1 - beta) d; line 19: x + m
        adapted = tally.outcome(total)
        x = momentum_step(x, state.m, total, count, self.momentum)
        finite = np.isfinite(x)
        if not finite.all():  # beyond the largest number: such a coordinate stays, without momentum
            x, total = np.where(finite, x, state.x), np.where(finite, total, 0.0)
        if self.box is not None:  # the points and their mean are in it, x + m need not be
            self.box.project(x)
        if self.float32:
            x, total = in_float32(x), in_float32(total)
        return self.state_type(round=state.round + 1, x=x, m=total, **adapted)

    def _change(self, x: FloatArray, proposals: Proposals, answer: Answer) -> Step:
        """v_i,K - x_t of an answer."""
        if answer.point is not None and answer.change is None:
            with np.errstate(over="ignore", invalid="ignore"):
                return None, answer.point - x
        return answer.change or self._changes(x, proposals, [answer])[0]

    def _add(self, x: FloatArray, proposals: Proposals, total: FloatArray, answer: Answer) -> bool:
        """total += v_i,K - x_t; bits choose among the server's own steps, so it always does."""
        with np.errstate(over="ignore", invalid="ignore"):
            if answer.point is not None and answer.change is None:
                for some in (slice(at, at + PIECE) for at in range(0, x.size, PIECE)):
                    total[some] += answer.point[some] - x[some]  # without a third vector
                return True
            index, change = self._change(x, proposals, answer)
            if index is None:
                total += change
            else:
                add_at(total, index, change)
        return True

    def _rebuilt(
        self, x: FloatArray, proposals: Proposals, answers: Iterable[Answer]
    ) -> Iterator[Answer]:
        """The answers in order, those that came as bare bits with their change.

        A server has thousands of these: many are rebuilt in one call, on all cores.
        """

        def rebuild(answers: list[Answer]) -> list[Answer]:
            changes = self._changes(x, proposals, answers)
            return [
                answer if answer.point is not None else replace(answer, change=change)
                for answer, change in zip(answers, changes, strict=True)
            ]

        answers = iter(answers)
        for answer in answers:
            if answer.change is not None or answer.point is not None:
                yield answer
            else:
                yield from in_chunks(rebuild, chain((answer,), answers), proposals.at_once)

    def _changes(self, x: FloatArray, proposals: Proposals, answers: list[Answer]) -> list[Step]:
        """v_i,K - x_t of these answers, from their bits."""
        masks = self.layout.packed(answers).bits
        workers = np.array([answer.worker for answer in answers], np.int64)
        return list(proposals.changes(x, masks, workers, self.box))

    @property
    def layout(self) -> Layout:
        return Layout(bits=self.iterations)

    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations + 1)

    def step_sizes(self, t: int) -> FloatArray:
        """alpha_k^t for k = 0..K-1 (lines 4 and 8); sqrt is exact to the last bit, pow is not."""
        assert self.step_size != AUTO
        return _step_sizes(self.step_size, self.iterations, t)


def _scattered(n: int, here: IndexArray, values: FloatArray) -> Scattered:
    """These numbers, without the zeros."""
    kept = np.flatnonzero(values.view(np.int64))  # -0.0 stays
    return Scattered(n, here[kept], values[kept])


@lru_cache(maxsize=8)  # the same for all workers of a round
def _step_sizes(step_size: float, iterations: int, t: int) -> FloatArray:
    alpha_0 = step_size / math.sqrt(math.sqrt(t + 1.0))
    alpha: FloatArray = alpha_0 / np.sqrt(np.arange(1.0, iterations + 1.0))
    return alpha
