"""A worker's private data: rows of arrays, a loader run on the worker's side, or a sampler.

Whatever the user passes becomes a sequence of M shards. Arrays are held once: a shard of a data
set that was dealt out (``Dealt``) is a list of row numbers, not a copy. Where a function of the
worker's number loads the data, shards are made when they are asked for: M may be a million.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
from scipy import sparse

from desopt import rng
from desopt.rng import Purpose, Stream
from desopt.types import FloatArray, IndexArray, LocalFunction, Objective, user_code


class Pick(NamedTuple):
    """A minibatch still to be drawn: ``size`` rows of a shard, uniformly with replacement.

    A compiled search draws it itself.
    """

    stream: Stream
    size: int


_ALL = np.empty(0, np.int64)


@dataclass(frozen=True)
class Rows:
    """Rows of arrays of equal length; ``rows`` says which (None: all of them)."""

    arrays: tuple[Any, ...]
    rows: IndexArray | None = None
    single: bool = False

    @property
    def size(self) -> int:
        return int(self.arrays[0].shape[0]) if self.rows is None else self.rows.size

    @property
    def members(self) -> tuple[IndexArray, int]:
        """``rows`` and their number, as the kernels take it: no rows stand for all of them."""
        return _ALL if self.rows is None else self.rows, self.size

    def numbers(self, picked: IndexArray | Pick | None = None) -> IndexArray:
        """Row numbers in the arrays of the picked rows of this shard (None: of all)."""
        if picked is None:
            return np.arange(self.size, dtype=np.int64) if self.rows is None else self.rows
        if isinstance(picked, Pick):
            picked = rng.integers(picked.stream, picked.size, self.size)
        return picked if self.rows is None else self.rows[picked]

    def take(self, picked: IndexArray | Pick | None = None) -> Any:
        """The picked rows, in the form the user passed the data in."""
        if picked is None and self.rows is None:
            batch = tuple(map(_read_only, self.arrays))
        else:
            numbers = self.numbers(picked)
            batch = tuple(array[numbers] for array in self.arrays)
        return batch[0] if self.single else batch

    def sample(self, objective: Objective, x: FloatArray, stream: Stream, b: int) -> LocalFunction:
        """The objective on b rows drawn uniformly with replacement."""
        return objective.on_rows(self, Pick(stream, b), x)

    def whole(self, objective: Objective, x: FloatArray, stream: Stream, b: int) -> LocalFunction:
        """The objective on all rows."""
        return objective.on_rows(self, None, x)

    def open(self, objective: Objective, worker: int) -> Rows:
        return self


@dataclass(frozen=True)
class Draw:
    """A distribution without a data set: ``draw(rng, b)`` gives a batch of b samples."""

    draw: Callable[[np.random.Generator, int], Any]
    arrays = ()
    size = None

    def sample(self, objective: Objective, x: FloatArray, stream: Stream, b: int) -> LocalFunction:
        """The objective on b fresh samples."""
        with user_code("draw"):
            batch = self.draw(rng.generator(stream), b)
        return objective.on_batch(batch, b, x)

    whole = sample  # there is no more than a sample

    def open(self, objective: Objective, worker: int) -> Draw:
        return self


@dataclass(frozen=True)
class Nothing:
    """No data: the objective is a function of x alone."""

    arrays = ()
    size = None

    def sample(self, objective: Objective, x: FloatArray, stream: Stream, b: int) -> LocalFunction:
        return objective.on_nothing(x)

    whole = sample

    def open(self, objective: Objective, worker: int) -> Nothing:
        return self


@dataclass(frozen=True)
class Loader:
    """Data that only the worker can reach: ``load()`` runs on its side, once per process."""

    load: Callable[[], Any]
    arrays = ()
    size = None

    def open(self, objective: Objective, worker: int) -> OpenShard:
        with user_code("loader"):
            data = self.load()
        rows = as_rows(data, f"the data of worker {worker}")
        shard: OpenShard = objective.prepare([rows], some=True)[0]
        return shard


@dataclass(frozen=True)
class Loaders(Sequence[Loader]):
    """``load(worker)`` for each of M workers, in no more memory than for one."""

    load: Callable[[int], Any]
    workers: int

    def __len__(self) -> int:
        return self.workers

    @overload
    def __getitem__(self, key: int) -> Loader: ...
    @overload
    def __getitem__(self, key: slice) -> list[Loader]: ...
    def __getitem__(self, key: Any) -> Any:
        chosen = range(self.workers)[key]
        if isinstance(chosen, range):
            return [self[worker] for worker in chosen]
        return Loader(partial(self.load, chosen))


@dataclass(frozen=True)
class Dealt(Sequence[Rows]):
    """The rows of one data set, dealt to M workers: worker i has rows[bounds[i]:bounds[i + 1]]."""

    arrays: tuple[Any, ...]
    rows: IndexArray
    bounds: IndexArray
    single: bool = False

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, key: int) -> Rows: ...
    @overload
    def __getitem__(self, key: slice) -> list[Rows]: ...
    def __getitem__(self, key: Any) -> Any:
        chosen = range(len(self))[key]
        if isinstance(chosen, range):
            return [self[worker] for worker in chosen]
        mine = self.rows[self.bounds[chosen] : self.bounds[chosen + 1]]
        return Rows(self.arrays, mine, self.single)


OpenShard: TypeAlias = Rows | Draw | Nothing
Shard: TypeAlias = OpenShard | Loader


def partition(rows: int, workers: int, seed: int) -> list[IndexArray]:
    """Deal row numbers uniformly to the workers: no overlap, sizes that differ by at most one."""
    order = np.argsort(rng.words(Stream(seed, 0, rng.SERVER, 0, Purpose.PARTITION), rows),
                       kind="stable")  # fmt: skip
    return [np.sort(part) for part in np.array_split(order, workers)]


def as_shards(data: Any, workers: int, seed: int) -> Sequence[Shard]:
    """Turn the ``data`` argument into M shards. A list is ready-made shards, one per worker."""
    if data is None:
        return [Nothing()] * workers
    if callable(data):
        return _from_callable(data, workers)
    if isinstance(data, list):
        if not data:
            raise ValueError("data is an empty list; a list must hold one shard per worker")
        return [_as_shard(item, f"data[{i}]") for i, item in enumerate(data)]
    whole = as_rows(data, "data")
    if whole.size < workers:
        raise ValueError(
            f"data has {whole.size} rows for {workers} workers; every worker needs at least one: "
            "use fewer workers"
        )
    hands = partition(whole.size, workers, seed)
    bounds = np.cumsum([0, *map(len, hands)])
    return Dealt(whole.arrays, np.concatenate(hands), bounds, whole.single)


def distinct(shards: Sequence[Shard]) -> Sequence[Shard]:
    """The shards that differ as far as can be seen here: of a million loaders one."""
    return shards[:1] if isinstance(shards, Loaders) else shards


def total_rows(shards: Sequence[Shard]) -> int | None:
    """N, or None where some shard's size is not known on this side."""
    sizes = [shard.size for shard in distinct(shards)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def fingerprint(shards: Sequence[Shard]) -> str:
    """A short digest of what can be seen of the data: shapes, types, and a sample of the bytes."""
    digest = hashlib.blake2b(digest_size=8)
    seen: set[int] = set()
    for shard in distinct(shards):
        digest.update(type(shard).__name__.encode())
        digest.update(str(shard.size).encode())
        for array in shard.arrays:
            if id(array) not in seen:  # arrays shared by all shards count once
                seen.add(id(array))
                for part in parts(array):
                    digest.update(f"{part.shape}{part.dtype}".encode())
                    digest.update(_sample(part))
    return digest.hexdigest()


def parts(array: Any) -> list[np.ndarray[Any, Any]]:
    """The plain arrays that an array or a CSR matrix is made of."""
    if sparse.issparse(array):
        return [array.indptr, array.indices, array.data]
    return [array]


def _sample(array: np.ndarray[Any, Any], blocks: int = 64, length: int = 4096) -> bytes:
    """Up to ``blocks`` evenly spaced runs of elements: large arrays are not read whole."""
    if array.dtype.hasobject:
        return b""
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    if array.size <= blocks * length:
        return np.ascontiguousarray(flat[:]).tobytes()
    starts = np.linspace(0, array.size - length, blocks).astype(np.int64)
    return b"".join(np.ascontiguousarray(flat[s : s + length]).tobytes() for s in starts)


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


def _as_shard(item: Any, where: str) -> Shard:
    if not callable(item):
        return as_rows(item, where)
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


def as_rows(data: Any, where: str) -> Rows:
    """Check and normalise an array, a sparse matrix, or a tuple of them."""
    single = not isinstance(data, tuple)
    items = (data,) if single else data
    if not items:
        raise ValueError(f"{where} is an empty tuple; pass at least one array")
    names = [where if single else f"{where}[{i}]" for i in range(len(items))]
    arrays = tuple(_array(item, name) for item, name in zip(items, names, strict=True))
    lengths = {int(array.shape[0]) for array in arrays}
    if len(lengths) > 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"{where}: arrays must have one length, got shapes {shapes}")
    if lengths == {0}:
        raise ValueError(f"{where} has no rows; every worker needs at least one")
    return Rows(arrays, None, single)


