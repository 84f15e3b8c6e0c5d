"""The results of a study in one SQLite file, shared by all sessions that work on it."""

from __future__ import annotations

import csv
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.studies.cases import FIELDS, NAMES, Case, from_mapping
from desopt.studies.output import replacing
from desopt.studies.schema import (
    CURVES,
    FACTS,
    FORMAT,
    MIGRATIONS,
    OUTCOMES,
    READ,
    RESULT,
    RESULTS,
    SCHEMA,
    TABLES,
    WHERE_CHOSEN,
)

FILE = "results.sqlite"

#: Columns of a curve, in ``Outcome.curve`` and in the exported CSV.
CURVE = (
    "round", "paper_round", "evaluations", "samples", "bytes_up", "bytes_down", "seconds",
    "train_loss", "train_error", "test_loss", "test_error",
)  # fmt: skip

#: The text fields of an outcome; the others are numbers.
_TEXT = ("status", "message", "origin", "version", "finished", "machine")

_KEPT = "; finished results are kept, and the same command continues"
_ADVICE = {
    sqlite3.SQLITE_FULL: f": make room on the disk{_KEPT}",
    sqlite3.SQLITE_IOERR: f": is the disk full or disconnected?{_KEPT}",
    sqlite3.SQLITE_BUSY: f": another process has locked it; is one suspended?{_KEPT}",
    sqlite3.SQLITE_READONLY: ": choose another folder, or make it writable",
    sqlite3.SQLITE_CANTOPEN: ": choose another folder, or make it writable",
    sqlite3.SQLITE_PERM: ": choose another folder, or make it writable",
    sqlite3.SQLITE_CORRUPT: ": the file is damaged; restore an earlier copy",
    sqlite3.SQLITE_NOTADB: ": the file is damaged, or not written by desopt",
}


@dataclass(frozen=True)
class Outcome:
    """The result of a case. A failed one has a message, no curve, and zeros for unknown numbers.

    ``seconds`` is the time of the search, as in the curve; ``cpu_seconds`` and ``wall_seconds``
    cover the whole case, evaluation included.
    """

    case: Case
    status: str
    message: str
    rounds: int
    train_rows: int
    test_rows: int
    n: int
    density: float
    generated: bool
    origin: str
    seconds: float
    cpu_seconds: float
    wall_seconds: float
    version: str
    seed: int
    finished: str
    machine: str
    curve: dict[str, FloatArray] = field(repr=False)


@dataclass(frozen=True)
class ItemProgress:
    """The number of cases of an item, and how many are done or have failed."""

    name: str
    cases: int
    done: int
    failed: int


