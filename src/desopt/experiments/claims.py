"""Who runs what: processes that work on one folder share the cases through claims in its file.

A session is one ``desopt suite``. It beats while it lives; when it is dead, or has not been
heard of for a while, its claims are free again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from desopt._version import __version__
from desopt.experiments.cases import Case
from desopt.experiments.store import Store

#: Seconds without a beat after which a session on another machine counts as dead.
LEASE = 120.0


class Session:
    """This process's part in a study."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._me = json.dumps(_identity(os.getpid()))
        self._keys = store.keys()
        self._key = 0
        with store.transaction():
            self._enter()

    def _enter(self) -> None:
        insert = "INSERT INTO sessions (process, beat) VALUES (?, ?) RETURNING key"
        self._key = int(self._store.query(insert, [self._me, time.time()])[0]["key"])

    def beat(self) -> None:
        """Say that this session lives, and bury those that do not."""
        with self._store.transaction():
            alive = "UPDATE sessions SET beat = ? WHERE key = ? RETURNING key"
            if not self._store.query(alive, [time.time(), self._key]):
                self._enter()  # this machine slept, and another took us for dead
            for row in self._store.query("SELECT * FROM sessions WHERE key != ?", [self._key]):
                if _is_dead(json.loads(row["process"]), row["beat"]):
                    self._store.query("DELETE FROM sessions WHERE key = ?", [row["key"]])

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

    The machine's name is not kept, for results are given away.
    """
    host = hashlib.blake2b(platform.node().encode(), digest_size=8).hexdigest()
    return {"host": host, "pid": pid, "started": _start_time(pid)}


def _start_time(pid: int) -> str:
    """In ticks since the machine started; empty where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state == "Z" else rest[18]


def _is_dead(process: Mapping[str, Any], beat: float) -> bool:
    if time.time() - beat > LEASE:
        return True
    here = process["host"] == _identity(os.getpid())["host"]
    return here and bool(process["started"]) and _start_time(process["pid"]) != process["started"]
