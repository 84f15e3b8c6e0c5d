"""DES, distributed evolution strategies: Algorithms 2 and 3 of the paper, and its samplers.

======  =============  ==========================================================
symbol  name           meaning
======  =============  ==========================================================
alpha   step_size      alpha_0^t = alpha / (t+1)^0.25, alpha_k^t = alpha_0^t / (k+1)^0.5
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, Crew, FloatArray, Local, Task
from desopt.kernels.steps import add_at, momentum_step
from desopt.methods.aggregation import AGGREGATES, combine
from desopt.methods.base import Settings, affordable, search_answer, unmoved
from desopt.methods.samplers import Key, Mixture, MixtureRademacher, Sampler
from desopt.system.parallel import in_chunks

#: Answers that are rebuilt in one compiled call, and the most draws that these may take.
_AT_ONCE, _DRAWS = 64, 2**22


@dataclass(frozen=True)
class DESState:
    """The server's side after ``round`` rounds."""

    round: int
    x: FloatArray
    m: FloatArray


@dataclass(frozen=True, kw_only=True)
class DES(Settings):
    """Distributed evolution strategy with a sampler of one's choice."""

    name: str = "des-mr"
    momentum: float = 0.5
    sampler: Sampler = field(default_factory=MixtureRademacher)
    aggregate: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        check_name("aggregate", self.aggregate, AGGREGATES)

    def init(self, x0: FloatArray) -> DESState:
        return DESState(0, x0, np.zeros_like(x0))

    def plan(self, state: DESState) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        # lines 3, 5, 6: v_0 = x_t; f_i on one minibatch, fixed for the round
        f = local.minibatch(task.x, task.round)
        # lines 7-14 (Algorithm 3: 7-20): keep v + alpha_k u where f_i does not rise
        key = Key(self.seed, task.round, worker)
        return search_answer(self.sampler, f, self.step_sizes(task.round), key, task.limit)

    @property
    def together(self) -> bool:
        return isinstance(self.sampler, Mixture)

    def work_together(self, task: Task, crew: Crew, workers: Sequence[int]) -> Iterator[Answer]:
        assert isinstance(self.sampler, Mixture)
        alpha, key = self.step_sizes(task.round), Key(self.seed, task.round, 0)
        steps = affordable(alpha.size, task.limit, first=1)
        searches = self.sampler.search_together(crew, task.x, alpha[:steps], key, workers)
        evaluations = steps + 1
        for worker, (accepted, nans, change) in zip(workers, searches, strict=True):
            samples = evaluations * crew.batch_size
            payload = self.layout.encode(accepted)
            yield Answer(worker, payload, evaluations, samples, nans, change=change)

    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        x = state.x
        if self.aggregate == "mean" and isinstance(self.sampler, Mixture):
            answers = self._rebuilt(state, answers)
        total, count = combine(self.aggregate, answers, partial(self._add, state), x.size)
        if count == 0:
            return unmoved(state)
        # line 17: d = (1/M) sum_i v_i,K - x_t; line 18: m = beta m + (1 - beta) d; line 19: x + m
        x = momentum_step(x, state.m, total, count, self.momentum)
        finite = np.isfinite(x)
        if not finite.all():  # steps beyond all numbers: such a coordinate stays, and rests
            x, total = np.where(finite, x, state.x), np.where(finite, total, 0.0)
        return DESState(state.round + 1, x, total)

    def _add(self, state: DESState, total: FloatArray, answer: Answer) -> bool:
        """total += v_i,K - x_t; bits choose among the server's own steps, so it always does."""
        if answer.change is not None:
            add_at(total, *answer.change)
        elif answer.point is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                total += answer.point - state.x
        else:
            accepted = self.layout.decode(answer).bits
            key = Key(self.seed, state.round, answer.worker)
            alpha = self.step_sizes(state.round)
            self.sampler.displace(total, state.x, alpha, accepted, key)
        return True

    def _rebuilt(self, state: DESState, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The answers in order, those that came as bare bits with their change.

        A server has thousands of these: many are rebuilt in one call, on all cores.
        """
        assert isinstance(self.sampler, Mixture)
        answers = iter(answers)
        for answer in answers:
            if answer.change is not None or answer.point is not None:
                yield answer
            else:
                bare = chain((answer,), answers)
                at_once = max(1, min(_AT_ONCE, _DRAWS // (self.iterations * self.sampler.l)))
                yield from in_chunks(partial(self._with_changes, state), bare, at_once)

    def _with_changes(self, state: DESState, answers: list[Answer]) -> list[Answer]:
        masks = self.layout.packed_bits(answers)
        workers = np.array([answer.worker for answer in answers], np.int64)
        key = Key(self.seed, state.round, 0)
        alpha = self.step_sizes(state.round)
        assert isinstance(self.sampler, Mixture)
        changes = self.sampler.changes(state.x, alpha, masks, workers, key)
        return [
            answer if answer.point is not None else replace(answer, change=change)
            for answer, change in zip(answers, changes, strict=True)
        ]

    @property
    def layout(self) -> Layout:
        return Layout(bits=self.iterations)

    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations + 1)

    def step_sizes(self, t: int) -> FloatArray:
        """alpha_k^t for k = 0..K-1 (lines 4 and 8); sqrt is exact to the last bit, pow is not."""
        return _step_sizes(self.step_size, self.iterations, t)


@lru_cache(maxsize=8)  # all workers of a round ask for the same
def _step_sizes(step_size: float, iterations: int, t: int) -> FloatArray:
    alpha_0 = step_size / math.sqrt(math.sqrt(t + 1.0))
    alpha: FloatArray = alpha_0 / np.sqrt(np.arange(1.0, iterations + 1.0))
    return alpha
