"""The step sizes of the (1+1) searches: the paper's, or found and followed by accept bits alone.

A method has a *schedule*, made by ``schedule_of``: ``Fixed`` for a number, ``Auto`` for
``step_size="auto"``. It uses them alike::

    init:    State(0, x0, ..., **schedule.start(n))        # Auto: the fields of Adapted
    plan:    Task(round, x, schedule.scalars(state))       # Auto: the level log2(alpha)
    search:  schedule.search(task, worker, part)           # part makes a OnePlusOne
    merge:   proposals = schedule.proposals(round, scalars, worker, n)
             tally = schedule.tally(state)
             answers = tally.of(answers, change)           # counts them as they pass
             State(..., **tally.outcome(total))            # total: the sum of v_i - x

With "auto" a method's state has the fields of ``Adapted`` beside its own. All of it is decided by
the answers, so that replays need nothing else, and an answer is K bits as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from desopt.contract.space import Box
from desopt.contract.types import (
    Answer,
    BoolArray,
    ByteArray,
    FloatArray,
    IndexArray,
    LocalSearch,
    Step,
    Task,
)
from desopt.kernels.portable import exp, log
from desopt.kernels.steps import follow, sign_of_dense_dot, sign_of_dot
from desopt.methods.proposals import Block, Proposals, unpacked
from desopt.methods.samplers import Key, Sampler
from desopt.methods.searches import OnePlusOne, TwoParts, affordable

AUTO: Literal["auto"] = "auto"

#: part(task, proposals, first): the search from task.x by the proposals from number ``first`` on.
Part: TypeAlias = Callable[[Task, Proposals, int], OnePlusOne]

_LN2 = 0.6931471805599453

#: The ramp: its steps, and the octaves that it reaches to either side of 1.
RAMP, REACH = 64, 20.0
#: Every PERIOD-th step is a control step, SMALL octaves smaller; what they say is FORGET-ten.
PERIOD, SMALL, FORGET = 24, 5, 0.9
C, MAX, LOW, HIGH, FEW, SURE, ETA = 3.0, 1.5, 0.3, 0.7, 0.8, 0.3, 1.0
VOTES, SPAN, BITS, BOOST, FEWBOOST, PART, NOISECAP = 33.0, 50.0, 100.0, 0.75, 4.0, 2.5, 3.0
#: Whatever workers answer, step sizes stay between 2^-LIMIT and 2^LIMIT.
LIMIT = 300.0


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


@dataclass(frozen=True)
class Adapted:
    """What the state of a method has in addition if its step size is "auto".

    level: log2 of alpha_0
    tiny, controls: control steps accepted, and all of them, fading; 0 before the first answers
    agreement: of the workers with the heading, fading; -1 to 1
    heading: the mean direction so far, fading
    """

    level: float
    tiny: float
    controls: float
    agreement: float
    heading: FloatArray


class Fixed:
    """Step sizes that depend on t and k alone, as in the paper."""

    def __init__(self, method: Searching) -> None:
        self._method = method

    def start(self, n: int) -> dict[str, Any]:
        """The fields of a state before round 0."""
        return {}

    def scalars(self, state: Any) -> tuple[float, ...]:
        """What workers must know to make their steps."""
        return ()

    def ramps(self, scalars: tuple[float, ...]) -> bool:
        """Whether the step size is yet to be found."""
        return False

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

    def tally(self, state: Any) -> Tally:
        """What the answers of the round say of the step size."""
        return Tally()


class Auto(Fixed):
    """Step sizes by the accept bits of all workers."""

    def start(self, n: int) -> dict[str, Any]:
        return {
            "level": 0.0,
            "tiny": 0.0,
            "controls": 0.0,
            "agreement": 1.0,
            "heading": np.zeros(n),
        }

    def scalars(self, state: Adapted) -> tuple[float, ...]:
        return (state.level,) if state.controls else ()

    def ramps(self, scalars: tuple[float, ...]) -> bool:
        return not scalars

    def sizes(self, t: int, scalars: tuple[float, ...]) -> FloatArray:
        (level,) = scalars
        alpha = decreasing(self._method.iterations, level)
        alpha[control_steps(self._method.iterations, t)] *= 2.0**-SMALL
        return alpha

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

    def tally(self, state: Adapted) -> Tally:
        return AutoTally(state, self._method.iterations)


def schedule_of(method: Any) -> Fixed:
    """The schedule of a method with (1+1) searches."""
    return Auto(method) if method.step_size == AUTO else Fixed(method)


def decreasing(iterations: int, level: float) -> FloatArray:
    """2^level / sqrt(k + 1)."""
    alpha: FloatArray = exp(_LN2 * level) / np.sqrt(np.arange(1.0, iterations + 1.0))
    return alpha


def control_steps(iterations: int, t: int) -> IndexArray:
    """The steps of round t that are made much smaller: would any step be accepted?"""
    return np.flatnonzero((np.arange(iterations) + 7 * t) % PERIOD == 0)


# --- the ramp ----------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def ramp_sizes(count: int) -> FloatArray:
    """2^-REACH to 2^REACH, densest near 1."""
    r = [(2 * k + 1) / count - 1 for k in range(count)]
    return np.array([exp(_LN2 * REACH * s * abs(s)) for s in r])


def ramp_level(accepts: list[int], workers: int) -> tuple[float, float]:
    """log2 of the size at which acceptance drops, and the rate of acceptance of tiny steps.

    ``accepts`` are the accepted ones of ``workers`` steps of each size.
    """
    count = len(accepts)
    third, sixth = max(1, count // 3), max(1, count // 6)
    tiny = sum(accepts[:third]) / (workers * third)
    huge = sum(accepts[-sixth:]) / (workers * sixth)
    best = 0.0
    if tiny < 0.25:
        total = 0
        for k in range(count - 1, -1, -1):
            total += accepts[k]
            if total >= max(1.0, workers / 2):
                best = k + 1.0
                break
    else:
        bar = workers * (huge + (tiny - huge) / PART)
        sum_above, top, first, last = 0.0, 0.0, count, count
        for k in range(count - 1, -1, -1):
            sum_above += bar - accepts[k]
            if sum_above > top:
                top, first, last = sum_above, k, k
            elif sum_above == top:
                first = k
        best = (first + last) / 2
    r = 2 * min(max(best, 0.5), count - 0.5) / count - 1
    return REACH * r * abs(r), tiny


def first_level(ramp: float, iterations: int, workers: int) -> float:
    """The level of the round after a ramp; that in the worker's own as for ten of them."""
    return ramp + log(iterations) / _LN2 / 4 + BOOST - FEWBOOST * few(workers)


