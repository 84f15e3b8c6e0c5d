"""The progress bar of a run: which budget it goes by, and what it says."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import desopt
from desopt.run.history import History, Row
from desopt.run.observers.notice import SlowRun
from desopt.run.observers.progress import ProgressBar
from desopt.run.observers.record import Record


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def row(round: int, evaluations: int, loss: float = np.nan, nans: int = 0, **more: Any) -> Row:
    return Row(round=round, evaluations=evaluations, loss=loss, nans=nans, **more)


def begun(bar: ProgressBar, *rows: Row, best: float = np.nan) -> ProgressBar:
    state = SimpleNamespace(round=len(rows), x=np.zeros(2))
    bar.begin(Record(state, History(rows), best_fun=best))
    return bar


def text(bar: ProgressBar) -> str:
    return bar._bar.text()


def test_by_rounds(clock: Clock) -> None:
    bar = begun(ProgressBar("des", 100, None))
    clock.now += 10.0
    bar.round(row(5, 500, loss=2.0), None, ())
    assert text(bar) == "des: 5 of 100 rounds, best 2, 0.5 rounds/s, about 3 min left"
    clock.now += 10.0
    bar.round(row(10, 1000, loss=3.0, nans=1234), None, ())
    assert "10 of 100 rounds, loss 3, best 2, 1,234 failed, 0.5 rounds/s" in text(bar)
    bar.round(row(11, 1100), None, ())  # not evaluated: the last loss stays
    assert "loss 3, best 2" in text(bar)


@pytest.mark.parametrize(("most", "ends"), [(60.0, True), (600.0, False), (None, False)])
def test_the_notice_says_that_the_time_ends_first(most: float | None, ends: bool) -> None:
    said: list[str] = []
    bar: Any = SimpleNamespace(say=said.append)
    SlowRun(bar, 800, False, most).value(0.15)
    rest = ", but max_seconds=60 ends the run first" if ends else ""
    keeps = "journal=FILE would keep them"
    assert said == [f"800 values planned, about 2 min at 150 ms each{rest}; {keeps}"]


def test_by_values_also_within_a_round(clock: Clock) -> None:
    bar = begun(ProgressBar("es-csa", 100, None, max_evaluations=600))
    assert text(bar) == "es-csa: 0 of 600 values"
    clock.now += 5.0
    bar.value(60, 0.25, 3)
    assert (
        text(bar) == "es-csa: 60 of 600 values, best 0.25, 3 failed, 12 values/s, about 45 s left"
    )
    clock.now += 0.01
    bar.value(61, 0.125, 4)  # too soon for another look
    assert "60 of 600 values, best 0.25, 3 failed" in text(bar)
    clock.now += 0.1
    bar.value(62, np.nan, 4)  # no value: the best stays
    assert "62 of 600 values, best 0.125, 4 failed" in text(bar)
    bar.round(row(1, 63, loss=0.5, nans=4), None, ())
    assert "63 of 600 values, loss 0.5, best 0.125, 4 failed" in text(bar)


def test_by_seconds(clock: Clock) -> None:
    bar = begun(ProgressBar("es", 100, None, max_seconds=60.0))
    clock.now += 15.0
    bar.value(7, 1.5, 0)
    assert text(bar) == "es: 25%, best 1.5, about 45 s left"
    clock.now += 60.0  # the last round goes on for longer
    bar.value(8, 1.5, 0)
    assert text(bar) == "es: 100%, best 1.5"


def test_by_the_budget_that_ends_first(clock: Clock) -> None:
    bar = begun(ProgressBar("es", 10, None, max_evaluations=1000, max_seconds=80.0))
    clock.now += 8.0
    bar.value(50, np.nan, 0)
    assert text(bar) == "es: 10%, about 72 s left"
    clock.now += 1.0
    bar.value(200, np.nan, 0)
    assert text(bar) == "es: 200 of 1,000 values"  # a speed is known from the next update on
    bar.round(row(5, 210), None, ())
    assert text(bar) == "es: 5 of 10 rounds"


def test_a_resumed_run_counts_what_was_done(clock: Clock) -> None:
    before = row(1, 40, loss=2.0, nans=2, seconds=30.0)
    bar = begun(ProgressBar("es", 100, None, max_evaluations=100), before, best=2.0)
    assert text(bar) == "es: 40 of 100 values, best 2, 2 failed"
    bar = begun(ProgressBar("es", 100, None, max_seconds=60.0), before, best=2.0)
    assert text(bar) == "es: 50%, best 2, 2 failed, about 30 s left"


def test_a_run_that_is_over_has_no_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        desopt.minimize(
            lambda x: float(x @ x) if x[0] < 1.5 else np.nan, np.ones(2), method="es", workers=2,
            rounds=9, iterations=10, max_evaluations=10_000, engine="serial", progress=True,
            callbacks=lambda row: row["round"] == 3,
        )  # fmt: skip
    said = capsys.readouterr().err
    assert "es: 3 of 9 rounds, " in said
    assert "best " in said
    assert "failed" in said
    assert "left" not in said
