"""Leases: sessions that work on one folder share its cases through claims in the store.

A session is one ``desopt suite``. Each session has a heartbeat, a counter in the store. A session
whose process is known to have ended on this machine is dead at once. About any other session only
the heartbeat is known: if it has not changed for ``LEASE`` seconds on the observer's own clock,
the session is dead. Clocks of different machines are never compared. The cases of a dead session
are free again. A session that was only suspended registers again, and its result is accepted
unless another session has delivered it meanwhile.
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

#: Seconds without a heartbeat after which a session counts as dead.
LEASE = 120.0


class Session:
    """This process as one of those that work on a folder."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._me = json.dumps(_identity(os.getpid()))
        self._keys = store.keys()
        self._key = 0
        #: Of every other session: its last heartbeat, and when we first saw it, on our clock.
        self._seen: dict[int, tuple[float, float]] = {}
        with store.transaction():
            self._register()

    def _register(self) -> None:
        insert = "INSERT INTO sessions (process, beat) VALUES (?, 0) RETURNING key"
        self._key = int(self._store.query(insert, [self._me])[0]["key"])

    def beat(self) -> None:
        """Send a heartbeat, and remove dead sessions."""
        with self._store.transaction():
            alive = "UPDATE sessions SET beat = beat + 1 WHERE key = ? RETURNING key"
            if not self._store.query(alive, [self._key]):
                self._register()  # this machine was suspended and others took us for dead
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
        """Claim a case: "mine", "taken" by a living session, or "finished"."""
        key = self._keys[case.id]
        with self._store.transaction():
            if self._store.query("SELECT 1 FROM results WHERE case_key = ?", [key]):
                return "finished"
            insert = "INSERT OR IGNORE INTO claims VALUES (?, ?) RETURNING case_key"
            return "mine" if self._store.query(insert, [key, self._key]) else "taken"

    def finish(self, case: Case, machine: str, reply: Mapping[str, Any]) -> bool:
        """Store the result of a case; False if another session has already done so."""
        key = self._keys[case.id]
        failed = "error" in reply
        # names of files may be in no encoding; SQLite takes UTF-8 only
        message = str(reply.get("error", "")).encode(errors="replace").decode()
        result = {
            "status": "failed" if failed else "done", "message": message,
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
        """End the session and give its cases back."""
        with self._store.transaction():
            self._store.query("DELETE FROM sessions WHERE key = ?", [self._key])


def forget_failures(store: Store, cases: Iterable[Case]) -> None:
    """Delete the results of failed cases among these, so that they run again."""
    keys = store.keys()
    with store.transaction():
        for case in cases:
            forget = "DELETE FROM results WHERE case_key = ? AND status = 'failed'"
            store.query(forget, [keys[case.id]])


def _identity(pid: int) -> dict[str, Any]:
    """Identifies a process on a machine, distinct from later processes with the same number.

    Host names are not stored, because results are published. They would not be enough either:
    machines made from one image share a name, containers share a machine. Where the system
    provides them, the boot id and the PID namespace identify the host.
    """
    where = _read_text("/proc/sys/kernel/random/boot_id") or platform.node()
    with suppress(OSError):
        where += os.readlink("/proc/self/ns/pid")
    host = hashlib.blake2b(where.encode(errors="replace"), digest_size=8).hexdigest()
    return {"host": host, "pid": pid, "started": _start_time(pid)}


def _start_time(pid: int) -> str:
    """In ticks since boot; empty if the system does not provide it."""
    state, *rest = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["Z"]
    return "" if state == "Z" else rest[18]


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")  # a process may have any name
    except OSError:
        return ""


def _is_gone(process: str) -> bool:
    """Whether this process ran on this machine and has ended; False if unknown."""
    try:
        known = json.loads(process)
        host, pid, started = known["host"], int(known["pid"]), str(known["started"])
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        return False  # not our format: only the heartbeat counts
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
    except (OSError, OverflowError):  # another user's process, or not a process number
        return True
    return True
