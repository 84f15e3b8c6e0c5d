"""The first round of a worker with "auto": a ramp of step sizes, and what its accept bits say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from desopt.contract.space import Box
from desopt.contract.types import BoolArray, ByteArray, FloatArray, IndexArray, Step
from desopt.kernels.portable import exp, log
from desopt.methods.proposals import Block, Proposals, unpacked
from desopt.methods.samplers import Key, Sampler
from desopt.methods.step_size.sizes import LN2, decreasing, few

#: The steps of the ramp, and the octaves that it reaches to either side of 1.
RAMP, REACH = 64, 20.0
#: Below this rate of tiny steps accepted, values are noisy: 1/2 where they are not.
NOISY_RAMP = 1 / 3
#: A ramp with at most so many accepted steps, and less than such a share up to the last of them,
#: says nothing of their size: the worker sweeps back down, if it has so many steps left. (If all of
#: them are tiny, the scale of the problem may be.)
FEW_ACCEPTED, FEW_OF_THEM, SWEEP = 5, 0.3, 32
#: Octaves above the size at which acceptance drops, for ten workers and more.
BOOST = 0.75


@lru_cache(maxsize=8)
def ramp_sizes(count: int) -> FloatArray:
    """2^-REACH to 2^REACH, densest near 1."""
    r = [(2 * k + 1) / count - 1 for k in range(count)]
    return np.array([exp(LN2 * REACH * s * abs(s)) for s in r])


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
    return size + log(iterations) / LN2 / 4 + BOOST - 3.2 * few(workers)


def swept(ramp: int, iterations: int) -> int:
    """The steps down again after a ramp with these accept bits; 0: it need not be."""
    rest, accepted, last = iterations - 1 - RAMP, ramp.bit_count(), ramp.bit_length()
    few = accepted <= FEW_ACCEPTED and accepted < FEW_OF_THEM * last
    return rest if few and last > ramp_end(RAMP) and rest >= SWEEP else 0


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