def _array(item: Any, where: str) -> Any:
    if isinstance(item, str | bytes):
        raise TypeError(f"{where} must be an array, got {type(item).__name__} {item[:40]!r}")
    array = item.tocsr() if sparse.issparse(item) else np.asarray(item)
    if array.ndim == 0:
        raise ValueError(f"{where} must have at least one dimension, got the scalar {item!r}")
    if isinstance(array, np.ndarray) and not array.flags.forc:
        array = np.ascontiguousarray(array)  # the same memory order, so the same bits, everywhere
    for part in parts(array):
        if part.dtype.kind in "fc" and part.size and not _everywhere(_not_nan, part):
            raise ValueError(f"{where} contains NaN; remove or fill these entries first")
    return array


def _read_only(array: Any) -> Any:
    """The same memory, protected from a ``fun`` that writes into its batch."""
    if sparse.issparse(array):
        pieces = _read_only(array.data), _read_only(array.indices), _read_only(array.indptr)
        return type(array)(pieces, shape=array.shape, copy=False)
    view = array.view()
    view.flags.writeable = False
    return view


def _not_nan(part: np.ndarray[Any, Any]) -> Any:
    return part == part


def all_finite(array: Any) -> bool:
    """Whether no entry is NaN or infinite."""
    return all(_everywhere(np.isfinite, part) for part in parts(array) if part.size)


def _everywhere(
    test: Callable[[Any], Any], array: np.ndarray[Any, Any], length: int = 1 << 20
) -> bool:
    """Whether the test holds for all entries, without a temporary as large as the data."""
    step = max(1, length * len(array) // array.size)
    return all(bool(test(array[s : s + step]).all()) for s in range(0, len(array), step))
