"""The study of DES and its rivals: its cases, and what its report concludes."""

from pathlib import Path

import pytest
from helpers.fake_results import outcome, write

from desopt.report import rivals as report
from desopt.report.results import read_results
from desopt.studies import rivals
from desopt.studies.store import Store

COMMITTED = Path(__file__).parents[2] / "results" / "rivals"


def test_every_instance_has_a_step_size_for_every_method() -> None:
    cases = rivals.items("full", None)
    assert {case.run for case in cases["tuning"]}.isdisjoint(case.run for case in cases["rivals"])
    grids = {(case.data, case.method, case.step_size) for case in cases["tuning"]}
    for case in cases["rivals"]:
        assert case.step_size == "auto" or (case.data, case.method, case.step_size) in grids
    methods = {(c.data, c.problem, c.partition, c.method) for c in cases["rivals"]}
    assert len(methods) == len(rivals.instances()) * len(rivals.CENTRES)


def test_step_sizes_are_those_of_the_committed_tuning() -> None:
    assert report.choose(read_results(COMMITTED)) == rivals.CHOSEN


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_findings(tmp_path: Path) -> None:
    """On made-up curves: DES ends lower by a fifth."""
    made = {
        item: [outcome(case, end=0.2 if case.method == "des" else 0.25) for case in cases]
        for item, cases in rivals.items("smoke", None).items()
    }
    write(tmp_path, made)
    with Store.open(tmp_path, create=True) as store:
        store.note("study", "rivals smoke")
    found = report.findings(read_results(tmp_path))
    assert {claim.verdict for claim in found.claims} == {"not enough data"}
    summary = found.tables[0]
    assert [row[0] for row in summary.rows] == ["DES", "ZO-NSGD", "ZO-NSGD, auto"]
    assert summary.rows[0][2] == "100.0 (1)"
    assert [figure.make() for figure in found.figures]
