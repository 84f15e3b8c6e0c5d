"""Randomness as a function of (seed, round, worker, iteration, purpose).

Every number is computed by Philox4x32-10 (Salmon et al., SC 2011) from a 64-bit key, the
seed, and a 128-bit counter that spells out what the number is for:

=========  =====================================
word 0     block: 0, 1, 2, ... inside the stream
word 1     round t
word 2     worker i (``SERVER`` for the server)
word 3     purpose (4 bits), iteration k (28 bits)
=========  =====================================

Distinct streams have distinct counters, so no two can share a block. A block is four
32-bit words a, b, c, d; two 64-bit words a + 2^32 b and c + 2^32 d; or four normal numbers.

Normal numbers are Box-Muller pairs built from + - * / and sqrt only, so that their bits do
not depend on a machine's libm: 32 bits for the radius (tails end at 6.76 sigma, where
1e-11 of the mass is left) and 32 for the angle, with log, sin and cos to 6e-14. The loops are
branch-free, so that LLVM vectorises them.

>>> from desopt import streams
>>> streams.STREAM_VERSION, streams.SERVER == 2**32 - 1
(1, True)
>>> streams.MAX_ROUNDS, streams.MAX_ITERATIONS, streams.MAX_DIMENSION
(4294967296, 268435456, 4294967295)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desopt.contract.types import FloatArray, IndexArray
from desopt.kernels.philox import (
    MAX_ITERATIONS,
    Purpose,
    draw_mixture,
    fill_integers,
    fill_normals,
    fill_words,
)

#: Changes whenever the same key would give other numbers.
STREAM_VERSION = 1

#: The worker number of the server's own streams.
SERVER = 2**32 - 1

#: The most rounds of a run, for which the counter has room.
MAX_ROUNDS = 2**32
#: The most coordinates that a mixture step can draw from.
MAX_DIMENSION = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Stream:
    """The name of one stream of random words.

    >>> stream = streams.Stream(5, 3, 7, 11, streams.Purpose.NORMAL)
    >>> stream.at(12).iteration
    12
    """

    seed: int
    round: int
    worker: int
    iteration: int
    purpose: Purpose

    def of(self, purpose: Purpose) -> Stream:
        """The same worker, round and iteration, for another purpose."""
        return Stream(self.seed, self.round, self.worker, self.iteration, purpose)

    def at(self, iteration: int) -> Stream:
        """The same worker, round and purpose, for another iteration."""
        return Stream(self.seed, self.round, self.worker, iteration, self.purpose)

    def key(self) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]:
        """(counter words 1, 2, 3, key words 0, 1), as the kernels take them."""
        return (
            np.uint64(self.round),
            np.uint64(self.worker),
            np.uint64((self.purpose << 28) | self.iteration),
            np.uint64(self.seed & 0xFFFFFFFF),
            np.uint64(self.seed >> 32),
        )


def words(stream: Stream, count: int) -> NDArray[np.uint64]:
    """``count`` 64-bit words.

    >>> stream = streams.Stream(5, 3, 7, 11, streams.Purpose.NORMAL)
    >>> [hex(word) for word in streams.words(stream, 2)]
    ['0xeb4e57d07b3d52e', '0x185ba3bc8febbc09']
    """
    out = np.empty(count, np.uint64)
    fill_words(out, *stream.key())
    return out


def normals(stream: Stream, count: int, out: FloatArray | None = None) -> FloatArray:
    """``count`` standard normal numbers, in ``out`` if given.

    >>> stream = streams.Stream(5, 3, 7, 11, streams.Purpose.NORMAL)
    >>> streams.normals(stream, 3)
    array([ 2.41224099, -1.0901219 ,  1.05440957])
    """
    out = np.empty(count) if out is None else out
    fill_normals(out, *stream.key())
    return out


def integers(stream: Stream, count: int, high: int) -> IndexArray:
    """``count`` integers uniform on [0, high), high < 2^32 (bias below 2^-32).

    >>> stream = streams.Stream(5, 3, 7, 11, streams.Purpose.NORMAL)
    >>> streams.integers(stream, 5, 1000)
    array([ 57,  95, 986,  11, 937])
    """
    out = np.empty(count, np.int64)
    fill_integers(out, high, *stream.key())
    return out


def generator(stream: Stream) -> np.random.Generator:
    """A NumPy generator for user code, as private to its key as the streams above.

    >>> stream = streams.Stream(5, 3, 7, 11, streams.Purpose.NORMAL)
    >>> streams.generator(stream).integers(10, size=3)
    array([9, 2, 5])
    """
    c1, c2, c3, _, _ = stream.key()
    key = np.array([stream.seed, 0], np.uint64)
    counter = np.array([0, c1, c2, c3], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def mixture_block(
    stream: Stream,
    scale: FloatArray,
    l: int,
    n: int,
    gaussian: bool,
    which: IndexArray | None = None,
) -> tuple[IndexArray, FloatArray]:
    """Mixture steps of a worker's round: coordinates r and scale[k] z, one row per iteration.

    The iterations are those in ``which``, or 0, 1, ... The arrays are column-major: the streams
    of all iterations are drawn side by side.

    >>> stream = streams.Stream(5, 1, 2, 0, streams.Purpose.COORDINATE)
    >>> coordinates, values = streams.mixture_block(stream, np.ones(2), 3, 100, False)
    >>> coordinates, values
    (array([[49, 80, 69],
           [ 4,  2, 21]]), array([[-1.,  1.,  1.],
           [ 1.,  1., -1.]]))
    """
    which = np.arange(scale.size) if which is None else which
    index, step = draw_mixture(which, scale, l, n, gaussian or None, *stream.key())
    return index, step


__all__ = [
    "MAX_DIMENSION",
    "MAX_ITERATIONS",
    "MAX_ROUNDS",
    "SERVER",
    "STREAM_VERSION",
    "Purpose",
    "Stream",
    "generator",
    "integers",
    "mixture_block",
    "normals",
    "words",
]
