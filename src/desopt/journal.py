"""The journal: every answer of a run, in a file that only grows.

The state after round t is a pure function of the configuration, x0 and the answers of rounds
0..t-1, so the list of answers is the checkpoint and the audit trail in one. Layout::

    file    = magic record*
    record  = head payload digest
    head    = marker (2 bytes) kind (1) length of the payload (4) crc32 of these (4)
    digest  = blake2b-64 of the previous digest, the head and the payload
    kind    = H header (JSON) | S snapshot of the state | R round

All numbers are little-endian. The digests form a chain, so a record cannot be changed, moved
or left out unnoticed. A record is written by one ``write``; what a crash leaves is a prefix
of it, the torn tail, which is dropped when the file is opened again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from desopt.history import Row
from desopt.terminal import warn
from desopt.types import Answer, FloatArray, JournalError, State

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

FORMAT_VERSION = 2
MAGIC = b"desopt\x02\n"
_MARKER = b"\xd5\x9e"
_HEAD = struct.Struct("<2scII")
_DIGEST = 8
_ROUND = struct.Struct("<IddQQQQQII")
_SYNC_SECONDS = 1.0


@dataclass
class Contents:
    """What a journal says. ``end`` is the offset behind the last whole record."""

    header: dict[str, Any]
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    answers: list[list[Answer]] = field(default_factory=list)
    end: int = 0
    digest: bytes = b""
    torn: bool = False


class Journal:
    """An open journal that rounds are appended to."""

    def __init__(self, file: BinaryIO, digest: bytes) -> None:
        self._file = file
        self._digest = digest
        self._synced = time.monotonic()

    @classmethod
    def create(cls, path: Path, header: Mapping[str, Any], state: State) -> Journal:
        """A new journal with its header and the state before round 0.

        It appears under its name only when both are complete.
        """
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            with open(fresh, "wb") as file:
                file.write(MAGIC)
                digest = b""
                for kind, payload in ((b"H", _to_json(header)), (b"S", pack_state(state))):
                    record, digest = _seal(kind, payload, digest)
                    file.write(record)
                file.flush()
                os.fsync(file.fileno())
            os.link(fresh, path)  # unlike a rename, never over another run's file
        except FileExistsError:
            raise JournalError(
                f"{path} was made by another run in the meantime; give another file"
            ) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)
        return cls(_open_locked(path), digest)

    @classmethod
    def reopen(cls, path: Path) -> tuple[Journal, Contents]:
        """Open a journal to go on; a torn tail is cut off, with a warning."""
        file = _open_locked(path)
        try:
            contents = read(path)
        except BaseException:
            file.close()
            raise
        if contents.torn:
            _cut(file, contents.end)
        return cls(file, contents.digest), contents

    def append(self, row: Row, answers: Sequence[Answer]) -> None:
        """One round: its totals and the workers' answers."""
        self._write(b"R", _pack_round(row, answers))

    def snapshot(self, state: State) -> None:
        """The state itself, so that a replay can start here."""
        self._write(b"S", pack_state(state))

    def close(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def _write(self, kind: bytes, payload: bytes) -> None:
        record, digest = _seal(kind, payload, self._digest)
        end = self._file.tell()
        try:
            left = memoryview(record)
            while left:  # a full disk may take a part
                left = left[self._file.write(left) :]
        except OSError:
            _cut(self._file, end)
            raise
        self._digest = digest
        # A killed process loses nothing that was written; fsync is for a machine that fails.
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()


def read(path: str | os.PathLike[str]) -> Contents:
    """Read and check a whole journal. Damage is an error, a torn tail only a warning."""
    data = Path(path).read_bytes()
    magic = data[: len(MAGIC)]
    if magic[:6] == MAGIC[:6] and magic[7:] == MAGIC[7:] and magic[6] != MAGIC[6]:
        raise JournalError(
            f"{path} has journal format {magic[6]}, this version of desopt reads {MAGIC[6]}"
        )
    if magic != MAGIC:
        raise JournalError(f"{path} is not a desopt journal: it starts with {magic!r}")
    contents = Contents({}, end=len(MAGIC))
    for kind, payload, end, digest in _records(data, path, contents):
        contents.end, contents.digest = end, digest
        if kind == b"H":
            contents.header = json.loads(payload)
        elif kind == b"S":
            contents.snapshots.append(unpack_state(payload))
        elif kind == b"R":
            row, answers = _unpack_round(payload)
            if row["round"] != len(contents.rows) + 1:
                raise JournalError(
                    f"{path}: round {row['round']} follows round {len(contents.rows)}"
                )
            contents.rows.append(row)
            contents.answers.append(answers)
    if not contents.header or not contents.snapshots:
        raise JournalError(f"{path} ends before its header is complete; delete it to start anew")
    return contents


def check_versions(path: Path, header: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Refuse a journal whose bits this version could not repeat."""
    theirs, ours = header["versions"], mine
    _refuse_differences(path, "version", _STRICT, theirs, ours)


def check_config(path: Path, header: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Refuse to go on with another run's journal."""
    theirs, ours = flatten(header["config"]), flatten(mine)
    _refuse_differences(path, "configuration", sorted(theirs.keys() | ours.keys()), theirs, ours)


#: Versions that decide bits.
_STRICT = ("desopt", "format", "stream")


def _refuse_differences(
    path: Path, what: str, names: Sequence[str], theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> None:
    different = [
        f"{name} is {theirs.get(name)!r} in the journal and {ours.get(name)!r} here"
        for name in names
        if theirs.get(name) != ours.get(name)
    ]
    if different:
        raise JournalError(
            f"{path} belongs to a run of another {what}: {'; '.join(different)}. "
            "Use the same to go on with it, or give another file to start anew"
        )


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level: {"method": {"seed": 1}} -> {"method.seed": 1}."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat.update(flatten(item, f"{prefix}{key}."))
        else:
            flat[prefix + key] = item
    return flat


def digest_of(x: FloatArray) -> str:
    """A short name for the bits of an array."""
    return hashlib.blake2b(np.ascontiguousarray(x, "<f8").tobytes(), digest_size=8).hexdigest()


# --- records ---------------------------------------------------------------------------------


def _seal(kind: bytes, payload: bytes, previous: bytes) -> tuple[bytes, bytes]:
    """A record, and its digest."""
    head = _head(kind, len(payload))
    digest = hashlib.blake2b(previous + head + payload, digest_size=_DIGEST).digest()
    return head + payload + digest, digest


def _head(kind: bytes, length: int) -> bytes:
    check = zlib.crc32(_MARKER + kind + struct.pack("<I", length))
    return _HEAD.pack(_MARKER, kind, length, check)


def _valid_head(data: bytes, at: int) -> int | None:
    """The length that a whole and correct head at this offset announces."""
    if at + _HEAD.size > len(data):
        return None
    marker, kind, length, _ = _HEAD.unpack_from(data, at)
    if marker != _MARKER or data[at : at + _HEAD.size] != _head(kind, length):
        return None
    return int(length)


def _records(
    data: bytes, path: str | os.PathLike[str], contents: Contents
) -> Iterator[tuple[bytes, bytes, int, bytes]]:
    """(kind, payload, end, digest) of every record up to the torn tail, if there is one."""
    at, previous = len(MAGIC), b""
    while at < len(data):
        length = _valid_head(data, at)
        end = at + _HEAD.size + (length or 0) + _DIGEST
        if length is not None and end <= len(data):
            head, payload = data[at : at + _HEAD.size], data[at + _HEAD.size : end - _DIGEST]
            digest = hashlib.blake2b(previous + head + payload, digest_size=_DIGEST).digest()
            if digest == data[end - _DIGEST : end]:
                yield head[2:3], payload, end, digest
                at, previous = end, digest
                continue
        _check_torn(data, at, path, len(contents.rows))
        contents.torn = True
        warn(
            f"{path}: the last record is incomplete ({len(data) - at} bytes after round "
            f"{len(contents.rows)}) and is dropped; that round will be computed again",
            RuntimeWarning,
            stacklevel=4,
        )
        return


def _check_torn(data: bytes, at: int, path: str | os.PathLike[str], rounds: int) -> None:
    """A bad record with a good one behind it is not a torn tail but damage."""
    later = data.find(_MARKER, at + 1)
    while later >= 0:
        if _valid_head(data, later) is not None:
            raise JournalError(
                f"{path} is damaged: the record after round {rounds} (byte {at} of {len(data)}) "
                "does not match its checksum, and more records follow. Restore the file from a "
                f"copy; to keep rounds 1 to {rounds} only, cut the file to {at} bytes"
            )
        later = data.find(_MARKER, later + 1)


# --- payloads --------------------------------------------------------------------------------


def _pack_round(row: Row, answers: Sequence[Answer]) -> bytes:
    """Workers by the gap to the one before: a byte each where all or most of them answered."""
    parts = [_ROUND.pack(*(row[name] for name in _ROUND_FIELDS), len(answers))]
    expected = 0
    for answer in answers:
        parts += _varint(answer.worker - expected), _varint(len(answer.payload)), answer.payload
        expected = answer.worker + 1
    return b"".join(parts)


_ROUND_FIELDS = (
    "round", "seconds", "loss", "evaluations", "samples", "bytes_up", "bytes_down", "nans",
    "repeated",
)  # fmt: skip


def _unpack_round(payload: bytes) -> tuple[Row, list[Answer]]:
    *values, count = _ROUND.unpack_from(payload)
    answers: list[Answer] = []
    at, expected = _ROUND.size, 0
    for _ in range(count):
        gap, at = _read_varint(payload, at)
        length, at = _read_varint(payload, at)
        answers.append(Answer(expected + gap, payload[at : at + length]))
        at, expected = at + length, expected + gap + 1
    return Row(zip(_ROUND_FIELDS, values, strict=True), answers=count), answers


def pack_state(state: Any) -> bytes:
    """A state: names and sizes as JSON, the arrays compressed."""
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in values.items() if name not in arrays}
    meta = _to_json({"plain": plain, "arrays": {name: a.size for name, a in arrays.items()}})
    body = b"".join(np.ascontiguousarray(a, "<f8").tobytes() for a in arrays.values())
    return struct.pack("<I", len(meta)) + meta + zlib.compress(body, 1)


def unpack_state(payload: bytes, limit: int = 0) -> dict[str, Any]:
    """The state's fields by name; ``limit`` bounds the bytes of the arrays (0: any number)."""
    (size,) = struct.unpack_from("<I", payload)
    meta = json.loads(payload[4 : 4 + size])
    unpacked = zlib.decompressobj().decompress(payload[4 + size :], limit)
    body = np.frombuffer(unpacked, "<f8").astype(np.float64)
    values: dict[str, Any] = dict(meta["plain"])
    at = 0
    for name, length in meta["arrays"].items():
        values[name] = body[at : at + length].copy()
        at += length
    return values


def _to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _varint(number: int) -> bytes:
    """7 bits a byte, lowest first; the top bit says that more follow."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _cut(file: BinaryIO, end: int) -> None:
    """Drop what is behind ``end`` and go on writing there."""
    file.truncate(end)
    file.seek(end)
    os.fsync(file.fileno())


def _open_locked(path: Path) -> BinaryIO:
    """The file for appending, refused while another process has it."""
    file = open(path, "r+b", buffering=0)  # noqa: SIM115
    file.seek(0, os.SEEK_END)
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with contextlib.suppress(OSError):
                file.close()
            raise JournalError(
                f"{path} is in use by another process; wait for it or give another file"
            ) from None
    return file
