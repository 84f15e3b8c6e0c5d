"""Cases, the paper's and one's own, a case's numbers, the store and the claims."""

import csv
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from desopt.methods.registry import COMPARED
from desopt.objectives.scoring import Part
from desopt.run.minimize import minimize
from desopt.studies import costs, leases, paper, study, text, toml
from desopt.studies.cases import Case
from desopt.studies.execute import Split, due_rounds, execute, length
from desopt.studies.identity import digest
from desopt.studies.leases import Session
from desopt.studies.runner import Status
from desopt.studies.selection import distinct, select
from desopt.studies.store import CURVE, FILE, Store
from desopt.studies.worker import Desk

CASE = Case(
    data="ijcnn1", problem="lr", method="des-mr", step_size=1, run=0, iterations=100, budget=1000
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "study.toml"


# Cases.


def test_an_id_never_changes() -> None:
    assert CASE.id == "58eb083d3b4170d5"
    assert replace(CASE, step_size=1.0).id == CASE.id


def test_every_field_decides_the_id() -> None:
    others: dict[str, Any] = {
        "data": "a",
        "problem": "nsvm",
        "method": "des",
        "rows": 9,
        "digest": "ab",
        "budget": 1.0,
    }
    cases = [CASE]
    for field in fields(Case):
        if field.name == "rounds":
            cases.append(replace(CASE, rounds=3, budget=None))
        else:
            value = others.get(field.name) or getattr(CASE, field.name) + 1
            cases.append(replace(CASE, **{field.name: value}))
    assert len({case.id for case in cases}) == len(cases)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"rounds": 3}, "either budget"),
        ({"budget": None}, "either budget"),
        ({"run": -1}, "run must be at least 0"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"momentum": math.nan}, "momentum must be at least 0"),
        ({"workers": 2.5}, "workers must be a whole number"),
        ({"iterations": None}, "iterations must be a whole number"),
    ],
)
def test_a_case_refuses(change: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        replace(CASE, **change)


def test_a_case_is_as_long_as_the_budget() -> None:
    # E N / (M K b) = 1000 * 39,992 / 1,000,000 = 39.992
    assert length(CASE, 39_992, 22).rounds == 40
    assert length(replace(CASE, budget=0.001), 39_992, 22).rounds == 1
    assert length(replace(CASE, method="es", budget=1), 1_000_000, 22).rounds == 10
    # lambda = 1,000,000 / 39,992 = 25; a generation costs 25 * 39,992 of 39,992,000 samples
    generations = length(replace(CASE, method="es-csa"), 39_992, 22)
    assert (generations.rounds, generations.population) == (40, 25)
    assert generations.paper_rounds_each == pytest.approx(0.9998)
    # covtype: 1,000,000 / 464,810 is 2, so lambda = 4 + floor(3 ln 54) = 15
    generations = length(replace(CASE, method="es-csa"), 464_810, 54)
    assert (generations.rounds, generations.population) == (67, 15)
    same_cost = length(replace(CASE, method="es-csa", budget=None, rounds=465), 464_810, 54)
    assert same_cost.rounds == 67


def test_a_curve_is_evenly_spaced() -> None:
    assert due_rounds(3, 20) == {0, 1, 2, 3}
    assert due_rounds(40, 20) == set(range(0, 41, 2))
    due = sorted(due_rounds(542, 20))
    assert (due[0], due[-1], len(due)) == (0, 542, 21)
    assert set(np.diff(due)) == {27, 28}


# The paper's study.


def test_full_is_the_paper() -> None:
    items = paper.items("full", ["ijcnn1", "mnist"])
    assert {name: len(cases) for name, cases in items.items()} == {
        "curves": 2 * 504, "alpha": 2 * 504, "momentum": 2 * 120, "batch": 2 * 120
    }  # fmt: skip
    assert items["alpha"] == items["curves"]
    # b = 1000 of the last item is a case of the first
    assert len(distinct(items)) == 2 * (504 + 120 + 96)
    settings = {(c.data, c.iterations, c.budget) for cases in items.values() for c in cases}
    assert settings == {("ijcnn1", 100, 1000.0), ("mnist", 500, 5000.0)}
    for case in items["curves"]:
        assert (case.workers, case.batch_size, case.momentum, case.mixture) == (10, 1000, 0.5, 8)
        assert (case.radius, case.regularization, case.rows) == (1e-6, 1e-6, None)
    assert {(c.method, c.step_size) for c in items["momentum"]} == {("des-mr", 1.0)}
    assert {c.momentum for c in items["momentum"]} == {0.0, 0.2, 0.4, 0.6, 0.8}
    assert {c.batch_size for c in items["batch"]} == {100, 500, 1000, 1500, 2000}
    assert {c.run for c in items["batch"]} == set(range(8))


def test_rows_are_capped_and_a_cap_that_does_nothing_is_no_other_case() -> None:
    assert {c.rows for c in paper.items("full", ["rcv1-like"], 5000)["batch"]} == {5000}
    assert {c.rows for c in paper.items("full", ["ijcnn1"], 10**6)["batch"]} == {None}


def test_a_file_of_the_data_folder_will_do(tmp_path: Path) -> None:
    data_file(tmp_path, "123")
    cases = study.paper("smoke", ["mine.csv"], data_dir=str(tmp_path)).cases
    assert {(case.data, case.rows, case.iterations) for case in cases} == {("mine.csv", None, 10)}


def test_twins_stand_in_for_what_is_missing() -> None:
    some = paper.default_data("full", ["ijcnn1", "rcv1", "susy-like"])
    assert some == ["ijcnn1", "susy-like", "real-sim-like", "rcv1"]


def test_every_scale_has_all_items_and_methods() -> None:
    for scale in paper.SCALES:
        items = study.paper(scale).items
        assert set(items) == set(paper.ITEMS)
        assert {case.method for case in items["curves"]} == set(COMPARED)


# Parts of a study.


def test_only_selects_by_name() -> None:
    items = paper.items("full", ["ijcnn1", "covtype", "mnist"])
    part = select(items, ["curves:ijcnn1,covtype:lr", "momentum:mnist"])
    assert set(part) == {"curves", "momentum"}
    assert {(c.data, c.problem) for c in part["curves"]} == {("ijcnn1", "lr"), ("covtype", "lr")}
    assert {c.data for c in part["momentum"]} == {"mnist"}
    assert select(items, []) == items
    assert {c.method for c in select(items, ["des-mg"])["alpha"]} == {"des-mg"}
    with pytest.raises(
        ValueError, match=r"unknown name in --only 'ijcnn': .*did you mean 'ijcnn1'"
    ):
        select(items, ["curves:ijcnn"])


# A study of one's own.


def test_the_example_is_what_its_comments_say() -> None:
    name, items = toml.read(EXAMPLE)
    assert name == "first study"
    assert {item: len(cases) for item, cases in items.items()} == {"methods": 54, "momentum": 18}
    assert {c.momentum for c in items["momentum"]} == {0.0, 0.5, 0.8}
    assert {c.run for c in items["methods"]} == {0, 1, 2}


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


SMALL = 'data = "heart"\nproblems = ["lr"]\nmethods = ["des"]\n'


def test_an_item_replaces_what_is_shared(tmp_path: Path) -> None:
    text = "budget = 5\nruns = 2\n[items.a]\nrounds = 7\nseeds = [4, 9]\n[items.b]\nworkers = 3\n"
    name, items = toml.read(written(tmp_path, SMALL + text))
    assert name == "mine"
    assert [(c.rounds, c.budget, c.run) for c in items["a"]] == [(7, None, 4), (7, None, 9)]
    assert [(c.budget, c.run, c.workers) for c in items["b"]] == [(5.0, 0, 3), (5.0, 1, 3)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (SMALL + "rouns = 3", "unknown key 'rouns'.*did you mean 'rounds'"),
        (SMALL + "[items.a]\nstepsize = 3", "unknown key 'stepsize'.*did you mean 'step_size'"),
        (SMALL, "either budget"),
        (SMALL + "rounds = 3\nbudget = 4", "either budget"),
        (SMALL.replace("des", "dse") + "rounds = 3", "unknown method 'dse'.*did you mean 'des'"),
        (SMALL.replace('"lr"', '"svm"') + "rounds = 3", "unknown problem 'svm'"),
        (SMALL + "rounds = 3\nworkers = [2, 'x']", "workers must be a whole number, got 'x'"),
        (SMALL + "rounds = 3\nruns = 0", "runs must be a whole number of at least 1"),
        (SMALL + "rounds = []", "rounds must be a value or a list of values"),
        ('methods = ["des"]\nproblems = ["lr"]\nrounds = 1', "data is missing"),
        ("data = [", "is not TOML"),
        (SMALL + "items = 3", "items must be tables"),
        (SMALL + "rounds = 3\n[items.'']", "items must have names"),
        (SMALL + "rounds = 3\n[items]", "items must have names"),
        (SMALL + "rounds = 3\ndigest = 'ab'", "unknown key 'digest'"),
        (SMALL + "rounds = 3\nruns = 2_000_000_000", "2,000,000,000 cases, more than 1,000,000"),
        (SMALL + "rounds = 3\nseeds = [9223372036854775808]", "run must be at least 0 and below"),
        (SMALL + "rounds = 3\nseeds = [1.5]", "run must be a whole number"),
        (SMALL + "rounds = true", "rounds must be a whole number"),
        (SMALL + "rounds = 3\nstep_size = inf", "step_size must be positive and finite"),
        (SMALL.replace('"heart"', '""') + "rounds = 3", "data must be a text that is not empty"),
        (SMALL + "rounds = 3\nname = 7", "name must be a text"),
        ("x = " + "[" * 9999, "is not TOML"),
    ],
)
def test_a_bad_study_says_what_is_wrong(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error) as caught:
        toml.read(written(tmp_path, text))
    assert "mine.toml" in str(caught.value)


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no study 'papr'"):
        toml.read(Path("papr"))
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path, tmp_path / "pipe.toml"):
        with pytest.raises(ValueError, match="no plain file"):
            toml.read(path)


