"""Rows to a training and a test set, and to workers whose data differ from each other's.

The deals give one array of row numbers per worker, none empty, together all rows once, so that
``data=[(X[rows], y[rows]) for rows in deal]``. ``partition`` is the uniform one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from desopt.contract import streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import IndexArray
from desopt.data.sets import DataSet

# The streams of this file and of sets.subset, which has 1.
_SPLIT, _LABEL, _DIRICHLET, _QUANTITY = 0, 2, 3, 4


def train_test(dataset: DataSet, seed: int = 0, share: float = 0.8) -> tuple[DataSet, DataSet]:
    """Two sets without overlap, ``share`` of the rows in the first, drawn by the seed."""
    count = round(share * dataset.rows) if 0 < share < 1 else 0
    if not 0 < count < dataset.rows:
        raise ValueError(
            f"share must leave rows on both sides of the split of {dataset.rows}, got {share}"
        )
    order = _shuffled(dataset.rows, seed, _SPLIT)
    halves = np.sort(order[:count]), np.sort(order[count:])
    names = f"training share {share:g}", f"test share {1 - share:g}"
    train, test = (
        dataset.take(rows, f"{name}, seed {seed}") for rows, name in zip(halves, names, strict=True)
    )
    return train, test


def by_label(
    y: NDArray[np.generic], workers: int, seed: int, labels_per_worker: int = 1
) -> list[IndexArray]:
    """Every worker sees at most so many different labels.

    The rows of each label are cut into pieces as even as can be, in all ``workers`` times
    ``labels_per_worker``, and the pieces dealt at random.
    """
    labels, sizes = np.unique(y, return_counts=True)
    pieces = workers * labels_per_worker
    _check(y.size, pieces, "pieces (workers x labels_per_worker)")
    if labels.size > pieces:
        raise ValueError(
            f"{labels.size} different labels do not fit {workers} workers with "
            f"{labels_per_worker} each; allow more workers or labels per worker"
        )
    order = _shuffled(y.size, seed, _LABEL)
    cut = [
        piece
        for label, count in zip(labels, _even_counts(sizes, pieces), strict=True)
        for piece in np.array_split(order[y[order] == label], count)
    ]
    deal = _generator(seed, _LABEL).permutation(pieces)
    return [
        np.sort(np.concatenate([cut[i] for i in deal[worker::workers]]))
        for worker in range(workers)
    ]


def dirichlet(
    y: NDArray[np.generic], workers: int, concentration: float, seed: int
) -> list[IndexArray]:
    """The shares of a label's rows are Dirichlet(concentration): small is skewed, large even.

    A worker that would be left without rows gets one from the worker with the most.
    """
    _check(y.size, workers, "workers")
    generator = _generator(seed, _DIRICHLET)
    order = _shuffled(y.size, seed, _DIRICHLET)
    dealt: list[list[IndexArray]] = [[] for _ in range(workers)]
    for label in np.unique(y):
        rows = order[y[order] == label]
        cuts = _cuts(generator, workers, concentration, rows.size)
        for mine, part in zip(dealt, np.split(rows, cuts), strict=True):
            mine.append(part)
    parts = [np.concatenate(mine) for mine in dealt]
    for i in range(workers):
        if parts[i].size == 0:
            most = max(range(workers), key=lambda j: parts[j].size)
            parts[i], parts[most] = parts[most][-1:], parts[most][:-1]
    return [np.sort(part) for part in parts]


def by_quantity(rows: int, workers: int, seed: int, concentration: float = 1.0) -> list[IndexArray]:
    """One row each, and of the others Dirichlet(concentration) shares: small is skewed."""
    _check(rows, workers, "workers")
    generator = _generator(seed, _QUANTITY)
    cuts = _cuts(generator, workers, concentration, rows - workers) + np.arange(1, workers)
    return [np.sort(part) for part in np.split(_shuffled(rows, seed, _QUANTITY), cuts)]


def _check(rows: int, parts: int, what: str) -> None:
    if not 1 <= parts <= rows:
        raise ValueError(
            f"cannot deal {rows} rows to {parts} {what}: give at least 1 and at most one per row"
        )


def _cuts(
    generator: np.random.Generator, workers: int, concentration: float, rows: int
) -> IndexArray:
    """Where to cut so many rows into Dirichlet shares."""
    if not (np.isfinite(concentration) and concentration > 0):
        raise ValueError(f"concentration must be a number above 0, got {concentration}")
    shares = generator.dirichlet(np.full(workers, concentration))
    cuts = np.rint(np.cumsum(shares)[:-1] * rows).astype(np.int64)
    return np.minimum(cuts, rows)


def _even_counts(sizes: IndexArray, pieces: int) -> list[int]:
    """Into how many pieces to cut each label: always the one whose pieces are largest."""
    counts = [1] * sizes.size
    for _ in range(pieces - sizes.size):
        counts[int(np.argmax(sizes / counts))] += 1
    return counts


def _generator(seed: int, use: int) -> np.random.Generator:
    return streams.generator(Stream(seed, 1, streams.SERVER, use, Purpose.DATA))


def _shuffled(rows: int, seed: int, use: int) -> IndexArray:
    words = streams.words(Stream(seed, 0, streams.SERVER, use, Purpose.DATA), rows)
    return np.argsort(words, kind="stable")
