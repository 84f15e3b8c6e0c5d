"""A federation's status from its journal, with and without the log beside it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import desopt
from desopt.cli.app import app
from desopt.run.sites import SUFFIX, SiteLog, round_line, status


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Of three rounds of two workers."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    path = tmp_path / "run.journal"
    desopt.minimize(
        "lr", None, (X, np.sign(X[:, 0])), workers=2, rounds=3, iterations=5, journal=path,
        engine="serial", eval_every=1,
    )  # fmt: skip
    return path


def test_a_journal_alone_says_who_answered(journal: Path) -> None:
    found = status(journal)
    assert (found["rounds"], found["of"], found["ended"]) == (3, None, None)
    assert [site["site"] for site in found["sites"]] == ["worker 0", "worker 1"]
    assert [site["answered"] for site in found["sites"]] == [3, 3]
    assert found["recent"][2]["missing"] == []


def test_the_log_has_names_times_and_refusals(journal: Path) -> None:
    log = SiteLog(journal)
    log.write(begin=50)
    for number in (1, 2, 3):
        log.write(round=number, answered={0: 1.5, 1: 2.0 * number}, missing={},
                  sites={0: "hospital-a", 1: "hospital-b"}, refused={"late": 1},
                  troubles=["hospital-b is left out of round 2: no such disk"])  # fmt: skip
    with Path(f"{journal}{SUFFIX}").open("a") as file:
        file.write('{"time": 1.0, "round": 4, "answ')  # cut off
    found = status(journal)
    assert [(site["site"], site["seconds"]) for site in found["sites"]] == [
        ("hospital-a", 1.5), ("hospital-b", 4.0),
    ]  # fmt: skip
    assert found["refused"] == {"late": 3}
    shown = CliRunner().invoke(app, ["federation", "status", str(journal)]).output
    assert "rounds        3 of 50\n" in shown
    assert "refused       late 3\n" in shown
    assert "hospital-b  1       3 of 3    4.0 s    3 " in shown
    assert "trouble       hospital-b is left out of round 2: no such disk\n" in shown
    as_json = CliRunner().invoke(app, ["federation", "status", str(journal), "--json"]).output
    assert json.loads(as_json) == found


def test_a_status_needs_a_journal(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["federation", "status", str(tmp_path / "none")])
    assert done.exit_code == 2


def test_a_round_in_one_line() -> None:
    row = {"round": 7, "loss": 0.0779}
    sites = {0: "hospital-a", 1: "hospital-b", 2: "hospital-c"}
    report = {"answered": {0: 1.0, 2: 1.0}, "missing": {1: 41.2}, "sites": sites}
    assert (
        round_line(row, 50, report)
        == "round 7/50 loss 0.0779 answered 2 of 3, missing: 1 (hospital-b, 41 s)"
    )
