"""What the user passes as data becomes a sequence of M shards; what can be asked of all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from desopt.contract import checks, streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import IndexArray
from desopt.data.digests import Digest
from desopt.data.gather import ENOUGH_PASSES, fits_in_memory
from desopt.data.shards import (
    Draw,
    Loader,
    Loaders,
    NoData,
    Partitioned,
    Rows,
    Shard,
    as_rows,
)


def partition(rows: int, workers: int, seed: int) -> list[IndexArray]:
    """A uniform random partition of the row numbers, in parts whose sizes differ by at most 1.

    >>> [part.tolist() for part in data.partition(5, workers=2, seed=0)]
    [[2, 3, 4], [0, 1]]
    """
    rows, workers = checks.whole("rows", rows, 0), checks.whole("workers", workers)
    stream = Stream(checks.seed("seed", seed), 0, streams.SERVER, 0, Purpose.PARTITION)
    order = np.argsort(streams.words(stream, rows), kind="stable")
    return [np.sort(part) for part in np.array_split(order, workers)]


def as_shards(data: Any, workers: int, seed: int) -> Sequence[Shard]:
    """The ``data`` argument as M shards. A list holds one shard per worker.

    >>> shards = data.as_shards(np.arange(10.0), workers=2, seed=0)
    >>> len(shards), data.total_rows(shards)
    (2, 10)
    """
    if data is None:
        return [NoData()] * workers
    if isinstance(data, Partitioned):
        return data
    if callable(data):
        return _from_callable(data, workers)
    if isinstance(data, list):
        if not data:
            raise ValueError("data is an empty list; a list must hold one shard per worker")
        done: dict[int, Any] = {}  # shards of one data set share their arrays
        return [_as_shard(item, f"data[{i}]", done) for i, item in enumerate(data)]
    whole = as_rows(data, "data")
    if whole.size < workers:
        raise ValueError(
            f"data has {whole.size} rows for {workers} workers; every worker needs at least one: "
            "use fewer workers"
        )
    parts = partition(whole.size, workers, seed)
    bounds = np.cumsum([0, *map(len, parts)])
    return Partitioned(whole.arrays, np.concatenate(parts), bounds, whole.single, whole.columns)


def _from_callable(data: Callable[..., Any], workers: int) -> Sequence[Shard]:
    arity = _required_arguments(data)
    if arity == 2:
        return [Draw(data)] * workers
    if arity == 1:
        return Loaders(data, workers)
    raise TypeError(
        "data as a function must be a sampler draw(rng, b) or a loader load(worker), "
        f"got one with {arity} required arguments; for loaders without arguments pass a list"
    )


def _as_shard(item: Any, where: str, done: dict[int, Any]) -> Shard:
    if not callable(item):
        return as_rows(item, where, done)
    arity = _required_arguments(item)
    if arity == 2:
        return Draw(item)
    if arity == 0:
        return Loader(item)
    raise TypeError(f"{where} must be load() or draw(rng, b), got {arity} required arguments")


def _required_arguments(function: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def side_by_side(shards: Sequence[Shard], passes: float) -> Sequence[Shard]:
    """The shards, each worker's rows side by side where that saves time (see ``data.gather``).

    ``passes``: how many times the run is expected to read all rows.

    >>> shards = data.as_shards(np.arange(10.0), workers=2, seed=0)
    >>> data.fingerprint(data.side_by_side(shards, 100.0)) == data.fingerprint(shards)
    True
    """
    if not isinstance(shards, Partitioned) or shards.order is not None or len(shards) == 1:
        return shards
    pays = passes >= ENOUGH_PASSES and fits_in_memory(shards.arrays)
    return shards.gathered() if pays else shards


def distinct(shards: Sequence[Shard]) -> Sequence[Shard]:
    """The shards to inspect: all, or only one if a function loads the data of any worker.

    >>> len(data.distinct(data.Loaders(lambda worker: np.ones(3), 1000)))
    1
    """
    return shards[:1] if isinstance(shards, Loaders) else shards


def restricted(shards: Sequence[Shard], workers: Container[int]) -> Sequence[Shard]:
    """The shards of these workers, and ``NoData`` for all others; ``Loaders`` hold no data.

    >>> shards = data.as_shards(np.arange(10.0), workers=2, seed=0)
    >>> [type(shard).__name__ for shard in data.restricted(shards, {1})]
    ['NoData', 'Rows']
    """
    if isinstance(shards, Loaders):
        return shards
    nothing = NoData()
    return [shard if worker in workers else nothing for worker, shard in enumerate(shards)]


def shares(shards: Sequence[Shard]) -> tuple[int, ...]:
    """The rows of each worker; empty if the size of a shard is unknown on this side.

    >>> data.shares(data.as_shards(np.arange(7.0), workers=2, seed=0))
    (4, 3)
    """
    sizes = [shard.size for shard in distinct(shards)]
    return () if None in sizes else tuple(size for size in sizes if size is not None)


def total_rows(shards: Sequence[Shard]) -> int | None:
    """N, or None if the size of a shard is unknown on this side.

    >>> data.total_rows(data.as_shards(np.arange(7.0), workers=2, seed=0))
    7
    """
    return sum(shares(shards)) or None


#: Names of kinds of data in fingerprints, as journals have them.
_KINDS: dict[type[Any], str] = {NoData: "Nothing", Partitioned: "Dealt"}


def fingerprint(shards: Sequence[Shard]) -> str:
    """A digest of the data: the rows of every worker, and all numbers in them.

    It does not depend on how the numbers are stored. Loaders and samplers count by their kind
    only.

    >>> data.fingerprint(data.as_shards(np.arange(7.0), workers=2, seed=0))
    '44304efa7de6e94a359d2657de0db464'
    """
    digest = Digest()
    if isinstance(shards, Partitioned):
        # By the caller's row numbers, in whatever order the rows are stored.
        rows = shards.rows if shards.order is None else shards.order
        digest.add(_KINDS[Partitioned], rows, shards.bounds)
        digest.add(*shards.arrays, order=shards.order)
        return digest.hex()
    for shard in distinct(shards):
        digest.add(_KINDS.get(type(shard), type(shard).__name__), str(shard.size), *shard.arrays)
        if isinstance(shard, Rows) and shard.rows is not None:
            digest.add(shard.rows)
    return digest.hex()
