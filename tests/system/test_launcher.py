"""Programs one after the other, by one watcher: how they are started, and what is kept of them."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from desopt.system.launcher import Ended, Launcher

pytestmark = pytest.mark.skipif(os.name != "posix", reason="uses sh")


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def sh(launcher: Launcher, line: str, folder: Any = "/", **options: Any) -> Ended:
    timeout, limits = options.get("timeout"), options.get("limits", (1000, 1000))
    with open(os.devnull, "rb") as nothing:
        words = ["sh", "-c", line]
        environment = {"PATH": os.defpath, "WORD": "w\udcff"}
        return launcher.run(
            "/bin/sh", words, environment, str(folder), nothing.fileno(), timeout, limits
        )


def test_folder_environment_and_streams(launcher: Launcher, tmp_path: Path) -> None:
    ended = sh(launcher, 'pwd -P; echo "$WORD" >&2; exit 4', tmp_path)
    assert ended == Ended(4, f"{tmp_path.resolve()}\n".encode(), b"w\xff\n", (False, False))


def test_one_watcher_for_many_programs(launcher: Launcher) -> None:
    parents = {sh(launcher, "echo $PPID").stdout for _ in range(3)}
    assert len(parents) == 1
    with pytest.raises(FileNotFoundError):
        sh(launcher, "echo 1", "/no/such/folder")
    assert sh(launcher, "echo $PPID").stdout in parents


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_program_inherits_nothing_of_ours(launcher: Launcher) -> None:
    """No descriptor but the three, a session of its own, and signals as a terminal gives them."""
    assert sh(launcher, "exec ls /proc/self/fd").stdout.split() == [b"0", b"1", b"2", b"3"]
    session, pid = sh(launcher, "cut -d' ' -f6 /proc/$$/stat; echo $$").stdout.split()
    assert session == pid
    assert sh(launcher, "yes | head -n 1; echo end").stderr == b""  # ends by SIGPIPE


def test_end_of_the_output_is_kept(launcher: Launcher) -> None:
    line = "seq 1 300000; seq 1 10 >&2"
    ended = sh(launcher, line, limits=(14, 21))
    assert ended.stdout == b"299999\n300000\n"
    assert ended.stderr == b"".join(b"%d\n" % i for i in range(1, 11))
    assert ended.cut == (True, False)


def test_time_out_takes_the_launcher_along(launcher: Launcher) -> None:
    ended = sh(launcher, "echo begun; exec sleep 1000", timeout=0.3)
    assert ended.code is None
    assert not launcher.alive
    launcher.close()  # twice does no harm


def test_time_of_a_new_watcher_does_not_count(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clock() -> float:
        return time.monotonic() + (100.0 if launcher._said else 0.0)

    monkeypatch.setattr("desopt.system.launcher.time", SimpleNamespace(monotonic=clock))
    assert sh(launcher, "echo 1", timeout=60.0).code == 0


def test_launcher_without_a_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(OSError, match=r"sys\.executable is empty"):
        Launcher()