# A case's numbers.


def small_split(rows: int = 300, n: int = 6, scale: float = 1.0) -> Split:
    rng = np.random.default_rng(3)
    X = scale * rng.standard_normal((rows, n))
    y = np.where(X @ rng.standard_normal(n) + rng.standard_normal(rows) > 0, 1.0, -1.0)
    facts = {"name": "d", "train_rows": 200, "test_rows": rows - 200, "n": n, "density": 1.0,
             "generated": 1, "origin": "drawn here"}  # fmt: skip
    return Split(Part(X[:200], y[:200]), Part(X[200:], y[200:]), facts)


SHORT = replace(
    CASE, data="d", workers=4, iterations=10, batch_size=20, rounds=7, budget=None, points=3
)


def plain(problem: str, part: Part, x: Any) -> tuple[float, float]:
    """The regularised loss and the share of wrong signs, in plain NumPy."""
    margin = part.y * (part.X @ x)
    loss = {
        "lr": np.logaddexp(0.0, -margin),
        "nsvm": 1.0 - np.tanh(margin),
        "lsvm": np.maximum(0.0, 1.0 - margin),
    }[problem]
    predicted = np.where(part.X @ x > 0, 1.0, -1.0)
    return loss.mean() + 0.5e-6 * x @ x, np.mean(predicted != part.y)


