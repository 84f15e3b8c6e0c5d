"""The SQLite file of a study: opened, checked, upgraded; its errors say what to do."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

from desopt.studies.schema import FORMAT, MIGRATIONS, READ, SCHEMA, TABLES

FILE = "results.sqlite"

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


class Database:
    """An open file. It can be read at any time, even while others write."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()
        self._identity = _identity(path)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], create: bool = False, *, seconds: float | None = None
    ) -> Self:
        """Open the results in this folder for reading; with ``create``, for writing, new or not.

        ``seconds``: all queries together are interrupted after so long.
        """
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
        if seconds is not None:
            limit = time.monotonic() + seconds
            connection.set_progress_handler(lambda: time.monotonic() > limit, 100_000)
        database = cls(file, connection)
        try:
            database._prepare(create)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            connection.close()
            raise _unusable(file, error) from error
        return database

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """A consistent copy in one file, even while others write."""
        Path(path).unlink(missing_ok=True)
        self.query("VACUUM INTO ?", [os.fspath(path)])

    def ensure_in_place(self) -> None:
        """Save the results and raise, if the file is gone or another has taken its place.

        SQLite would go on writing to a file without a name, whose results end with the process.
        """
        if _identity(self.path) == self._identity:
            return
        names = (self.path.with_name(f"{self.path.stem}-saved-{i}.sqlite") for i in count(1))
        saved = next(path for path in names if not path.exists())
        saved.parent.mkdir(parents=True, exist_ok=True)
        self.snapshot(saved)
        raise OSError(
            f"{self.path} was deleted or replaced while it was written, as git checkout and git "
            f"stash do; all results are in {saved}: rename it to {self.path.name} to continue"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """What stays the same while this file has this name; None: there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _unusable(file: Path, error: Exception) -> ValueError:
    return ValueError(f"{file} cannot be used as a results file: {error}{_advice(error)}")


def _advice(error: Exception) -> str:
    """Advice by SQLite's primary error code, the low eight bits."""
    return _ADVICE.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, "")
