"""Studies in real processes: killed, interrupted, shared, resumed, always with the same numbers."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from desopt.cli.app import app
from desopt.report.results import read_results
from desopt.studies import leases, runner
from desopt.studies import study as studies
from desopt.studies.database import FILE
from desopt.studies.datasets import digest
from desopt.studies.execute import Split, execute
from desopt.studies.outcomes import CURVE, Outcome
from desopt.studies.processes import WorkerProcess
from desopt.studies.store import Store

pytestmark = [
    pytest.mark.kills,
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "study.toml"
START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from desopt.cli.app import main
main()
"""
STUDY = """
data = "susy-like"
rows = 400
problems = ["lr"]
methods = ["des-mr"]
runs = {runs}
rounds = {rounds}
iterations = 50
batch_size = 40
"""


def suite(study: Path, *options: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """``desopt suite`` in a process of its own, to which Ctrl-C means something even here."""
    command = [sys.executable, "-c", START, "suite", study]
    return subprocess.Popen(
        [*map(str, command), *map(str, options)], text=True, start_new_session=True, cwd=cwd,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=900)
    assert process.returncode == code, err
    return out, err


def ended(folder: Path) -> int:
    """How many cases have a result by now."""
    with suppress(FileNotFoundError, ValueError, sqlite3.Error), Store.open(folder) as store:
        return sum(item.done for item in store.items())
    return 0


def wait_for(folder: Path, count: int) -> None:
    limit = time.monotonic() + 900
    while ended(folder) < count:
        assert time.monotonic() < limit, "no progress"
        time.sleep(0.02)


def study_of(folder: Path, runs: int, rounds: int) -> Path:
    path = folder / "mine.toml"
    path.write_text(STUDY.format(runs=runs, rounds=rounds))
    return path


def results(folder: Path) -> list[Outcome]:
    with Store.open(folder) as store:
        return store.read()


def assert_true(outcomes: list[Outcome], runs: int) -> None:
    """All runs are there once, with the numbers that this process gets."""
    assert [o.case.run for o in outcomes] == list(range(runs))
    split = Split.load("susy-like", 400)
    for outcome in outcomes[:1] + outcomes[-1:]:
        points = execute(outcome.case, split)["points"]
        names = [name for name in CURVE if name != "paper_round"]
        here = dict(zip(names, zip(*points, strict=True), strict=True))
        for name in ("round", "samples", "bytes_up", "train_loss", "test_loss"):
            np.testing.assert_array_equal(outcome.curve[name], here[name])
        np.testing.assert_array_equal(320 * outcome.curve["train_error"], here["train_error"])


def test_git_may_take_the_file_away(tmp_path: Path) -> None:
    study, out = study_of(tmp_path, 8, 400), tmp_path / "out"
    process = suite(study, "--out", out, "--jobs", 1)
    wait_for(out, 2)
    (out / FILE).rename(tmp_path / "stashed")
    _, err = finish(process, 1)
    assert "was deleted or replaced" in err
    assert "Traceback" not in err
    (out / "results-saved-1.sqlite").rename(out / FILE)
    assert 2 <= ended(out) < 8
    finish(suite(study, "--out", out))
    assert_true(results(out), 8)


def test_kill_loses_only_what_runs(tmp_path: Path) -> None:
    study, out = study_of(tmp_path, 8, 400), tmp_path / "out"
    first = suite(study, "--out", out, "--jobs", 2)
    wait_for(out, 2)
    family = psutil.Process(first.pid).children(recursive=True)
    assert len(family) == 4  # each of two has a watcher
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=900)
    _, alive = psutil.wait_procs(family, timeout=300)
    assert not alive, "the processes must end with the one that started them"
    before = {o.case.id: o.finished for o in results(out)}
    assert 2 <= len(before) < 8
    text, _ = finish(suite(study, "--out", out, "--jobs", 2))
    assert "8 of 8 cases done" in text
    assert "desopt report" in text
    after = results(out)
    assert_true(after, 8)
    assert {o.case.id: o.finished for o in after if o.case.id in before} == before
    assert [path.name for path in out.iterdir()] == [FILE]


def test_two_share_a_folder_and_ctrl_c_gives_back(tmp_path: Path) -> None:
    study, out = study_of(tmp_path, 8, 600), tmp_path / "out"
    one = suite(study, "--out", out, "--jobs", 1)
    two = suite(study, "--out", out, "--jobs", 1)
    wait_for(out, 2)
    os.killpg(one.pid, signal.SIGINT)  # a terminal sends it to all processes of the command
    _, err = finish(one, 130)
    with Store.open(out) as store:
        assert len(store.query("SELECT * FROM sessions")) == 1
    assert "the same command continues" in err
    assert "Traceback" not in err
    left = ended(out)
    assert left < 8
    text, _ = finish(two)
    assert "8 of 8 cases done" in text
    assert_true(results(out), 8)