@pytest.mark.parametrize(
    ("problem", "method"), [("lr", "des-mr"), ("nsvm", "des"), ("lsvm", "es-csa")]
)
def test_a_curve_is_that_of_minimize(problem: str, method: str) -> None:
    split, case = small_split(), replace(SHORT, problem=problem, method=method, run=5)
    reply = execute(case, split)
    long = length(case, 200, 6)
    assert [p[0] for p in reply["points"]] == sorted(due_rounds(long.rounds, 3))
    run = minimize(
        problem, None, (split.train.X, split.train.y), method=method, workers=4, iterations=10,
        batch_size=20, rounds=long.rounds, seed=5, engine="threads", progress=False,
    )  # fmt: skip
    last = run.history[-1]
    counts = [last[name] for name in ("round", "evaluations", "samples", "bytes_up", "bytes_down")]
    assert reply["points"][-1][:5] == counts
    for point, x in ((reply["points"][0], np.zeros(6)), (reply["points"][-1], run.x)):
        train, test = plain(problem, split.train, x), plain(problem, split.test, x)
        assert point[6:] == pytest.approx(
            [train[0], 200 * train[1], test[0], 100 * test[1]], rel=1e-12
        )


def test_a_run_that_diverges_is_a_result() -> None:
    case = replace(SHORT, method="fed-zo-sgd", step_size=1e150, problem="lsvm")
    points = execute(case, small_split(scale=1e10))["points"]
    assert not math.isfinite(points[-1][6])


