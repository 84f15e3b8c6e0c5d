"""What a run costs besides its search: memory, and compilation, which it says."""

import os
import pty
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numba import njit

import desopt
from desopt.bench.speed import DataShape
from desopt.kernels.jit import compilation_noticed

RUN = """
import numpy as np, desopt
desopt.minimize(lambda x: float(x @ x), np.ones(9), method="des-mr", rounds=2, iterations=4,
                workers=2, engine="serial")
"""
LINE = "compiling the kernels"


@pytest.mark.parametrize("workers", [10, 100])
def test_a_run_holds_the_data_once(workers: int) -> None:
    """Whatever M is, a run has a copy of the columns' numbers, half of that besides, no values."""
    X, y = DataShape("sparse", 5_000, 500, 70.0, rows=20_000).data()

    def run() -> None:
        desopt.minimize(
            "lr", None, (X, y), method="des-mr", engine="threads", jobs=2, workers=workers,
            rounds=3, iterations=100, batch_size=100,
        )  # fmt: skip

    run()  # compiles
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * X.indices.nbytes < X.data.nbytes


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


@pytest.mark.cpus
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


INTERRUPTED = """
import os, signal, threading
import numpy as np
import desopt
from numba.core import event

class Press(event.Listener):
    def __init__(self):
        self.wanted = threading.Event()
    def on_start(self, _event):
        self.wanted.set()
    def on_end(self, _event):
        self.wanted.clear()

press = Press()

def keep_pressing():
    while press.wanted.wait():
        os.kill(os.getpid(), signal.SIGINT)  # in the midst of a compilation
        press.wanted.clear()

rows = np.arange(40.0).reshape(10, 4) % 7 - 3
data = rows, np.where(rows[:, 0] > 0, 1.0, -1.0)
settings = dict(method="des", rounds=1, iterations=4, workers=2, batch_size=5, engine="serial")
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=keep_pressing, daemon=True).start()
interrupts = 0
while True:
    try:
        with event.install_listener("numba:compile", press):
            result = desopt.minimize("lr", None, data, **settings)
        break
    except KeyboardInterrupt:
        interrupts += 1
        assert interrupts < 100
assert interrupts >= 1 and result.success, interrupts
"""


@pytest.mark.cpus
@pytest.mark.timeout(1800)
def test_interrupts_wait_for_a_compilation(tmp_path: Path) -> None:
    """However often it comes: each is a KeyboardInterrupt, and no kernel is left half made."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.cpus
def test_stale_code_is_dropped_from_any_cache(tmp_path: Path) -> None:
    """Kernels contain the code of those they call: when one is new, all are compiled again."""
    code = (
        "import numpy as np\nfrom desopt.kernels.steps import add_at\n"
        "add_at(np.zeros(3), np.zeros(1, np.int64), np.ones(1))\n"
        "print(sum(add_at.stats.cache_hits.values()))"
    )

    def hits() -> int:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        return int(said.stdout)

    assert [hits(), hits()] == [0, 1]
    (index,) = tmp_path.rglob("*add_at*.nbi")
    os.utime(index, (0, 0))  # older than any source
    assert [hits(), hits()] == [0, 1]
