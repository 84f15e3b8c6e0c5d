"""The log of single values: nothing slow is computed twice, quick functions pay nothing."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.engines.trials import Key, Outcome
from desopt.run import values
from desopt.run.values import SUFFIX

pytestmark = [
    pytest.mark.kills,
    pytest.mark.filterwarnings("ignore:fun returned NaN"),
    pytest.mark.filterwarnings(r"ignore:\d+ values? failed"),
]
Floats = NDArray[np.float64]
N = 4
SMALL: dict[str, Any] = {
    "rounds": 3, "iterations": 6, "seed": 2, "step_size": 0.5, "progress": False, "workers": 2,
    "population": 6, "engine": "serial",
}  # fmt: skip


def square(x: Floats) -> float:
    if x[0] > 1.5:
        raise desopt.Failed("out of water")
    return float(np.sum((x - 0.3) ** 2))


def slow(x: Floats) -> float:
    time.sleep(0.012)
    return square(x)


def run(fun: Any = square, **options: Any) -> Any:
    settings = SMALL | options
    if settings["method"] == "fedkseed":  # steps that do not become shorter
        settings["step_size"] = 0.02
    if desopt.METHODS[settings["method"]].single_worker:
        del settings["workers"]
    return desopt.minimize(fun, np.ones(N), **settings)


@pytest.mark.parametrize("method", ["des", "es", "es-csa", "fedavg-es"])
def test_points_of_a_constrained_run_need_its_constraints(method: str, tmp_path: Path) -> None:
    """The log does not have points that violate them; x0 does, and nearer ones are accepted."""
    path = tmp_path / "j"

    def over(x: Floats) -> Floats:
        return np.array([x[0] - 0.4, x.sum() - 2.0])

    result = run(method=method, log_values=True, journal=path, constraints=over)
    inside = [item for item in result.evaluations if item.x is not None]
    assert inside
    for item in inside:
        found = desopt.replay(path, trial=item.id, constraints=over)
        assert found.tobytes() == item.x.tobytes()
    if method in ("des", "es"):  # where points depend on those before them
        with pytest.raises(ValueError, match="give the constraints of the run"):
            [desopt.replay(path, trial=item.id) for item in inside]


@pytest.mark.parametrize("method", desopt.METHODS)
def test_kept_on_request(method: str, tmp_path: Path) -> None:
    """Every value with its point, also rebuilt from the journal; and none is computed again."""
    path = tmp_path / "j"
    result = run(method=method, log_values=True, journal=path)
    assert result.x.tobytes() == run(method=method).x.tobytes()
    values = result.evaluations
    assert len(values) == result.nfev + result.nfev_objective
    assert result.nfev_ahead == 0
    for item in values:
        assert item.x is not None
        assert desopt.replay(path, trial=item.id).tobytes() == item.x.tobytes()
        if item.failed:
            assert item.reason == "out of water"
            assert math.isnan(item.value)
        else:
            assert item.value == square(item.x)

    def never(x: Floats) -> float:
        raise AssertionError("computed again")

    path.unlink()  # all rounds are lost, but no value
    with pytest.warns(RuntimeWarning, match="other code of fun"):
        again = run(never, method=method, journal=path)
    assert again.x.tobytes() == result.x.tobytes()
    assert [item.key for item in again.evaluations] == [item.key for item in values]


def test_a_spreadsheet_does_not_evaluate_a_reason(tmp_path: Path) -> None:
    opt = desopt.Optimizer(np.ones(2), method="es", rounds=2)
    opt.tell(opt.ask()[0], failed=True, reason="=HYPERLINK(...)")
    opt.evaluations.to_csv(tmp_path / "v.csv")
    with open(tmp_path / "v.csv", newline="") as file:
        assert [row["reason"] for row in csv.DictReader(file)] == ["'=HYPERLINK(...)"]


def test_slow_functions_are_kept_and_quick_ones_are_not(tmp_path: Path) -> None:
    quick = run(method="es", journal=tmp_path / "q")
    assert not (tmp_path / ("q" + SUFFIX)).exists()
    assert len(quick.evaluations) == 0
    kept = run(slow, method="es", journal=tmp_path / "s")
    assert (tmp_path / ("s" + SUFFIX)).exists()
    assert len(kept.evaluations) == kept.nfev + kept.nfev_objective
    assert kept.x.tobytes() == quick.x.tobytes()
    none = run(slow, method="es", journal=tmp_path / "n", log_values=False)
    assert not (tmp_path / ("n" + SUFFIX)).exists()
    assert none.x.tobytes() == quick.x.tobytes()


def test_tables(tmp_path: Path) -> None:
    result = run(method="es-csa", log_values=True)
    result.evaluations.to_csv(tmp_path / "v.csv")
    result.evaluations.to_jsonl(tmp_path / "v.jsonl")
    with open(tmp_path / "v.csv", newline="") as file:
        table = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert len(table) == len(lines) == len(result.evaluations) > 0
    for row, line, item in zip(table, lines, result.evaluations, strict=True):
        assert item.x is not None
        assert row["id"] == line["id"] == item.id
        assert [float(row[f"x{i}"]) for i in range(N)] == line["x"] == item.x.tolist()
        assert row["reason"] == line["reason"] == item.reason
        if not item.failed:
            assert float(row["value"]) == line["value"] == item.value
    assert repr(result.evaluations).startswith(f"Evaluations({len(table)} values")
    assert result.evaluations.best.value == min(float(r["value"]) for r in table if r["value"])


CHILD = """
import os, sys, time
import numpy as np
import desopt

