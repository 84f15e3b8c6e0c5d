"""A worker's private data: rows of arrays, a loader run on the worker's side, or a sampler.

Arrays are held once: a shard of a data set that was divided among the workers (``Partitioned``) is
a list of row numbers, not a copy. Where a function of the worker's number loads the data, shards
are made on demand: M may be a million. ``data.sharding`` makes them of what the user passes.

``Arrays`` are only made by their check, and ``Rows`` only of them. So data in a shard have one
length and no NaN, and all indices and row numbers are inside the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
from scipy import sparse

from desopt.contract import streams
from desopt.contract.errors import user_code
from desopt.contract.streams import Stream
from desopt.contract.types import Batches, IndexArray, Objective
from desopt.data.checks import as_array, as_row_numbers
from desopt.data.gather import gather


class Batch(NamedTuple):
    """The data over which a local function is evaluated: a part of a shard, or all of it.

    ``size`` samples are drawn by ``stream``, with replacement; ``Batches.ALL`` is all rows, where
    there are rows. Nothing is drawn before it is needed: a compiled search draws rows itself.

    >>> (shard,) = data.as_shards(np.arange(10.0), workers=1, seed=0)
    >>> batch = data.Batch(shard, 3, streams.Stream(0, 0, 0, 0, streams.Purpose.BATCH))
    >>> batch.rows, batch.arguments()[0]
    (3, array([8., 6., 3.]))
    """

    shard: OpenShard
    size: int
    stream: Stream
    batches: Batches = Batches.ROUND

    @property
    def rows(self) -> int:
        """Samples that a value is the mean over; 1 where there is no data."""
        return self.shard.samples(self)

    @property
    def fresh(self) -> bool:
        """Whether each iteration has a minibatch of its own."""
        return self.batches is Batches.ITERATION

    def at(self, iteration: int) -> Batch:
        """The minibatch of an iteration; x itself (-1) has that of the first."""
        if not self.fresh:
            return self
        return self._replace(stream=self.stream.at(max(iteration, 0)))

    def or_all(self) -> Batch:
        """This batch; where it would be as large as the shard, all rows of it, each once."""
        small = self.shard.size is None or self.size < self.shard.size
        return self if small else self._replace(batches=Batches.ALL)

    def arguments(self) -> tuple[Any, ...]:
        """The samples as one argument of a user's function; no argument where there is no data."""
        return self.shard.arguments(self)


_ALL = np.empty(0, np.int64)


class Arrays(tuple[Any, ...]):
    """Arrays and CSR matrices of one length, at least 1: well-formed and without NaN.

    ``done`` holds arrays that were checked before, by the id of what was given.

    >>> len(data.Arrays((np.ones((3, 2)), np.ones(3)), "data"))
    2
    """

    def __new__(
        cls, items: Sequence[Any], where: str, done: dict[int, Any] | None = None
    ) -> Arrays:
        if not isinstance(items, tuple | list):
            raise TypeError(f"{where} must be a tuple of arrays, got {type(items).__name__}")
        done = {} if done is None else done
        for i, item in enumerate(items):
            if id(item) not in done:
                name = f"array {i} of {where}" if " " in where else f"{where}[{i}]"
                name = where if len(items) == 1 else name
                # The item is kept alive: its id must stay unique.
                done[id(item)] = as_array(item, name), item
        self = super().__new__(cls, (done[id(item)][0] for item in items))
        if not self:
            raise ValueError(f"{where} is an empty tuple; pass at least one array")
        lengths = {int(array.shape[0]) for array in self}
        if len(lengths) > 1:
            shapes = ", ".join(str(array.shape) for array in self)
            raise ValueError(f"{where}: arrays must have one length, got shapes {shapes}")
        if lengths == {0}:
            raise ValueError(f"{where} has no rows; every worker needs at least one")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Only our own processes unpickle it: no need for another check.
        return _restored, (type(self), tuple(self))


def _restored(kind: type[Arrays], items: tuple[Any, ...]) -> Arrays:
    return tuple.__new__(kind, items)


@dataclass(frozen=True)
class Rows:
    """Rows of arrays of equal length: those numbered ``rows``, or all of them (None).

    ``where`` names the data in messages; ``columns`` are the names of X's columns, if known.

    >>> rows = data.Rows((np.arange(5.0),), np.array([0, 2]))
    >>> rows.size
    2
    """

    arrays: tuple[Any, ...]
    rows: IndexArray | None = None
    single: bool = False
    where: str = field(default="data", compare=False)
    columns: tuple[str, ...] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, Arrays):
            object.__setattr__(self, "arrays", Arrays(self.arrays, self.where))
        if self.rows is not None:
            own = as_row_numbers(self.rows, self.arrays[0].shape[0], self.where)
            object.__setattr__(self, "rows", own)

    @property
    def size(self) -> int:
        return int(self.arrays[0].shape[0]) if self.rows is None else self.rows.size

    @property
    def members(self) -> tuple[IndexArray, int]:
        """``rows`` and their number, as the kernels take it: no rows stand for all of them."""
        return _ALL if self.rows is None else self.rows, self.size

    def numbers(self, batch: Batch | None = None) -> IndexArray:
        """Row numbers in the arrays: of all rows of this shard, or of a batch."""
        if batch is None or batch.batches is Batches.ALL:
            return np.arange(self.size, dtype=np.int64) if self.rows is None else self.rows
        drawn = streams.integers(batch.stream, batch.size, self.size)
        return drawn if self.rows is None else self.rows[drawn]

    def take(self, batch: Batch | None = None) -> Any:
        """All rows, or those of a batch, in the form the user passed the data in."""
        all_rows = batch is None or batch.batches is Batches.ALL
        if all_rows and self.rows is None:
            taken = tuple(map(_read_only, self.arrays))
        else:
            numbers = self.numbers(batch)
            taken = tuple(array[numbers] for array in self.arrays)
        return taken[0] if self.single else taken

    def samples(self, batch: Batch) -> int:
        return self.size if batch.batches is Batches.ALL else batch.size

    def arguments(self, batch: Batch) -> tuple[Any, ...]:
        return (self.take(batch),)

    def open(self, objective: Objective, worker: int) -> Rows:
        return self


