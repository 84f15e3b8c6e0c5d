"""A run while it goes on: what its journal, its values and its folder say, read as they grow."""

from __future__ import annotations

import json
import math
import threading
import time
from array import array
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from desopt.contract.errors import JournalError
from desopt.run import journal as journals
from desopt.run import values
from desopt.run.folder import JOURNAL, SETTINGS
from desopt.run.journal_file import refusing
from desopt.run.records import Tail
from desopt.run.sites import SUFFIX as SITES
from desopt.watch.files import Tree

#: The longest record that is read: a state of 30 million numbers.
MAX_RECORD = 2**28
#: Rounds with more answers, and workers beyond, have no list of who answered.
MAX_ANSWERS, MAX_WORKERS = 10_000, 10_000
#: Points of a curve, workers, failures and open trials that a page is told of.
POINTS, WORKERS, RECENT = 600, 200, 8
#: Single values that are kept in memory, and bytes of a small file beside a journal.
MAX_VALUES, MAX_SMALL = 1_000_000, 2**22

COLUMNS = ("evaluations", "bytes_up", "bytes_down", "seconds", "loss", "nans", "answers")


_numbers = count(1)


class Index:
    """A journal read so far: columns of its rounds, and where in the file its records are.

    ``number`` is another one whenever the file is begun anew.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.number = path, next(_numbers)
        self.tail = Tail(journals.MAGIC, MAX_RECORD)
        self.header: dict[str, Any] = {}
        self.columns = {name: array("d") for name in COLUMNS}
        self.rounds: list[tuple[int, int]] = []  # offset and length of each round's payload
        self.snapshots: list[tuple[int, int, int]] = []  # round, offset, length
        self.answered: dict[int, list[int]] = {}  # by worker: rounds, and the last of them
        self.problem = ""

    def follow(self, file: BinaryIO, deadline: float) -> bool:
        """Read what was appended; False if there is more than the deadline allows."""
        if self.problem:
            return True
        for kind, payload, end, _ in self.tail.more(file):
            at = end - len(payload) - 8  # the digest follows the payload
            try:
                with refusing(self._path, f"the record at byte {at}"):
                    self._take(kind, payload, at)
            except JournalError as error:
                self.problem = str(error)
                return True
            if time.monotonic() > deadline:
                return self.tail.end >= self.tail.size
        return True

    def _take(self, kind: bytes, payload: bytes, at: int) -> None:
        if kind == b"H" and not self.header:
            self.header = journals.unpack_header(payload)
        elif kind == b"S" and self.header:
            self.snapshots.append((len(self.rounds), at, len(payload)))
        elif kind == b"R" and self.snapshots:
            row = journals.unpack_totals(payload)
            if row["round"] != len(self.rounds) + 1:
                raise ValueError(f"round {row['round']} follows round {len(self.rounds)}")
            if row["answers"] <= MAX_ANSWERS:
                self._count(*journals.unpack_round(payload, self.workers))
            self.rounds.append((at, len(payload)))
            for name, column in self.columns.items():
                column.append(float(row[name]))
        else:
            raise ValueError(f"a record of kind {kind!r} does not belong here")

    def _count(self, row: Any, answers: Any) -> None:
        for answer in answers:
            if answer.worker < MAX_WORKERS:
                seen = self.answered.setdefault(answer.worker, [0, 0])
                seen[:] = seen[0] + 1, row["round"]

    @property
    def workers(self) -> int:
        return int(self.header["config"]["workers"])

    def payload(self, file: BinaryIO, at: int, length: int) -> bytes:
        """A payload that was read and checked before."""
        file.seek(at)
        return file.read(length)


class Run:
    """A journal of the tree with all that belongs to it. All methods may be called by threads."""

    def __init__(self, tree: Tree, path: Path) -> None:
        self.tree, self.path = tree, path
        self.id = path.relative_to(tree.root).as_posix()
        self.lock = threading.Lock()
        self.index = Index(path)
        self.values = Tail(values.MAGIC, MAX_RECORD)
        self.known: dict[Any, tuple[float, bool]] = {}  # value and whether it failed, by key
        self.failures: list[tuple[str, str]] = []  # the last ones: id and reason
        self.failed, self.best, self.whole = 0, math.nan, True
        self.gone = False  # it was deleted since the tree was looked at

    def refresh(self, deadline: float) -> None:
        """Read what was appended since, until the deadline."""
        with self.lock:
            self.whole = True
            try:
                with self.tree.open(self.path) as file:
                    self.gone = False
                    if not self.index.tail.is_of(file):  # begun anew
                        self.index = Index(self.path)
                    self.whole = self.index.follow(file, deadline)
                    if not self.index.header and not self.index.problem:
                        self.index.problem = self._no_header(file)
            except FileNotFoundError:
                self.gone = self.gone or self.index.tail.size > 0
                self.index = Index(self.path)
            except OSError as error:
                self.index.problem = f"{self.id}: {error.strerror or error}"
            self._follow_values(deadline)

    def _no_header(self, file: BinaryIO) -> str:
        """Why a journal cannot be read; empty while its beginning is being written."""
        file.seek(0)
        start = file.read(len(journals.MAGIC))
        if start != journals.MAGIC and not journals.MAGIC.startswith(start):
            return f"{self.id} has another journal format than this version of desopt reads"
        if self.index.tail.size > journals.MAX_HEADER:
            return f"{self.id} is damaged: its header does not match its checksum"
        return ""

    def _follow_values(self, deadline: float) -> None:
        try:
            with self.tree.open(self.path.with_name(self.path.name + values.SUFFIX)) as file:
                if not self.values.is_of(file):
                    self.values = Tail(values.MAGIC, MAX_RECORD)
                    self.known, self.failures, self.failed, self.best = {}, [], 0, math.nan
                for kind, payload, *_ in self.values.more(file):
                    if kind == b"V" and len(self.known) < MAX_VALUES:
                        with refusing(self.path, "a value"):
                            self._value(values.unpacked(payload))
                    if time.monotonic() > deadline:
                        self.whole = False
                        break
        except (OSError, JournalError):
            return  # a log of values is an extra

    def _value(self, item: Any) -> None:
        if item.key in self.known:
            return
        self.known[item.key] = item.value, item.failed
        if item.failed:
            self.failed += 1
            self.failures = [*self.failures, (item.id, item.reason[:300])][-RECENT:]
        elif not item.objective and not item.value >= self.best and math.isfinite(item.value):
            self.best = item.value

    # What the page shows.

    def summary(self) -> dict[str, Any]:
        """One line of the list."""
        with self.lock:
            index, columns = self.index, self.index.columns
            method = index.header.get("config", {}).get("method", {})
            losses = [v for v in columns["loss"] if math.isfinite(v)]
            return {
                "id": self.id,
                "label": self.id.removesuffix(f"/{JOURNAL}"),
                "method": _text(method.get("name")),
                "step": _plain(method.get("step_size")),
                "n": _plain(index.header.get("config", {}).get("n")),
                "workers": _plain(index.header.get("config", {}).get("workers")),
                "rounds": len(index.rounds),
                "loss": losses[-1] if losses else None,
                "best": min(losses) if losses else None,
                "evaluations": _last(columns["evaluations"]),
                "failed": max(int(_last(columns["nans"])), self.failed),
                "values": len(self.known),
                "best_value": None if math.isnan(self.best) else self.best,
                "age": self._age(),
                "begun": index.number,
                "end": index.tail.end + self.values.end,
                "whole": self.whole,
                "problem": index.problem[:500],
                **self._folder(),
            }

    def _age(self) -> float | None:
        """Seconds since anything was written; None: there is no file yet."""
        found = []
        for name in (self.path.name, self.path.name + values.SUFFIX):
            try:
                found.append(self.path.with_name(name).stat(follow_symlinks=False).st_mtime)
            except OSError:
                continue
        return max(0.0, time.time() - max(found)) if found else None

    def _folder(self) -> dict[str, Any]:
        """What the files of ``desopt run`` and ``desopt ask`` beside the journal say."""
        if self.path.name != JOURNAL:
            return {"of": None, "ended": None, "names": None, "kind": "journal"}
        settings, result = (
            _object(self.tree.read(self.path.with_name(name), MAX_SMALL))
            for name in (SETTINGS, "result.json")
        )
        names = settings.get("variables")
        known = isinstance(names, list) and all(isinstance(name, str) for name in names)
        ended = result.get("message") if result.get("rounds") == len(self.index.rounds) else None
        return {
            "of": _plain(settings.get("rounds")),
            "ended": _text(ended) or None,
            "names": [name[:60] for name in names[:1000]] if known and names else None,
            "kind": "ask" if settings.get("kind") == "ask" else "run",
        }

    def curve(self) -> dict[str, Any]:
        """The evaluated rounds, at most ``POINTS`` of them, and those who answered."""
        with self.lock:
            index, columns = self.index, self.index.columns
            start = index.header.get("initial_fun")
            at = [i for i, loss in enumerate(columns["loss"]) if not math.isnan(loss)]
            if len(at) > POINTS:
                at = sorted({at[round(k * (len(at) - 1) / (POINTS - 1))] for k in range(POINTS)})
            up, down = columns["bytes_up"], columns["bytes_down"]
            x: dict[str, list[float]] = {
                "rounds": [0, *(i + 1 for i in at)],
                "evaluations": [0, *(columns["evaluations"][i] for i in at)],
                "upload": [0, *(up[i] for i in at)],
                "bytes": [0, *(up[i] + down[i] for i in at)],
                "seconds": [0, *(columns["seconds"][i] for i in at)],
            }
            y = [start, *(columns["loss"][i] for i in at)]
            names = self._sites()
            workers = sorted(index.answered.items())
            return {
                "id": self.id,
                "x": x,
                "y": [v if v is not None and math.isfinite(v) else None for v in y],
                "rounds": len(index.rounds),
                "last_answers": _last(columns["answers"]),
                "workers": [
                    [worker, names.get(worker, ""), count, last]
                    for worker, (count, last) in workers[:WORKERS]
                ],
                "more_workers": max(0, len(workers) - WORKERS),
                "failures": self.failures[::-1],
                "torn": index.tail.size - index.tail.end if self.whole else 0,
            }

    def _sites(self) -> dict[int, str]:
        """Names of sites from the log of a federation."""
        data = self.tree.read(self.path.with_name(self.path.name + SITES), MAX_SMALL)
        found: dict[int, str] = {}
        for line in (data or b"").splitlines():
            sites = _object(line).get("sites")
            if isinstance(sites, dict):
                for worker, site in sites.items():
                    if worker.isascii() and worker.isdigit() and len(worker) < 10:
                        found[int(worker)] = _text(site)
        return found


def _object(data: bytes | None) -> dict[str, Any]:
    """A JSON object; empty if it is none."""
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(value: Any) -> Any:
    """A number or a short text that JSON has."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and abs(value) > 2**53:
        return None
    return value if isinstance(value, int | float) else _text(value) or None


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _last(column: Any) -> float:
    return float(column[-1]) if column else 0.0