def test_a_process_does_not_outlive_the_one_that_started_it(tmp_path: Path) -> None:
    (case,) = studies.from_toml(study_of(tmp_path, 1, 10**9)).cases
    process = WorkerProcess()
    popen = process._popen
    assert popen.stdin is not None
    popen.stdin.write(json.dumps(asdict(case)) + "\n")
    popen.stdin.flush()
    assert "Python" in process._hello()
    time.sleep(0.5)  # it is at work, for hours
    assert popen.poll() is None
    popen.stdin.close()  # as the system does when this process is killed
    assert popen.wait(timeout=900) == 0
    process.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_a_stopped_process_does_not_outlive_it_either(tmp_path: Path) -> None:
    study, out = study_of(tmp_path, 50, 400), tmp_path / "out"
    running = suite(study, "--out", out, "--jobs", 1)
    wait_for(out, 1)
    (child,) = psutil.Process(running.pid).children()
    child.suspend()
    running.kill()
    _, alive = psutil.wait_procs([child], timeout=100)
    try:
        assert not alive
    finally:
        with suppress(psutil.NoSuchProcess):
            child.kill()
        running.communicate(timeout=60)


def test_a_dead_machine_whose_clock_was_ahead_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE", 1.0)
    monkeypatch.setattr(runner, "BEAT", 0.2)
    study = studies.from_toml(study_of(tmp_path, 2, 2))
    on = study.with_digests({name: digest(name) for name in study.data})
    out = tmp_path / "out"
    with Store.open(out, create=True) as store:
        store.add(on.items)
        dead = leases.Session(store)
        assert [dead.claim(case) for case in on.cases] == ["mine", "mine"]
        far = json.dumps({"host": "far", "pid": 1, "started": "7"})
        ahead = time.time() + 30 * 86_400
        store.query("UPDATE sessions SET process = ?, beat = ?", [far, ahead])
        store.note("study", study.name)
    status = studies.run(study, out, 1)
    assert status.done == 2
    with Store.open(out) as store:
        assert store.query("SELECT * FROM sessions") == []