def few(workers: int) -> float:
    return FEW * max(0.0, 1.0 / sqrt(workers) - 1.0 / sqrt(10.0))


@dataclass(frozen=True, slots=True)
class Ramped:
    """The steps of a round that begins with a ramp; its bits decide the sizes of the others.

    Of the ramp, accepted steps are kept up to the size at which acceptance drops.
    """

    sampler: Sampler
    key: Key
    count: int
    n: int
    at_once: ClassVar[int] = 0

    @property
    def ramp(self) -> int:
        return min(self.count, RAMP)

    def decided(self, accepted: BoolArray) -> tuple[FloatArray, BoolArray]:
        """Step sizes of all steps, and the steps that are kept."""
        ramp = self.ramp
        level, _ = ramp_level(accepted[:ramp].tolist(), 1)
        alpha = decreasing(self.count, first_level(level, self.count, 10))
        alpha[:ramp] = ramp_sizes(ramp)
        kept = accepted.copy()
        kept[:ramp] &= alpha[:ramp] <= exp(_LN2 * level)
        return alpha, kept

    def steps_of(self, alpha: FloatArray) -> Proposals:
        """The first steps of the round, with these sizes."""
        return self.sampler.proposals(alpha, self.key, self.n)

    def steps(self) -> Iterator[Step]:
        raise TypeError("the steps after a ramp depend on its bits: see ``decided``")

    def blocks(self) -> Iterator[Block]:
        raise TypeError("the steps after a ramp depend on its bits: see ``decided``")

    def replay(self, v: FloatArray, accepted: BoolArray, box: Box | None = None) -> None:
        alpha, kept = self.decided(accepted)
        self.steps_of(alpha).replay(v, kept, box)

    def changes(
        self, x: FloatArray, masks: ByteArray, workers: IndexArray, box: Box | None = None
    ) -> Iterator[Step]:
        for i, accepted in enumerate(unpacked(masks, self.count)):
            alpha, kept = self.decided(accepted)
            mask = np.packbits(kept, bitorder="little")[np.newaxis]
            yield from self.steps_of(alpha).changes(x, mask, workers[i : i + 1], box)


