"""The store: what it gives back, exports, and refuses."""

import csv
import math
import os
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.small_studies import CASE, SHORT, reply_of

from desopt.studies.database import FILE
from desopt.studies.export import write_csv
from desopt.studies.leases import Session
from desopt.studies.outcomes import CURVE
from desopt.studies.store import Store


def test_the_store_gives_back_what_it_got(tmp_path: Path) -> None:
    losses = [0.1 + 0.2, math.inf, math.nan]
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE], "alpha": [CASE, SHORT]})
        session = Session(store)
        assert session.finish(CASE, "abacus", reply_of(losses))
        assert not session.finish(CASE, "abacus", reply_of([1.0]))
        assert session.finish(SHORT, "", {"error": "ValueError: no"})
        session.leave()
    assert [path.name for path in tmp_path.iterdir()] == [FILE]  # the log is folded in
    with Store.open(tmp_path) as store:
        (outcome,) = store.read("curves")
        failed = store.read("alpha")[1]
        assert [(i.name, i.cases, i.done, i.failed) for i in store.items()] == [
            ("alpha", 2, 1, 1), ("curves", 1, 1, 0)
        ]  # fmt: skip
        assert store.cases("alpha") == [CASE, SHORT]
        with pytest.raises(sqlite3.OperationalError):
            store.add({"x": [CASE]})
    assert (outcome.case, outcome.status, outcome.machine) == (CASE, "done", "abacus")
    assert (outcome.n, outcome.generated, outcome.origin, outcome.rounds) == (3, True, "drawn", 9)
    np.testing.assert_array_equal(outcome.curve["train_loss"], losses)
    np.testing.assert_array_equal(outcome.curve["paper_round"], [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(outcome.curve["train_error"], [0.0, 17 / 400, 34 / 400])
    np.testing.assert_allclose(outcome.curve["seconds"], [0.0, 0.512345, 1.02469])
    assert (failed.status, failed.message, failed.n) == ("failed", "ValueError: no", 0)
    assert failed.curve["round"].size == 0


def test_csv_holds_all_of_it(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE], "alpha": [CASE]})
        Session(store).finish(CASE, "abacus", reply_of([0.3, 0.25]))
        cases, points = write_csv(store, tmp_path / "csv")
    head, line = cases.read_text().splitlines()
    row = dict(zip(head.split(","), line.split(","), strict=True))
    assert (row["id"], row["items"], row["method"]) == (CASE.id, "alpha curves", "des-mr")
    assert (row["rounds_done"], row["rows"], row["status"]) == ("9", "", "done")
    table = np.genfromtxt(points, delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert table.dtype.names == ("id", *CURVE)
    assert table["train_loss"].tolist() == [0.3, 0.25]


def test_results_are_compact(tmp_path: Path) -> None:
    cases = [replace(CASE, run=run) for run in range(500)]
    rng = np.random.default_rng(0)
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": cases, "alpha": cases})
        session = Session(store)
        for case in cases:
            session.finish(case, "abacus", reply_of(rng.random(21).tolist()))
        session.leave()
    assert (tmp_path / FILE).stat().st_size < 1e6  # so 2,000 cases of 21 points take 4 MB


def test_a_snapshot_can_be_taken_while_others_write(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as writer:
        writer.add({"curves": [CASE]})
        with Store.open(tmp_path) as reader:
            reader.snapshot(tmp_path / "copy.sqlite")
        with Store.open(tmp_path / "copy.sqlite") as copy:
            assert copy.cases() == [CASE]


def test_parts_of_a_study_are_merged(tmp_path: Path) -> None:
    other = CASE.varied(run=3, partition="sorted")
    broken = CASE.varied(run=4)
    with (
        Store.open(tmp_path / "a", create=True) as here,
        Store.open(tmp_path / "b", create=True) as there,
    ):
        here.add({"curves": [CASE]})
        Session(here).finish(CASE, "abacus", reply_of([0.5, 0.25]))
        there.add({"curves": [CASE, other], "alpha": [other, broken]})
        session = Session(there)
        session.finish(CASE, "Antikythera", reply_of([9.0]))
        session.finish(other, "Antikythera", reply_of([0.5, math.nan]))
        session.finish(broken, "Antikythera", {"error": "ValueError: no"})
        assert here.merge(there) == 2
        assert here.merge(there) == 0
        first, second, failed = here.read()
        assert (first.machine, second.machine) == ("abacus", "Antikythera")
        assert (first.curve["train_loss"].tolist(), second.case) == ([0.5, 0.25], other)
        expected = there.read("alpha")[0]
        for name in CURVE:
            np.testing.assert_array_equal(second.curve[name], expected.curve[name])
        assert (failed.status, failed.message) == ("failed", "ValueError: no")
        assert [(i.name, i.done, i.failed) for i in here.items()] == [
            ("alpha", 1, 1), ("curves", 2, 0),
        ]  # fmt: skip


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_of_a_former_format_is_read_and_upgraded(tmp_path: Path, number: int) -> None:
    skewed = CASE.varied(partition="sorted", step_size="auto")
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        Session(store).finish(CASE, "", reply_of([0.5, 0.25]))
        for change in (
            "DROP VIEW curves", "DROP VIEW all_curves", "ALTER TABLE cases DROP COLUMN settings",
            "CREATE VIEW curves AS SELECT 1",
        ):  # fmt: skip
            store.query(change)
        if number == 1:
            store.query("ALTER TABLE cases DROP COLUMN digest")
            store.query("ALTER TABLE members DROP COLUMN current")
        store.query(f"PRAGMA user_version = {number}")
    before = (tmp_path / FILE).read_bytes()
    with Store.open(tmp_path) as store:
        (outcome,) = store.read()
        assert store.members() == [("curves", CASE, True)]
    assert (outcome.case, outcome.curve["train_loss"].tolist()) == (CASE, [0.5, 0.25])
    assert (tmp_path / FILE).read_bytes() == before
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [skewed]})
        reply = reply_of([0.5, 0.25])
        reply["points"] = [[*point[:7], None, None, None] for point in reply["points"]]
        assert Session(store).finish(skewed, "", reply)
        first, second = store.read()
        assert len(store.query("SELECT * FROM curves")) == 4
    assert (first.case, second.case) == (CASE, skewed)
    assert first.curve["train_loss"].tolist() == second.curve["train_loss"].tolist()
    assert np.isnan(second.curve["train_error"]).all()