class Store:
    """An open results file. It can be read at any time, even while others write."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: str | os.PathLike[str], create: bool = False) -> Store:
        """Open the results in this folder for reading; with ``create``, for writing, new or not."""
        given = Path(path)
        file = given if given.suffix == ".sqlite" else given / FILE
        if file.exists() and not file.is_file():
            raise ValueError(f"{file} cannot be used as a results file: it is not a regular file")
        if create:
            file.parent.mkdir(parents=True, exist_ok=True)
        elif not file.is_file():
            raise FileNotFoundError(
                f"there are no results in {str(given)!r}: {FILE} is missing; "
                "desopt suite paper --out DIR creates it"
            )
        mode = "rwc" if create else "ro"
        try:
            connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=60.0,
                isolation_level=None, check_same_thread=False,
            )  # fmt: skip
        except sqlite3.Error as error:
            raise _unusable(file, error) from error
        connection.row_factory = sqlite3.Row
        store = cls(file, connection)
        try:
            store._prepare(create)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            connection.close()
            raise _unusable(file, error) from error
        return store

    def _prepare(self, create: bool) -> None:
        self._connection.execute("PRAGMA trusted_schema = OFF")  # the file may come from strangers
        if create:
            # Readers do not wait for writers, and a killed process leaves no partial writes.
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA wal_autocheckpoint = 100")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            with self.transaction():
                if self._format() or not self._tables():
                    self._execute({0: SCHEMA, **MIGRATIONS}.get(self._format(), ""))
        found = self._format()
        if found not in (*READ, FORMAT):
            raise sqlite3.DatabaseError(
                f"its format is {found}, this version of desopt reads {FORMAT}"
            )
        if missing := sorted(TABLES - self._tables()):
            raise sqlite3.DatabaseError(f"it has no table {', '.join(missing)}")
        self._execute(READ.get(found, ""))

    def _tables(self) -> set[str]:
        """The names of the tables. Views do not count: a query of one might never end."""
        rows = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {str(row["name"]) for row in rows}

    def _execute(self, statements: str) -> None:
        for statement in statements.split(";"):
            self._connection.execute(statement)

    def _format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """An atomic block of statements with the write lock held."""
        with self._lock, self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended the transaction
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of SQLite with the path of the file and advice."""
        try:
            yield
        except sqlite3.Error as error:
            if str(self.path) in str(error):
                raise
            raise type(error)(f"{self.path}: {error}{_advice(error)}") from error
        except UnicodeDecodeError as error:  # SQLite's message quotes the file
            raise sqlite3.DatabaseError(f"{self.path}: the file is damaged: {error}") from error

    def query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        with self._lock, self._explained():
            return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Close; the last connection merges the write-ahead log into the file."""
        with suppress(sqlite3.Error):  # others are connected, or it is read-only
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # Writing.

    def define(
        self, items: Mapping[str, Iterable[Case]], is_current: Callable[[str, Case, bool], bool]
    ) -> None:
        """Add the cases of these items, and mark which stored cases are current.

        ``is_current(item, case, was_current)`` decides. Results are kept either way.
        """
        update = "UPDATE members SET current = ? WHERE item = ? AND case_key = ?"
        with self.transaction():
            keys = self.keys()
            for item, case, current in self.members():
                now = is_current(item, case, current)
                self._connection.execute(update, [now, item, keys[case.id]])
            self._add(items)

    def add(self, items: Mapping[str, Iterable[Case]]) -> None:
        """Add the cases of these items as current cases, unless they are there already."""
        with self.transaction():
            self._add(items)

    def _add(self, items: Mapping[str, Iterable[Case]]) -> None:
        marks = ", ".join("?" * (len(FIELDS) + 1))
        insert = f"INSERT OR IGNORE INTO cases (id, {', '.join(FIELDS)}) VALUES ({marks})"
        member = "INSERT OR REPLACE INTO members SELECT ?, key, 1 FROM cases WHERE id = ?"
        for item, cases in items.items():
            for case in cases:
                values = [getattr(case, name) for name in FIELDS]
                self._connection.execute(insert, [case.id, *values])
                self._connection.execute(member, [item, case.id])

    def note(self, name: str, value: str) -> None:
        """Store a line of provenance about the file; it replaces an earlier one of this name."""
        with self.transaction():
            self._connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", [name, value])

    def keys(self) -> dict[str, int]:
        """The integer key of every case, by id."""
        return {row["id"]: row["key"] for row in self.query("SELECT id, key FROM cases")}

    def record(self, key: int, result: Mapping[str, Any], points: Iterable[Sequence[Any]]) -> None:
        """Store a result and its points, inside a transaction of the caller."""
        columns = ", ".join(result)
        marks = ", ".join("?" * len(result))
        self._connection.execute("DELETE FROM points WHERE case_key = ?", [key])
        self._connection.execute(
            f"INSERT OR REPLACE INTO results (case_key, {columns}) VALUES (?, {marks})",
            [key, *result.values()],
        )
        self._connection.executemany(
            f"INSERT INTO points VALUES ({', '.join('?' * 11)})", ([key, *p] for p in points)
        )

    def merge(self, other: Store) -> int:
        """Take the items and the results of another file that are missing here; returns how many.

        For parts of a study that ran in different folders.
        """
        taken = 0
        with self.transaction():
            for item, case, current in other.members():
                if current:
                    self._add({item: [case]})
            keys = self.keys()
            here = {row["case_key"] for row in self.query("SELECT case_key FROM results")}
            for row in other.query(RESULTS):
                key = keys.get(row["id"])
                if key is None or key in here:
                    continue
                result = {name: row[name] for name in RESULT}
                machine = {"description": row["description"]}
                result["machine_key"] = self.shared_key("machines", machine)
                if row["data_key"] is not None:
                    facts = {name: row[name] for name in FACTS}
                    result["data_key"] = self.shared_key("data_sets", facts)
                points = other.query(
                    "SELECT * FROM points WHERE case_key = ? ORDER BY round", [row["case_key"]]
                )
                self.record(key, result, [list(point)[1:] for point in points])
                taken += 1
        return taken

    def shared_key(self, table: str, values: Mapping[str, Any]) -> int:
        """The key of the row with these values in a lookup table; it is added if missing."""
        names = ", ".join(values)
        same = " AND ".join(f"{name} IS ?" for name in values)
        given = list(values.values())
        marks = ", ".join("?" * len(values))
        self.query(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", given)
        return int(self.query(f"SELECT key FROM {table} WHERE {same}", given)[0]["key"])

    # Reading.

    def about(self) -> dict[str, str]:
        """Provenance of the file: the study and the version of desopt."""
        return {str(row["name"]): str(row["value"]) for row in self.query("SELECT * FROM about")}

    def items(self, include_former: bool = False) -> list[ItemProgress]:
        """The items of the study with their numbers of cases."""
        rows = self.query(
            "SELECT item AS name, COUNT(*) AS cases, COUNT(status = 'done' OR NULL) AS done, "
            "COUNT(status = 'failed' OR NULL) AS failed "
            "FROM members LEFT JOIN results USING (case_key) WHERE (current = 1) >= ? "
            "GROUP BY item ORDER BY item",
            [not include_former],
        )
        return [ItemProgress(**dict(row)) for row in rows]

    def cases(self, item: str | None = None, include_former: bool = False) -> list[Case]:
        """The cases of the study, finished or not; with ``include_former``, former ones too."""
        chosen = {"item": item, "least": not include_former}
        return [
            self._case(row) for row in self.query("SELECT * FROM cases c" + WHERE_CHOSEN, chosen)
        ]

    def read(self, item: str | None = None, include_former: bool = False) -> list[Outcome]:
        """The results of this item or of all, in the order in which the cases were added.

        ``include_former``: also of cases that the study no longer has, and on former data.
        """
        chosen = {"item": item, "least": not include_former}
        with self._lock:
            self.query("BEGIN")  # both queries see the same state of the file
            try:
                outcomes = self.query(OUTCOMES + WHERE_CHOSEN, chosen)
                rows = self.query(f"{CURVES}{WHERE_CHOSEN}, p.round", chosen)
            finally:
                self.query("COMMIT")
        points: dict[int, list[sqlite3.Row]] = {}
        for row in rows:
            points.setdefault(row["key"], []).append(row)
        return [self._outcome(row, points.get(row["key"], [])) for row in outcomes]

    def result_count(self) -> int:
        """The number of results in the file, current or not."""
        return int(self.query("SELECT COUNT(*) AS found FROM results")[0]["found"])

    def members(self) -> list[tuple[str, Case, bool]]:
        """Items with their cases, and whether these were current when the study last ran."""
        rows = self.query("SELECT * FROM members JOIN cases ON key = case_key")
        return [(self._item(row), self._case(row), row["current"] == 1) for row in rows]

    def _item(self, row: sqlite3.Row) -> str:
        with self._locating(row):
            if not isinstance(row["item"], str):
                raise TypeError(f"its item is {row['item']!r}")
            return str(row["item"])

    def timings(self) -> list[tuple[Case, float]]:
        """Every successful case with the seconds it took, evaluation included."""
        sql = (
            "SELECT c.*, r.wall_seconds AS took FROM results r JOIN cases c ON c.key = r.case_key "
            "WHERE r.status = 'done'"
        )
        return [(self._case(row), row["took"]) for row in self.query(sql)]

    def _case(self, row: sqlite3.Row) -> Case:
        with self._locating(row):
            case = from_mapping(dict(row))
            if case.id != row["id"]:
                raise ValueError(f"its settings are those of {case.id}")
            return case

    def _outcome(self, row: sqlite3.Row, points: Sequence[sqlite3.Row]) -> Outcome:
        with self._locating(row):
            return _outcome(self._case(row), row, points)

    @contextmanager
    def _locating(self, row: sqlite3.Row) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError) as error:
            if str(self.path) in str(error):
                raise
            raise ValueError(
                f"{self.path}: case {row['id']!r} is damaged: {error}; restore an earlier copy of "
                f"the file, or DELETE FROM results WHERE case_key = {row['key']}"
            ) from error

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """A consistent copy in one file, even while others write."""
        Path(path).unlink(missing_ok=True)
        self.query("VACUUM INTO ?", [os.fspath(path)])

    def to_csv(
        self, folder: str | os.PathLike[str], ids: Container[str] | None = None
    ) -> list[Path]:
        """Write cases.csv, one line per case with settings and result, and points.csv.

        ``ids``: of these cases only.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        items: dict[str, list[str]] = {}
        for row in self.query("SELECT id, item FROM members JOIN cases ON key = case_key"):
            items.setdefault(row["id"], []).append(row["item"])
        stored = self.read(include_former=True)
        outcomes = [o for o in stored if ids is None or o.case.id in ids]
        plain = [name for name in Outcome.__dataclass_fields__ if name not in ("case", "curve")]
        named = ["rounds_done" if name == "rounds" else name for name in plain]
        with _table(target / "cases.csv", ["id", "items", *NAMES, *named]) as cases:
            for o in outcomes:
                settings = [getattr(o.case, name) for name in NAMES]
                ended = [getattr(o, name) for name in plain]
                cells = [o.case.id, " ".join(items[o.case.id]), *settings, *ended]
                cases.writerow(map(_cell, cells))
        with _table(target / "points.csv", ["id", *CURVE]) as points:
            for o in outcomes:
                columns = [o.curve[name].tolist() for name in CURVE]
                points.writerows([o.case.id, *row] for row in zip(*columns, strict=True))
        return [target / "cases.csv", target / "points.csv"]