def test_a_pause_does_not_delay_the_next_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-Z and fg, or on a machine that was asleep."""
    waits: list[float] = []
    wait = runner._wait

    def noted(slots: Any, seconds: float) -> None:
        waits.append(seconds)
        wait(slots, seconds)

    monkeypatch.setattr(runner, "_wait", noted)
    status = studies.run(
        studies.from_toml(study_of(tmp_path, 2, 2)), tmp_path / "out", 1,
        watch=lambda _: None if waits else time.sleep(1.0),
    )  # fmt: skip
    assert status.done == 2
    assert 0.5 <= max(waits) <= runner.BEAT


def test_changed_data_are_run_again_and_not_pooled(tmp_path: Path) -> None:
    def write(shift: int) -> None:
        rows = "".join(f"{(-1) ** i},{i % 7 + shift},{i % 5}\n" for i in range(200))
        (tmp_path / "mine.csv").write_text("label,a,b\n" + rows)

    path, out = study_of(tmp_path, 2, 3), tmp_path / "out"
    text = path.read_text().replace("susy-like", "mine.csv").replace("rows = 400", "")
    path.write_text(text)
    write(0)
    assert studies.run(studies.from_toml(path), out, 2, str(tmp_path)).done == 2
    before = [series.final() for series in read_results(out).item("mine")]
    write(40)
    path.write_text(text.replace("runs = 2", "runs = 4"))
    assert studies.run(studies.from_toml(path), out, 2, str(tmp_path)).done == 4
    (series,) = read_results(out).item("mine")
    assert (series.runs, series.case.data) == (4, "mine.csv")
    assert [series.final()] != before
    assert read_results(out).former == 2
    shown = read_results(out, include_former=True).item("mine")
    assert sorted((s.case.data, s.runs) for s in shown) == [
        ("mine.csv", 4), (f"mine.csv (digest {old_digest(out)[:8]})", 2),
    ]  # fmt: skip


def old_digest(folder: Path) -> str:
    with Store.open(folder) as store:
        return next(case.digest or "" for _, case, now in store.members() if not now)


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    study, out = study_of(tmp_path, 3, 600), tmp_path / "out"
    running = suite(study, "--out", out, "--jobs", 1)
    wait_for(out, 1)
    (watcher,) = psutil.Process(running.pid).children()
    watcher.children()[0].kill()
    finish(running)
    assert_true(results(out), 3)


def test_the_example_runs_and_is_listed_and_exported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--out", str(out), "--only", "skew:susy-like")
    text, _ = finish(suite(EXAMPLE, *options))
    assert "18 of 18 cases done" in text
    with Store.open(out) as store:
        assert {item.name: item.done for item in store.items()} == {"skew": 18}
        assert store.about()["study"] == "first study"
        assert all(outcome.generated for outcome in store.read())
    text = CliRunner().invoke(app, ["suite", str(EXAMPLE), *options, "--list"]).output
    assert re.search(r"susy-like +2,000 +18 +of 5,000,000 +generated", text)
    assert "18 cases, all done" in text
    assert CliRunner().invoke(app, ["suite", str(EXAMPLE), *options, "--csv"]).exit_code == 0
    assert len((out / "cases.csv").read_text().splitlines()) == 19


def test_a_failure_is_recorded_and_tried_again_when_asked(tmp_path: Path) -> None:
    (tmp_path / "little.csv").write_text("label,a\n" + "1,2\n-1,3\n" * 4)
    path, out = study_of(tmp_path, 1, 2), tmp_path / "out"
    path.write_text(path.read_text().replace("susy-like", "little.csv").replace("rows", "# rows"))
    study = studies.from_toml(path)
    status = studies.run(study, out, 1, str(tmp_path))
    assert (status.failed, status.done) == (1, 0)
    assert "10 workers: choose 1 to 6" in status.error
    with Store.open(out, create=True) as store:
        store.query("UPDATE results SET message = 'old'")
    assert studies.run(study, out, 1, str(tmp_path)).error == "old"
    result = CliRunner().invoke(app, ["suite", str(path), "--out", str(out), "--retry"])
    assert isinstance(result.exception, RuntimeError)
    assert re.search("1 of 1 cases failed: .*choose 1 to 6.*--retry", str(result.exception))


def test_more_rows_than_there_are_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "little.csv").write_text("label,a\n" + "1,2\n-1,3\n" * 4)
    path, out = study_of(tmp_path, 1, 2), tmp_path / "out"
    path.write_text(path.read_text().replace("susy-like", "little.csv"))
    for more in ([], ["--list"]):
        result = CliRunner().invoke(app, ["suite", str(path), "--out", str(out), *more])
        assert isinstance(result.exception, ValueError)
        assert re.match(r"rows is [\d,]+, but little\.csv has 8: ", str(result.exception))
        assert result.output == ""
    assert not out.exists()


def test_what_is_missing_is_said_at_once(tmp_path: Path) -> None:
    path = study_of(tmp_path, 1, 2)
    path.write_text(path.read_text().replace("susy-like", "nowhere.csv"))
    result = CliRunner().invoke(app, ["suite", str(path), "--out", str(tmp_path / "out")])
    assert "nowhere.csv" in str(result.exception)
    assert not (tmp_path / "out").exists()
    result = CliRunner().invoke(app, ["suite", str(path), "--scale", "full"])
    assert result.exit_code == 2
    assert "--scale" in result.output


def test_a_process_that_cannot_start_is_no_fault_of_the_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("desopt.studies.processes._MAIN", "raise SystemExit(3)")
    with pytest.raises(RuntimeError, match=r"cannot start.*exit code 3"):
        studies.run(studies.from_toml(study_of(tmp_path, 4, 2)), tmp_path / "out", 2)
    assert results(tmp_path / "out") == []


def test_a_method_of_a_plug_in(tmp_path: Path) -> None:
    plugin = "import desopt\nfrom desopt.methods import DES\n"
    (tmp_path / "mine.py").write_text(plugin + "desopt.register('method', 'my-des', DES)\n")
    path, out = study_of(tmp_path, 1, 2), tmp_path / "out"
    path.write_text(path.read_text().replace('["des-mr"]', '["des-mr", "my-des"]'))
    options = ("--out", out, "--jobs", 1)
    _, err = finish(suite(path, *options, cwd=tmp_path), 1)
    assert "unknown method 'my-des'" in err
    text, _ = finish(suite(path, *options, "--plugin", "mine", cwd=tmp_path))
    assert "2 of 2 cases done" in text
    methods = [series.case.method for series in read_results(out).item("mine")]
    assert methods == ["des-mr", "my-des"]  # and the report needs no plug-in
