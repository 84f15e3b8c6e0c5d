"""``desopt run`` as a user types it: real files, and processes where these are the point."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import command

import desopt
from desopt.data import load, train_test

COMMAND = [sys.executable, "-m", "desopt", "run"]
SMALL = ("--workers", 3, "--iterations", 20, "--batch-size", 70, "--engine", "serial")


def call(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return command.call("run", *arguments, cwd=cwd)


def call_process(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=900)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in LIBSVM's format."""
    random = np.random.default_rng(0)
    X = random.standard_normal((250, 6)).round(3)
    y = np.where(X @ random.standard_normal(6) > 0, 1, -1)
    path = tmp_path_factory.mktemp("data") / "points"
    lines = [
        f"{label:+d} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row))
        for label, row in zip(y, X, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_run_and_its_folder(file: Path, tmp_path: Path) -> None:
    settings = ("--data", file, "--rounds", 5, "--seed", 3, *SMALL)
    done = call_process(*settings, "--out", "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    train, test = train_test(load(file), 3)
    result = desopt.minimize(
        "lr", None, (train.X, train.y), rounds=5, seed=3, workers=3, iterations=20, batch_size=70,
        engine="serial",
    )  # fmt: skip
    folder = tmp_path / "a"
    assert np.load(folder / "x.npy").tobytes() == result.x.tobytes()
    summary = json.loads((folder / "result.json").read_text())
    assert summary["loss"] == result.fun
    assert summary["test_error"] == np.mean(np.sign(test.X @ result.x) != test.y)
    assert summary["test_loss"] == pytest.approx(
        np.logaddexp(0.0, -test.y * (test.X @ result.x)).mean() + 0.5e-6 * result.x @ result.x
    )
    assert f"{summary['test_error']:.6g}" in done.stdout
    assert (folder / "history.csv").read_text().count("\n") == 6
    assert json.loads((folder / "settings.json").read_text())["batch_size"] == 70
    assert (folder / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert np.array_equal(desopt.replay(folder / "run.journal"), result.x)
    assert np.load(folder / "best_x.npy").tobytes() == result.best_x.tobytes()
    assert summary["best_loss"] == result.best_fun
    assert summary["digest"] == result.digest
    assert f"digest        {result.digest}\n" in done.stdout


def test_a_budget_too_small_for_a_round_ends_at_the_start(file: Path, tmp_path: Path) -> None:
    done = call("--data", file, *SMALL, "--max-evaluations", 2, "--out", "a", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended         max_evaluations 2 spent but for 2, too few for a round" in done.stdout
    summary = json.loads((tmp_path / "a" / "result.json").read_text())
    assert (summary["rounds"], summary["loss"]) == (0, summary["initial_loss"])
    assert not (tmp_path / "a" / "model.json").exists()  # nothing is trained


def test_an_error_of_ones_own_function_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "my_mistake.py").write_text("def f(x):\n    raise KeyError('no such part')\n")
    done = call("--python", "my_mistake:f", "--n", 2, "--engine", "serial", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(
        r"desopt: fun failed \(.*\): KeyError: 'no such part' \(--debug shows where\)\n",
        done.stderr,
    )


def test_a_program_that_fails_says_why_at_once(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "raise SystemExit('no licence')", "{x}"]
    (tmp_path / "sim.json").write_text(json.dumps({"command": words}))
    small = ("--n", 2, "--engine", "serial", "--max-evaluations", 8)
    done = call("--command", "sim.json", *small, cwd=tmp_path)
    assert done.returncode == 0
    assert "values failed, one of them because of: exit code 1; stderr ends with" in done.stderr
    assert "no licence" in done.stderr


def test_what_is_on_by_default_can_be_turned_off(tmp_path: Path) -> None:
    (tmp_path / "my_switches.py").write_text("def f(x):\n    return float(x @ x)\n")
    words = ("--python", "my_switches:f", "--n", 2, "--rounds", 1, "--out", "a")
    assert call(*words, "--no-ahead", "--no-log-values", cwd=tmp_path).returncode == 0
    settings = json.loads((tmp_path / "a" / "settings.json").read_text())
    assert (settings["ahead"], settings["log_values"]) == (False, False)
    assert call("--resume", "--out", "a", "--ahead", "--log-values", cwd=tmp_path).returncode == 0
    settings = json.loads((tmp_path / "a" / "settings.json").read_text())
    assert (settings["ahead"], settings["log_values"]) == (True, True)


def test_a_run_leaves_a_model_that_finds_its_columns_by_name(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = (random.standard_normal((250, 3)) * [1.0, 50.0, 0.1] + [60.0, 200.0, 0.0]).round(4)
    y = np.where((X - [60, 200, 0]) / [1, 50, 0.1] @ [1.0, -1.0, 0.5] > 0.3, 1, 0)
    lines = [",".join(map(str, (*row, label))) for row, label in zip(X, y, strict=True)]
    (tmp_path / "points.csv").write_text("\n".join(["age,chol,dose,label", *lines]))
    chosen = "--standardize", "--intercept", "--regularization", 1e-3
    done = call("--data", "points.csv", "--rounds", 9, *SMALL, *chosen, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "desopt-run"
    model = desopt.load_model(folder / "model.json")
    train, test = train_test(load(tmp_path / "points.csv"), 0)
    assert model.inputs.columns == ("age", "chol", "dose")
    assert model.inputs.means == pytest.approx(train.X.mean(0), rel=1e-12)
    assert model.inputs.scales == pytest.approx(train.X.std(0), rel=1e-12)
    assert (*model.weights, model.intercept) == tuple(np.load(folder / "x.npy"))
    summary = json.loads((folder / "result.json").read_text())
    assert model.provenance["x"] == summary["digest"]
    shuffled = {"dose": test.X[:, 2], "age": test.X[:, 0], "other": test.y, "chol": test.X[:, 1]}
    assert summary["test_error"] == np.mean(model.predict(shuffled) != test.y) < 0.2
    p = model.predict_proba(shuffled)[:, 1]
    penalty = 0.5e-3 * np.sum(np.load(folder / "x.npy") ** 2)
    expected = -np.mean(np.log(np.where(test.y > 0, p, 1 - p))) + penalty
    assert summary["test_loss"] == pytest.approx(expected)


def test_a_resumed_run_ends_where_one_that_never_stopped_does(file: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle, --resume, more rounds; settings come from the folder."""
    # Rounds that take their time: the interrupt comes before the last one, however late it is.
    common = ("--data", file, *SMALL, "--iterations", 500, "--eval-every", 0)
    long = ["--rounds", 4000, *common, "--out", "b"]
    with subprocess.Popen(
        [*COMMAND, *map(str, long)], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        journal = tmp_path / "b" / "run.journal"
        until = time.monotonic() + 900
        while not (journal.exists() and journal.stat().st_size > 4000):
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        said = process.communicate(timeout=900)[1]
    assert process.returncode == 130
    assert said.count("\n") == 1
    assert "desopt run --resume --out b" in said
    done_before = json.loads((tmp_path / "b" / "result.json").read_text())["rounds"]
    assert 0 < done_before < 4000
    last = done_before + 50
    again = call("--resume", "--out", "b", "--rounds", last, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    whole = call("--rounds", last, *common, "--out", "c", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    ends = [(tmp_path / name / "x.npy").read_bytes() for name in "bc"]
    assert ends[0] == ends[1]


def test_a_wrong_engine_is_refused_before_anything_is_written(file: Path, tmp_path: Path) -> None:
    done = call("--data", file, "--rounds", 1, *SMALL, "--out", "f", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before = (tmp_path / "f" / "settings.json").read_bytes()
    done = call("--resume", "--out", "f", "--rounds", 2, "--engine", "proceses", cwd=tmp_path)
    assert (done.returncode, "did you mean 'processes'?" in done.stderr) == (1, True)
    assert (tmp_path / "f" / "settings.json").read_bytes() == before
    assert call("--resume", "--out", "f", "--rounds", 2, cwd=tmp_path).returncode == 0


OWN = """
import desopt
import numpy as np

def cost(x):
    return float(((x - 1.0) ** 2).sum())

def mean_cost(x, batch):
    X, y = batch
    return float(np.mean(np.log1p(np.exp(-y * (X @ x)))))

def single(x, batch):
    return np.float32(mean_cost(x, batch))

def picky(x, batch):
    if len(batch[1]) == 50:
        raise desopt.Failed("of the test rows")
    return mean_cost(x, batch)
"""


def test_a_function_of_ones_own(file: Path, tmp_path: Path) -> None:
    (tmp_path / "simulator.py").write_text(OWN)
    arguments = (
        "--method", "des-mr", "--workers", 2, "--iterations", 30, "--batch-size", 20,
        "--rounds", 6,
    )  # fmt: skip
    own = ("--python", "simulator:cost", "--n", 4, *arguments, "--engine", "processes")
    done = call_process(*own, "--jobs", 2, "--log-values", "--out", "d", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "d" / "result.json").read_text())
    lines = (tmp_path / "d" / "evaluations.csv").read_text().splitlines()
    assert lines[0].endswith(",x0,x1,x2,x3")
    assert len(lines) > summary["evaluations"]
    assert summary["initial_loss"] == 4.0
    assert summary["loss"] < 1.0
    with_data = ("--python", "simulator:mean_cost", "--n", 6, "--data", file, *arguments)
    done = call(*with_data, "--engine", "serial", "--out", "e", cwd=tmp_path)
    del sys.modules["simulator"]
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "e" / "result.json").read_text())
    assert summary["test_loss"] < summary["initial_loss"] == pytest.approx(np.log(2))


def test_the_value_on_the_test_rows_is_as_in_the_run(file: Path, tmp_path: Path) -> None:
    (tmp_path / "values.py").write_text(OWN)
    found = {}
    for name in ("mean_cost", "single", "picky"):
        done = call(
            "--python", f"values:{name}", "--n", 6, "--data", file, "--rounds", 2, *SMALL,
            "--out", name, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[name] = json.loads((tmp_path / name / "result.json").read_text())["test_loss"]
    del sys.modules["values"]
    assert found["single"] == pytest.approx(found["mean_cost"], rel=1e-2)
    assert found["picky"] is None


def test_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Described in a file, which a resumed run does not need.

    What starts it ends with the run, although somebody still has the objective.
    """
    kept: list[desopt.Command] = []

    class Kept(desopt.Command):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            kept.append(self)

    monkeypatch.setattr("desopt.run.folder.Command", Kept)
    code = "import sys; a, b = map(float, sys.argv[1:]); print('loss', (a - 1) ** 2 + b**2)"
    (tmp_path / "simulate.py").write_text(code)
    words = [sys.executable, "-S", str(tmp_path / "simulate.py"), "{a}", "{b}"]
    about = {"command": words, "variables": ["a", "b"], "value": r"loss (\S+)", "timeout": 900.0}
    (tmp_path / "sim.json").write_text(json.dumps(about))
    small = ("--n", 2, "--engine", "serial", "--log-values", "--out", "p")
    done = call("--command", "sim.json", *small, "--max-evaluations", 8, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "sim.json").unlink()
    done = call("--resume", "--out", "p", "--max-evaluations", 14, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "p" / "result.json").read_text())
    assert summary["initial_loss"] == 1.0
    assert 8 < summary["evaluations"] <= 14
    lines = (tmp_path / "p" / "evaluations.csv").read_text().splitlines()
    assert len(lines) > summary["evaluations"]
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--data NAME with --loss, or --python"),
        (("--python", "nowhere"), "module:function"),
        (("--python", "json:dumps"), "--n N for zeros, or --x0"),
        (("--python", "nowhere:f", "--n", "2"), "No module named 'nowhere'"),
        (("--command", "nowhere.json", "--n", "2"), "nowhere.json"),
        (("--command", "FILE", "--n", "2"), "must be a JSON file such as"),
        (("--data", "ijcn1"), "did you mean 'ijcnn1'?"),
        (("--resume",), "holds no run to resume"),
        (("--resume", "--out", "torn"), "settings.json cannot be read: Expecting value"),
        (("--resume", "--out", "list"), "settings.json cannot be read: no JSON object"),
        (("--python", "json:dumps", "--x0", "empty.npy"), "--x0 must be a file for numpy.load"),
        (("--python", "json:dumps", "--x0", "two.npz"), "two.npz: it holds several arrays"),
        (("--data", "FILE", "--method", "dse"), "did you mean 'des'?"),
        (("--data", "FILE", "--test-share", "1.5"), "between 0 and 1, got 1.5"),
        (("--data", "FILE", "--test-share", "0.999"), "testing, of 250; got 0.999"),
        (("--python", "json:dumps", "--n", "2", "--x0", "x.npy"), "or --x0 FILE.npy; not both"),
    ],
)
def test_errors_say_what_to_do(
    arguments: tuple[str, ...], says: str, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.npy").touch()
    np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.zeros(2))
    for folder, text in (("torn", '{"kind": '), ("list", "[]")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "settings.json").write_text(text)
    real = [str(file) if a == "FILE" else a for a in arguments]
    done = call("--out", "f", *real, cwd=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_folder_is_not_overwritten(file: Path, tmp_path: Path) -> None:
    start = ("--data", file, *SMALL, "--rounds", 2, "--out", "g h")
    assert call(*start, cwd=tmp_path).returncode == 0
    again = call(*start, cwd=tmp_path)
    assert again.returncode == 1
    assert (
        "g h holds a run already: resume it with `desopt run --resume --out 'g h'`" in again.stderr
    )
    small = call("--resume", "--out", "g h", "--rounds", 5000, "--max-seconds", 0.01, cwd=tmp_path)
    assert small.stderr.startswith("desopt: batch_size 70 is outside the theory")
    assert small.stderr.count("\n") == 1
    other = call("--resume", "--out", "g h", "--seed", 9, cwd=tmp_path)
    assert other.returncode == 1
    assert "--seed was 0 when this run began, got 9" in other.stderr