# Damage.


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("UPDATE cases SET step_size = 'x'", "step_size must be a number, got 'x'"),
        ("UPDATE cases SET step_size = -1", "step_size must be > 0"),
        ("UPDATE cases SET data = x'ff00'", "data must be a non-empty text"),
        ("UPDATE cases SET data = 'other'", "its settings are those of"),
        ("UPDATE cases SET rows = 3.5", "rows must be a whole number"),
        ("UPDATE results SET version = x'00'", "version is b"),
        ("UPDATE results SET wall_seconds = 'long'", "wall_seconds is 'long'"),
        ("UPDATE points SET train_loss = 'x'", "could not convert string to float"),
        ("DELETE FROM points WHERE round = 0", "does not begin at round 0"),
        ("DELETE FROM points", "does not begin at round 0"),
        ("UPDATE data_sets SET n = 'many'", "n is 'many'"),
        ("UPDATE members SET item = x'00'", "its item is b"),
        ("UPDATE results SET data_key = NULL", "does not begin at round 0"),
        ("UPDATE results SET message = cast(x'ff' AS TEXT)", "decode"),
    ],
)
def test_a_damaged_result_is_named(tmp_path: Path, sql: str, error: str) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        Session(store).finish(CASE, "abacus", reply_of([0.5, 0.25]))
        store.query("PRAGMA foreign_keys = OFF")
        store.query(sql)
    with Store.open(tmp_path) as store, pytest.raises((ValueError, sqlite3.Error)) as caught:
        print(store.members(), store.read())
    assert re.search(error, str(caught.value))
    assert str(tmp_path / FILE) in str(caught.value)


