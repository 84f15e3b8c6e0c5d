"""A study that changes: its data, its cases, its folder."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.small_studies import data_file, defined, pretend, reply_of

from desopt.studies import study, worker
from desopt.studies.datasets import digest
from desopt.studies.execute import Split
from desopt.studies.leases import Session
from desopt.studies.store import Store


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
    assert len(losses(out, include_former=True)) == 18 + 12
    data_file(tmp_path, "123")  # back again: what was finished is
    pretend(defined(tmp_path), out, 9.0, tmp_path)
    assert losses(out) == before


def test_what_a_study_no_longer_has_is_not_shown(tmp_path: Path) -> None:
    out = tmp_path / "out"
    data_file(tmp_path, "123")
    pretend(defined(tmp_path), out, 0.5, tmp_path)
    fewer = defined(tmp_path, '["des"]', 1)
    # The CSV follows the file as it is, before anything is run again.
    study.export_csv(fewer, out, str(tmp_path), include_former=False)
    assert len((out / "cases.csv").read_text().splitlines()) == 1 + 3
    study.export_csv(fewer, out, str(tmp_path), include_former=True)
    assert len((out / "cases.csv").read_text().splitlines()) == 1 + 12
    pretend(fewer.only(["a"]), out, 9.0, tmp_path)  # a part is enough to see the whole
    assert losses(out) == [("a", "des", 0.5), *[("b", "des", 0.5)] * 2]
    assert len(losses(out, include_former=True)) == 12
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
    study.export_csv(defined(tmp_path), tmp_path, str(tmp_path), include_former=False)
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
    (case,) = defined(tmp_path, '["des"]', 1).with_digests(known).items["a"]
    runner = worker.CaseRunner(str(tmp_path))
    load, values = Split.load, iter(("124", "123"))

    def change(*given: Any) -> Split:
        found = load(*given)
        data_file(tmp_path, next(values))
        return found

    monkeypatch.setattr(Split, "load", change)
    for _ in range(2):  # it changes while it is loaded; then it is put back too late
        with pytest.raises(ValueError, match="have changed since the study began"):
            runner.run(case)


def test_every_kind_of_case_is_warmed_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python first must not leave the kernels of a loss to be compiled in a measured run."""
    data_file(tmp_path, "123")
    (case,) = defined(tmp_path, '["des"]', 1).items["a"]
    warmed = []
    monkeypatch.setattr(worker, "warm_up", lambda case, ground: warmed.append(case))
    monkeypatch.setattr(worker, "execute", lambda case, ground: {})
    kinds = [case.varied(problem="builtins:sum"), case, case.varied(step_size="auto"),
             case.varied(sampler="MixtureGaussian"), case.varied(aggregate="median")]  # fmt: skip
    runner = worker.CaseRunner(str(tmp_path))
    for each in (*kinds, case.varied(run=1), case.varied(step_size=7.0), *kinds):
        runner.run(each)
    assert warmed == kinds


# Results of desopt 0.1.


def test_results_without_digests_are_shown_until_they_are_run_again(tmp_path: Path) -> None:
    former = study.paper("full", ["ijcnn1", "mnist"]).only(["batch:lr"])
    with Store.open(tmp_path, create=True) as store:
        store.add(former.items)
        session = Session(store)
        for case in former.cases:
            session.finish(case, "", reply_of([1.0, 0.5]))
        session.leave()
    # Another data set changes nothing; the same takes the place of what it was.
    part = study.paper("full", ["susy-like", "ijcnn1"]).only(["batch:susy-like:lr"])
    renewed = replace(part, items=study.paper("full", ["ijcnn1"]).only(["batch:lr"]).items)
    digests = {"susy-like": "ab", "ijcnn1": "cd"}
    for chosen, shown in ((part, 80 + 40), (renewed, 80 + 40 + 40 - 40)):
        with Store.open(tmp_path, create=True) as store:
            member = study.CurrentCases(chosen, str(tmp_path), chosen.data)
            member._digest = digests.get  # type: ignore[assignment]
            store.define(chosen.with_digests(digests).items, member)
            assert len(store.cases("batch")) == shown
            assert store.result_count() == 80
    with Store.open(tmp_path) as store:
        assert len(store.read("batch", include_former=True)) == 80
        assert len(store.read("batch")) == 40


def test_cases_without_digests_are_run_again_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_file(tmp_path, "123")
    chosen = defined(tmp_path, '["des"]', 1)
    with Store.open(tmp_path, create=True) as store:
        store.add(chosen.items)
    monkeypatch.setattr("desopt.studies.runner.run", lambda store, cases, *_: set(cases))
    with pytest.warns(UserWarning, match="3 cases in .* do not record which data"):
        run = study.run(chosen, tmp_path, 1, str(tmp_path))
    assert {case.digest for case in run} == {digest("mine.csv", str(tmp_path))}  # type: ignore[attr-defined]


def test_one_folder_holds_one_study(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.note("study", "paper small")
    other = study.paper("smoke")
    with pytest.raises(ValueError, match="contains the study 'paper small', not 'paper smoke'"):
        study.run(other, tmp_path, 1)
    with pytest.raises(ValueError, match="contains the study 'paper small', not 'paper smoke'"):
        study.export_csv(other, tmp_path, None, include_former=True)
