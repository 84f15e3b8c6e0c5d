"""Single values of a run: in memory as ``result.evaluations``, and in a file beside the journal.

Nothing that took long to compute is ever computed again: the file is written value by value, and
a resumed run looks its trials up in it. It is a chain of records (``desopt.run.records``)::

    H header (JSON): the digest of the run's configuration, and those of the user's code | V value

Several processes may append to it: each locks the file for the time of a record.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from desopt.contract.errors import JournalError
from desopt.contract.types import FloatArray
from desopt.engines.by_value import SLOW
from desopt.engines.trials import Key, Outcome, Trial
from desopt.run.evaluations import Evaluation, Evaluations
from desopt.run.journal_file import cut, exclusive, open_regular, refusing, write_all
from desopt.run.records import Found, records, seal

MAGIC = b"desoptv\x01"
#: Added to the name of the journal.
SUFFIX = ".values"
#: Points with more numbers are not stored: ``desopt.replay(journal, trial=id)`` rebuilds them.
STORED = 1000

_VALUE = struct.Struct("<IIIIddQdBH")  # key, value, seconds, rows, time, flags, length of reason
_FAILED, _HAS_X = 1, 2
_SYNC_SECONDS = 1.0
_MAX_HEADER = 2**20


class ValueLog:
    """The values of a run as a ``trials.Log``, kept in a file if there is a path.

    ``always``: else nothing is written before a value has taken ``SLOW`` seconds, so that quick
    functions pay nothing. ``identity`` is that of the run; None: whatever is in the file. ``code``
    has digests of the user's functions. ``shown`` gives the user's x for a
    searched point. ``watch`` is called with every new value.
    """

    def __init__(
        self, path: Path | None, identity: Callable[[], str] | None, *,
        code: Mapping[str, str] | None = None, always: bool = False,
        shown: Callable[[FloatArray], FloatArray] = np.copy,
        watch: Callable[[Evaluations], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.evaluations = Evaluations()
        self._path, self._expected, self._shown, self._watch = path, identity, shown, watch
        self._identity, self._code = "", dict(code or {})
        self.begun_with: dict[str, Any] = {}  # the header's code, as a journal has it
        self._file: BinaryIO | None = None
        self._synced = time.monotonic()
        self._pending: list[Evaluation] = []
        self._write = path is not None and always
        if path is not None and path.exists():
            self._open()
            self._write = True

    def __enter__(self) -> ValueLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def known(self, trial: Trial) -> Outcome | None:
        found = self.evaluations.find(trial.key)
        return None if found is None else found.outcome()

    def begin(self) -> str:
        """Open or make the file now, if there is one; the run's identity."""
        if self._path is not None and self._file is None:
            self._open()
        if not self._identity and self._expected is not None:
            self._identity = self._expected()
        return self._identity

    def add(self, trial: Trial, outcome: Outcome) -> None:
        x = self._shown(trial.x) if trial.x.size <= STORED else None
        self.write(trial.key, x, outcome)

    def write(self, key: Key, x: FloatArray | None, outcome: Outcome) -> None:
        """Keep the outcome of the trial of this name."""
        # names of files may be in no encoding, and so in the reasons of failures
        reason = outcome.failed.encode(errors="replace").decode()
        item = Evaluation(key, outcome.value, outcome.seconds, outcome.rows, time.time(), reason, x)
        if self._path is not None:
            self._pending.append(item)
            self._write = self._write or outcome.seconds >= SLOW
            if self._write:
                self._flush()
        self.evaluations.append(item)
        self._watch(self.evaluations)

    def refresh(self) -> None:
        """Take over what other processes have written."""
        if self._file is not None:
            with exclusive(self._file):
                self._catch_up()

    def _flush(self) -> None:
        """Write what is pending: each record whole or not at all."""
        if self._file is None:
            self._open()
        assert self._file is not None
        with exclusive(self._file):
            self._catch_up()
            while self._pending:
                self._append(b"V", _packed(self._pending[0]))
                self._pending.pop(0)
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def _open(self) -> None:
        """Open the file, or make it; refused if it is another run's."""
        assert self._path is not None
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        self._file = open_regular(self._path, write=True)
        self._end, self._digest = 0, b""
        try:
            with exclusive(self._file):
                self._begin()
                self._catch_up()
        except BaseException:
            self._file.close()
            self._file = None
            raise

    def _begin(self) -> None:
        """Magic and header, written if they are not there."""
        assert self._file is not None
        start = self._file.read(len(MAGIC))
        if start != MAGIC and MAGIC.startswith(start):  # new, or torn in its first bytes
            cut(self._file, 0)
            write_all(self._file, MAGIC)
        elif start != MAGIC:
            raise JournalError(f"{self._path} is not a log of values: it starts with {start!r}")
        self._end = len(MAGIC)
        found = next(self._records(), None)
        mine = self._expected() if self._expected is not None else None
        if found is None:
            if mine is None:
                raise JournalError(f"{self._path} has no header; ask for trials first")
            cut(self._file, self._end)
            python = {"python": platform.python_version()}
            header = {"run": mine, "code": self._code, "versions": python}
            self._append(b"H", json.dumps(header).encode())
            self._identity = mine
            return
        with refusing(self._path or "", "its header"):
            self.begun_with = json.loads(found.payload)
            theirs = self.begun_with["run"]
            if found.kind != b"H" or not isinstance(theirs, str):
                raise ValueError("no digest of a run")
        if mine is not None and theirs != mine:
            raise JournalError(
                f"{self._path} holds the values of another run ({theirs!r:.40}, this one is "
                f"{mine!r}): settings, x0, bounds, data or version differ. Use the same "
                "to continue it, or give another journal"
            )
        self._end, self._digest, self._identity = found.end, found.digest, theirs

    def _catch_up(self) -> None:
        """Read what was appended since; a torn tail is cut off."""
        assert self._file is not None
        for kind, payload, end, digest in self._records():
            with refusing(self._path or "", f"the record at byte {self._end}"):
                if kind != b"V":
                    raise ValueError(f"a record of kind {kind!r} does not belong here")
                self.evaluations.append(unpacked(payload))
            self._end, self._digest = end, digest
        if os.fstat(self._file.fileno()).st_size > self._end:
            cut(self._file, self._end)

    def _records(self) -> Iterator[Found]:
        assert self._file is not None
        limit = _MAX_HEADER if not self._digest else None
        with open(self._file.fileno(), "rb", closefd=False) as file:
            yield from records(
                file, self._path or "", self._end, self._digest, limit,
                lambda: f"after {len(self.evaluations)} values",
            )  # fmt: skip

    def _append(self, kind: bytes, payload: bytes) -> None:
        assert self._file is not None
        record, digest = seal(kind, payload, self._digest)
        self._file.seek(self._end)
        try:
            write_all(self._file, record)
            self._end, self._digest = self._end + len(record), digest
        except BaseException:  # a full disk, or Ctrl-C
            cut(self._file, self._end)
            raise


def _packed(item: Evaluation) -> bytes:
    reason = item.reason.encode()[:65535]
    flags = _FAILED * item.failed | _HAS_X * (item.x is not None)
    head = _VALUE.pack(
        *item.key, item.value, item.seconds, item.rows, item.when, flags, len(reason)
    )
    return head + reason + (b"" if item.x is None else item.x.astype("<f8").tobytes())


def unpacked(payload: bytes) -> Evaluation:
    """A value as the file has it."""
    *key, value, seconds, rows, when, flags, length = _VALUE.unpack_from(payload)
    rest = payload[_VALUE.size :]
    reason = rest[:length].decode(errors="replace")
    if bool(flags & _FAILED) != bool(reason):
        raise ValueError("a failure without a reason")
    x = np.frombuffer(rest[length:], "<f8").astype(np.float64) if flags & _HAS_X else None
    return Evaluation(Key(*key), value, seconds, rows, when, reason, x)
