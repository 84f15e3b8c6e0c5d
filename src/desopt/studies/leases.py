"""Who runs what: processes that work on one folder share the cases through claims in its file.

A session is one ``desopt suite``. It beats while it lives: a number that it counts up. One whose
process is known to be gone from this machine is dead at once. Of any other nothing is known but
its beat: when that has stood still for a while, on the clock of who looks, the session is dead as
well. Clocks of two machines are never compared. The claims of the dead are free again; one that
was only asleep enters anew, and its result is taken or already there.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from desopt._version import __version__
from desopt.studies.cases import Case
from desopt.studies.store import Store

#: Seconds without a beat after which a session counts as dead.
LEASE = 120.0


class Session:
    """This process's part in a study."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._me = json.dumps(_identity(os.getpid()))
        self._keys = store.keys()
        self._key = 0
        #: Of every other session: its last beat, and when that was first seen, on our clock.
        self._seen: dict[int, tuple[float, float]] = {}
        with store.transaction():
            self._enter()

    def _enter(self) -> None:
        insert = "INSERT INTO sessions (process, beat) VALUES (?, 0) RETURNING key"
        self._key = int(self._store.query(insert, [self._me])[0]["key"])

    def beat(self) -> None:
        """Say that this session lives, and bury those that do not."""
        with self._store.transaction():
            alive = "UPDATE sessions SET beat = beat + 1 WHERE key = ? RETURNING key"
            if not self._store.query(alive, [self._key]):
                self._enter()  # this machine slept, and another took us for dead
            for row in self._store.query("SELECT * FROM sessions WHERE key != ?", [self._key]):
                if _is_gone(row["process"]) or self._is_silent(row["key"], row["beat"]):
                    self._store.query("DELETE FROM sessions WHERE key = ?", [row["key"]])

    def _is_silent(self, key: int, beat: float) -> bool:
        last, since = self._seen.get(key, (None, 0.0))
        if last != beat:
            self._seen[key] = beat, time.monotonic()
            return False
        return time.monotonic() - since > LEASE

    def claim(self, case: Case) -> str:
        """ "mine", or "taken" by a living session, or "finished"."""
        key = self._keys[case.id]
        with self._store.transaction():
            if self._store.query("SELECT 1 FROM results WHERE case_key = ?", [key]):
                return "finished"
            insert = "INSERT OR IGNORE INTO claims VALUES (?, ?) RETURNING case_key"
            return "mine" if self._store.query(insert, [key, self._key]) else "taken"

    def finish(self, case: Case, machine: str, reply: Mapping[str, Any]) -> bool:
        """Enter what came of a case; False where another session has done so meanwhile."""
        key = self._keys[case.id]
        failed = "error" in reply
        result = {
            "status": "failed" if failed else "done", "message": reply.get("error", ""),
            "version": __version__, "seed": case.seed,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"), **reply.get("result", {}),
        }  # fmt: skip
        with self._store.transaction():
            self._store.query("DELETE FROM claims WHERE case_key = ?", [key])
            if self._store.query("SELECT 1 FROM results WHERE case_key = ?", [key]):
                return False
            result["machine_key"] = self._store.shared_key("machines", {"description": machine})
            if not failed:
                result["data_key"] = self._store.shared_key("data_sets", reply["data"])
            self._store.record(key, result, reply.get("points", ()))
        return True

    def leave(self) -> None:
        """Give back what is claimed."""
        with self._store.transaction():
            self._store.query("DELETE FROM sessions WHERE key = ?", [self._key])


def forget_failures(store: Store, cases: Iterable[Case]) -> None:
    """Let those of the cases that failed be tried again."""
    keys = store.keys()
    with store.transaction():
        for case in cases:
            forget = "DELETE FROM results WHERE case_key = ? AND status = 'failed'"
            store.query(forget, [keys[case.id]])


def _identity(pid: int) -> dict[str, Any]:
    """A process of a machine, and not a later one with the same number.

    Names are not kept, for results are given away. Neither are they enough: machines made from
    one image share a name, containers a machine. Where the system tells, what counts is the
    start of the machine and the list of processes that the number is from.
    """
    where = _text("/proc/sys/kernel/random/boot_id") or platform.node()
    with suppress(OSError):
        where += os.readlink("/proc/self/ns/pid")
    host = hashlib.blake2b(where.encode(errors="replace"), digest_size=8).hexdigest()
    return {"host": host, "pid": pid, "started": _start_time(pid)}


def _start_time(pid: int) -> str:
    """In ticks since the machine started; empty where the system does not tell."""
    state, *rest = _text(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["Z"]
    return "" if state == "Z" else rest[18]


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _is_gone(process: str) -> bool:
    """Whether this was a process of this machine; False where that cannot be told."""
    try:
        known = json.loads(process)
        host, pid, started = known["host"], int(known["pid"]), str(known["started"])
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        return False  # not written by us: its beat has to tell
    if host != _identity(os.getpid())["host"]:
        return False
    if started:
        return _start_time(pid) != started
    return os.name == "posix" and pid > 0 and not _exists(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's, or no number of a process
        return True
    return True
