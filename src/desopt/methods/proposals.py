"""The steps alpha_k u_k of one worker's round, as a description that compiled searches understand.

======================  ==============================================  =====================
proposals               step k                                          made of
======================  ==============================================  =====================
MixtureProposals        l coordinates, scale_k z_j each                 two streams of words
GaussianProposals       alpha_k u_k, u_k ~ N(0, I)                      a stream of normals
VectorProposals         alpha_k vector(key, k, n)                       a sampler's vectors
======================  ==============================================  =====================

A search draws its steps from them; a server turns accept bits back into points with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from desopt.contract import streams
from desopt.contract.scattered import Scattered
from desopt.contract.space import Box
from desopt.contract.streams import Stream
from desopt.contract.types import BoolArray, ByteArray, FloatArray, IndexArray, Step
from desopt.kernels.mixture import mixture_changes
from desopt.kernels.steps import apply_step, gaussian_rows, replay_gaussian, replay_sparse

#: Answers rebuilt in one compiled call, and the most draws for them.
_AT_ONCE, _DRAWS = 64, 2**22

#: Numbers in a block of dense steps.
_BLOCK = 2**16


class Key(NamedTuple):
    """The round of a worker. Together with the iteration it identifies every draw.

    >>> desopt.samplers.Key(seed=1, round=2, worker=3)
    Key(seed=1, round=2, worker=3)
    """

    seed: int
    round: int
    worker: int


#: The first of several steps, their coordinates (None: all) and their changes, a row for each.
Block: TypeAlias = tuple[int, NDArray[np.int64] | None, FloatArray]


class Proposals(Protocol):
    """K steps in n coordinates."""

    @property
    def count(self) -> int:
        """K."""

    @property
    def at_once(self) -> int:
        """Workers per call of ``changes``, each call on a thread of its own; 0: no threads."""

    def steps(self) -> Iterator[Step]:
        """The steps in order, with coordinates in 0..n-1."""

    def blocks(self) -> Iterator[Block]:
        """The same steps as the rows of matrices."""

    def replay(self, v: FloatArray, accepted: BoolArray, box: Box | None = None) -> None:
        """v += step, in place, for every accepted step; projected onto the box after each."""

    def changes(
        self, x: FloatArray, masks: ByteArray, workers: IndexArray, box: Box | None = None
    ) -> Iterator[Step]:
        """v_K - x of several workers: masks[i] are the packed accept bits of workers[i].

        Seed and round are those of the proposals, their worker is not used.
        """


@dataclass(frozen=True, slots=True)
class MixtureProposals:
    """Steps of l coordinates drawn with replacement, each changed by scale[k] z.

    z ~ N(0, 1) where ``gaussian``, else -1 or +1. ``stream`` is that of the coordinates.
    """

    stream: Stream
    scale: FloatArray
    l: int
    gaussian: bool
    n: int

    @property
    def count(self) -> int:
        return self.scale.size

    @property
    def at_once(self) -> int:
        return max(1, min(_AT_ONCE, _DRAWS // (self.scale.size * self.l)))

    def steps(self) -> Iterator[Step]:
        drawn = streams.mixture_block(self.stream, self.scale, self.l, self.n, self.gaussian)
        return zip(*map(np.ascontiguousarray, drawn), strict=True)

    def blocks(self) -> Iterator[Block]:
        drawn = streams.mixture_block(self.stream, self.scale, self.l, self.n, self.gaussian)
        yield 0, *map(np.ascontiguousarray, drawn)  # type: ignore[misc]

    def replay(self, v: FloatArray, accepted: BoolArray, box: Box | None = None) -> None:
        if isinstance(v, Scattered):
            columns, moved = self._moved(v, accepted)
            v.put(columns, moved)
            return
        which = np.flatnonzero(accepted)  # the others are not even drawn
        scale = self.scale[which]
        drawn = streams.mixture_block(self.stream, scale, self.l, self.n, self.gaussian, which)
        if box is None:
            replay_sparse(v, *drawn)
        else:
            add_in_box(v, zip(*map(np.ascontiguousarray, drawn), strict=True), box)

    def changes(
        self, x: FloatArray, masks: ByteArray, workers: IndexArray, box: Box | None = None
    ) -> Iterator[Step]:
        if isinstance(x, Scattered):
            for accepted, worker in zip(unpacked(masks, self.count), workers.tolist(), strict=True):
                mine = replace(self, stream=replace(self.stream, worker=worker))
                moved, values = mine._moved(x, accepted)
                yield moved, values - x[moved]
            return
        c1, _, c3, k0, k1 = self.stream.key()
        columns, change, ends = mixture_changes(
            x,
            self.scale,
            self.l,
            self.gaussian or None,
            None if box is None else box.arrays(),
            masks,
            workers,
            c1,
            c3,
            k0,
            k1,
        )
        begin = 0
        for end in ends.tolist():
            yield columns[begin:end], change[begin:end]
            begin = end

    def _moved(self, x: Scattered, accepted: BoolArray) -> tuple[IndexArray, FloatArray]:
        """The coordinates of all accepted steps, and v_K there."""
        which = np.flatnonzero(accepted)
        scale = self.scale[which]
        index, step = streams.mixture_block(
            self.stream, scale, self.l, self.n, self.gaussian, which
        )
        columns, where = np.unique(index, return_inverse=True)
        v = x[columns]
        replay_sparse(v, where.reshape(index.shape), step)
        return columns, v


@dataclass(frozen=True, slots=True)
class GaussianProposals:
    """Steps alpha[k] u_k, u_k the normal vector of iteration k of the stream."""

    stream: Stream
    alpha: FloatArray
    n: int
    at_once: ClassVar[int] = 0

    @property
    def count(self) -> int:
        return self.alpha.size

    def steps(self) -> Iterator[Step]:
        for k in range(self.alpha.size):
            yield None, self.alpha[k] * streams.normals(self.stream.at(k), self.n)

    def blocks(self) -> Iterator[Block]:
        rows = max(1, _BLOCK // self.n)
        for first in range(0, self.count, rows):
            step = np.empty((min(rows, self.count - first), self.n))
            gaussian_rows(step, self.alpha, first, *self.stream.key())
            yield first, None, step

    def replay(self, v: FloatArray, accepted: BoolArray, box: Box | None = None) -> None:
        replay_normals(v, np.where(accepted, self.alpha, 0.0), self.stream, box)

    def changes(
        self, x: FloatArray, masks: ByteArray, workers: IndexArray, box: Box | None = None
    ) -> Iterator[Step]:
        for accepted, worker in zip(unpacked(masks, self.count), workers.tolist(), strict=True):
            mine = replace(self, stream=replace(self.stream, worker=worker))
            yield _change(mine, x, accepted, box)


@dataclass(frozen=True, slots=True)
class VectorProposals:
    """Steps alpha[k] vector(key, k, n), checked: compiled code does not check them again."""

    vector: Callable[[Key, int, int], Step]
    key: Key
    alpha: FloatArray
    n: int
    at_once: ClassVar[int] = 0

    @property
    def count(self) -> int:
        return self.alpha.size

    def steps(self) -> Iterator[Step]:
        return map(self._step, range(self.alpha.size))

    def blocks(self) -> Iterator[Block]:
        for k, (index, step) in enumerate(self.steps()):
            yield k, None if index is None else index[np.newaxis], step[np.newaxis]

    def replay(self, v: FloatArray, accepted: BoolArray, box: Box | None = None) -> None:
        # the steps that were rejected are not even drawn
        add_in_box(v, map(self._step, np.flatnonzero(accepted).tolist()), box)

    def _step(self, k: int) -> Step:
        index, u = self.vector(self.key, k, self.n)
        return as_step(index, self.alpha[k] * u, self.n)

    def changes(
        self, x: FloatArray, masks: ByteArray, workers: IndexArray, box: Box | None = None
    ) -> Iterator[Step]:
        for accepted, worker in zip(unpacked(masks, self.count), workers.tolist(), strict=True):
            mine = replace(self, key=self.key._replace(worker=worker))
            yield _change(mine, x, accepted, box)


def as_step(index: Any, values: Any, n: int) -> Step:
    """The step in the form that compiled code takes; a ValueError if it leaves n coordinates."""
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


def unpacked(masks: ByteArray, count: int) -> BoolArray:
    """Packed accept bits as rows of booleans."""
    return np.unpackbits(masks, axis=1, count=count, bitorder="little").astype(np.bool_)


def add_in_box(v: FloatArray, steps: Iterable[Step], box: Box | None) -> None:
    """v += step for every step, projected onto the box after each."""
    for index, step in steps:
        if index is None:
            v += step
        else:
            apply_step(v, index, step, np.empty(step.size))
        if box is not None:
            box.project_at(v, index)


def replay_normals(v: FloatArray, scale: FloatArray, stream: Stream, box: Box | None) -> None:
    """v += scale[k] u_k where that is not 0, u_k the stream's normals; projected after each."""
    if box is None:
        replay_gaussian(v, scale, *stream.key())
    else:
        moved = np.flatnonzero(scale).tolist()
        steps = (scale[k] * streams.normals(stream.at(k), v.size) for k in moved)
        add_in_box(v, ((None, step) for step in steps), box)


def _change(proposals: Proposals, x: FloatArray, accepted: BoolArray, box: Box | None) -> Step:
    """v_K - x as a dense step."""
    v = x.copy()
    proposals.replay(v, accepted, box)
    with np.errstate(over="ignore", invalid="ignore"):
        return None, v - x
