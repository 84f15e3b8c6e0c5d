"""Times: learned from finished cases, unknown before."""

import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.small_studies import CASE, data_file, defined, pretend

from desopt.studies.console import case_list
from desopt.studies.datasets import digest
from desopt.studies.estimates import Estimates, work
from desopt.studies.runner import RunStatus, Slot
from desopt.studies.store import Store


def test_a_time_is_unknown_until_one_was_measured(tmp_path: Path) -> None:
    same = replace(CASE, run=1)
    estimates = Estimates(None)
    assert estimates.seconds(same) is None
    assert estimates.total([]) == 0
    estimates.learn(CASE, 1.7)
    assert estimates.seconds(same) == pytest.approx(1.7)
    double = replace(same, budget=2000.0)
    assert work(double) == pytest.approx(2 * work(same), rel=0.1)
    assert estimates.total([same, double]) == pytest.approx(1.7 + 3.4, rel=0.1)


def test_times_are_those_of_similar_cases() -> None:
    slow, elsewhere = replace(CASE, method="des"), replace(CASE, data="covtype")
    estimates = Estimates(
        None, [(CASE, 1.0), (replace(CASE, run=2), 3.0), (CASE, 2.0), (slow, 50.0)]
    )
    assert estimates.seconds(CASE) == pytest.approx(2.0)  # the median
    assert estimates.seconds(slow) == pytest.approx(50.0)
    same_method = 2.0 * work(elsewhere) / work(CASE)
    assert estimates.seconds(elsewhere) == pytest.approx(same_method)
    assert estimates.seconds(replace(CASE, method="es-csa")) is not None


def test_the_list_says_what_it_does_not_know(tmp_path: Path) -> None:
    data_file(tmp_path, "123")
    chosen = defined(tmp_path)
    text = "\n".join(case_list(chosen, None, 2, str(tmp_path)))
    assert re.search(r"a +mine.csv +4 +0 +33% +unknown", text)
    assert "12 different cases, 12 to run; times are unknown until" in text
    pretend(chosen.only(["a"]), tmp_path, 0.5, tmp_path)
    on = chosen.with_digests({"mine.csv": digest("mine.csv", str(tmp_path))})
    with Store.open(tmp_path) as store:
        text = "\n".join(case_list(on, store, 2, str(tmp_path)))
    assert re.search(r"b +mine.csv +8 +0 +67% +14 s", text)  # eight cases of 1.7 seconds
    assert "12 different cases, 8 to run: about 6.8 s with 2 at a time" in text


def test_the_time_left_follows_the_speed_so_far() -> None:
    cases = [replace(CASE, run=run) for run in range(4)]
    status = RunStatus({case.id: case for case in cases}, Estimates(None))
    assert status.seconds_left(1) is None
    status.finished = {cases[0].id}
    status.estimates.learn(cases[0], 5.0)
    assert status.seconds_left(1) == pytest.approx(15.0)
    assert status.seconds_left(2) == pytest.approx(7.5)
    status.running[cases[1].id] = cases[1], time.monotonic() - 2.0
    left = status.seconds_left(1)
    assert left is not None
    assert 0 < left <= 13.0


@pytest.mark.parametrize("reply", [{"error": "no memory"}, {"result": {}}], ids=["failed", "done"])
def test_only_successful_cases_are_learned_from(
    monkeypatch: pytest.MonkeyPatch, reply: dict[str, Any]
) -> None:
    status = RunStatus({CASE.id: CASE}, Estimates(None))
    session: Any = SimpleNamespace(finish=lambda *_: True)
    slot = Slot(SimpleNamespace(), session, status)  # type: ignore[arg-type]
    monkeypatch.setattr(slot, "_try", lambda case: ("a machine", reply))
    slot._run(CASE)
    assert (status.seconds_left(1) is None) == ("error" in reply)
