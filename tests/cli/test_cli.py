"""The command line: what it prints and how it ends; in a process of its own where that matters."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.command import call
from typer.testing import CliRunner

import desopt
from desopt.cli.app import app

COMMAND = [sys.executable, "-m", "desopt"]


def call_process(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=900)


def assert_one_line_error(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("desopt: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, desopt.Result]:
    """A real journal of six rounds, and the result of the run that wrote it."""
    path = tmp_path_factory.mktemp("cli") / "run.journal"
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 7))
    labels = np.sign(rows @ rng.standard_normal(7))
    result = desopt.minimize(
        "lr", None, (rows, labels), method="des-mg", workers=3, rounds=6, iterations=20,
        batch_size=40, journal=path,
    )  # fmt: skip
    return path, result


def test_help_names_the_commands_and_gives_examples() -> None:
    done = call("--help")
    assert done.returncode == 0
    for text in ("istributed evolution strategies", "demo", "replay", "Examples:", "--version"):
        assert text in done.stdout
    assert call().stdout == done.stdout
    assert "--round" in call("replay", "-h").stdout
    assert "--quick" in call("demo", "--help").stdout


def test_version(tmp_path: Path) -> None:
    shown = (0, f"desopt {desopt.__version__}\n", "")
    for start in (call, call_process):
        done = start("--version", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == shown


def test_help_loads_no_package_of_a_single_command() -> None:
    code = "import sys, desopt.cli.app; sys.exit('sklearn' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=900).returncode == 0


def test_replay_sums_the_journal_up(run: tuple[Path, desopt.Result]) -> None:
    path, result = run
    done = call_process("replay", path, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (lines["method"], lines["n"], lines["workers"]) == ("des-mg", "7", "3")
    assert lines["rounds"] == "6"
    assert f"last loss     {result.fun:.8g}" in done.stdout
    assert f"norm of x     {np.linalg.norm(result.x):.8g}" in done.stdout
    assert "\x1b" not in done.stdout


def test_replay_writes_the_exact_point(run: tuple[Path, desopt.Result], tmp_path: Path) -> None:
    path, result = run
    assert call("replay", path, "--out", tmp_path / "x.npy").returncode == 0
    assert np.load(tmp_path / "x.npy").tobytes() == result.x.tobytes()

    done = call("replay", path, "--round", 2, "--out", tmp_path / "x2")
    assert "x after round 2" in done.stdout
    assert np.load(tmp_path / "x2").tobytes() == desopt.replay(path, round=2).tobytes()


def test_replay_tells_of_a_torn_end(run: tuple[Path, desopt.Result], tmp_path: Path) -> None:
    path, _ = run
    torn = tmp_path / "torn.journal"
    torn.write_bytes(path.read_bytes()[:-3])
    done = call("replay", torn)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rounds        5 (the file ends in the middle of another" in done.stdout
    assert "x after round 5" in done.stdout


def test_bad_usage_is_one_line_and_code_2(run: tuple[Path, desopt.Result]) -> None:
    path, _ = run
    nowhere = call_process("nope", cwd=path.parent)
    assert "nope" in assert_one_line_error(nowhere, 2)
    assert nowhere.stderr == call("nope").stderr
    assert "JOURNAL" in assert_one_line_error(call("replay"), 2)
    assert "--rounds" in assert_one_line_error(call("replay", path, "--rounds", 3), 2)
    assert "0 to 6" in assert_one_line_error(call("replay", path, "--round", 7), 2)
    assert "0 to 6" in assert_one_line_error(call("replay", path, "--round", -1), 2)
    assert "missing.journal" in assert_one_line_error(call("replay", "missing.journal"), 2)
    folder = assert_one_line_error(call("replay", path.parent), 2)
    assert f"is a folder; give its journal, such as {path}" in folder
    assert "desopt demo --help" in assert_one_line_error(call("demo", "--fast"), 2)


def test_an_address_to_watch_on_that_cannot_be_had() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "--port 0 takes" in assert_one_line_error(call("watch", "--port", port), 1)
    error = assert_one_line_error(call("watch", "--host", "nowhere.invalid", "--port", 0), 1)
    assert error.rstrip().endswith("--host must be this machine's (--debug shows where)")


def test_failure_is_one_line_and_code_1(run: tuple[Path, desopt.Result], tmp_path: Path) -> None:
    path, _ = run
    (tmp_path / "text").write_text("no journal\n" * 20)
    assert_one_line_error(call("replay", tmp_path / "text"), 1)

    done = call("replay", path, "--out", tmp_path / "no" / "folder" / "x.npy")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No such file or directory" in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no journal\n" * 20)
    done = call_process("replay", "text", "--debug", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    with pytest.raises(ValueError, match="journal"):  # Python shows what nobody has caught
        call("--debug", "replay", "text", cwd=tmp_path)


def test_an_end_of_file_is_a_failure_and_no_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "ends_early.py").write_text("raise EOFError('the table is cut short')\n")
    words = ("run", "--python", "ends_early:cost", "--n", 2)
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert "EOFError: the table is cut short" in done.stderr
    with pytest.raises(EOFError, match="cut short"):
        call(*words, "--debug", cwd=tmp_path)


def test_demo_says_which_package_is_missing(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['sklearn.datasets'] = None; "
        "runpy.run_module('desopt', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "demo"],
        capture_output=True, text=True, cwd=tmp_path, timeout=900,
    )  # fmt: skip
    assert "pip install 'desopt[sklearn,report]'" in assert_one_line_error(done, 1)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()  # the title: the demo is under way
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=900)
    assert process.returncode == 130
    assert errors.endswith("desopt: stopped; the same command continues\n")
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", ["tell", "report", "replay", "data fetch", "federation status"])
def test_help_is_plain_text(command: str) -> None:
    """typer 0.20, which Flower pins, escapes the bracket of [required] for rich, unasked."""
    shown = CliRunner().invoke(app, [*command.split(), "--help"]).output
    assert "[required]" in shown
    assert "\\" not in shown
