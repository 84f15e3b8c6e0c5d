"""What a run costs besides its search: memory, and compilation, which it says."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
from numba import njit

from desopt.bench import system
from desopt.jit import compilation_noticed

RUN = """
import numpy as np, desopt
desopt.minimize(lambda x: float(x @ x), np.ones(9), method="des-mr", rounds=2, iterations=4,
                workers=2, engine="serial")
"""
LINE = "compiling the kernels"


def test_a_run_holds_the_data_once() -> None:
    """100 workers; besides the data and what is loaded anyway, less than a third of the data."""
    measured = system.memory()
    assert measured["data_mb"] > 40
    assert measured["run_mb"] < 0.3 * measured["data_mb"]


def on_a_terminal(code: str, cache: Path) -> str:
    """What a process writes to a terminal of its own."""
    terminal, end = pty.openpty()
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache), "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=end, stderr=end):
        os.close(end)
        said = b""
        try:
            while block := os.read(terminal, 4096):
                said += block
        except OSError:  # how a terminal says that nobody is on its other side
            os.close(terminal)
    return said.decode()


def test_a_terminal_is_told_once_that_kernels_are_compiled(tmp_path: Path) -> None:
    assert on_a_terminal(RUN, tmp_path).count(LINE) == 1
    assert LINE not in on_a_terminal(RUN, tmp_path)


def test_compilation_is_noticed_once() -> None:
    said: list[str] = []
    twice = njit(lambda x: 2 * x)
    with compilation_noticed(lambda: said.append("compiling")):
        assert twice(np.pi) == 2 * np.pi
        assert twice(3) == 6
    assert said == ["compiling"]
    with compilation_noticed(lambda: said.append("again")):
        assert twice(4) == 8
    assert said == ["compiling"]
