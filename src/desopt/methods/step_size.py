"""The step sizes of the (1+1) searches: the paper's, or found and followed by accept bits alone.

A method has a *schedule*, made by ``schedule_of``: ``Fixed`` for a number, ``Auto`` for
``step_size="auto"``. It uses them alike::

    init:    State(0, x0, ..., **schedule.start(x0))       # Auto: the fields of Adapted
    plan:    Task(round, x, schedule.scalars(state))       # Auto: the level log2(alpha)
    search:  schedule.search(task, worker, part)           # part makes a OnePlusOne
    merge:   proposals = schedule.proposals(round, scalars, worker, n)
             tally = schedule.tally(state, n)
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
from statistics import median
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from desopt.contract.scattered import zeros_like
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

#: The steps of the ramp, and the octaves that it reaches to either side of 1.
RAMP, REACH = 64, 20.0
#: Below this rate of tiny steps accepted, values are noisy: 1/2 where they are not, in the ramp
#: and in a round. Below LUCKY, noise is larger than what most steps gain.
NOISY_RAMP, NOISY, LUCKY = 1 / 3, 0.4, 0.25
#: A ramp with at most so many accepted steps, and less than such a share up to the last of them,
#: says nothing of their size: the worker sweeps back down, if it has so many steps left. (If all of
#: them are tiny, the scale of the problem may be.)
FEW_ACCEPTED, FEW_OF_THEM, SWEEP = 5, 0.3, 32
#: Every PERIOD-th step is a control step, SMALL octaves smaller; MEMORY of them count, or those of
#: ten rounds.
PERIOD, SMALL, MEMORY = 24, 5, 200.0
#: The same below LUCKY, where an accepted control step is luck and makes the next steps fail: if
#: there are LUCKY_BITS of them in a round, the period may be longer.
LUCKY_PERIOD, LUCKY_BITS, LUCKY_MEMORY = 48, 40, 50.0
#: The share of the possible acceptance to aim at: where workers agree, where they do not, and the
#: least where values are noisy. An agreement of SURE is enough.
LOW, HIGH, LEAST, SURE = 0.3, 0.5, 0.2, 0.3
#: Octaves of a round per excess of acceptance, the most of them, and the bits that it takes.
GAIN, MOST, BITS = 3.0, 1.5, 100.0
#: Octaves above the size at which acceptance drops, for ten workers and more.
BOOST = 0.75
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
    period: the steps from one control step to the next
    agreement: of the workers with the heading, fading; -1 to 1
    heading: the mean direction so far, fading
    """

    level: float
    tiny: float
    controls: float
    period: int
    agreement: float
    heading: FloatArray


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
        return AutoTally(state, self._method, n)


def schedule_of(method: Any) -> Fixed:
    """The schedule of a method with (1+1) searches."""
    return Auto(method) if method.step_size == AUTO else Fixed(method)


def decreasing(iterations: int, level: float) -> FloatArray:
    """2^level / sqrt(k + 1)."""
    alpha: FloatArray = exp(_LN2 * level) / np.sqrt(np.arange(1.0, iterations + 1.0))
    return alpha


def control_steps(iterations: int, t: int, period: int) -> IndexArray:
    """The steps of round t that are made much smaller: would any step be accepted?"""
    return np.flatnonzero((np.arange(iterations) + 7 * t) % period == 0)


@lru_cache(maxsize=8)  # all workers of a round have the same
def with_controls(iterations: int, t: int, level: float, period: int) -> FloatArray:
    """The step sizes of a round after the first."""
    alpha = decreasing(iterations, level)
    alpha[control_steps(iterations, t, period)] *= 2.0**-SMALL
    alpha.flags.writeable = False
    return alpha


# --- the ramp ----------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def ramp_sizes(count: int) -> FloatArray:
    """2^-REACH to 2^REACH, densest near 1."""
    r = [(2 * k + 1) / count - 1 for k in range(count)]
    return np.array([exp(_LN2 * REACH * s * abs(s)) for s in r])