CALLS = sys.argv[2]

def fun(x):
    time.sleep(0.02)
    with open(CALLS, "a") as file:  # one write per call, after the time was spent
        file.write(x.tobytes().hex() + "\\n")
    return float(np.sum((x - 0.3) ** 2))

if __name__ == "__main__":
    result = desopt.minimize(
        fun, np.ones(4), method=sys.argv[3], engine=sys.argv[4], jobs=2, rounds=2, iterations=14,
        population=16, workers=2 if sys.argv[3] == "des" else None, journal=sys.argv[1], seed=5,
        eval_every=0,
    )
    print(result.digest, result.nfev, len(result.evaluations))
"""


@pytest.mark.parametrize(
    ("method", "engine"),
    [("es", "serial"), ("es-csa", "threads"), ("des", "processes"), ("es", "processes")],
)
def test_killed_runs_compute_nothing_again(method: str, engine: str, tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    calls, kills = tmp_path / "calls", 2

    def start(journal: str, calls: Path) -> Any:
        command = [sys.executable, str(script), str(tmp_path / journal), str(calls), method, engine]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def lines() -> list[str]:
        return calls.read_text().split() if calls.exists() else []

    for _ in range(kills):
        wanted = len(lines()) + 5
        child = start("j", calls)
        while len(lines()) < wanted and child.poll() is None:
            time.sleep(0.01)
        with suppress(ProcessLookupError):  # it was faster, on a busy machine
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        time.sleep(0.3)  # processes of the engine end with it
    child = start("j", calls)
    digest, nfev, kept = child.communicate()[0].split()
    child = start("whole", tmp_path / "whole-calls")
    assert child.communicate()[0].split()[:2] == [digest, nfev]
    # at most what was under way in two slots when the process was killed
    assert 0 <= len(lines()) - int(kept) <= 2 * kills


# --- test vectors ----------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[2] / "docs" / "journal.md"
VALUES = (
    (Key(3, 0, 17, 2), np.array([0.5, -1.0]), Outcome(0.125, 1, 2.5)),
    (Key(3, 1, 4, 0), None, Outcome(math.nan, 1, 90.0, "no convergence")),
)


def vector(name: str) -> bytes:
    found = re.search(rf"```{name}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return bytes.fromhex(found[1])


def test_records_are_those_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desopt.run.values.time.time", lambda: 1767225600.5)
    monkeypatch.setattr("desopt.run.values.platform.python_version", lambda: "3.11.7")
    with values.ValueLog(tmp_path / "v", lambda: "0123456789abcdef", always=True) as log:
        for value in VALUES:
            log.write(*value)
    written = (tmp_path / "v").read_bytes()
    assert written.hex(" ") == (values.MAGIC + vector("values")).hex(" ")
    with values.ValueLog(tmp_path / "v", None) as log:
        first, second = log.evaluations
    assert (first.id, first.value, first.failed) == ("3.0.17.2", 0.125, False)
    assert first.x is not None
    assert first.x.tolist() == [0.5, -1.0]
    assert (second.worker, second.x, second.reason) == (1, None, "no convergence")
    assert (second.seconds, second.when) == (90.0, 1767225600.5)
