"""Records of files that only grow: the journal, and the log of single values.

::

    file    = magic record*
    record  = head payload digest
    head    = marker (2 bytes) kind (1) length of the payload (4) crc32 of these (4)
    digest  = blake2b-64 of the previous digest, the head and the payload

All numbers are little-endian. The digests form a chain, so that a changed, moved or missing
record is noticed. A record is written by one ``write``; a crash leaves a prefix of it, the torn
tail, which is dropped when the file is opened again.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from desopt.contract.errors import JournalError
from desopt.run.journal_file import refusing

_MARKER = b"\xd5\x9e"
_HEAD = struct.Struct("<2scII")
_DIGEST = 8

#: Bytes read at once in the search for records after a bad one, and the most markers examined.
_CHUNK, _MARKERS = 2**20, 2**20


class Found(NamedTuple):
    """A record as read; ``end`` is the offset after it."""

    kind: bytes
    payload: bytes
    end: int
    digest: bytes


def seal(kind: bytes, payload: bytes, previous: bytes) -> tuple[bytes, bytes]:
    """A record and its digest."""
    head = _head(kind, len(payload))
    digest = hashlib.blake2b(previous + head + payload, digest_size=_DIGEST).digest()
    return head + payload + digest, digest


def records(
    file: BinaryIO,
    path: str | os.PathLike[str],
    at: int,
    previous: bytes = b"",
    first_limit: int | None = None,
    place: Callable[[], str] = str,
) -> Iterator[Found]:
    """The records from an offset to the end of the file or its torn tail.

    ``first_limit``: the longest payload of the first one. Damage before the end of the file is a
    JournalError that says at which ``place``. A torn tail is not reported: it is what follows the
    last ``end``.
    """
    size, limit = os.fstat(file.fileno()).st_size, first_limit
    while at < size:
        with refusing(path, f"the record at byte {at}"):
            found = record_at(file, at, size, previous, limit)
        if found is not None:
            yield found
            at, previous, limit = found.end, found.digest, None
            continue
        if _is_damage(file, at, size):
            raise JournalError(
                f"{path} is damaged: the record {place()} (byte {at} of {size}) does not match "
                "its checksum, and more records follow. Restore the file from a copy; to keep "
                f"what precedes it only, cut the file to {at} bytes"
            )
        return


def record_at(
    file: BinaryIO, at: int, size: int, previous: bytes, limit: int | None = None
) -> Found | None:
    """The record at an offset of a file of this size; None if there is no whole and good one.

    ``limit``: the longest payload that is read.
    """
    file.seek(at)
    head = file.read(_HEAD.size)
    length = _valid_head(head)
    if length is None or (limit is not None and length > limit):
        return None
    end = at + _HEAD.size + length + _DIGEST
    if end > size:
        return None
    payload = file.read(length)
    digest = hashlib.blake2b(previous + head + payload, digest_size=_DIGEST).digest()
    return Found(head[2:3], payload, end, digest) if digest == file.read(_DIGEST) else None


class Tail:
    """A file of records while others append to it: read only, and each record once.

    What is incomplete, damaged or longer than ``limit`` ends a reading, which the next one
    tries again; ``size`` - ``end`` are the bytes that it has not got past.
    """

    def __init__(self, magic: bytes, limit: int) -> None:
        self._magic, self._limit = magic, limit
        self.end, self.size, self._digest = 0, 0, b""
        self._identity: tuple[int, int] | None = None
        self._first: Found | None = None

    def is_of(self, file: BinaryIO) -> bool:
        """Whether it is still the file that was read before, and nobody has begun it anew."""
        found = os.fstat(file.fileno())
        if self._identity is None:
            return True
        if (found.st_dev, found.st_ino) != self._identity or found.st_size < self.end:
            return False
        if self._first is None:
            return True
        file.seek(self._first.end - _DIGEST)
        return file.read(_DIGEST) == self._first.digest

    def more(self, file: BinaryIO) -> Iterator[Found]:
        """The records since the last call; one may stop in the midst of them."""
        found = os.fstat(file.fileno())
        self._identity, self.size = (found.st_dev, found.st_ino), found.st_size
        if not self.end:
            file.seek(0)
            if file.read(len(self._magic)) != self._magic:
                return
            self.end = len(self._magic)
        while self.end < self.size:
            record = record_at(file, self.end, self.size, self._digest, self._limit)
            if record is None:
                return
            self._first = self._first or record
            self.end, self._digest = record.end, record.digest
            yield record


def _head(kind: bytes, length: int) -> bytes:
    check = zlib.crc32(_MARKER + kind + struct.pack("<I", length))
    return _HEAD.pack(_MARKER, kind, length, check)


def _valid_head(head: bytes) -> int | None:
    """The length of the payload, if this is a complete and correct head."""
    if len(head) < _HEAD.size:
        return None
    marker, kind, length, _ = _HEAD.unpack(head)
    if marker != _MARKER or head != _head(kind, length):
        return None
    return int(length)


def _is_damage(file: BinaryIO, at: int, size: int) -> bool:
    """Whether a bad record is not a torn tail: another follows, or it is longer than any."""
    longest = _HEAD.size + 2**32 + _DIGEST
    return size - at > longest or _follows_a_head(file, at + 1)


def _follows_a_head(file: BinaryIO, at: int) -> bool:
    """Whether a record's head follows, or more markers than chance explains."""
    file.seek(at)
    kept, markers = b"", 0
    while chunk := file.read(_CHUNK):
        data = kept + chunk
        found = data.find(_MARKER)
        while found >= 0:
            markers += 1
            if _valid_head(data[found : found + _HEAD.size]) is not None or markers > _MARKERS:
                return True
            found = data.find(_MARKER, found + 1)
        kept = data[1 - _HEAD.size :]
    return False