def test_numbers_of_any_size_are_results(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        Session(store).finish(CASE, "", reply_of([1e308, 5e-324, -math.inf, math.nan]))
        store.query("UPDATE points SET samples = ?, train_wrong = -1", [2**63 - 1])
        (found,) = store.read()
    np.testing.assert_array_equal(found.curve["train_loss"], [1e308, 5e-324, -math.inf, math.nan])


@pytest.mark.parametrize("size", [0, 100, 4096, 20_000])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, size: int) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [replace(CASE, run=run) for run in range(300)]})
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:size])

    def count() -> int:
        with Store.open(tmp_path) as store:
            return len(store.read()) + len(store.cases())

    with pytest.raises((ValueError, sqlite3.Error), match=str(path)):
        count()


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    cases = [replace(CASE, run=run) for run in range(400)]
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": cases})
        session = Session(store)
        store.query("PRAGMA max_page_count = 40")
        reply = reply_of([0.5] * 100)
        with pytest.raises(sqlite3.OperationalError, match="full: make room on the disk"):
            all(session.finish(case, "", reply) for case in cases)
        assert not store._connection.in_transaction
        done = store.result_count()
        assert 0 < done < 400
        store.query("PRAGMA max_page_count = 100000")
        assert not session.finish(cases[done - 1], "", reply_of([0.5]))
        assert session.finish(cases[done], "", reply_of([0.5]))
    with Store.open(tmp_path) as store:
        assert len(store.read()) == done + 1


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "deleted"])
def test_results_outlive_the_file_they_are_written_to(tmp_path: Path, replaced: bool) -> None:
    cases = [replace(CASE, run=run) for run in range(3)]
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": cases})
        before = tmp_path / "before.sqlite"
        store.snapshot(before)
        session = Session(store)
        assert session.finish(cases[0], "", reply_of([0.5]))
        store.ensure_in_place()
        store.path.unlink()
        if replaced:  # as git does it: a new file of the same name
            before.rename(store.path)
        assert session.finish(cases[1], "", reply_of([0.25]))
        with pytest.raises(OSError, match=r"replaced .* all results are in .*results-saved-1"):
            store.ensure_in_place()
    with Store.open(tmp_path / "results-saved-1.sqlite") as saved:
        assert [outcome.case.run for outcome in saved.read()] == [0, 1]
    assert store.path.exists() == replaced
    if replaced:
        with Store.open(tmp_path) as other:
            assert other.read() == []


def test_csv_holds_no_formula(tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\tx", 'plain, with "quotes"\nand lines']
    cases = [replace(CASE, data=name) for name in names]
    with Store.open(tmp_path, create=True) as store:
        store.add({"=item": cases})
        for case in cases:
            Session(store).finish(case, names[0], reply_of([-0.5]))
        path, points = write_csv(store, tmp_path / "csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["data"] for row in rows] == [*(f"'{name}" for name in names[:-1]), names[-1]]
    assert {row["items"] for row in rows} == {"'=item"}
    assert {row["machine"] for row in rows} == {f"'{names[0]}"}
    assert points.read_text().splitlines()[1].split(",")[8] == "-0.5"  # a number is one
    assert sorted(p.name for p in path.parent.iterdir()) == ["cases.csv", "points.csv"]


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there are no results in"):
        Store.open(tmp_path)
    (tmp_path / FILE).write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(ValueError, match="cannot be used"):
        Store.open(tmp_path)
    (tmp_path / FILE).unlink()
    with Store.open(tmp_path, create=True) as store:
        store.query("PRAGMA user_version = 99")
    with pytest.raises(ValueError, match="its format is 99"):
        Store.open(tmp_path)
    (tmp_path / FILE).unlink()
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("CREATE TABLE precious (x)")
    other.close()
    with pytest.raises(ValueError, match="its format is 0"):  # somebody else's
        Store.open(tmp_path, create=True)
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("PRAGMA user_version = 2")
        other.execute("CREATE VIEW cases AS SELECT 1 AS key")
    other.close()
    with pytest.raises(ValueError, match="it has no table about, cases"):
        Store.open(tmp_path)
    (tmp_path / FILE).unlink()
    os.mkfifo(tmp_path / FILE)
    for create in (False, True):
        with pytest.raises(ValueError, match="not a regular file"):
            Store.open(tmp_path, create)
