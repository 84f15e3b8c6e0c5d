"""Digests of data: of every number in memory, and of every byte of a file.

An array is cut into pieces of whole rows. Each piece is hashed by itself, on all cores, as
C-ordered little-endian numbers, and then the hashes are: so the memory order does not matter, and
nothing as large as the data is copied.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desopt.data.checks import parts
from desopt.system.parallel import in_chunks

_SIZE = 16
_PIECE = 1 << 20  # bytes
_EACH = 4  # pieces that a thread takes at a time

#: Objects whose text says all about them.
_PLAIN = (str, bytes, int, float, complex, type(None), np.generic)

_Piece: TypeAlias = tuple[NDArray[Any], int, int]


class Digest:
    """Of a sequence of texts, arrays and CSR matrices. An array that comes again is not reread."""

    def __init__(self) -> None:
        self._all = hashlib.blake2b(digest_size=_SIZE)
        self._known: dict[int, tuple[bytes, Any]] = {}

    def add(self, *items: Any) -> None:
        for item in items:
            if isinstance(item, str):
                self._all.update(_hash(item.encode()))
                continue
            if id(item) not in self._known:
                self._known[id(item)] = _of_array(item), item  # kept: its id must stay its own
            self._all.update(self._known[id(item)][0])

    def hex(self) -> str:
        return self._all.hexdigest()


def of_file(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_SIZE)).hexdigest()


def _hash(content: Any) -> bytes:
    return hashlib.blake2b(content, digest_size=_SIZE).digest()


def _of_array(array: Any) -> bytes:
    if sparse.issparse(array):
        shape = json.dumps(["csr", *map(int, array.shape)]).encode()
        return _hash(shape + b"".join(map(_of_array, parts(array))))
    if array.dtype.names is not None:  # there may be anything in the gaps between fields
        names = json.dumps(["fields", *array.dtype.names]).encode()
        return _hash(names + b"".join(_of_array(array[name]) for name in array.dtype.names))
    head = json.dumps([array.dtype.newbyteorder("<").str, *array.shape]).encode()
    hashes = list(in_chunks(_hashed, _pieces(array), _EACH))
    return _hash(head + b"".join(hashes))


def _pieces(array: NDArray[Any]) -> Iterator[_Piece]:
    row = max(1, array.nbytes // max(1, len(array)))
    step = max(1, _PIECE // row)
    for start in range(0, len(array) if array.size else 0, step):
        yield array, start, start + step


def _hashed(pieces: list[_Piece]) -> list[bytes]:
    return [_hash(_bytes(array[start:stop])) for array, start, stop in pieces]


def _bytes(part: NDArray[Any]) -> Any:
    """The numbers of a part in C order, little-endian."""
    if part.dtype.hasobject:
        texts = (f"{item!r}" if isinstance(item, _PLAIN) else "" for item in part.flat)
        return "\0".join(
            f"{type(item).__name__} {text}" for item, text in zip(part.flat, texts, strict=True)
        ).encode("utf-8", "surrogatepass")
    if part.dtype.char in "gG":  # these have bytes that mean nothing
        double = np.complex128 if part.dtype.char == "G" else np.float64
        with np.errstate(all="ignore"):
            high = part.astype(double)
            part = np.stack([high, (part - high).astype(double)])
    plain = np.ascontiguousarray(part, part.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8)
