"""Schedules: the paper's step sizes, or those of "auto"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from desopt.contract.scattered import zeros_like
from desopt.contract.space import Box
from desopt.contract.types import BoolArray, FloatArray, LocalSearch, Task
from desopt.methods.proposals import Proposals
from desopt.methods.samplers import Key, Sampler
from desopt.methods.searches import OnePlusOne, TwoParts, affordable
from desopt.methods.step_size.ramp import Ramped, ramp_sizes
from desopt.methods.step_size.sizes import with_controls
from desopt.methods.step_size.tally import PERIOD, Adapted, AutoTally, Tally

AUTO: Literal["auto"] = "auto"

#: part(task, proposals, first): the search from task.x by the proposals from number ``first`` on.
Part: TypeAlias = Callable[[Task, Proposals, int], OnePlusOne]


class Searching(Protocol):
    """A method with (1+1) searches, as far as its schedule is concerned."""

    @property
    def sampler(self) -> Sampler: ...
    @property
    def iterations(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def box(self) -> Box | None: ...
    def step_sizes(self, t: int) -> FloatArray: ...


class Fixed:
    """Step sizes that depend on t and k alone, as in the paper."""

    def __init__(self, method: Searching) -> None:
        self._method = method

    def start(self, x0: FloatArray) -> dict[str, Any]:
        """The fields of a state before round 0."""
        return {}

    def scalars(self, state: Any) -> tuple[float, ...]:
        """What workers must know to make their steps."""
        return ()

    def sizes(self, t: int, scalars: tuple[float, ...]) -> FloatArray:
        """alpha_k^t of all k."""
        return self._method.step_sizes(t)

    def proposals(
        self, t: int, scalars: tuple[float, ...], worker: int, n: int, steps: int | None = None
    ) -> Proposals:
        """The steps of a worker's round, or the first ones."""
        method = self._method
        alpha = self.sizes(t, scalars)[:steps]
        return method.sampler.proposals(alpha, Key(method.seed, t, worker), n)

    def search(self, task: Task, worker: int, part: Part) -> LocalSearch:
        """A worker's round."""
        steps = affordable(self._method.iterations, task.limit, first=1)
        proposals = self.proposals(task.round, task.scalars, worker, task.x.size, steps)
        return part(task, proposals, 0)

    def tally(self, state: Any, n: int) -> Tally:
        """What the answers of the round say of the step size, in n coordinates."""
        return Tally()


class Auto(Fixed):
    """Step sizes by the accept bits of all workers."""

    def start(self, x0: FloatArray) -> dict[str, Any]:
        return {
            "level": 0.0,
            "tiny": 0.0,
            "controls": 0.0,
            "period": PERIOD,
            "agreement": 1.0,
            "heading": zeros_like(x0),
        }

    def scalars(self, state: Adapted) -> tuple[float, ...]:
        return (state.level, float(state.period)) if state.controls else ()

    def sizes(self, t: int, scalars: tuple[float, ...]) -> FloatArray:
        level, period = scalars
        return with_controls(self._method.iterations, t, level, int(period))

    def proposals(
        self, t: int, scalars: tuple[float, ...], worker: int, n: int, steps: int | None = None
    ) -> Proposals:
        if scalars:
            return super().proposals(t, scalars, worker, n, steps)
        method = self._method
        return Ramped(method.sampler, Key(method.seed, t, worker), method.iterations, n)

    def search(self, task: Task, worker: int, part: Part) -> LocalSearch:
        if task.scalars:
            return super().search(task, worker, part)
        ramped = self.proposals(task.round, (), worker, task.x.size)
        assert isinstance(ramped, Ramped)
        steps = affordable(self._method.iterations, task.limit, first=1)

        def then(accepted: BoolArray) -> OnePlusOne | None:
            ramp, rest = ramped.ramp, steps - 1  # one value less: that of the new start
            if rest <= ramp:
                return None
            bits = np.zeros(ramped.count, np.bool_)
            bits[:ramp] = accepted
            x = task.x.copy()
            ramped.replay(x, bits, self._method.box)
            alpha = ramped.decided(bits)[0][:rest]
            return part(Task(task.round, x), ramped.steps_of(alpha), ramp)

        alpha = ramp_sizes(ramped.ramp)[:steps]
        return TwoParts(part(task, ramped.steps_of(alpha), 0), then)

    def tally(self, state: Adapted, n: int) -> Tally:
        return AutoTally(state, self._method.sampler, self._method.iterations, n)


def schedule_of(method: Any) -> Fixed:
    """The schedule of a method with (1+1) searches."""
    return Auto(method) if method.step_size == AUTO else Fixed(method)