# The store.


def reply_of(losses: list[float]) -> dict[str, Any]:
    points = [
        [t, 10_100 * t, 10_100_000 * t, 630 * t, 6300 * t, 512_345 * t, loss, 17 * t, loss, 0]
        for t, loss in enumerate(losses)
    ]
    facts = {"name": "d", "train_rows": 400, "test_rows": 100, "n": 3, "density": 0.5,
             "generated": 1, "origin": "drawn"}  # fmt: skip
    result = {"rounds": 9, "paper_rounds_each": 0.5, "seconds": 1.5, "cpu_seconds": 1.4,
              "wall_seconds": 1.7, "seed": 0}  # fmt: skip
    return {"result": result, "data": facts, "points": points}


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
        cases, points = store.to_csv(tmp_path / "csv")
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


# A study that changes.

TOML = """
name = "s"
data = ["mine.csv"]
problems = ["lr"]
methods = {methods}
runs = {runs}
rounds = 3
[items.a]
[items.b]
momentum = [0.1, 0.2]
"""


def defined(folder: Path, methods: str = '["des", "des-mr"]', runs: int = 2) -> study.Study:
    path = folder / "s.toml"
    path.write_text(TOML.format(methods=methods, runs=runs))
    return study.from_toml(path)


def data_file(folder: Path, values: str) -> None:
    (folder / "mine.csv").write_text("label,a\n" + "".join(f"1,{v}\n-1,{v}\n" for v in values))


def pretend(chosen: study.Study, folder: Path, loss: float, data_dir: Path) -> None:
    """What ``study.run`` does, without the work."""
    where = str(data_dir)
    chosen = chosen.on({name: study.digest_at_hand(name, where) for name in chosen.data})
    with Store.open(folder, create=True) as store:
        store.define(chosen.items, study.Membership(chosen, where, chosen.data))
        session = Session(store)
        for case in chosen.cases:
            if session.claim(case) == "mine":
                session.finish(case, "", reply_of([1.0, loss]))
        session.leave()


def losses(folder: Path, **how: Any) -> list[tuple[str, str, float]]:
    with Store.open(folder) as store:
        return sorted(
            (item.name, o.case.method, float(o.curve["train_loss"][-1]))
            for item in store.items(**how)
            for o in store.read(item.name, **how)
        )


def test_results_of_other_data_are_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    data_file(tmp_path, "123")
    pretend(defined(tmp_path), out, 0.5, tmp_path)
    before = losses(out)
    assert len(before) == 4 + 8
    data_file(tmp_path, "124")
    pretend(defined(tmp_path, runs=3), out, 0.25, tmp_path)
    assert {loss for _, _, loss in losses(out)} == {0.25}
    assert len(losses(out)) == 6 + 12
    assert len(losses(out, everything=True)) == 18 + 12
    data_file(tmp_path, "123")  # back again: what was finished is
    pretend(defined(tmp_path), out, 9.0, tmp_path)
    assert losses(out) == before


