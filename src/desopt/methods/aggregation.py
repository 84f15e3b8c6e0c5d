"""Aggregates of the displacements v_i - x of those who answered, coordinate by coordinate.

==============  ===============================================  ==========================
name            a coordinate's step                              liars it withstands
==============  ===============================================  ==========================
mean            the mean                                         none, but see docs/trust.md
median          the middle value; the mean of two middle ones    fewer than half
trimmed-mean    the mean without the 3 M // 10 least and most    3 M // 10
==============  ===============================================  ==========================

The mean takes one answer at a time. The others need all of them, and work on blocks of
coordinates that fit in ``BLOCK_BYTES``; with several blocks, answers are rebuilt for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from desopt.contract.types import Answer, FloatArray

BLOCK_BYTES = 2**28

#: add(total, answer): total += v_i - x, and True; False where the displacement is not finite. Such
#: an answer counts as missing.
Add = Callable[[FloatArray, Answer], bool]


def averaged(
    how: str, x: FloatArray, answers: Iterable[Answer], rebuilt: Callable[[Answer], FloatArray]
) -> FloatArray | None:
    """x plus the aggregate of v_i - x; None where nobody answered.

    v_i is the point of the answer, or ``rebuilt`` from it.
    """

    def add(total: FloatArray, answer: Answer) -> bool:
        v = rebuilt(answer) if answer.point is None else answer.point
        displacement = v - x
        finite = bool(np.isfinite(displacement).all())
        if finite:
            total += displacement
        return finite

    with np.errstate(over="ignore", invalid="ignore"):  # numbers may be of any size
        total, count = combine(how, answers, add, x.size)
        return None if count == 0 else x + total / count


def combine(how: str, answers: Iterable[Answer], add: Add, n: int) -> tuple[FloatArray, int]:
    """(total, count) with total / count the step; count is 0 where nobody answered."""
    if how == "mean":
        return _sum(answers, add, n)
    step = _by_blocks(_CENTRES[how], list(answers), add, n)
    return (np.zeros(n), 0) if step is None else (step, 1)


def _sum(answers: Iterable[Answer], add: Add, n: int) -> tuple[FloatArray, int]:
    """One answer at a time, in the order of workers: addition has an order."""
    total, count = np.zeros(n), 0
    for answer in answers:
        count += add(total, answer)
    return total, count


def _by_blocks(
    centre: Callable[[FloatArray], FloatArray], answers: Sequence[Answer], add: Add, n: int
) -> FloatArray | None:
    """The step; None where nobody answered."""
    width = max(1, BLOCK_BYTES // (8 * max(1, len(answers))))
    step = np.empty(n)
    for start in range(0, n, width):
        block = slice(start, min(start + width, n))
        values = np.empty((len(answers), block.stop - start))
        count = 0
        for answer in answers:
            displacement = np.zeros(n)
            if add(displacement, answer):
                values[count] = displacement[block]
                count += 1
        if count == 0:
            return None
        values = values[:count]
        values.sort(axis=0)
        step[block] = centre(values)
    return step


def _median(ordered: FloatArray) -> FloatArray:
    count = len(ordered)
    with np.errstate(invalid="ignore"):
        middle: FloatArray = 0.5 * ordered[(count - 1) // 2] + 0.5 * ordered[count // 2]
    return middle


def _trimmed_mean(ordered: FloatArray) -> FloatArray:
    cut = trimmed(len(ordered))
    total = np.zeros(ordered.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for row in ordered[cut : len(ordered) - cut]:  # row by row: one order on every machine
            total += row
    return total / (len(ordered) - 2 * cut)


def trimmed(count: int) -> int:
    """How many of ``count`` answers the trimmed mean leaves out on either side."""
    return 3 * count // 10


#: All but the mean; each takes the answers' values of some coordinates, every column in order.
_CENTRES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "median": _median,
    "trimmed-mean": _trimmed_mean,
}
AGGREGATES = ("mean", *_CENTRES)
