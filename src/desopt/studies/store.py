"""The results of a study in one SQLite file, shared by all sessions that work on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from desopt.studies.cases import FIELDS, Case, from_mapping
from desopt.studies.database import Database
from desopt.studies.outcomes import Outcome, outcome_of
from desopt.studies.schema import CURVES, FACTS, OUTCOMES, RESULT, RESULTS, WHERE_CHOSEN


@dataclass(frozen=True)
class ItemProgress:
    """The number of cases of an item, and how many are done or have failed."""

    name: str
    cases: int
    done: int
    failed: int


class Store(Database):
    """The cases and results in an open file."""

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
            return outcome_of(self._case(row), row, points)

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
