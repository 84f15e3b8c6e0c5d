"""Digests of data in memory and of files.

An array is cut into pieces of whole rows, which are hashed on all cores as C-ordered
little-endian numbers. The digest is the hash of their hashes. So the memory order does not
matter, and no copy as large as the data is made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desopt.contract.types import IndexArray
from desopt.data.matrices import plain_arrays
from desopt.system.parallel import in_chunks

_SIZE = 16
_PIECE = 1 << 20  # bytes
_EACH = 4  # pieces per thread and turn

#: Objects that their text identifies.
_PLAIN = (str, bytes, int, float, complex, type(None), np.generic)

_Read: TypeAlias = Callable[[int, int], NDArray[Any]]


class Digest:
    """The digest of a sequence of texts, arrays and CSR matrices; repeated arrays are read once."""

    def __init__(self) -> None:
        self._all = hashlib.blake2b(digest_size=_SIZE)
        self._known: dict[int, tuple[bytes, Any]] = {}

    def add(self, *items: Any, order: IndexArray | None = None) -> None:
        """Add texts and arrays.

        ``order``: original row number of each row of reordered arrays, to hash them in their
        original order.
        """
        inverse = None if order is None else np.argsort(order)
        for item in items:
            if isinstance(item, str):
                self._all.update(_hash(item.encode()))
                continue
            if id(item) not in self._known:
                # The item is kept alive: its id must stay unique.
                self._known[id(item)] = _of_array(item, inverse), item
            self._all.update(self._known[id(item)][0])

    def hex(self) -> str:
        return self._all.hexdigest()


def of_file(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_SIZE)).hexdigest()


def _hash(content: Any) -> bytes:
    return hashlib.blake2b(content, digest_size=_SIZE).digest()


def _of_array(array: Any, inverse: IndexArray | None = None) -> bytes:
    """The hash of an array, with its rows in the order that ``inverse`` gives."""
    if sparse.issparse(array):
        shape = json.dumps(["csr", *map(int, array.shape)]).encode()
        return _hash(shape + _of_csr(array, inverse))
    if array.dtype.names is not None:  # the padding between fields is arbitrary
        names = json.dumps(["fields", *array.dtype.names]).encode()
        return _hash(
            names + b"".join(_of_array(array[name], inverse) for name in array.dtype.names)
        )
    if inverse is None:
        return _of_plain(array, lambda start, stop: array[start:stop])
    return _of_plain(array, lambda start, stop: array[inverse[start:stop]])


def _of_csr(matrix: Any, inverse: IndexArray | None) -> bytes:
    if inverse is None:
        return b"".join(map(_of_array, plain_arrays(matrix)))
    lengths = np.diff(matrix.indptr)[inverse]
    indptr = np.append(0, np.cumsum(lengths)).astype(matrix.indptr.dtype)

    def places(start: int, stop: int) -> IndexArray:
        """Where entries start to stop of the original order are."""
        first = int(np.searchsorted(indptr, start, "right")) - 1
        last = int(np.searchsorted(indptr, stop, "left"))
        shift = matrix.indptr[inverse[first:last]].astype(np.int64) - indptr[first:last]
        entries = np.arange(indptr[first], indptr[last]) + np.repeat(shift, lengths[first:last])
        return np.asarray(entries[start - indptr[first] :][: stop - start])

    def of(part: NDArray[Any]) -> bytes:
        return _of_plain(part, lambda start, stop: part[places(start, min(stop, part.size))])

    return of(matrix.data) + of(matrix.indices) + _of_array(indptr)


def _of_plain(array: NDArray[Any], read: _Read) -> bytes:
    """The hash of an array of numbers of which ``read(start, stop)`` gives the rows."""
    head = json.dumps([array.dtype.newbyteorder("<").str, *array.shape]).encode()
    row = max(1, array.nbytes // max(1, len(array)))
    step = max(1, _PIECE // row)
    starts = range(0, len(array) if array.size else 0, step)

    def hashed(starts: list[int]) -> list[bytes]:
        return [_hash(_bytes(read(start, start + step))) for start in starts]

    hashes: list[bytes] = list(in_chunks(hashed, starts, _EACH))
    return _hash(head + b"".join(hashes))


def _bytes(part: NDArray[Any]) -> Any:
    """The numbers of a part in C order, little-endian."""
    if part.dtype.hasobject:
        texts = (f"{item!r}" if isinstance(item, _PLAIN) else "" for item in part.flat)
        return "\0".join(
            f"{type(item).__name__} {text}" for item, text in zip(part.flat, texts, strict=True)
        ).encode("utf-8", "surrogatepass")
    if part.dtype.char in "gG":  # these have padding bytes
        double = np.complex128 if part.dtype.char == "G" else np.float64
        with np.errstate(all="ignore"):
            high = part.astype(double)
            part = np.stack([high, (part - high).astype(double)])
    plain = np.ascontiguousarray(part, part.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8)
