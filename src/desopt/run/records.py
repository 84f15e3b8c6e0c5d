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
    file.seek(at)
    while at < size:
        head = file.read(_HEAD.size)
        length = _valid_head(head)
        end = at + _HEAD.size + (length or 0) + _DIGEST
        if length is not None and end <= size and (limit is None or length <= limit):
            with refusing(path, f"the record at byte {at}"):
                payload = file.read(length)
            digest = hashlib.blake2b(previous + head + payload, digest_size=_DIGEST).digest()
            if digest == file.read(_DIGEST):
                yield Found(head[2:3], payload, end, digest)
                at, previous, limit = end, digest, None
                continue
        if _is_damage(file, at, size):
            raise JournalError(
                f"{path} is damaged: the record {place()} (byte {at} of {size}) does not match "
                "its checksum, and more records follow. Restore the file from a copy; to keep "
                f"what precedes it only, cut the file to {at} bytes"
            )
        return


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
