"""The journal: every answer of a run, in a file that only grows.

The state after round t is a pure function of the configuration, x0 and the answers of rounds
0..t-1, so the list of answers is the checkpoint and the audit trail in one. The file is a chain
of records (``desopt.run.records``) of these kinds::

    H header (JSON) | S snapshot of the state | R round

The digests detect accidents. A forger can compute them, so everything in a file is checked before
it is used, and whatever does not fit is a ``JournalError``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from desopt.contract.codec import (
    digest_of,
    pack_entries,
    pack_state,
    state_parts,
    unpack_entries,
    unpack_state,
)
from desopt.contract.errors import JournalError
from desopt.contract.streams import MAX_DIMENSION, SERVER
from desopt.contract.types import Answer, FloatArray, State
from desopt.run.history import Row
from desopt.run.journal_file import (
    cut,
    drop,
    give_name,
    lock,
    new_file,
    open_regular,
    refusing,
    remove_leftovers,
    write_all,
)
from desopt.run.records import records, seal
from desopt.system.terminal import warn

FORMAT_VERSION = 2
MAGIC = b"desopt\x02\n"
_ROUND = struct.Struct("<IddQQQQQII")
_SYNC_SECONDS = 1.0

#: The longest header.
MAX_HEADER = 2**24


@dataclass(frozen=True)
class Snapshot:
    """A state as stored in the file, unpacked on demand."""

    round: int
    payload: bytes

    def state(self, like: Any) -> Any:
        """The state, with the fields and sizes that ``like`` has."""
        return unpack_state(self.payload, like)


@dataclass
class Contents:
    """The contents of a journal. ``end`` is the offset after the last complete record."""

    header: dict[str, Any]
    snapshots: list[Snapshot] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    answers: list[list[Answer]] = field(default_factory=list)
    end: int = 0
    digest: bytes = b""
    torn: bool = False


class Journal:
    """An open journal, to append rounds to."""

    def __init__(self, file: BinaryIO, digest: bytes, rounds: int = 0) -> None:
        self._file = file
        self._digest = digest
        self.rounds = rounds
        self._synced = time.monotonic()

    @classmethod
    def create(cls, path: Path, header: Mapping[str, Any], state: State | Snapshot) -> Journal:
        """A new journal with its header and the state before round 0.

        The file gets its name once both are written.
        """
        remove_leftovers(path, MAGIC)
        head = _to_json(header)
        if len(head) > MAX_HEADER:
            raise JournalError(
                f"{path}: settings of {len(head)} bytes; a journal keeps {MAX_HEADER}"
            )
        file, fresh = new_file(path)
        try:
            data, digest = MAGIC, b""
            body = state.payload if isinstance(state, Snapshot) else pack_state(state)
            for kind, payload in ((b"H", head), (b"S", body)):
                record, digest = seal(kind, payload, digest)
                data += record
            write_all(file, data)
            os.fsync(file.fileno())
            if fresh != path:
                give_name(fresh, path)
            return cls(file, digest)
        except BaseException as error:  # Ctrl-C after the link included
            drop(file, {path, fresh})
            if isinstance(error, FileExistsError):
                raise JournalError(
                    f"{path} was made by another run in the meantime; give another file"
                ) from None
            raise

    @classmethod
    def reopen(
        cls, path: Path, check: Callable[[dict[str, Any]], None] | None = None
    ) -> tuple[Journal, Contents]:
        """Open a journal to continue it; a torn tail is cut off, with a warning.

        ``check`` gets the header before anything else is read, and may refuse it.
        """
        file = open_regular(path, write=True)
        try:
            lock(file, path)
            contents = _read(file, path, check)
            file.seek(contents.end)
            if contents.torn:
                cut(file, contents.end)
        except BaseException:
            file.close()
            raise
        return cls(file, contents.digest, len(contents.rows)), contents

    def append(self, row: Row, answers: Sequence[Answer]) -> None:
        """Append a round: its totals and the workers' answers."""
        self._write(b"R", _pack_round(row, answers), 1)

    def snapshot(self, state: State) -> None:
        """Append the state, for replays to start from."""
        self._write(b"S", pack_state(state))

    def close(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def _write(self, kind: bytes, payload: bytes, rounds: int = 0) -> None:
        record, digest = seal(kind, payload, self._digest)
        end, before = self._file.tell(), (self._digest, self.rounds)
        try:
            write_all(self._file, record)
            self._digest, self.rounds = digest, self.rounds + rounds
        except BaseException:  # a full disk, or Ctrl-C in the midst: all or nothing
            self._digest, self.rounds = before
            cut(self._file, end)
            raise
        # A killed process loses nothing that was written; fsync is for a machine that fails.
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()


def read(path: str | os.PathLike[str]) -> Contents:
    """Read and check a journal. Damage is an error, a torn tail a warning."""
    with open_regular(path) as file:
        return _read(file, path)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header alone, which says what the run is."""

    class Found(Exception):
        pass

    header: dict[str, Any] = {}

    def found(its: dict[str, Any]) -> None:
        header.update(its)
        raise Found

    with open_regular(path) as file, contextlib.suppress(Found):
        _read(file, path, found)
    return header


def _read(
    raw: BinaryIO,
    path: str | os.PathLike[str],
    check: Callable[[dict[str, Any]], None] | None = None,
) -> Contents:
    raw.seek(0)
    with open(raw.fileno(), "rb", closefd=False) as file:
        magic = file.read(len(MAGIC))
        if magic[:6] == MAGIC[:6] and magic[7:] == MAGIC[7:] and magic[6] != MAGIC[6]:
            raise JournalError(
                f"{path} has journal format {magic[6]}, this version of desopt reads {MAGIC[6]}"
            )
        if magic != MAGIC:
            raise JournalError(f"{path} is not a desopt journal: it starts with {magic!r}")
        contents = Contents({}, end=len(MAGIC))
        found = records(
            file, path, contents.end, b"", MAX_HEADER, lambda: f"after round {len(contents.rows)}"
        )
        for kind, payload, end, digest in found:
            with refusing(path, f"the record at byte {contents.end}"):
                _take(contents, kind, payload)
            if kind == b"H" and check is not None:
                check(contents.header)
            contents.end, contents.digest = end, digest
        _warn_if_torn(file, path, contents)
    if not contents.header or not contents.snapshots:
        raise JournalError(f"{path} ends before its header is complete; delete it to start again")
    return contents


def _warn_if_torn(file: BinaryIO, path: str | os.PathLike[str], contents: Contents) -> None:
    torn = os.fstat(file.fileno()).st_size - contents.end
    if torn > 0:
        contents.torn = True
        warn(
            f"{path}: the last record is incomplete ({torn} bytes after round "
            f"{len(contents.rows)}) and is dropped; that round will be computed again",
            RuntimeWarning,
            stacklevel=5,
        )


def _take(contents: Contents, kind: bytes, payload: bytes) -> None:
    """Add a record: the header, the state before round 0, then rounds and states after them."""
    done = len(contents.rows)
    if kind == b"H" and not contents.header:
        contents.header = unpack_header(payload)
    elif kind == b"S" and contents.header:
        meta, _ = state_parts(payload)
        round = meta["plain"]["round"]
        if type(round) is not int or round != done:
            raise ValueError(f"the state of round {round!r:.20} follows round {done}")
        contents.snapshots.append(Snapshot(round, payload))
    elif kind == b"R" and contents.snapshots:
        row, answers = unpack_round(payload, contents.header["config"]["workers"])
        if row["round"] != done + 1:
            raise ValueError(f"round {row['round']} follows round {done}")
        fallen = [name for name in _TOTALS if contents.rows and row[name] < contents.rows[-1][name]]
        if fallen:
            raise ValueError(f"{fallen[0]} is a total and has fallen")
        contents.rows.append(row)
        contents.answers.append(answers)
    else:
        raise ValueError(f"a record of kind {kind!r} does not belong here")


def digests(contents: Contents, x: FloatArray, rounds: int) -> dict[str, str]:
    """Digests to compare runs by, equal where the runs are equal bit for bit.

    Of ``x``, the point after ``rounds`` rounds; of all ``answers`` until then; and of ``losses``,
    the values of the objective with their rounds.
    """
    answers, losses = hashlib.blake2b(digest_size=8), hashlib.blake2b(digest_size=8)
    for given in contents.answers[:rounds]:
        answers.update(struct.pack("<I", len(given)))
        for answer in given:
            answers.update(struct.pack("<II", answer.worker, len(answer.payload)) + answer.payload)
    values = [contents.header["initial_fun"], *(row["loss"] for row in contents.rows[:rounds])]
    for round, loss in enumerate(values):
        if loss is not None and loss == loss:
            losses.update(struct.pack("<Qd", round, loss))
    return {"x": digest_of(x), "answers": answers.hexdigest(), "losses": losses.hexdigest()}


# --- payloads --------------------------------------------------------------------------------


def _pack_round(row: Row, answers: Sequence[Answer]) -> bytes:
    totals = _ROUND.pack(*(row[name] for name in _ROUND_FIELDS), len(answers))
    return totals + pack_entries(answers)


_ROUND_FIELDS = (
    "round", "seconds", "loss", "evaluations", "samples", "bytes_up", "bytes_down", "nans",
    "repeated",
)  # fmt: skip


#: Totals, which grow from round to round, and their exclusive upper bounds.
_TOTALS = dict.fromkeys(_ROUND_FIELDS[3:], 2**63) | {"repeated": 2**31}


def unpack_totals(payload: bytes) -> Row:
    """The row of a round, without the answers behind it."""
    *values, count = _ROUND.unpack_from(payload)
    row = Row(zip(_ROUND_FIELDS, values, strict=True), answers=count)
    if any(row[name] >= most for name, most in _TOTALS.items()):
        raise ValueError("a count that no run has")
    if not math.isfinite(row["seconds"]):
        raise ValueError("seconds that no run has")
    return row


def unpack_round(payload: bytes, workers: int) -> tuple[Row, list[Answer]]:
    """The row and the answers of a round."""
    row = unpack_totals(payload)
    return row, unpack_entries(payload[_ROUND.size :], row["answers"], workers)


#: Numbers of the configuration that readers use, and their ranges.
_CONFIG = {"workers": (1, SERVER), "n": (1, MAX_DIMENSION), "batch_size": (1, 2**63)}


def unpack_header(payload: bytes) -> dict[str, Any]:
    """The header, with the numbers that readers use checked."""
    header = json.loads(payload)
    config, initial = header["config"], header["initial_fun"]
    if not isinstance(header["versions"], dict) or not isinstance(config["method"]["name"], str):
        raise TypeError("versions or method are missing")
    for name, (least, most) in _CONFIG.items():
        if type(config[name]) is not int or not least <= config[name] <= most:
            raise ValueError(f"{name} is {config[name]!r:.40}, not {least} to {most}")
    config["participation"] = float(config["participation"])
    header["initial_fun"] = None if initial is None else float(initial)
    return header  # type: ignore[no-any-return]


def _to_json(value: Any) -> bytes:
    return json.dumps(value).encode()
