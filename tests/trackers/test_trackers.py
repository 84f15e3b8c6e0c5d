"""What trackers are told, and that none of them can end a run; no package is needed here."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.watched import ROUNDS, search, sphere

import desopt
from desopt import trackers
from desopt.run.history import COLUMNS
from desopt.trackers import Log, Tracker


class Told(Tracker):
    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.fails_at = fails_at
        self.settings: dict[str, Any] = {}
        self.rows: dict[int, Mapping[str, float]] = {}
        self.closed = 0

    def _begin(self, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)

    def _log(self, round: int, metrics: Mapping[str, float]) -> None:
        if round == self.fails_at:
            raise OSError("the disk is full")
        self.rows[round] = metrics

    def _close(self) -> None:
        self.closed += 1


def test_a_tracker_is_told_the_settings_every_row_and_the_end(tmp_path: Path) -> None:
    told = Told()
    result = search(tmp_path / "a.journal", callbacks=[told], eval_every=3)
    assert told.settings["method.name"] == "des-mr"
    assert (told.settings["workers"], told.settings["n"]) == (3, 5)
    assert list(told.rows) == list(range(1, ROUNDS + 1))
    for row in result.history:
        found = told.rows[row["round"]]
        evaluated = not math.isnan(row["loss"])
        assert set(found) == set(COLUMNS) - {"round"} - ({"loss"} if not evaluated else set())
        assert all(found[name] == row[name] for name in found)
    assert told.closed == 1


def test_a_tracker_need_not_call_the_constructor_of_its_base() -> None:
    class Named(Tracker):
        def __init__(self, name: str) -> None:
            self.lines = [name]

        def _log(self, round: int, metrics: Mapping[str, float]) -> None:
            self.lines.append(str(round))

    tracker = Named("mine")
    desopt.minimize(lambda x: float(x @ x), np.ones(3), rounds=2, callbacks=[tracker])
    assert tracker.lines == ["mine", "1", "2"]


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(tmp_path: Path) -> None:
    bad, good = Told(fails_at=4), Told()
    with pytest.warns(RuntimeWarning, match="Told has failed .* the disk is full") as caught:
        result = search(tmp_path / "a.journal", callbacks=[bad, good])
    assert len(caught) == 1
    assert (result.nit, list(bad.rows), bad.closed) == (ROUNDS, [1, 2, 3], 0)
    assert (len(good.rows), good.closed) == (ROUNDS, 1)
    assert search(tmp_path / "b.journal").digest == result.digest


def test_after_an_error_it_is_closed_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    told = Told()

    def broken(row: Any) -> None:
        if row["round"] == 5:
            raise RuntimeError("of a callback")

    with pytest.raises(RuntimeError, match="of a callback"):
        search(tmp_path / "a.journal", callbacks=[told, broken])
    assert (list(told.rows), told.closed, told.ended) == ([1, 2, 3, 4, 5], 1, False)
    search(tmp_path / "a.journal", callbacks=[told])  # the failed round is in the journal
    assert told.ended
    assert list(told.rows) == list(range(1, ROUNDS + 1))


def test_a_run_that_fails_before_it_begins_leaves_it_as_it_was(tmp_path: Path) -> None:
    def broken(x: Any) -> float:
        raise ZeroDivisionError

    class Opened(Told):
        def _begin(self, settings: Mapping[str, Any]) -> None:
            super()._begin(settings)
            self.opened = list[int]()

        def _close(self) -> None:
            super()._close()
            self.opened.append(1)

    told = Opened()
    with pytest.raises(desopt.ObjectiveError):  # at x0
        desopt.minimize(broken, np.zeros(2), callbacks=[told], engine="serial", progress=False)
    assert told.closed == 0
    search(tmp_path / "a.journal", callbacks=[told])
    assert (len(told.rows), told.opened) == (ROUNDS, [1])


def test_lines_of_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "desopt"):
        result = search(tmp_path / "a.journal", callbacks=[Log()], eval_every=4)
    lines = [f"round {t}: loss {result.history[t - 1]['loss']:.6g}" for t in (4, 8, 12)]
    told = [record.getMessage().split(",")[0] for record in caplog.records]
    assert told == ["begin: des-mr", *lines]
    assert caplog.records[-1].desopt["evaluations"] == result.nfev  # type: ignore[attr-defined]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "mine"):
        mine = Log(logging.getLogger("mine"), logging.DEBUG, every=True)
        search(tmp_path / "b.journal", callbacks=mine, eval_every=0)
    assert len(caplog.records) == 1 + ROUNDS


@pytest.mark.parametrize("name", ["TensorBoard", "MLflow", "WandB"])
def test_a_missing_package_is_said_before_the_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> Any:
        raise ImportError(f"no {module}")

    monkeypatch.setattr(trackers, "import_module", missing)
    arguments = {"folder": "x"} if name == "TensorBoard" else {}
    with pytest.raises(ImportError, match=rf"pip install 'desopt\[{name.lower()}\]'"):
        getattr(trackers, name)(**arguments)


def test_scipys_conventions() -> None:
    seen: list[Any] = []

    def point(xk: Any) -> bool:
        seen.append(xk)
        return True  # means nothing here, as in SciPy

    def result(intermediate_result: Any) -> None:
        seen.append(intermediate_result)
        if intermediate_result.nit == 3:
            raise StopIteration

    found = desopt.minimize(
        sphere, np.zeros(4), method="des", workers=2, rounds=9, iterations=5, eval_every=1,
        callbacks=[point, result], progress=False,
    )  # fmt: skip
    assert (found.nit, len(seen)) == (3, 6)
    assert found.status == 5  # by a callback
    for x, both in zip(seen[::2], seen[1::2], strict=True):
        assert x.tobytes() == both.x.tobytes()
        assert x.flags.writeable
    assert both.fun == found.fun == sphere(found.x)
