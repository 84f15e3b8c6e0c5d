"""Where mutation vectors come from: Gaussian, the paper's two mixtures, or a user's own.

====================  =====================================================  ============
sampler               u                                                      cost
====================  =====================================================  ============
Gaussian              N(0, I)                                                O(n)
MixtureGaussian       sqrt(n/l) sum_j e_{r_j} z_j,  z_j ~ N(0, 1)            O(l)
MixtureRademacher     sqrt(n/l) sum_j e_{r_j} z_j,  z_j = +-1                O(l)
====================  =====================================================  ============

with r_j uniform on the n coordinates, with replacement (Definitions 1 and 2 of the paper).
All have mean 0 and covariance I. A sampler is also what turns accept bits back into a point,
since only it can repeat its draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from desopt.contract import streams
from desopt.contract.errors import user_code
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import (
    BoolArray,
    ByteArray,
    Crew,
    FloatArray,
    IndexArray,
    LocalFunction,
    Searched,
    Step,
)
from desopt.kernels.mixture import mixture_change, mixture_changes
from desopt.kernels.steps import add_at, apply_step, replay_gaussian, replay_sparse


class Key(NamedTuple):
    """Whose round it is: together with the iteration this names every draw."""

    seed: int
    round: int
    worker: int


def as_step(index: Any, values: Any, n: int) -> Step:
    """A step within n coordinates, whoever drew it: compiled code does not look at that again."""
    values = np.asarray(values, np.float64)
    if index is None:
        if values.shape != (n,):
            raise ValueError(
                f"sampler must return {n} numbers or (coordinates, values), got shape "
                f"{values.shape}"
            )
        return None, values
    index = np.asarray(index, np.int64)
    if index.ndim != 1 or index.shape != values.shape:
        raise ValueError(
            "sampler must return (coordinates, values) of one length, "
            f"got shapes {index.shape} and {values.shape}"
        )
    if index.size and not (index.min() >= 0 and index.max() < n):
        raise ValueError(f"sampler returned a coordinate outside 0..{n - 1}")
    return index, values


class Sampler(ABC):
    """What DES needs of a distribution over mutation vectors."""

    #: Whether a step changes every coordinate. The final point is then worth handing over
    #: in memory; replaying l coordinates per step is cheaper than keeping n numbers.
    dense = True

    @abstractmethod
    def vector(self, key: Key, k: int, n: int) -> Step:
        """The mutation vector of iteration k: (coordinates or None, values)."""

    def search(self, f: LocalFunction, alpha: FloatArray, key: Key) -> BoolArray:
        """Run the K iterations of Algorithm 2 or 3 (lines 7-14) on f; say which were accepted."""
        return f.search(self._steps(alpha, key, f.size), alpha.size)

    def replay(self, v: FloatArray, alpha: FloatArray, accepted: BoolArray, key: Key) -> None:
        """Take v from x to v_K by the accepted steps, in place."""
        for (index, step), ok in zip(self._steps(alpha, key, v.size), accepted, strict=True):
            if ok:
                index, step = as_step(index, step, v.size)
            if ok and index is None:
                v += step
            elif ok:
                apply_step(v, index, step, np.empty(step.size))

    def displace(
        self, total: FloatArray, x: FloatArray, alpha: FloatArray, accepted: BoolArray, key: Key
    ) -> None:
        """total += v_K - x."""
        v = x.copy()
        self.replay(v, alpha, accepted, key)
        with np.errstate(over="ignore", invalid="ignore"):
            total += v - x

    def settings(self) -> dict[str, Any]:
        """Name and parameters, for the journal's header."""
        return {"name": type(self).__name__}

    def _steps(self, alpha: FloatArray, key: Key, n: int) -> Iterator[Step]:
        for k in range(alpha.size):
            index, u = self.vector(key, k, n)
            yield index, alpha[k] * u


@dataclass(frozen=True)
class Gaussian(Sampler):
    """u ~ N(0, I)."""

    def vector(self, key: Key, k: int, n: int) -> Step:
        return None, streams.normals(Stream(*key, k, Purpose.NORMAL), n)

    def search(self, f: LocalFunction, alpha: FloatArray, key: Key) -> BoolArray:
        return f.search_gaussian(Stream(*key, 0, Purpose.NORMAL), alpha)

    def replay(self, v: FloatArray, alpha: FloatArray, accepted: BoolArray, key: Key) -> None:
        replay_gaussian(v, np.where(accepted, alpha, 0.0), *Stream(*key, 0, Purpose.NORMAL).key())


