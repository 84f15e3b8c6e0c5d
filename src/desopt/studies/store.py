"""The results of a study: one SQLite file, compact, and shared by all that work on it."""

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
from desopt.studies.cases import FIELDS, Case, from_mapping
from desopt.studies.files import replacing
from desopt.studies.schema import (
    CHOSEN,
    CURVES,
    DISGUISE,
    FORMAT,
    MIGRATION,
    OUTCOMES,
    SCHEMA,
    TABLES,
)

FILE = "results.sqlite"

#: Columns of a curve, as ``Outcome.curve`` and the exported CSV have them.
CURVE = (
    "round", "paper_round", "evaluations", "samples", "bytes_up", "bytes_down", "seconds",
    "train_loss", "train_error", "test_loss", "test_error",
)  # fmt: skip


#: Of the fields of an outcome, those that are text; the others are numbers.
_TEXT = ("status", "message", "origin", "version", "finished", "machine")

_KEPT = "; what is finished is kept, and the same command goes on"
_ADVICE = {
    sqlite3.SQLITE_FULL: f": make room on the disk{_KEPT}",
    sqlite3.SQLITE_IOERR: f": is the disk full, or gone?{_KEPT}",
    sqlite3.SQLITE_BUSY: f": another process keeps it; is one of them stopped?{_KEPT}",
    sqlite3.SQLITE_READONLY: ": choose another folder, or let it be written to",
    sqlite3.SQLITE_CANTOPEN: ": choose another folder, or let it be written to",
    sqlite3.SQLITE_PERM: ": choose another folder, or let it be written to",
    sqlite3.SQLITE_CORRUPT: ": the file is damaged; take a copy of it from before",
    sqlite3.SQLITE_NOTADB: ": the file is damaged, or none of desopt's",
}


