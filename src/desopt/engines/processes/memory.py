"""Large arrays for other processes: apart from the code, and in memory once.

Shared memory is in anonymous files, which vanish with the last process. Nothing has a name in a
file system, so ``kill -9`` leaves nothing behind, and the size of /dev/shm does not matter.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import cloudpickle
import numpy as np

from desopt.contract.types import FloatArray
from desopt.engines.base import Job
from desopt.system.watched import above_terminal

Array: TypeAlias = np.ndarray[Any, Any]

#: Arrays of at least this many bytes are shared instead of copied into every process.
SHARE_FROM = 1 << 14
_ALIGN = 64
_LENGTH = struct.Struct("<Q")


def anonymous_file(size: int) -> int:
    """The descriptor of a nameless file of ``size`` bytes."""
    with _nameless() as file:
        os.ftruncate(file.fileno(), max(size, 1))
        return above_terminal(file.fileno())


def _nameless() -> Any:
    try:
        return os.fdopen(os.memfd_create("desopt"), "wb")
    except (AttributeError, OSError):  # not available, or not allowed
        return tempfile.TemporaryFile()


def shared_floats(fd: int, shape: tuple[int, ...]) -> FloatArray:
    """The file as an array that all processes read and write."""
    return np.frombuffer(mmap.mmap(fd, 0), np.float64, int(np.prod(shape))).reshape(shape)


class Shared(NamedTuple):
    """What changes from round to round: x, the task's memory, and a row for every final point."""

    x: FloatArray
    memory: FloatArray | None
    points: FloatArray


def shared_bytes(job: Job) -> int:
    """The size of the file for ``Shared``."""
    return 8 * sum(_sizes(job))


def shared_arrays(fd: int, job: Job) -> Shared:
    """The file of ``shared_bytes`` as arrays that all processes read and write."""
    n, memory, points = _sizes(job)
    numbers = shared_floats(fd, (n + memory + points,))
    return Shared(
        numbers[:n],
        numbers[n : n + memory] if memory else None,
        numbers[n + memory :].reshape(-1, n),
    )


def _sizes(job: Job) -> tuple[int, int, int]:
    """Numbers in x, in the task's memory, and in all points that are handed over."""
    memory = job.algorithm.plan(job.algorithm.init(np.zeros(job.n))).memory
    points = job.n * job.workers if job.handover else 0
    return job.n, 0 if memory is None else memory.size, points


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Code and settings by cloudpickle; large arrays by their place in ``arrays``."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.arrays: list[Array] = []
        self._known: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not np.ndarray or obj.nbytes < SHARE_FROM or obj.dtype.hasobject:
            return None
        if obj.dtype.names is not None or not obj.flags.forc:
            return None
        if id(obj) not in self._known:
            self._known[id(obj)] = len(self.arrays)
            self.arrays.append(obj)
        return self._known[id(obj)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Sequence[Array]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, pid: int) -> Array:
        return self._arrays[pid]


def separate(value: Any) -> tuple[bytes, list[Array]]:
    """The value as bytes for a process of our own, and its large arrays, each once."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.arrays


def join(message: bytes, arrays: Sequence[Array]) -> Any:
    """The other side of ``separate``."""
    return _Unpickler(io.BytesIO(message), arrays).load()


def share(value: Any) -> int:
    """A file for processes of our own: the large arrays, and the rest as a message."""
    message, arrays = separate(value)
    places, end = [], _LENGTH.size
    for array in arrays:
        order = "C" if array.flags.c_contiguous else "F"
        offset = -(-end // _ALIGN) * _ALIGN
        places.append((offset, array.dtype.str, array.shape, order))
        end = offset + array.nbytes
    message = pickle.dumps((message, places))
    fd = anonymous_file(end + len(message))
    try:
        memory = mmap.mmap(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    with memory:
        _LENGTH.pack_into(memory, 0, len(message))
        memory[end:] = message
        for array, (offset, _, _, order) in zip(arrays, places, strict=True):
            target = np.frombuffer(memory, array.dtype, array.size, offset)
            target[:] = array.reshape(-1, order=order)  # type: ignore[call-overload]
            del target  # a map cannot be closed while an array uses it
    return fd


def attach(fd: int) -> Any:
    """The other side of ``share``."""
    # Private: a page is shared until a process writes to it, which copies it.
    memory = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    message, places = pickle.loads(memory[-_LENGTH.unpack_from(memory)[0] :])
    arrays = [
        np.frombuffer(memory, dtype, int(np.prod(shape)), offset).reshape(shape, order=order)
        for offset, dtype, shape, order in places
    ]
    return join(message, arrays)