@dataclass(frozen=True)
class Mixture(Sampler):
    """l coordinates drawn with replacement, each changed by sqrt(n/l) z."""

    l: int = 8
    dense = False
    gaussian = False

    def __post_init__(self) -> None:
        if not isinstance(self.l, int) or self.l < 1:
            raise ValueError(f"mixture must be a whole number of coordinates >= 1, got {self.l!r}")

    def vector(self, key: Key, k: int, n: int) -> Step:
        stream = Stream(*key, k, Purpose.COORDINATE)
        index = streams.integers(stream, self.l, n)
        if self.gaussian:
            z = streams.normals(Stream(*key, k, Purpose.NORMAL), self.l)
        else:
            z = np.where(streams.words(stream, self.l) & np.uint64(1), 1.0, -1.0)
        return index, math.sqrt(n / self.l) * z

    def search(self, f: LocalFunction, alpha: FloatArray, key: Key) -> BoolArray:
        stream = Stream(*key, 0, Purpose.COORDINATE)
        return f.search_mixture(stream, self._scale(alpha, f.size), self.l, self.gaussian)

    def search_together(
        self, crew: Crew, x: FloatArray, alpha: FloatArray, key: Key, workers: Sequence[int]
    ) -> Iterator[Searched]:
        """``search`` for several workers; the key says seed and round."""
        stream = Stream(*key, 0, Purpose.COORDINATE)
        scale = self._scale(alpha, x.size)
        return crew.search_mixtures(x, workers, stream, scale, self.l, self.gaussian)

    def replay(self, v: FloatArray, alpha: FloatArray, accepted: BoolArray, key: Key) -> None:
        replay_sparse(v, *self._accepted(alpha, accepted, key, v.size))

    def displace(
        self, total: FloatArray, x: FloatArray, alpha: FloatArray, accepted: BoolArray, key: Key
    ) -> None:
        add_at(total, *mixture_change(x, *self._accepted(alpha, accepted, key, x.size)))

    def changes(
        self, x: FloatArray, alpha: FloatArray, masks: ByteArray, workers: IndexArray, key: Key
    ) -> Iterator[tuple[IndexArray, FloatArray]]:
        """(coordinates, v_K - x there) of many workers' packed accept bits, without the GIL.

        The key says seed and round; its worker does not matter.
        """
        c1, _, c3, k0, k1 = Stream(*key, 0, Purpose.COORDINATE).key()
        scale = self._scale(alpha, x.size)
        columns, change, ends = mixture_changes(
            x, scale, self.l, self.gaussian or None, masks, workers, c1, c3, k0, k1
        )
        begin = 0
        for end in ends.tolist():
            yield columns[begin:end], change[begin:end]
            begin = end

    def settings(self) -> dict[str, Any]:
        return {"name": type(self).__name__, "l": self.l}

    def _accepted(
        self, alpha: FloatArray, accepted: BoolArray, key: Key, n: int
    ) -> tuple[IndexArray, FloatArray]:
        """The accepted steps; the others are not even drawn."""
        which = np.flatnonzero(accepted)
        stream = Stream(*key, 0, Purpose.COORDINATE)
        scale = self._scale(alpha[which], n)
        return streams.mixture_block(stream, scale, self.l, n, self.gaussian, which)

    def _scale(self, alpha: FloatArray, n: int) -> FloatArray:
        """alpha_k sqrt(n/l), which multiplies z."""
        return alpha * math.sqrt(n / self.l)


@dataclass(frozen=True)
class MixtureGaussian(Mixture):
    """Definition 1: z_j ~ N(0, 1)."""

    gaussian = True


@dataclass(frozen=True)
class MixtureRademacher(Mixture):
    """Definition 2: z_j = -1 or 1 with 50 % chance."""


@dataclass(frozen=True)
class CustomSampler(Sampler):
    """A user's function ``draw(rng, n)``: a vector of n numbers, or (coordinates, values).

    It should have mean 0 and covariance I, as the theory asks, and may use no randomness but
    ``rng``, a NumPy generator keyed by (seed, round, worker, iteration).
    """

    draw: Callable[[np.random.Generator, int], Any]

    def vector(self, key: Key, k: int, n: int) -> Step:
        with user_code("sampler"):
            drawn = self.draw(streams.generator(Stream(*key, k, Purpose.USER)), n)
        if isinstance(drawn, tuple) and len(drawn) == 2:
            return as_step(*drawn, n)
        return as_step(None, drawn, n)

    def settings(self) -> dict[str, Any]:
        return {"name": "CustomSampler", "draw": getattr(self.draw, "__qualname__", "draw")}


#: The samplers that a journal can name.
SAMPLERS: dict[str, type[Sampler]] = {
    cls.__name__: cls for cls in (Gaussian, MixtureGaussian, MixtureRademacher)
}


def restore_sampler(settings: dict[str, Any]) -> Sampler:
    """The sampler that these ``settings()`` describe."""
    values = dict(settings)
    name = values.pop("name")
    if name not in SAMPLERS:
        raise ValueError(
            f"this run used a sampler of the user's own ({values}); pass it again: "
            "desopt.replay(journal, round, sampler=...)"
        )
    return SAMPLERS[name](**values)


def as_sampler(sampler: Any) -> Sampler | None:
    """The ``sampler`` argument: a Sampler, the user's draw(rng, n), or None."""
    if sampler is None or isinstance(sampler, Sampler):
        return sampler
    if callable(sampler) and not isinstance(sampler, type):
        return CustomSampler(sampler)
    raise TypeError(f"sampler must be a Sampler or a function draw(rng, n), got {sampler!r}")