@dataclass(frozen=True)
class Draw:
    """A distribution without a data set: ``draw(rng, b)`` gives a batch of b samples.

    >>> draw = data.Draw(lambda rng, b: rng.standard_normal(b))
    >>> draw.size is None
    True
    """

    draw: Callable[[np.random.Generator, int], Any]
    arrays = ()
    size = None

    def samples(self, batch: Batch) -> int:
        return batch.size

    def arguments(self, batch: Batch) -> tuple[Any, ...]:
        with user_code("draw"):
            return (self.draw(streams.generator(batch.stream), batch.size),)

    def open(self, objective: Objective, worker: int) -> Draw:
        return self


@dataclass(frozen=True)
class NoData:
    """No data: the objective is a function of x alone.

    >>> data.NoData().arrays
    ()
    """

    arrays = ()
    size = None

    def samples(self, batch: Batch) -> int:
        return 1

    def arguments(self, batch: Batch) -> tuple[Any, ...]:
        return ()

    def open(self, objective: Objective, worker: int) -> NoData:
        return self


@dataclass(frozen=True)
class Loader:
    """Data that only the worker can reach: ``load()`` runs on its side, once per process.

    >>> data.Loader(lambda: np.ones(5)).load().size
    5
    """

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
    """``load(worker)`` for each of M workers, in no more memory than for one.

    >>> loaders = data.Loaders(lambda worker: np.ones(worker + 1), 1_000_000)
    >>> len(loaders)
    1000000
    """

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
class Partitioned(Sequence[Rows]):
    """One data set divided among M workers: worker i has rows[bounds[i]:bounds[i + 1]].

    >>> shards = data.as_shards(np.arange(10.0), workers=2, seed=0)
    >>> type(shards).__name__, shards[0].size
    ('Partitioned', 5)
    """

    arrays: tuple[Any, ...]
    rows: IndexArray
    bounds: IndexArray
    single: bool = False
    columns: tuple[str, ...] | None = field(default=None, compare=False)
    #: The caller's number of each row of the arrays, where they are a reordered copy.
    order: IndexArray | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, Arrays):
            object.__setattr__(self, "arrays", Arrays(self.arrays, "data"))
        rows = as_row_numbers(self.rows, self.arrays[0].shape[0], "data")
        bounds = np.array(self.bounds)
        if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or bounds.size < 2:
            raise TypeError(f"data: bounds must be whole numbers, two or more; got {bounds!r:.80}")
        if bounds[0] < 0 or bounds[-1] > rows.size or (bounds[1:] <= bounds[:-1]).any():
            raise ValueError(f"data: bounds must rise from 0 to {rows.size}, got {bounds!r:.80}")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "bounds", bounds.astype(np.int64))

    def gathered(self) -> Partitioned:
        """The same shards, each worker's rows side by side in a copy of the arrays."""
        copies = tuple(gather(array, self.rows) for array in self.arrays)
        arrays = _restored(type(self.arrays), copies)  # type: ignore[arg-type]
        return replace(self, arrays=arrays, rows=np.arange(self.rows.size), order=self.rows)

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
        shard = Rows(self.arrays, None, self.single, columns=self.columns)
        mine = self.rows[self.bounds[chosen] : self.bounds[chosen + 1]]
        object.__setattr__(shard, "rows", mine)  # checked already, and there may be a million
        return shard


#: What a worker draws its minibatches from.
OpenShard: TypeAlias = Rows | Draw | NoData
#: A worker's data: open, or to be loaded on its side.
Shard: TypeAlias = OpenShard | Loader


def as_rows(data: Any, where: str, done: dict[int, Any] | None = None) -> Rows:
    """Check and normalise an array, a sparse matrix, or a tuple of them.

    >>> data.as_rows((np.ones((4, 2)), np.ones(4)), "data").size
    4
    """
    single = not isinstance(data, tuple)
    items = (data,) if single else data
    arrays = Arrays(items, where, done)
    return Rows(arrays, None, single, where, _column_names(items[0]))


def _column_names(item: Any) -> tuple[str, ...] | None:
    """The column names of a data frame."""
    if isinstance(item, np.ndarray) or not hasattr(item, "to_numpy"):
        return None
    return tuple(map(str, getattr(item, "columns", ()))) or None


def _read_only(array: Any) -> Any:
    """A read-only view, so that ``fun`` cannot change the data."""
    if sparse.issparse(array):
        pieces = _read_only(array.data), _read_only(array.indices), _read_only(array.indptr)
        return type(array)(pieces, shape=array.shape, copy=False)
    view = array.view()
    view.flags.writeable = False
    return view


class _Memory:
    """An array's memory, declared writeable."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # keeps the memory alive
        address, _read_only = array.__array_interface__["data"]
        self.__array_interface__: dict[str, Any] = {
            **array.__array_interface__, "data": (address, False),
        }  # fmt: skip


def as_writeable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory as a plain writeable array, for compiled code, which does not write to it.

    For numba, read-only arrays and memory maps have types of their own, for which it would
    compile every kernel again.
    """
    if type(array) is np.ndarray and array.flags.writeable:
        return array
    return np.asarray(_Memory(array))
