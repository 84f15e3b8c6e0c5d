"""Training and test sets, and splits of the rows among workers with heterogeneous data.

The latter return one non-empty array of row numbers per worker, all rows exactly once, for
``data=[(X[rows], y[rows]) for rows in split]``. ``partition`` is the uniform split. ``split`` has
all of them by name.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desopt.contract import checks, streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import FloatArray, IndexArray
from desopt.data.catalogue import DataSet
from desopt.data.sharding import partition

# Stream numbers; catalogue.subset has 1.
_SPLIT, _LABEL, _DIRICHLET, _QUANTITY, _HELD_OUT = 0, 2, 3, 4, 5


def train_test(dataset: DataSet, seed: int = 0, share: float = 0.8) -> tuple[DataSet, DataSet]:
    """Two disjoint random sets, with ``share`` of the rows in the first.

    >>> train, test = data.train_test(data.load("susy-like", rows=100), seed=0)
    >>> len(train.y), len(test.y)
    (80, 20)
    """
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


def held_out(rows: int, share: float) -> tuple[IndexArray, IndexArray]:
    """Row numbers to train on, and a share of them that no run ever trains on.

    They depend on nothing else: whoever runs one training after the other learns nothing of them.
    """
    count = round(share * rows)
    if not 0 < count < rows:
        raise ValueError(f"held_out must leave rows on both sides of {rows}, got {share}")
    order = _shuffled(rows, 0, _HELD_OUT)
    return np.sort(order[count:]), np.sort(order[:count])


def by_label(
    y: NDArray[np.generic], workers: int, seed: int, labels_per_worker: int = 1
) -> list[IndexArray]:
    """Every worker has at most ``labels_per_worker`` distinct labels.

    The rows are cut by label into ``workers * labels_per_worker`` pieces of similar sizes, which
    are assigned to the workers at random.

    >>> y = np.array([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    >>> [y[rows].tolist() for rows in data.by_label(y, workers=2, seed=0)]
    [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
    """
    y = _checked_labels(y)
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
    assigned = _generator(seed, _LABEL).permutation(pieces)
    return [
        np.sort(np.concatenate([cut[i] for i in assigned[worker::workers]]))
        for worker in range(workers)
    ]


def dirichlet(
    y: NDArray[np.generic], workers: int, concentration: float, seed: int
) -> list[IndexArray]:
    """Deal each label's rows in Dirichlet(concentration) shares: skewed if it is small.

    A worker without rows gets one from the worker with the most.

    >>> y = np.array([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    >>> sum(len(rows) for rows in data.dirichlet(y, 2, concentration=0.3, seed=0))
    6
    """
    y = _checked_labels(y)
    _check(y.size, workers, "workers")
    generator = _generator(seed, _DIRICHLET)
    order = _shuffled(y.size, seed, _DIRICHLET)
    shares: list[list[IndexArray]] = [[] for _ in range(workers)]
    for label in np.unique(y):
        rows = order[y[order] == label]
        cuts = _cuts(generator, workers, concentration, rows.size)
        for mine, part in zip(shares, np.split(rows, cuts), strict=True):
            mine.append(part)
    parts = [np.concatenate(mine) for mine in shares]
    largest = [(-part.size, worker) for worker, part in enumerate(parts)]
    heapq.heapify(largest)
    for i in range(workers):
        if parts[i].size == 0:
            size, most = largest[0]
            parts[i], parts[most] = parts[most][-1:], parts[most][:-1]
            heapq.heapreplace(largest, (size + 1, most))
    return [np.sort(part) for part in parts]


def by_quantity(rows: int, workers: int, seed: int, concentration: float = 1.0) -> list[IndexArray]:
    """Deal rows in sizes of 1 plus Dirichlet(concentration) shares of the rest.

    Sizes are skewed if the concentration is small.

    >>> sum(len(rows) for rows in data.by_quantity(20, workers=3, seed=0))
    20
    """
    _check(rows, workers, "workers")
    generator = _generator(seed, _QUANTITY)
    cuts = _cuts(generator, workers, concentration, rows - workers) + np.arange(1, workers)
    return [np.sort(part) for part in np.split(_shuffled(rows, seed, _QUANTITY), cuts)]


#: The names of ``split``, and their meaning; C is a positive number.
PARTITIONS = {
    "iid": "uniform, in parts of equal sizes",
    "sorted": "by label: every worker has rows of one label, as far as there are enough workers",
    "dirichlet-C": "Dirichlet(C) shares of each label",
    "quantity": "sizes by Dirichlet(1) shares",
    "quantity-C": "sizes by Dirichlet(C) shares",
    "sites": "the data set's own sites, one worker each",
}


def split(
    name: str, y: FloatArray, workers: int, seed: int, sites: IndexArray | None = None
) -> list[IndexArray]:
    """The rows of every worker, by the name of a split (``PARTITIONS``).

    >>> y = np.array([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    >>> sum(len(rows) for rows in data.split("sorted", y, workers=3, seed=0))
    6
    """
    kind, concentration = _parsed("partition", name)
    if kind == "iid":
        _check(y.size, workers, "workers")
        return partition(y.size, workers, seed)
    if kind == "sorted":
        return by_label(y, workers, seed)
    if kind == "dirichlet":
        return dirichlet(y, workers, concentration, seed)
    if kind == "quantity":
        return by_quantity(y.size, workers, seed, concentration)
    return _by_site(sites, workers)


def check_partition(argument: str, name: Any) -> str:
    """Refuse a name that ``split`` does not know; dirichlet-0.30 becomes dirichlet-0.3."""
    kind, concentration = _parsed(argument, name)
    return f"{kind}-{concentration:g}" if "-" in name else kind


def _parsed(argument: str, name: Any) -> tuple[str, float]:
    """The kind of split and its concentration."""
    kind, dash, text = name.partition("-") if isinstance(name, str) else ("", "", "")
    pattern = f"{kind}-C" if dash else kind
    try:
        concentration = float(text) if dash else 1.0
    except ValueError:
        concentration = math.nan
    if pattern not in PARTITIONS or not 0 < concentration < math.inf:
        known = ", ".join(PARTITIONS)
        raise ValueError(
            f"{argument} must be one of {known}, with a number above 0 for C; got {name!r}"
        )
    return kind, concentration


def _by_site(sites: IndexArray | None, workers: int) -> list[IndexArray]:
    if sites is None:
        raise ValueError("partition 'sites' is for data sets with sites, such as heart-sites")
    found = np.unique(sites)
    if found.size != workers:
        raise ValueError(f"the rows come from {found.size} sites: workers must be {found.size}")
    return [np.flatnonzero(sites == site) for site in found]


def _checked_labels(y: Any) -> NDArray[np.generic]:
    """One label for each row: a NaN equals no label, and its row would go to nobody."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must be one label for each row, got an array of shape {labels.shape}")
    if (missing := labels != labels).any():
        raise ValueError(f"y is NaN in {missing.sum()} of {labels.size} rows, the first of them "
                         f"{int(missing.argmax())}; remove or label them first")  # fmt: skip
    return labels


def _check(rows: int, parts: int, what: str) -> None:
    checks.whole("rows", rows)
    checks.whole(what, parts)
    if parts > rows:
        raise ValueError(f"{rows} rows cannot be split among {parts} {what}: choose 1 to {rows}")


def _cuts(
    generator: np.random.Generator, workers: int, concentration: float, rows: int
) -> IndexArray:
    """The bounds of Dirichlet shares of the rows."""
    if not (np.isfinite(concentration) and concentration > 0):
        raise ValueError(f"concentration must be a number above 0, got {concentration}")
    shares = generator.dirichlet(np.full(workers, concentration))
    cuts = np.rint(np.cumsum(shares)[:-1] * rows).astype(np.int64)
    return np.minimum(cuts, rows)


def _even_counts(sizes: IndexArray, pieces: int) -> list[int]:
    """The number of pieces per label: repeatedly one more for the label with the largest."""
    counts = [1] * sizes.size
    for _ in range(pieces - sizes.size):
        counts[int(np.argmax(sizes / counts))] += 1
    return counts


def _generator(seed: int, use: int) -> np.random.Generator:
    return streams.generator(
        Stream(checks.seed("seed", seed), 1, streams.SERVER, use, Purpose.DATA)
    )


def _shuffled(rows: int, seed: int, use: int) -> IndexArray:
    stream = Stream(checks.seed("seed", seed), 0, streams.SERVER, use, Purpose.DATA)
    return np.argsort(streams.words(stream, rows), kind="stable")
