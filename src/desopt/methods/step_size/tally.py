"""What the answers of a round say of the step size: the server's side of "auto"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Any

from desopt.contract.types import Answer, FloatArray, Step
from desopt.kernels.steps import follow, sign_of_dense_dot, sign_of_dot
from desopt.methods.samplers import Sampler
from desopt.methods.step_size.ramp import (
    RAMP,
    first_level,
    is_noisy,
    octave,
    ramp_drop,
    ramp_end,
    swept,
)
from desopt.methods.step_size.sizes import control_steps, few

#: Below this rate of control steps accepted, values are noisy: 1/2 where they are not. Below LUCKY,
#: noise is larger than what most steps gain.
NOISY, LUCKY = 0.4, 0.25
#: Every PERIOD-th step is a control step; MEMORY of them count, or those of ten rounds.
PERIOD, MEMORY = 24, 200.0
#: The same below LUCKY, where an accepted control step is luck and makes the next steps fail: if
#: there are LUCKY_BITS of them in a round, the period may be longer.
LUCKY_PERIOD, LUCKY_BITS, LUCKY_MEMORY = 48, 40, 50.0
#: The share of the possible acceptance to aim at: where workers agree, where they do not, and the
#: least where values are noisy. An agreement of SURE is enough.
LOW, HIGH, LEAST, SURE = 0.3, 0.5, 0.2, 0.3
#: Octaves of a round per excess of acceptance, the most of them, and the bits that it takes.
GAIN, MOST, BITS = 3.0, 1.5, 100.0
#: Whatever workers answer, step sizes stay between 2^-LIMIT and 2^LIMIT.
LIMIT = 300.0


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

    def __init__(self, state: Adapted, sampler: Sampler, iterations: int, n: int) -> None:
        self._sampler, self._n = sampler, n
        round: int = state.round  # type: ignore[attr-defined]
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