# --- the server's side -------------------------------------------------------------------------


class Tally:
    """Counts what answers say of the step size: nothing."""

    def of(self, answers: Iterable[Answer], change: Callable[[Answer], Step]) -> Iterable[Answer]:
        """The answers, counted as they pass; ``change`` is v_i - x of an answer."""
        return answers

    def outcome(self, total: FloatArray) -> dict[str, Any]:
        """The fields of the next state; ``total`` points to where the workers' mean does."""
        return {}


class AutoTally(Tally):
    """Counts accepted steps, and the workers that agree with the heading."""

    def __init__(self, state: Adapted, iterations: int) -> None:
        round: int = state.round  # type: ignore[attr-defined]
        controls = control_steps(iterations, round).tolist()
        self._state, self._iterations, self._controls = state, iterations, len(controls)
        self._mask = sum(1 << k for k in controls)
        self._ramp = [0] * min(iterations, RAMP)
        self._workers = self._tiny = self._accepted = self._votes = 0

    def of(self, answers: Iterable[Answer], change: Callable[[Answer], Step]) -> Iterator[Answer]:
        every = (1 << self._iterations) - 1
        for answer in answers:
            bits = int.from_bytes(answer.payload[: self._iterations // 8 + 1], "little") & every
            self._workers += 1
            if self._state.controls:
                tiny = (bits & self._mask).bit_count()
                self._tiny += tiny
                self._accepted += bits.bit_count() - tiny
                self._votes += vote(change(answer), self._state.heading)
            else:
                for k in range(len(self._ramp)):
                    self._ramp[k] += bits >> k & 1
            yield answer

    def outcome(self, total: FloatArray) -> dict[str, Any]:
        found = self._followed() if self._state.controls else self._found()
        found["level"] = min(max(found["level"], -LIMIT), LIMIT)
        weight = min(0.2, self._workers / SPAN)
        return {**found, "heading": follow(self._state.heading, total, weight)}

    def _found(self) -> dict[str, Any]:
        """After the ramp."""
        ramp, tiny = ramp_level(self._ramp, self._workers)
        level = first_level(ramp, self._iterations, self._workers)
        return {"level": level, "tiny": 24 * min(tiny, 0.5), "controls": 24.0, "agreement": 1.0}

    def _followed(self) -> dict[str, Any]:
        state, M, K = self._state, self._workers, self._iterations
        tiny, controls = state.tiny, state.controls
        if self._controls:
            tiny = FORGET * tiny + self._tiny
            controls = FORGET * controls + M * self._controls
        p0 = tiny / controls
        p = self._accepted / (M * max(1, K - self._controls))
        neutral = max(0.0, 2 * p0 - 1)  # steps that no value depends on
        u = float(p >= p0 - 0.02) if p0 - neutral < 0.02 else (p - neutral) / (p0 - neutral)
        weight = min(0.3, M / VOTES)
        agreement = (1 - weight) * state.agreement + weight * (self._votes / M)
        sure = 1.0 if p0 < 0.4 else min(max(agreement / SURE, 0.0), 1.0)
        low = LOW + few(M)
        goal = max(low, low + (HIGH - low) * (1 - sure))
        step = min(1.0, M * K / BITS) * min(max(C * (u - goal), -MAX), MAX)
        level = state.level + min(step, ETA * agreement + NOISECAP * max(0.0, 0.8 - 2 * p0))
        return {"level": level, "tiny": tiny, "controls": controls, "agreement": agreement}


def vote(change: Step, heading: FloatArray) -> int:
    """1 where v_i - x points along the heading, -1 where against it."""
    index, moved = change
    if index is None:
        return int(sign_of_dense_dot(moved, heading))
    return int(sign_of_dot(index, moved, heading))