def ramp_end(count: int) -> int:
    """The steps at either end of a ramp that count as tiny, and as huge."""
    return min(count, max(3, count // 6))


def ramp_drop(accepts: list[int], workers: int) -> float:
    """The number of steps of a ramp after which acceptance drops.

    ``accepts`` are the accepted ones of ``workers`` steps of each size. The rates below and above
    the drop are those of tiny and of huge steps: it is where halfway between them separates best.
    Where values are noisy, a step is accepted by luck, and less and less often: the drop is at the
    largest steps that were.
    """
    count, end = len(accepts), ramp_end(len(accepts))
    tiny, huge = (sum(part) / (workers * end) for part in (accepts[:end], accepts[-end:]))
    drop = 0.0
    if is_noisy(accepts, workers):
        larger = 0
        for k in range(count - 1, -1, -1):
            larger += accepts[k]
            if larger >= max(1.0, workers / 10):
                drop = k + 1.0
                break
    else:
        bar = workers * (tiny + huge) / 2
        total, best, first, last = 0.0, 0.0, count, count
        for k in range(count - 1, -1, -1):
            total += bar - accepts[k]
            if total > best:
                best, first, last = total, k, k
            elif total == best:
                first = k
        drop = (first + last) / 2
    return min(max(drop, 0.5), count - 0.5)


def is_noisy(accepts: list[int], workers: int) -> bool:
    """Whether few tiny steps of a ramp were accepted: then values have noise of their own."""
    end = ramp_end(len(accepts))
    return sum(accepts[:end]) < NOISY_RAMP * workers * end


def octave(drop: float, ramp: int) -> float:
    """log2 of the size between two steps of a ramp: half a step more is that of a step."""
    r = 2 * drop / ramp - 1
    return REACH * r * abs(r)


def first_level(size: float, iterations: int, workers: int) -> float:
    """The level after a ramp; ``size`` is log2 of what is right for a single step.

    As sizes fall by 1 / sqrt(k+1), the first of K may be larger: by K^(1/4), their geometric mean
    is about the size times that.
    """
    return size + log(iterations) / _LN2 / 4 + BOOST - 3.2 * few(workers)


def swept(ramp: int, iterations: int) -> int:
    """The steps down again after a ramp with these accept bits; 0: it need not be."""
    rest, accepted, last = iterations - 1 - RAMP, ramp.bit_count(), ramp.bit_length()
    few = accepted <= FEW_ACCEPTED and accepted < FEW_OF_THEM * last
    return rest if few and last > ramp_end(RAMP) and rest >= SWEEP else 0


def few(workers: int) -> float:
    """What fewer workers than ten lack: the noise of their mean."""
    return max(0.0, 1.0 / sqrt(workers) - 1.0 / sqrt(10.0))


@dataclass(frozen=True, slots=True)
class Ramped:
    """The steps of a round that begins with a ramp; its bits decide the sizes of the others.

    Of the ramp, accepted steps are kept up to the size at which acceptance drops, unless a sweep
    follows.
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
        drop = ramp_drop(accepted[:ramp].tolist(), 1)
        alpha = decreasing(self.count, first_level(octave(drop, ramp), self.count, 10))
        alpha[:ramp] = ramp_sizes(ramp)
        kept = accepted.copy()
        kept[:ramp] &= np.arange(ramp) < drop
        bits = np.packbits(accepted[:ramp], bitorder="little").tobytes()
        if down := swept(int.from_bytes(bits, "little"), self.count):
            alpha[ramp : ramp + down] = ramp_sizes(down)[::-1]
            kept[:ramp] = False  # as luck: the sweep begins at x
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

    def __init__(self, state: Adapted, method: Searching, n: int) -> None:
        self._n = n
        round: int = state.round  # type: ignore[attr-defined]
        iterations, self._sampler = method.iterations, method.sampler
        controls = control_steps(iterations, round, state.period).tolist()
        self._state, self._iterations, self._controls = state, iterations, len(controls)
        self._mask = sum(1 << k for k in controls)
        self._ramp = [0] * min(iterations, RAMP)
        self._sizes: list[float] = []  # the largest that were accepted on the way down
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
                self._count_ramp(bits)
            yield answer

    def _count_ramp(self, bits: int) -> None:
        ramp = len(self._ramp)
        for k in range(ramp):
            self._ramp[k] += bits >> k & 1
        if down := swept(bits & ((1 << ramp) - 1), self._iterations):
            rest = bits >> ramp
            first = (rest & -rest).bit_length() - 1 if rest else down
            self._sizes.append(octave(max(down - first - 0.5, 0.0), down))

    def outcome(self, total: FloatArray) -> dict[str, Any]:
        found = self._followed() if self._state.controls else self._found()
        found["level"] = min(max(found["level"], -LIMIT), LIMIT)
        found["period"] = PERIOD
        if is_lucky(found["tiny"], found["controls"]):
            steps = min(self._workers, 10) * self._iterations  # four in a round at the least
            found["period"] = max(LUCKY_PERIOD, steps // LUCKY_BITS)
        return {**found, "heading": follow(self._state.heading, total, self._sparse_weight)}

    @property
    def _weight(self) -> float:
        """Of a round among those before it."""
        return min(0.25, self._workers / 40)

    @property
    def _sparse_weight(self) -> float:
        """Small enough for a coordinate to be drawn once in what the heading remembers."""
        n = self._n
        drawn = self._workers * self._iterations * getattr(self._sampler, "l", n)
        return min(self._weight, drawn / n)

    def _found(self) -> dict[str, Any]:
        """After the ramp; its tiny steps are the first control steps, with 12 before them."""
        M, ramp = self._workers, len(self._ramp)
        size = octave(ramp_drop(self._ramp, M), ramp)
        noisy = is_noisy(self._ramp, M)
        if noisy and self._sizes:
            size = 1.0 + median(self._sizes)
        level = first_level(size, self._iterations, M)
        end = ramp_end(ramp)
        p0 = (6.0 + sum(self._ramp[:end])) / (12.0 + M * end)
        # luck is soon used up: where values are noisy, fewer tiny steps will be accepted
        controls = max(4.0, 24.0 / M) if noisy else 24.0
        tiny = controls * min(p0, 0.5)
        return {"level": level, "tiny": tiny, "controls": controls, "agreement": 1.0}

    def _followed(self) -> dict[str, Any]:
        state, M, K = self._state, self._workers, self._iterations
        # p0, p: the rates at which tiny steps and the others are accepted
        seen = M * self._controls
        lucky = is_lucky(state.tiny, state.controls)
        keep = 1.0 - (min(1.0, seen / LUCKY_MEMORY) if lucky else min(0.1, seen / MEMORY))
        tiny = keep * state.tiny + self._tiny
        controls = keep * state.controls + M * self._controls
        p0, p = tiny / controls, self._accepted / (M * max(1, K - self._controls))
        # few workers have few control steps: p0 exceeds 1/2 only as far as they are sure of it
        p0 = max(min(p0, 0.5), p0 - 1.5 * few(M) / sqrt(controls))
        # u: p as a share of what is possible, p0; steps that no value depends on are always
        # accepted, so that p is at least 2 p0 - 1
        least = max(0.0, 2.0 * p0 - 1.0)
        possible = p0 - least
        if possible >= 0.02 or least == 0.0:
            u = (p - least) / max(possible, 0.02)
        else:  # nearly all of them are
            u = float(p >= p0 - 0.02)
        weight = self._sparse_weight
        agreement = state.agreement + weight * (self._votes / M - state.agreement)
        # a vote sums the few coordinates drawn: in noise, majorities grow with the root of their
        # number
        clear = max(agreement, min(1.0, agreement * sqrt(self._weight / weight)))
        noisy = p0 < NOISY
        if noisy:  # of every value: workers agree by luck only
            goal = min(max(p0, LEAST), LOW)
        else:
            low = LOW + 0.8 * few(M)
            goal = max(low, HIGH - (HIGH - low) * min(max(clear / SURE, 0.0), 1.0))
        most = 2.0 * MOST if noisy else MOST  # after a ramp of luck, the way up may be long
        step = min(1.0, M * K / BITS) * min(max(GAIN * (u - goal), -MOST), most)
        level = state.level + (step if noisy else min(step, clear))
        return {"level": level, "tiny": tiny, "controls": controls, "agreement": agreement}


def is_lucky(tiny: float, controls: float) -> bool:
    """Whether hardly any control step was accepted: what beats a lucky value is luck."""
    return tiny < LUCKY * controls


def vote(change: Step, heading: FloatArray) -> int:
    """1 where v_i - x points along the heading, -1 where against it."""
    index, moved = change
    if index is None:
        return int(sign_of_dense_dot(moved, heading))
    return int(sign_of_dot(index, moved, heading))
