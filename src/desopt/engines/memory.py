"""Memory that several processes see: anonymous files, gone when the last process is.

Nothing has a name in a file system, so a ``kill -9`` leaves nothing behind, and the size of
/dev/shm does not matter.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from typing import Any

import cloudpickle
import numpy as np

from desopt.types import FloatArray

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
    """Code and settings by cloudpickle; large arrays by reference into one shared file."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._known: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> tuple[int, str, tuple[int, ...], str] | None:
        if type(obj) is not np.ndarray or obj.nbytes < SHARE_FROM or obj.dtype.hasobject:
            return None
        if obj.dtype.names is not None or not obj.flags.forc:
            return None
        if id(obj) not in self._known:
            self._known[id(obj)] = sum(_padded(array) for array in self.arrays)
            self.arrays.append(obj)
        order = "C" if obj.flags.c_contiguous else "F"
        return self._known[id(obj)], obj.dtype.str, obj.shape, order


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, fd: int) -> None:
        super().__init__(file)
        # Private: pages are shared until a process writes to them, and then only its own.
        self._memory = mmap.mmap(
            fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )

    def persistent_load(self, pid: tuple[int, str, tuple[int, ...], str]) -> Any:
        offset, dtype, shape, order = pid
        count = int(np.prod(shape))
        flat = np.frombuffer(self._memory, dtype, count, offset)
        return flat.reshape(shape, order=order)  # type: ignore[call-overload]


def share(value: Any) -> tuple[bytes, int]:
    """Bytes for a pipe to a process of our own, and the file with the large arrays."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    fd = anonymous_file(sum(_padded(array) for array in pickler.arrays))
    with mmap.mmap(fd, 0) as memory:
        offset = 0
        for array in pickler.arrays:
            flat = array.reshape(-1, order="C" if array.flags.c_contiguous else "F")
            target = np.frombuffer(memory, array.dtype, array.size, offset)
            target[:] = flat
            del target  # the map cannot be closed while an array looks into it
            offset += _padded(array)
    return file.getvalue(), fd


def attach(message: bytes, fd: int) -> Any:
    """The other side of ``share``."""
    return _Unpickler(io.BytesIO(message), fd).load()


def _padded(array: np.ndarray[Any, Any]) -> int:
    return -(-array.nbytes // _ALIGN) * _ALIGN
