"""The rule of ``step_size="auto"`` for ``des-c``: measure what the last step did.

Accept bits of corrected comparisons do not say how far f falls: an error of the estimates is
linear in a step, as its gain is. So the rule compares values of f along lines that all workers
share. What they measure along the same line can be averaged, however different their data are.

Stage 0 (the first round): all steps have the size 2^-20. Their changes give the first slopes.

Stage 1 (one round): every worker measures f_i along -g, at distances 0.8 sqrt(K) 2^e for e from
-20 to 20, and sends the secants from x as its answer, 16 bits each. K steps of a search with alpha
lead about 0.8 sqrt(K) alpha along a slope. Where the mean of the secants promises the lowest f,

    level = log2 alpha = e - 1 - 2 gain^2,        gain = n / (n + K)

Stage 2 (all others): alpha_k = 2^level / sqrt(k + 1). With m the last step of x, two float32 of an
answer are the changes of f_i from x - m to x and from x to x + m. Their means over the workers are

    a = f(x) - f(x - m),    b = f(x + m) - f(x).

The parabola through the three values is least at x - m + lambda m, lambda = 1 - (a+b) / (2 (b-a)):
the last step should have been lambda times as long. Half an octave below that is the goal, for
noise across the step costs f as well, and changes are slow:

    level += (log2 lambda - 1/2) / 4,             lambda within [1/4, 4]

but at most 3 (2p - 0.3 - 0.65 gain^2), where p is the rate of accepted steps, and at most 1/2
either way. Where n is much larger than K, most of a step is noise across the slope: it should be
shorter than the line says, and almost every other step accepted.

Only signs and ratios of differences of f count: f times any number leads to the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from desopt.contract.types import Answer, Batches, BoolArray, FloatArray, Task
from desopt.kernels.portable import exp_of, log
from desopt.kernels.steps import inner_product, sum_of_squares
from desopt.methods.base import by_chance, directions
from desopt.methods.correction.states import AdaptedDESCState, DESCState, estimates
from desopt.methods.searches import Probe, TwoPoint, affordable

if TYPE_CHECKING:
    from desopt.methods.des_c import DESC

#: The size of the steps that only measure slopes, in octaves; and of the shortest line.
TINY = -20.0
#: The most secants along the first line, and the bits of each.
SECANTS, BITS = 20, 16
#: The further one of the two secants that show noise ends before this, in octaves.
CLOSE = -9.5

_GOAL, _GAIN, _MOST = 0.5, 0.25, 0.5
_LONGEST = 4.0  # lambda
_PER_RATE = 3.0
_LIMIT = 300.0  # of the level, whatever workers answer
_LN2 = 0.6931471805599453


def octaves(count: int) -> FloatArray:
    """e of the secants: the middles of ``count`` equal parts of [-20, 20]."""
    return TINY - 2.0 * TINY * (np.arange(count) + 0.5) / count


def distances(count: int, iterations: int) -> FloatArray:
    """How far along the line the secants end, in units of ||u|| = 1."""
    found: FloatArray = 0.8 * math.sqrt(iterations) * exp_of(_LN2 * octaves(count))
    return found


def to_bits(secants: FloatArray) -> BoolArray:
    """The upper 16 bits of each as a float32: three digits, and all of its range."""
    largest = float(np.finfo(np.float32).max) / 2.0
    single = np.clip(secants, -largest, largest).astype("<f4").view("<u4")
    upper = ((single + 0x8000) >> 16).astype("<u2")
    return np.unpackbits(upper.view(np.uint8), bitorder="little").astype(np.bool_)


def from_bits(bits: BoolArray) -> FloatArray:
    """The other side of ``to_bits``; what is no finite number counts as 0."""
    upper: NDArray[np.uint32] = np.packbits(bits, bitorder="little").view("<u2").astype("<u4")
    secants = (upper << 16).view("<f4").astype(np.float64)
    return np.where(np.isfinite(secants), secants, 0.0)


def first_level(secants: FloatArray, iterations: int, gain: float) -> float:
    """The level after the line; ``secants`` are means over the workers."""
    change = secants * distances(secants.size, iterations)
    return float(octaves(secants.size)[int(np.argmin(change))]) - 1.0 - 2.0 * gain * gain


def next_level(level: float, back: float, forth: float, rate: float, gain: float) -> float:
    """The level after a round: a, b, and the rate of accepted steps."""
    step = _MOST
    if back != 0.0 or forth != 0.0:  # else x has not moved
        bend = forth - back
        if bend > 0.0:
            longer = 1.0 - (back + forth) / (2.0 * bend)
        else:
            longer = _LONGEST if back <= 0.0 else 0.0
        longer = min(max(longer, 1.0 / _LONGEST), _LONGEST)
        step = _GAIN * (log(longer) / _LN2 - _GOAL)
    step = min(step, _PER_RATE * (2.0 * rate - 0.3 - 0.65 * gain * gain))
    return min(max(level + min(max(step, -_MOST), _MOST), -_LIMIT), _LIMIT)


def along_slope(method: DESC, task: Task, worker: int) -> TwoPoint:
    """Stage 1 of a worker: the secants along -g."""
    assert task.memory is not None
    g = task.memory[: task.x.size]
    length = math.sqrt(sum_of_squares(g))
    u = g * (-1.0 / length if length > 0.0 else 0.0)
    ends = distances(method.secants, method.iterations)
    return _along(method, [(u, end, 0.0) for end in ends.tolist()], task, worker)


def along_step(method: DESC, task: Task, worker: int) -> TwoPoint:
    """Stage 2 of a worker, before its search: the changes of f_i from x - m to x, and to x + m."""
    assert task.memory is not None
    m = task.memory[-task.x.size :]
    return _along(method, [(m, 0.0, 1.0), (m, 1.0, 0.0)], task, worker)


def _along(
    method: DESC, lines: list[tuple[FloatArray, float, float]], task: Task, worker: int
) -> TwoPoint:
    """Slopes of f_i between two points on each of the lines, in the round's minibatch."""
    count = affordable(len(lines), task.limit, each=2)
    return TwoPoint(
        task, worker, directions(method.seed, task.round, worker), np.zeros(count), radius=1.0,
        layout=method.layout, batches=Batches.ROUND, moving=False,
        probes=[Probe(*line, 0) for line in lines[:count]], box=method.box,
        encode=lambda slopes: method.layout.encode(to_bits(slopes)),
    )  # fmt: skip


