"""Generated data sets with the shape of real ones that are not available.

Their names end in ``-like``. Rows are generated in blocks with a random stream each, so the first
rows of a twin do not depend on its size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from desopt.contract import streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import BoolArray, FloatArray, IndexArray
from desopt.data.matrices import Matrix, csr
from desopt.system.progress import Progress

BLOCK = 1 << 14

#: Incremented whenever the same seed would give different rows.
VERSION = 1

# Columns are drawn with density 1 / (rank + _OFFSET): a few occur in every fifth row, most rarely.
_OFFSET = 30.0
_SPREAD = 0.6  # of the logarithm of row lengths, about that of text
_OWN = 1 / 5  # the share of words from the label's own list
_FLIPPED = 0.03  # the share of labels that are wrong

# The kinds of the 18 columns of collision events: momenta and masses, which are positive and
# skewed; one mass that is often zero; pseudorapidities; angles.
_POSITIVE = np.array([0, 3, 6, 8, 9, 10, 12, 13, 14, 16])
_OFTEN_ZERO = 11
_ANGLES = np.array([2, 5, 7, 15, 17])


@dataclass(frozen=True)
class Twin:
    """The published shape of the real data set."""

    rows: int
    n: int
    nonzeros: float  # per row


def sparse_twin(rows: int, n: int, nonzeros: float, seed: int = 0) -> tuple[Matrix, FloatArray]:
    """A CSR matrix with about ``nonzeros`` per row and rows of unit length, and labels.

    Frequencies of columns and lengths of rows vary as in text. One word in five comes from a list
    specific to the label. 3 % of the labels are flipped.
    """
    scale = _scale_for(nonzeros, n, _generator(seed, 0, 1))
    blocks, labels = [], np.empty(rows)
    with Progress("generating text-like data", rows) as progress:
        for start in range(0, rows, BLOCK):
            generator = _generator(seed, start // BLOCK)
            positive = generator.random(BLOCK) < 0.5
            block = _text_block(generator, positive, n, scale)
            positive ^= generator.random(BLOCK) < _FLIPPED
            count = min(BLOCK, rows - start)
            labels[start : start + count] = np.where(positive, 1.0, -1.0)[:count]
            blocks.append(block if count == BLOCK else block[:count])
            progress.advance(count)
    return _stacked(blocks, n), labels


def dense_twin(rows: int, n: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """A dense matrix with entries in [0, 1] and labels."""
    generator = np.random.default_rng(seed)
    X = generator.random((rows, n))
    score = (X - 0.5) @ generator.standard_normal(n)
    flipped = generator.random(rows) < 0.1
    return X, np.where((score > np.median(score)) ^ flipped, 1.0, -1.0)


def collision_twin(rows: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """18 correlated, mostly skewed columns, and labels that are not linearly separable.

    The columns are transformed normal numbers with five common factors. The log-odds of a label
    are linear in these, plus one product.
    """
    model = _generator(seed, 0, 1)
    factors = model.standard_normal((5, 18)) * np.array([0.9, 0.6, 0.5, 0.4, 0.3])[:, None]
    factors /= np.sqrt(1.0 + (factors**2).sum(axis=0))
    own = np.sqrt(1.0 - (factors**2).sum(axis=0))
    weights = model.standard_normal(18)
    weights *= 2.2 / np.sqrt(((factors @ weights) ** 2).sum() + ((own * weights) ** 2).sum())
    X, y = np.empty((rows, 18)), np.empty(rows)
    with Progress("generating susy-like", rows) as progress:
        for start in range(0, rows, BLOCK):
            part = slice(start, min(rows, start + BLOCK))
            generator = _generator(seed, start // BLOCK)
            Z = generator.standard_normal((BLOCK, 5)) @ factors
            Z += own * generator.standard_normal((BLOCK, 18))
            positive = _signal(Z, weights, generator)
            X[part] = _events(Z)[: part.stop - start]
            y[part] = np.where(positive, 1.0, -1.0)[: part.stop - start]
            progress.advance(part.stop - start)
    return X, y


TWINS = {
    "susy-like": Twin(5_000_000, 18, 17.8),
    "real-sim-like": Twin(72_309, 20_958, 51.3),
    "rcv1-like": Twin(677_399, 47_236, 73.2),
}


def generate(name: str, rows: int, seed: int) -> tuple[Matrix, FloatArray]:
    """The first rows of a twin."""
    twin = TWINS[name]
    if name == "susy-like":
        return collision_twin(rows, seed)
    return sparse_twin(rows, twin.n, twin.nonzeros, seed)


def _generator(seed: int, block: int, use: int = 0) -> np.random.Generator:
    return streams.generator(Stream(seed, block, streams.SERVER, 16 + use, Purpose.DATA))


def _signal(Z: FloatArray, weights: FloatArray, generator: np.random.Generator) -> BoolArray:
    odds = Z @ weights + 0.7 * Z[:, 6] * Z[:, 12] - 0.25
    chosen: BoolArray = generator.random(len(Z)) * (1.0 + np.exp(-odds)) < 1.0
    return chosen


def _events(Z: FloatArray) -> FloatArray:
    """Normal numbers to columns of collision events."""
    X = Z.copy()
    X[:, _POSITIVE] = np.exp(0.6 * Z[:, _POSITIVE] - 0.18)  # of mean 1
    X[:, _OFTEN_ZERO] = np.maximum(Z[:, _OFTEN_ZERO] + 0.8, 0.0)  # zero in a fifth of the rows
    X[:, _ANGLES] = 1.74 * np.tanh(0.9 * Z[:, _ANGLES])  # about uniform
    return X


def _entries(
    generator: np.random.Generator, positive: BoolArray, n: int, scale: float
) -> IndexArray:
    """row * n + column of each entry, sorted, none twice."""
    lengths = scale * np.exp(_SPREAD * generator.standard_normal(positive.size))
    counts = np.clip(lengths.astype(np.int64), 1, 4 * n)
    row = np.repeat(np.arange(positive.size), counts)
    rank = _OFFSET * np.expm1(np.log1p(n / _OFFSET) * generator.random(row.size))
    spread = 2_654_435_761  # a prime, so that the map of ranks to columns is one to one
    column = np.minimum(rank.astype(np.int64), n - 1) * spread
    own = generator.random(row.size) < _OWN
    column += own * (np.repeat(positive, counts) * (n // 3) + n // 3)  # another list of columns
    entries: IndexArray = np.sort(row * n + column % n)
    return entries[np.flatnonzero(np.diff(entries, prepend=-1))]


def _scale_for(nonzeros: float, n: int, generator: np.random.Generator) -> float:
    """The median number of draws per row that gives this many distinct columns on average."""
    scale, positive = nonzeros, np.arange(8000) % 2 == 0
    for _ in range(4):
        scale *= nonzeros * positive.size / _entries(generator, positive, n, scale).size
    return scale


def _text_block(
    generator: np.random.Generator, positive: BoolArray, n: int, scale: float
) -> Matrix:
    entries = _entries(generator, positive, n, scale)
    indptr = np.searchsorted(entries, n * np.arange(positive.size + 1))
    data = generator.standard_exponential(entries.size) + 0.3
    lengths = np.sqrt(np.add.reduceat(data * data, indptr[:-1]))
    data /= np.repeat(lengths, np.diff(indptr))
    return csr(data, (entries % n).astype(np.int32), indptr.astype(np.int32), n)


def _stacked(blocks: list[Matrix], n: int) -> Matrix:
    ends = np.cumsum([0, *(block.nnz for block in blocks)])
    small = np.int32 if ends[-1] < 2**31 else np.int64
    indptr = np.concatenate(
        [[0], *(block.indptr[1:] + end for block, end in zip(blocks, ends[:-1], strict=True))]
    ).astype(small)
    data = np.concatenate([block.data for block in blocks])
    return csr(data, np.concatenate([block.indices for block in blocks]), indptr, n)
