"""Large arrays on their way to other processes: apart from the code, and in memory once.

Memory that several processes see is in anonymous files, gone when the last process is: nothing
has a name in a file system, so a ``kill -9`` leaves nothing behind, and the size of /dev/shm
does not matter.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from typing import Any, TypeAlias

import cloudpickle
import numpy as np

from desopt.types import FloatArray

Array: TypeAlias = np.ndarray[Any, Any]

#: Arrays from this size on are shared instead of copied into every process.
SHARE_FROM = 1 << 14
_ALIGN = 64


def anonymous_file(size: int) -> int:
    """A file descriptor for ``size`` bytes that has no name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("desopt")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, max(size, 1))
    return fd


def shared_floats(fd: int, shape: tuple[int, ...]) -> FloatArray:
    """The file as an array that every process reads and writes."""
    return np.frombuffer(mmap.mmap(fd, 0), np.float64, int(np.prod(shape))).reshape(shape)


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
    """Bytes for a process of our own, and the large arrays, each of them once."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.arrays


def join(message: bytes, arrays: Sequence[Array]) -> Any:
    """The other side of ``separate``."""
    return _Unpickler(io.BytesIO(message), arrays).load()


def share(value: Any) -> tuple[bytes, int]:
    """Bytes for a pipe to a process of our own, and the file with the large arrays."""
    message, arrays = separate(value)
    fd = anonymous_file(sum(map(_padded, arrays)))
    places = []
    with mmap.mmap(fd, 0) as memory:
        offset = 0
        for array in arrays:
            order = "C" if array.flags.c_contiguous else "F"
            target = np.frombuffer(memory, array.dtype, array.size, offset)
            target[:] = array.reshape(-1, order=order)  # type: ignore[call-overload]
            del target  # the map cannot be closed while an array looks into it
            places.append((offset, array.dtype.str, array.shape, order))
            offset += _padded(array)
    return pickle.dumps((message, places)), fd


def attach(message: bytes, fd: int) -> Any:
    """The other side of ``share``."""
    # Private: pages are shared until a process writes to them, and then only its own.
    memory = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    message, places = pickle.loads(message)
    arrays = [
        np.frombuffer(memory, dtype, int(np.prod(shape)), offset).reshape(shape, order=order)
        for offset, dtype, shape, order in places
    ]
    return join(message, arrays)


def _padded(array: Array) -> int:
    return -(-array.nbytes // _ALIGN) * _ALIGN