def test_what_a_study_no_longer_has_is_not_shown(tmp_path: Path) -> None:
    out = tmp_path / "out"
    data_file(tmp_path, "123")
    pretend(defined(tmp_path), out, 0.5, tmp_path)
    fewer = defined(tmp_path, '["des"]', 1)
    # The CSV follows the file as it is, before anything is run again.
    study.csv(fewer, out, str(tmp_path), everything=False)
    assert len((out / "cases.csv").read_text().splitlines()) == 1 + 3
    study.csv(fewer, out, str(tmp_path), everything=True)
    assert len((out / "cases.csv").read_text().splitlines()) == 1 + 12
    pretend(fewer.only(["a"]), out, 9.0, tmp_path)  # a part is enough to see the whole
    assert losses(out) == [("a", "des", 0.5), *[("b", "des", 0.5)] * 2]
    assert len(losses(out, everything=True)) == 12
    with Store.open(out) as store:
        assert [(i.name, i.cases, i.done) for i in store.items()] == [("a", 1, 1), ("b", 2, 2)]
        counted = "SELECT COUNT(DISTINCT case_id) AS n FROM {}"
        assert store.query(counted.format("curves"))[0]["n"] == 3
        assert store.query(counted.format("all_curves"))[0]["n"] == 12


def test_the_papers_study_is_the_same_on_any_data(tmp_path: Path) -> None:
    for data in ("susy-like", "real-sim-like"):
        part = study.paper("smoke", [data]).only(["momentum:lr"])
        pretend(part, tmp_path, 0.5, tmp_path)
    assert len(losses(tmp_path)) == 2 * 5 * 2
    smaller = study.paper("smoke", ["susy-like"], rows=500).only(["momentum:lr"])
    pretend(smaller, tmp_path, 0.25, tmp_path)
    assert [loss for *_, loss in losses(tmp_path)] == [0.25] * 10 + [0.5] * 10


def test_without_the_data_what_was_the_studys_still_is(tmp_path: Path) -> None:
    data_file(tmp_path, "123")
    pretend(defined(tmp_path), tmp_path, 0.5, tmp_path)
    (tmp_path / "mine.csv").unlink()
    study.csv(defined(tmp_path), tmp_path, str(tmp_path), everything=False)
    assert len((tmp_path / "cases.csv").read_text().splitlines()) == 1 + 12


def test_a_digest_is_of_the_content(tmp_path: Path) -> None:
    data_file(tmp_path, "123")
    path = tmp_path / "mine.csv"
    first, stat = digest("mine.csv", str(tmp_path)), path.stat()
    data_file(tmp_path, "321")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the same size and time
    second = digest("mine.csv", str(tmp_path))
    assert first != second
    (tmp_path / "other.csv").write_bytes(path.read_bytes())
    assert digest("other.csv", str(tmp_path)) == second
    assert digest("susy-like") != digest("real-sim-like")
    assert re.fullmatch("[0-9a-f]{32}", digest("susy-like"))


def test_data_that_change_while_a_study_runs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_file(tmp_path, "123")
    known = {"mine.csv": digest("mine.csv", str(tmp_path))}
    (case,) = defined(tmp_path, '["des"]', 1).on(known).items["a"]
    desk = Desk(str(tmp_path))
    load, values = Split.load, iter(("124", "123"))

    def change(*given: Any) -> Split:
        found = load(*given)
        data_file(tmp_path, next(values))
        return found

    monkeypatch.setattr(Split, "load", change)
    for _ in range(2):  # it changes while it is loaded; then it is put back too late
        with pytest.raises(ValueError, match="have changed since the study began"):
            desk.run(case)


# Results of desopt 0.1.

PAPER = Path(__file__).parents[2] / "results" / "paper"
needs_paper = pytest.mark.skipif(not (PAPER / FILE).exists(), reason="needs results/paper")


@needs_paper
def test_results_without_digests_are_shown_until_they_are_run_again(tmp_path: Path) -> None:
    before = (PAPER / FILE).read_bytes()
    with Store.open(PAPER) as store:
        counts = {"alpha": 2016, "batch": 480, "curves": 2016, "momentum": 480}
        assert {item.name: item.done for item in store.items()} == counts
        assert len(store.read("batch")) == 480
        store.snapshot(tmp_path / FILE)
    assert (PAPER / FILE).read_bytes() == before
    # Another data set changes nothing; the same takes the place of what it was.
    part = study.paper("full", ["susy-like", "ijcnn1"]).only(["batch:susy-like:lr"])
    renewed = replace(part, items=study.paper("full", ["ijcnn1"]).only(["batch:lr"]).items)
    digests = {"susy-like": "ab", "ijcnn1": "cd"}
    for chosen, shown in ((part, 480 + 40), (renewed, 480 + 40 + 40 - 120)):
        with Store.open(tmp_path, create=True) as store:
            member = study.Membership(chosen, str(tmp_path), chosen.data)
            member._digest = digests.get  # type: ignore[assignment]
            store.define(chosen.on(digests).items, member)
            assert len(store.cases("batch")) == shown
            assert store.finished() == 2880
    with Store.open(tmp_path) as store:
        assert len(store.read("batch", everything=True)) == 480