def found(method: DESC, n: int, answers: Iterable[Answer]) -> float | None:
    """The level after the round along -g; None without answers."""
    total, rows = np.zeros(method.secants), 0
    for answer in answers:
        share = method.shares[method.checked(answer.worker)]
        bits = method.layout.decode(answer).bits[: method.secants * BITS]
        total, rows = total + share * from_bits(bits), rows + share
    return first_level(total / rows, method.iterations, method.gain(n)) if rows else None


def noisy(method: DESC, answers: Iterable[Answer]) -> bool:
    """Whether the first secants along -g are noise: then g is, too."""
    far = int(np.searchsorted(octaves(method.secants), CLOSE)) - 1
    bits = (method.layout.decode(answer).bits[: method.secants * BITS] for answer in answers)
    return far > 0 and by_chance((secants[0], secants[far]) for secants in map(from_bits, bits))


class Following:
    """What the answers of a round say of the last step, where the step size is "auto"."""

    def __init__(self, method: DESC, state: DESCState) -> None:
        self._method, self._state = method, state
        self._back = self._forth = 0.0
        self._rows = self._accepted = self._steps = 0

    def of(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers, counted as they pass."""
        if not isinstance(self._state, AdaptedDESCState):
            yield from answers
            return
        method, state, K = self._method, self._state, self._method.iterations
        for answer in answers:
            content = method.layout.decode(answer)
            _, _, delta = estimates(state.memory, state.x.size, answer.worker)
            # what the worker's slope has more than that of f says nothing of f
            more, share = inner_product(delta, state.m), method.shares[answer.worker]
            self._back += share * (float(content.float32[1]) - more)
            self._forth += share * (float(content.float32[2]) - more)
            self._rows += share
            self._accepted += int(np.count_nonzero(content.bits[:K]))
            self._steps += K
            yield answer

    def outcome(self) -> dict[str, float]:
        """The fields of the next state."""
        if not isinstance(self._state, AdaptedDESCState):
            return {}
        back, forth = self._back / self._rows, self._forth / self._rows
        rate, gain = self._accepted / self._steps, self._method.gain(self._state.x.size)
        return {"level": next_level(self._state.level, back, forth, rate, gain)}
