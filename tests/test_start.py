"""What a run costs besides its search: memory, and compilation, which it says."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from desopt.bench import system
from desopt.jit import compilation_noticed

RUN = """
import numpy as np, desopt
desopt.minimize(lambda x: float(x @ x), np.ones(9), method="des-mr", rounds=2, iterations=4,
                workers=2, engine="serial")
"""
LINE = "compiling the kernels"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the figures")
def test_a_run_holds_the_data_once() -> None:
    """Whatever M is; and all of the process in 1.3 times the data and 150 MB."""
    few, many = system.memory()
    assert few["data MB"] == many["data MB"] > 40
    for measured in few, many:
        assert measured["resident MB"] < measured["at_most"] < 220
    # Answers that wait to be merged are all that there is more of.
    assert many["of its own"] - few["of its own"] < 0.1 * many["data MB"]


LET_GO = """
from pathlib import Path
import numpy as np
import pytest
from numba import njit
from desopt.jit import let_go_of_llvm
from desopt.kernels.steps import add_at

def resident():
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1]) / 1e6

add_at(np.zeros(3), np.zeros(1, np.int64), np.ones(1))
before = resident()
let_go_of_llvm()
assert resident() < before - 20, (before, resident())
assert njit(lambda x: 2 * x)(21) == 42
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux")
def test_what_is_let_go_comes_back() -> None:
    subprocess.run([sys.executable, "-c", LET_GO], check=True)


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