def test_cases_without_digests_are_run_again_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_file(tmp_path, "123")
    chosen = defined(tmp_path, '["des"]', 1)
    with Store.open(tmp_path, create=True) as store:
        store.add(chosen.items)
    monkeypatch.setattr("desopt.studies.runner.run", lambda store, expected, *_: set(expected))
    with pytest.warns(UserWarning, match="3 cases in .* do not say which data"):
        run = study.run(chosen, tmp_path, 1, str(tmp_path))
    assert {case.digest for case in run} == {digest("mine.csv", str(tmp_path))}  # type: ignore[attr-defined]


# Damage.


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("UPDATE cases SET step_size = 'x'", "step_size must be a number, got 'x'"),
        ("UPDATE cases SET step_size = -1", "step_size must be positive"),
        ("UPDATE cases SET data = x'ff00'", "data must be a text"),
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
        done = store.finished()
        assert 0 < done < 400
        store.query("PRAGMA max_page_count = 100000")
        assert not session.finish(cases[done - 1], "", reply_of([0.5]))
        assert session.finish(cases[done], "", reply_of([0.5]))
    with Store.open(tmp_path) as store:
        assert len(store.read()) == done + 1


def test_csv_holds_no_formula(tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\tx", 'plain, with "quotes"\nand lines']
    cases = [replace(CASE, data=name) for name in names]
    with Store.open(tmp_path, create=True) as store:
        store.add({"=item": cases})
        for case in cases:
            Session(store).finish(case, names[0], reply_of([-0.5]))
        path, points = store.to_csv(tmp_path / "csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["data"] for row in rows] == [*(f"'{name}" for name in names[:-1]), names[-1]]
    assert {row["items"] for row in rows} == {"'=item"}
    assert {row["machine"] for row in rows} == {f"'{names[0]}"}
    assert points.read_text().splitlines()[1].split(",")[8] == "-0.5"  # a number is one
    assert sorted(p.name for p in path.parent.iterdir()) == ["cases.csv", "points.csv"]


def test_names_become_files_and_lines() -> None:
    assert text.file_name("first study") == "first-study"
    for name in ("../../etc/x", "/x", "a\0b", "...", "", "x" * 999, "\u65e5" * 999, "a:b|c\\d"):
        found = text.file_name(name)
        assert found == Path(found).name
        assert 0 < len(found.encode()) <= text.FILED
        assert re.fullmatch(r"\w[\w.-]*", found)
    assert list(text.distinct(["a", "A", "a-2", "a"])) == ["a", "A-2", "a-2-2", "a-3"]
    assert text.short("a\x1b\n\u2028\ud800") == r"a\x1b\n\u2028\ud800"
    long = {text.short("n" * count) for count in range(61, 99)}
    assert len(long) == 38
    assert max(map(len, long)) <= text.SHOWN


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
        with pytest.raises(ValueError, match="no plain file"):
            Store.open(tmp_path, create)


def test_one_folder_holds_one_study(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.note("study", "paper small")
    other = study.paper("smoke")
    with pytest.raises(ValueError, match="holds the study 'paper small', not 'paper smoke'"):
        study.run(other, tmp_path, 1)
    with pytest.raises(ValueError, match="holds the study 'paper small', not 'paper smoke'"):
        study.csv(other, tmp_path, None, everything=True)


# Claims.


def gone() -> int:
    """The number of a process that is no more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_claims_are_exclusive_and_end_with_their_session(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE, SHORT]})
        with Store.open(tmp_path, create=True) as other:
            one, two = Session(store), Session(other)
            assert (one.claim(CASE), two.claim(CASE), two.claim(SHORT)) == ("mine", "taken", "mine")
            two.finish(SHORT, "", reply_of([1.0]))
            assert one.claim(SHORT) == "finished"
            two.beat()  # the other one lives: nothing changes
            assert two.claim(CASE) == "taken"
            one.leave()
            assert two.claim(CASE) == "mine"


def disguise(store: Store, session: Session, process: Any, beat: Any = 0.0) -> None:
    """Let a session look like that of another process."""
    text = process if isinstance(process, str) else json.dumps(process)
    sql = "UPDATE sessions SET process = ?, beat = ? WHERE key = ?"
    store.query(sql, [text, beat, session._key])


def own(**changed: Any) -> dict[str, Any]:
    return leases._identity(os.getpid()) | changed


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("reused", [False, True])
def test_a_process_that_died_here_is_noticed_at_once(tmp_path: Path, reused: bool) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        killed, here = Session(store), Session(store)
        killed.claim(CASE)
        # Its number is free, or another process has it by now.
        disguise(store, killed, own(started="7") if reused else own(pid=gone()), time.time() + 1e9)
        assert here.claim(CASE) == "taken"
        here.beat()
        assert here.claim(CASE) == "mine"


def test_without_start_times_the_number_tells(tmp_path: Path) -> None:
    assert leases._is_gone(json.dumps(own(pid=gone(), started="")))
    for pid in (os.getpid(), 1, 0, -1, 10**30):
        assert not leases._is_gone(json.dumps(own(pid=pid, started="")))


FAR = {"host": "far", "pid": 1, "started": "7"}


@pytest.mark.parametrize("ahead", [-(10.0**9), 0.0, 30 * 86_400.0])
@pytest.mark.parametrize("process", [FAR, own(), "no json", "[]", '{"pid": "x"}', "[" * 10**5])
def test_who_falls_silent_is_dead_whatever_its_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float, process: Any
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE, SHORT]})
        away, here = Session(store), Session(store)
        away.claim(CASE)
        disguise(store, away, process, time.time() + ahead)
        for _ in range(5):  # it lives, however long this takes
            here.beat()
            assert here.claim(CASE) == "taken"
            away.beat()
            now[0] += 0.9 * leases.LEASE
        here.beat()
        now[0] += leases.LEASE
        here.beat()
        assert here.claim(CASE) == "taken"
        now[0] += 1.0
        here.beat()
        assert here.claim(CASE) == "mine"
        away.beat()  # it was only asleep
        assert away.finish(CASE, "", reply_of([1.0]))
        assert here.claim(CASE) == "finished"
        assert not here.finish(CASE, "", reply_of([2.0]))


def test_machines_of_one_name_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"/proc/sys/kernel/random/boot_id": "one"}
    monkeypatch.setattr(leases, "_text", lambda path: found.get(path, ""))
    before = leases._identity(1)["host"]
    found["/proc/sys/kernel/random/boot_id"] = "two"
    assert leases._identity(1)["host"] != before


def test_failures_are_tried_again_only_where_asked(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE, SHORT]})
        session = Session(store)
        session.finish(CASE, "", {"error": "no"})
        session.finish(SHORT, "", {"error": "no"})
        leases.forget_failures(store, [CASE])
        assert (session.claim(CASE), session.claim(SHORT)) == ("mine", "finished")


# Times.


def test_measured_times_correct_the_model(tmp_path: Path) -> None:
    others = [replace(CASE, run=1), replace(CASE, run=1, problem="nsvm")]
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        assert costs.estimates(store, others) == costs.estimates(None, others)
        Session(store).finish(CASE, "", reply_of([1.0]))  # 1.7 seconds
        assert costs.estimates(store, others) == pytest.approx(dict.fromkeys(others, 1.7))


def test_the_time_left_follows_the_speed_so_far() -> None:
    status = Status({"a": 10.0, "b": 10.0, "c": 20.0}, total=3)
    assert status.seconds_left(1) is None
    status.finished, status.spent, status.worth = {"a"}, 5.0, 10.0
    assert status.seconds_left(1) == pytest.approx(15.0)
    assert status.seconds_left(2) == pytest.approx(7.5)