def _unusable(file: Path, error: Exception) -> ValueError:
    return ValueError(f"{file} cannot be used as a results file: {error}{_advice(error)}")


def _advice(error: Exception) -> str:
    """Advice by SQLite's primary error code, the low eight bits."""
    return _ADVICE.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, "")


def _outcome(case: Case, row: sqlite3.Row, points: Sequence[sqlite3.Row]) -> Outcome:
    values = dict(row)
    done = {name: values[name] for name in Outcome.__dataclass_fields__ if name in values}
    unknown = {"train_rows": 0, "test_rows": 0, "n": 0, "density": 0.0, "origin": "",
               "seconds": 0.0, "cpu_seconds": 0.0, "wall_seconds": 0.0, "machine": ""}  # fmt: skip
    done |= {name: value for name, value in unknown.items() if done[name] is None}
    done["rounds"] = values["rounds_done"] or 0
    done["generated"] = bool(values["generated"])
    for name, value in done.items():
        if not isinstance(value, str if name in _TEXT else int | float):
            raise TypeError(f"{name} is {value!r}")
    if done["status"] == "done" and not (points and points[0]["round"] == 0):
        raise ValueError("its curve does not begin at round 0")
    curve = {
        name: np.array([math.nan if p[name] is None else p[name] for p in points], np.float64)
        for name in CURVE
    }
    return Outcome(case=case, curve=curve, **done)


@contextmanager
def _table(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        yield writer


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would evaluate as a formula gets an apostrophe."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    return f"'{value}" if formula else value
