"""A study while it runs: the data of the report's page, from its results file."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from desopt.report import tables
from desopt.report.page_data import page_data
from desopt.report.results import read_results
from desopt.studies.store import Store
from desopt.watch.files import Tree

#: A results file that is larger is for ``desopt report``; so is one that takes longer to read.
MAX_BYTES, MAX_SECONDS = 2**29, 20.0
#: Failures that the page lists.
FAILURES = 20


class StudyView:
    """One results file. It is read again when it has changed, at most a fifth of the time."""

    def __init__(self, tree: Tree, path: Path) -> None:
        self._tree, self._path = tree, path
        self.id = path.relative_to(tree.root).as_posix()
        self._lock = threading.Lock()
        self._stamp: list[int] = []
        self._next = 0.0
        self._data: dict[str, Any] = {}

    def summary(self) -> dict[str, Any]:
        return {"id": self.id, "label": self.id.removesuffix("/results.sqlite")}

    def data(self) -> dict[str, Any]:
        """Everything that the page draws; ``stamp`` tells whether it is new."""
        with self._lock:
            stamp = self._changed()
            if stamp != self._stamp and time.monotonic() >= self._next:
                began = time.monotonic()
                self._data = self._read() | {"stamp": stamp}
                self._stamp = stamp
                self._next = time.monotonic() + 4 * (time.monotonic() - began)
            return self._data

    def _changed(self) -> list[int]:
        """Sizes and times of the file and its write-ahead log."""
        found = []
        for name in (self._path.name, f"{self._path.name}-wal"):
            try:
                status = self._path.with_name(name).stat(follow_symlinks=False)
                found += [status.st_mtime_ns // 1000, status.st_size]
            except OSError:
                found += [0, 0]
        return found

    def _read(self) -> dict[str, Any]:
        try:
            with self._tree.open(self._path) as file:  # refuses links and what is outside
                size = file.seek(0, 2)
            if size > MAX_BYTES:
                raise ValueError(f"{self.id} has {size / 2**20:,.0f} MB; use desopt report")
            with Store.open(self._path, seconds=MAX_SECONDS) as store:
                progress = [
                    {"item": i.name[:60], "cases": i.cases, "done": i.done, "failed": i.failed}
                    for i in store.items()
                ]
                running = int(store.query("SELECT COUNT(*) AS found FROM claims")[0]["found"])
            found = {"progress": progress, "running": running, "problem": "", "report": None}
            if any(item["done"] for item in progress):
                results = read_results(self._path, seconds=MAX_SECONDS)
                failed = tables.failures(results).rows[:FAILURES]
                found |= {"report": page_data(results.items, {}), "failures": failed}
            return found
        except (OSError, ValueError, TypeError, sqlite3.Error) as error:
            return {"progress": [], "running": 0, "report": None, "problem": f"{error}"[:500]}
