"""The progress display: when it appears, where, and what it says."""

import io
import re
import sys
import time

import pytest

from desopt.system import progress
from desopt.system.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """No fixture: pytest sets stderr again between a fixture and its test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return stream


def wait_for(stream: io.StringIO, text: str) -> None:
    limit = time.monotonic() + 60
    while text not in stream.getvalue():
        assert time.monotonic() < limit, stream.getvalue()
        time.sleep(0.01)


def test_silent_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_PAUSE", -1.0)
    for show in (None, False):
        with Progress("reading x", 2, show=show) as shown:
            shown.advance()
            shown.say("compiling")
    assert capsys.readouterr() == ("", "")


def test_work_shorter_than_two_seconds_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 3600.0)
    with Progress("reading x", 2) as shown:
        shown.advance()
    assert terminal.getvalue() == ""


def test_appears_on_a_terminal_without_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    with Progress("des-mr", 100, unit="rounds", details=lambda: ["worker 3"]) as shown:
        wait_for(terminal, "0 of 100 rounds")
        shown.say("compiling the kernels")
        shown.update(done=40, note="loss 0.5")
        wait_for(terminal, "40 of 100 rounds, loss 0.5")
    for text in ("des-mr", "worker 3", "compiling the kernels"):
        assert text in terminal.getvalue()


def test_a_narrow_terminal_keeps_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar gets shorter, and then the speed goes."""
    note = "loss 0.312534, best 0.302534, 3 failed"
    for columns, speed in ((120, True), (95, False)):
        terminal = open_terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", str(columns))
        with Progress("es-csa", 600, unit="values", show=True) as shown:
            shown.update(done=0)
            time.sleep(0.001)  # so that there is a speed
            shown.update(done=320, note=note, seconds_left=18.0)
            wait_for(terminal, "about 18 s left")
            said = terminal.getvalue()
        assert f"320 of 600 values, {note}, " in said
        assert ("values/s" in said) is speed
        assert "\u2026" not in said  # nothing is cut off


@pytest.mark.parametrize(
    ("columns", "cut"),
    [(80, "320 of 600 values, about 18 s left, loss"), (40, "320 of 600 values, abou\u2026")],
)
def test_a_very_narrow_terminal_cuts_the_words(
    monkeypatch: pytest.MonkeyPatch, columns: int, cut: str
) -> None:
    """Neither what is being done nor the bar; the note goes before the time left."""
    terminal = open_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress("es-csa", 600, unit="values", show=True) as shown:
        shown.update(done=0)
        note = "loss 0.312534, best 0.302534, 3 failed"
        shown.update(done=320, note=note, seconds_left=18.0)
        wait_for(terminal, cut)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue()).split("\r")
    line = next(line for line in lines if cut in line)
    assert re.match(r"es-csa [\u2501\u2578\u257a ]{8} 320 of", line), line
    assert len(line.strip()) <= columns


@pytest.mark.parametrize("keep", [False, True])
def test_last_state_stays_on_demand(monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    terminal = open_terminal(monkeypatch)
    with Progress("des-mr", 3, unit="rounds", show=True, keep=keep) as shown:
        shown.update(done=3)
    erase_line = "\x1b[2K"
    assert "3 of 3 rounds" in terminal.getvalue()
    assert terminal.getvalue().endswith(erase_line) is not keep


def test_stdout_of_the_program_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe it must not end up beside the bar."""
    open_terminal(monkeypatch)
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stdout", pipe)
    with Progress("des-mr", 3, show=True):
        print("the program's own")
    assert pipe.getvalue() == "the program's own\n"


def test_lines_off_a_terminal_on_demand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_PAUSE", -1.0)
    monkeypatch.setattr(progress, "LONGEST_PAUSE", 3600.0)
    with Progress("study", 20, unit="cases", show=True) as shown:
        shown._pause = 1800.0
        shown.update(done=5, seconds_left=600.0)
        shown.update(done=6)  # too soon for another line
        shown.update(done=20, note="1 failed", label="all studies")
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "study: 5 of 20 cases, about 10 min left"
    assert len(err) == 2
    assert err[1].startswith("all studies: 20 of 20 cases, 1 failed")


def test_the_end_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_PAUSE", -1.0)
    with Progress("study", 20, unit="cases", show=True) as shown:
        shown.update(done=20)
    assert capsys.readouterr().err == "study: 20 of 20 cases\n"


def test_the_words_of_every_amount() -> None:
    assert Progress("reading", 200, done=50).text() == "reading: 25%"
    assert Progress("reading").text() == "reading"
    assert Progress("reading", 0, done=5, unit="bytes").text() == "reading: 5 bytes"


def test_time_left_is_counted_from_the_first_update(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown = Progress("des-mr", 100, done=20, unit="rounds")
    now[0] += 500.0  # compiling
    shown.update(done=21)
    now[0] += 10.0
    shown.update(done=41)
    assert shown.text() == "des-mr: 41 of 100 rounds, 2 rounds/s, about 30 s left"
    shown.update(done=100)
    assert "left" not in shown.text()


@pytest.mark.parametrize("stream", [None, "closed"])
@pytest.mark.parametrize("show", [None, True, False])
def test_stderr_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, stream: str | None, show: bool | None
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stream else None)
    with Progress("reading", 2, show=show) as shown:
        shown.advance()
        shown.say("a line")
    assert shown.text() == "reading: 50%"


def test_durations_in_words() -> None:
    assert [duration(s) for s in (3.14, 12.3, 600, 7500)] == [
        "3.1 s",
        "12 s",
        "10 min",
        "2 h 5 min",
    ]