@dataclass(frozen=True)
class Outcome:
    """A finished case. One that failed has a message, no curve, and zeros for what is unknown.

    ``seconds`` are those of the search, as in the curve; ``cpu_seconds`` and ``wall_seconds``
    are of the whole case, evaluation included.
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
class Item:
    """How far one item of a study has come."""

    name: str
    cases: int
    done: int
    failed: int


class Store:
    """The file, opened. Readers may look at any time, while others write."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: str | os.PathLike[str], create: bool = False) -> Store:
        """The results in this folder, to read; with ``create``, to write, new or not."""
        given = Path(path)
        file = given if given.suffix == ".sqlite" else given / FILE
        if file.exists() and not file.is_file():
            raise ValueError(f"{file} cannot be used as a file of results: it is no plain file")
        if create:
            file.parent.mkdir(parents=True, exist_ok=True)
        elif not file.is_file():
            raise FileNotFoundError(
                f"there are no results in {str(given)!r}: {FILE} is missing; "
                "desopt suite paper --out DIR makes one"
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
        self._connection.execute("PRAGMA trusted_schema = OFF")  # files are given away
        if create:
            # Readers do not wait for writers, and a killed process leaves nothing half-done.
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA wal_autocheckpoint = 100")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            with self.transaction():
                if self._format() or not self._tables():
                    self._execute({0: SCHEMA, 1: MIGRATION}.get(self._format(), ""))
        found = self._format()
        if found not in (1, FORMAT):
            raise sqlite3.DatabaseError(f"its format is {found}, this desopt knows {FORMAT}")
        if missing := sorted(TABLES - self._tables()):
            raise sqlite3.DatabaseError(f"it has no table {', '.join(missing)}")
        self._execute(DISGUISE if found == 1 else "")

    def _tables(self) -> set[str]:
        """Their names. A view in the place of one might never end."""
        rows = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {str(row["name"]) for row in rows}

    def _execute(self, statements: str) -> None:
        for statement in statements.split(";"):
            self._connection.execute(statement)

    def _format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and nobody else writes meanwhile."""
        with self._lock, self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """An error of the file says which file, and what to do."""
        try:
            yield
        except sqlite3.Error as error:
            if str(self.path) in str(error):
                raise
            raise type(error)(f"{self.path}: {error}{_advice(error)}") from error
        except UnicodeDecodeError as error:  # what SQLite says holds a piece of the file
            raise sqlite3.DatabaseError(f"{self.path}: the file is damaged: {error}") from error

    def query(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        with self._lock, self._explained():
            return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """The last one to leave also folds the write-ahead log into the file."""
        with suppress(sqlite3.Error):  # others are still at work, or it is read-only
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # Writing.

    def define(
        self, items: Mapping[str, Iterable[Case]], keep: Callable[[str, Case, bool], bool]
    ) -> None:
        """Enter the cases of these items. Those that are there are the study's if
        ``keep(item, case, whether it is now)`` says so; their results stay in any case.
        """
        update = "UPDATE members SET current = ? WHERE item = ? AND case_key = ?"
        with self.transaction():
            keys = self.keys()
            for item, case, current in self.members():
                kept = keep(item, case, current)
                self._connection.execute(update, [kept, item, keys[case.id]])
            self._add(items)

    def add(self, items: Mapping[str, Iterable[Case]]) -> None:
        """Enter the cases of these items as the study's, unless they are already."""
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
        """A line of provenance about the whole file; a later one of this name replaces it."""
        with self.transaction():
            self._connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", [name, value])

    def keys(self) -> dict[str, int]:
        """The file's own short key of every case by id."""
        return {row["id"]: row["key"] for row in self.query("SELECT id, key FROM cases")}

    def record(self, key: int, result: Mapping[str, Any], points: Iterable[Sequence[Any]]) -> None:
        """Enter a result and its points; the caller holds the transaction."""
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

    def shared_key(self, table: str, values: Mapping[str, Any]) -> int:
        """The key of the row with these values in a table of things that repeat."""
        names = ", ".join(values)
        same = " AND ".join(f"{name} IS ?" for name in values)
        given = list(values.values())
        marks = ", ".join("?" * len(values))
        self.query(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", given)
        return int(self.query(f"SELECT key FROM {table} WHERE {same}", given)[0]["key"])

    # Reading.

    def about(self) -> dict[str, str]:
        """Provenance of the whole file: what was asked for, and by which version."""
        return {str(row["name"]): str(row["value"]) for row in self.query("SELECT * FROM about")}

    def items(self, everything: bool = False) -> list[Item]:
        """The items of the study, with the number of their cases."""
        rows = self.query(
            "SELECT item AS name, COUNT(*) AS cases, COUNT(status = 'done' OR NULL) AS done, "
            "COUNT(status = 'failed' OR NULL) AS failed "
            "FROM members LEFT JOIN results USING (case_key) WHERE (current = 1) >= ? "
            "GROUP BY item ORDER BY item",
            [not everything],
        )
        return [Item(**dict(row)) for row in rows]

    def cases(self, item: str | None = None, everything: bool = False) -> list[Case]:
        """The cases of the study, finished or not; ``everything``: former ones as well."""
        chosen = {"item": item, "least": not everything}
        return [self._case(row) for row in self.query("SELECT * FROM cases c" + CHOSEN, chosen)]

    def read(self, item: str | None = None, everything: bool = False) -> list[Outcome]:
        """What is finished, of this item or of all, in the order the cases were entered.

        ``everything``: also cases that are no longer the study's, or were run on other data.
        """
        chosen = {"item": item, "least": not everything}
        with self._lock:
            self.query("BEGIN")  # one moment of the file for both queries
            try:
                outcomes = self.query(OUTCOMES + CHOSEN, chosen)
                rows = self.query(f"{CURVES}{CHOSEN}, p.round", chosen)
            finally:
                self.query("COMMIT")
        points: dict[int, list[sqlite3.Row]] = {}
        for row in rows:
            points.setdefault(row["key"], []).append(row)
        return [self._outcome(row, points.get(row["key"], [])) for row in outcomes]

    def finished(self) -> int:
        """How many results there are, of the study as it is now or not."""
        return int(self.query("SELECT COUNT(*) AS found FROM results")[0]["found"])

    def members(self) -> list[tuple[str, Case, bool]]:
        """Items, their cases, and whether these are the study's as it was last run."""
        rows = self.query("SELECT * FROM members JOIN cases ON key = case_key")
        return [(self._item(row), self._case(row), row["current"] == 1) for row in rows]

    def _item(self, row: sqlite3.Row) -> str:
        with self._sound(row):
            if not isinstance(row["item"], str):
                raise TypeError(f"its item is {row['item']!r}")
            return str(row["item"])

    def timings(self) -> list[tuple[Case, float]]:
        """The seconds that every case took that is done, evaluation included."""
        sql = (
            "SELECT c.*, r.wall_seconds AS took FROM results r JOIN cases c ON c.key = r.case_key "
            "WHERE r.status = 'done'"
        )
        return [(self._case(row), row["took"]) for row in self.query(sql)]

    def _case(self, row: sqlite3.Row) -> Case:
        with self._sound(row):
            case = from_mapping(dict(row))
            if case.id != row["id"]:
                raise ValueError(f"its settings are those of {case.id}")
            return case

    def _outcome(self, row: sqlite3.Row, points: Sequence[sqlite3.Row]) -> Outcome:
        with self._sound(row):
            return _outcome(self._case(row), row, points)

    @contextmanager
    def _sound(self, row: sqlite3.Row) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError) as error:
            if str(self.path) in str(error):
                raise
            raise ValueError(
                f"{self.path}: case {row['id']!r} is damaged: {error}; take a copy of the file "
                f"from before, or remove it with DELETE FROM results WHERE case_key = {row['key']}"
            ) from error

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """A copy as it is at this moment, in one file, also while others write."""
        Path(path).unlink(missing_ok=True)
        self.query("VACUUM INTO ?", [os.fspath(path)])

    def to_csv(
        self, folder: str | os.PathLike[str], ids: Container[str] | None = None
    ) -> list[Path]:
        """cases.csv, one line per case with its settings and how it ended; and points.csv.

        Of the cases with these ids; without them, of all that are there.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        items: dict[str, list[str]] = {}
        for row in self.query("SELECT id, item FROM members JOIN cases ON key = case_key"):
            items.setdefault(row["id"], []).append(row["item"])
        everything = self.read(everything=True)
        outcomes = [o for o in everything if ids is None or o.case.id in ids]
        plain = [name for name in Outcome.__dataclass_fields__ if name not in ("case", "curve")]
        named = ["rounds_done" if name == "rounds" else name for name in plain]
        with _table(target / "cases.csv", ["id", "items", *FIELDS, *named]) as cases:
            for o in outcomes:
                settings = [getattr(o.case, name) for name in FIELDS]
                ended = [getattr(o, name) for name in plain]
                cells = [o.case.id, " ".join(items[o.case.id]), *settings, *ended]
                cases.writerow(map(_cell, cells))
        with _table(target / "points.csv", ["id", *CURVE]) as points:
            for o in outcomes:
                columns = [o.curve[name].tolist() for name in CURVE]
                points.writerows([o.case.id, *row] for row in zip(*columns, strict=True))
        return [target / "cases.csv", target / "points.csv"]


def _unusable(file: Path, error: Exception) -> ValueError:
    return ValueError(f"{file} cannot be used as a file of results: {error}{_advice(error)}")


def _advice(error: Exception) -> str:
    """What to do about what SQLite says; the last eight bits are its kind of error."""
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
    """A text that a spreadsheet would compute is marked as text, by the mark it knows."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    return f"'{value}" if formula else value
