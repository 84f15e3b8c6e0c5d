"""A built-in study: its module of cases, and its module of findings."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers.fake_results import case, outcome, write

from desopt.cli.app import main
from desopt.report import findings
from desopt.report.findings import Findings, find
from desopt.report.results import Results, read_results
from desopt.report.tables import Table
from desopt.report.verdicts import conclude
from desopt.studies import study
from desopt.studies.builtin import BUILT_IN, BuiltIn
from desopt.studies.cases import Case, make_case
from desopt.studies.store import Store


def items(scale: str, data_dir: str | None) -> dict[str, list[Case]]:
    runs = {"full": 3, "smoke": 1}[scale]
    given = {"problem": "sphere", "data": "none", "iterations": 5, "rounds": 2, "batch_size": 4}
    return {
        "steps": [
            make_case(method=method, step_size=alpha, run=run, **given)
            for method in ("des", "des-mr")
            for alpha in (0.1, "auto")
            for run in range(runs)
        ]
    }


def tiny_findings(results: Results) -> Findings:
    series = results.item("steps")
    good = all(s.final() < s.start for s in series)
    return Findings(
        claims=[conclude("It falls", "here", "The last loss is below the first.", 3, good, "4")],
        tables=[
            Table("table-tiny", "Losses", ("alpha",), [[str(s.case.step_size)] for s in series])
        ],
        shown={"steps": series[:1]},
        heading="What is tiny",
    )


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tiny_study")
    module.items, module.SCALES, module.findings = items, ("full", "smoke"), tiny_findings  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiny_study", module)
    monkeypatch.setitem(BUILT_IN, "tiny", BuiltIn("tiny_study", "a test"))
    monkeypatch.setitem(findings.REPORTS, "tiny", "tiny_study")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["desopt", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("tiny")
def test_a_built_in_study_and_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert study.built_in("tiny").name == "tiny full"
    assert len(study.built_in("tiny").cases) == 12
    with pytest.raises(ValueError, match="unknown scale 'small': choose from full, smoke"):
        study.built_in("tiny", "small")
    for arguments in (["--list"], ["--data", "heart"]):
        given = ["suite", "tiny", "--scale", "smoke", "--out", str(tmp_path), *arguments]
        assert command(monkeypatch, *given) == (2 if "--data" in arguments else 0)
    printed = capsys.readouterr()
    assert "4 different cases, 4 to run" in printed.out
    assert "does not apply to this study" in printed.err

    done = [outcome(c.varied(problem="lr", data="d")) for c in items("smoke", None)["steps"]]
    write(tmp_path, {"steps": done})
    with Store.open(tmp_path, create=True) as store:
        store.note("study", "tiny smoke")
    assert command(monkeypatch, "report", str(tmp_path), "--format", "html,tex") == 0
    assert "It falls" in capsys.readouterr().out
    report = tmp_path / "report"
    text = (report / "index.html").read_text()
    assert "<h2>What is tiny</h2>" in text
    assert text.count('"step":') == 1
    assert "auto" in (report / "table-tiny.tex").read_text()
    assert not list(report.glob("figures/*"))


def test_other_studies_have_the_findings_of_the_paper(tmp_path: Path) -> None:
    plain = find(read_results(write(tmp_path, {"mine": [outcome(case())]})))
    assert (plain.claims, plain.shown) == ((), None)
    assert [figure.name for figure in plain.figures] == [
        "mine-training-loss", "mine-test-error", "mine-training-loss-by-bytes",
    ]  # fmt: skip
