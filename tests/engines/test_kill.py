"""Runs that are killed or interrupted go on from their journal and end with the same bits."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest

import desopt
from desopt.run import journal as journals

pytestmark = [
    pytest.mark.kills,
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
]

# The compiled run writes 40 kB or so after every second round: a large write is what a signal
# can cut in two. The other calls a Python function in processes.
SCRIPT = """
import hashlib, os, sys, time
import numpy as np
import desopt

engine, journal, *hold = sys.argv[1:]
rng = np.random.default_rng(0)

def tell(text):
    os.write(1, f"{text}\\n".encode())

def slow(x, batch):
    time.sleep(0.002)
    return float(np.mean((batch @ x - 1.0) ** 2))

def hang(x, batch):
    if batch.shape[0] == 50:  # a minibatch: the full objective is evaluated first
        tell("round 1 begins")
        time.sleep(600)
    return slow(x, batch)

def done(row):
    tell(row["round"])
    if hold and row["round"] == (60 if engine in ("serial", "threads") else 40):
        time.sleep(900)  # a fast machine must not end the run before it is interrupted

settings = dict(workers=4, engine=engine, seed=7, progress=False, eval_every=5,
                journal=journal, callbacks=[done])
tell("ready")
try:
    if engine in ("serial", "threads"):
        X = rng.standard_normal((400, 5000))
        result = desopt.minimize("lr", rng.standard_normal(5000), (X, np.sign(X[:, 0])),
                                 method="des-mg", rounds=60, iterations=100, batch_size=200,
                                 snapshot_every=2, **settings)
    else:
        hangs = engine == "hang"
        settings["engine"] = "processes"
        result = desopt.minimize(hang if hangs else slow, np.zeros(30),
                                 rng.standard_normal((320, 30)), method="des", rounds=40,
                                 iterations=10, batch_size=50, jobs=2, **settings)
except KeyboardInterrupt as error:
    tell(f"interrupted {type(error).__name__} {error.result.nit} {error.result.status}")
    raise
tell(f"done {hashlib.blake2b(result.x.tobytes()).hexdigest()}")  # short: written as a whole
"""


@dataclass
class Child:
    """A run in a process of its own, and the lines that it has written so far."""

    popen: subprocess.Popen[str]
    errors: Path
    lines: list[str] = field(default_factory=list)
    family: list[psutil.Process] = field(default_factory=list)

    def follow(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.strip())

    def rounds(self) -> list[int]:
        return [int(line) for line in list(self.lines) if line.isdigit()]

    def result(self) -> str | None:
        """The bits of x, if the run has come to its end."""
        return next((line for line in list(self.lines) if line.startswith("done")), None)

    def wait_for(self, what: str, seconds: float = 900.0) -> bool:
        """Wait for "ready", or for "round"; false where the run ended without."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if what in self.lines or (what == "round" and self.rounds()):
                return True
            if self.popen.poll() is not None:
                return False
            time.sleep(0.002)
        raise TimeoutError(what)

    def children(self, count: int) -> list[psutil.Process]:
        """The processes it has started, once there are so many."""
        end = time.monotonic() + 900
        while time.monotonic() < end:
            self.family = psutil.Process(self.popen.pid).children(recursive=True)
            if len(self.family) >= count:
                return self.family
            time.sleep(0.002)
        raise TimeoutError("children")


@contextmanager
def started(folder: Path, engine: str, journal: Path, *hold: str) -> Iterator[Child]:
    """The script in a process group of its own; all its output is read before the block ends.

    Output ends only when the last process that has it is gone, so this waits for those too.
    """
    script = folder / "run.py"
    if not script.exists():
        script.write_text(SCRIPT)
    command = [sys.executable, str(script), engine, str(journal), *hold]
    errors = journal.with_name(f"{journal.name}.stderr")
    with (
        open(errors, "w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
        ) as popen,
    ):
        child = Child(popen, errors)
        reader = threading.Thread(target=child.follow)
        reader.start()
        try:
            yield child
            popen.wait(900)
        finally:
            with suppress(psutil.NoSuchProcess):  # those that it has started until now
                child.family += psutil.Process(popen.pid).children(recursive=True)
            popen.kill()
            reader.join(300)
            outlived = reader.is_alive()
            for process in child.family:  # a failing test must not leave them either
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            assert not outlived, "a process that the run started has outlived it"


def finish(folder: Path, engine: str, journal: Path) -> str:
    with started(folder, engine, journal) as child:
        pass
    result = child.result()
    assert result is not None, child.errors.read_text()
    return result


def rounds_in(journal: Path) -> int:
    if not journal.exists():
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a torn tail is what this is about
        return len(journals.read(journal).rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    (folder / "run.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> dict[str, str]:
    compiled = finish(folder, "serial", folder / "serial")
    python = finish(folder, "processes", folder / "processes")
    return {"serial": compiled, "threads": compiled, "processes": python}


# --- kill -9 ---------------------------------------------------------------------------------


def kill_once(folder: Path, engine: str, journal: Path, rng: np.random.Generator) -> str | None:
    """Start or resume the run and kill it at a random moment; its end, if that came first.

    Some moments are counted from the call of minimize, so that starting, reading the journal
    and creating it are among them; the others from the first round that is done.
    """
    before = rounds_in(journal)
    begin, length = ("ready", 1.0) if rng.random() < 0.3 else ("round", 0.25)
    with started(folder, engine, journal) as child:
        child.wait_for(begin)
        time.sleep(length * rng.random())
        child.popen.kill()
    if child.popen.returncode == 0:
        return child.result()
    assert child.popen.returncode == -signal.SIGKILL, child.errors.read_text()
    reported = child.rounds()
    assert reported == list(range(before + 1, before + 1 + len(reported))), "goes on from there"
    # The callback follows the write, so one round more may be in the file.
    assert 0 <= rounds_in(journal) - (before + len(reported)) <= 1
    return child.result()


def kill_often(folder: Path, engine: str, kills: int, expected: str) -> int:
    """Kill runs until there are so many kills, finishing every run; kills in mid-run."""
    rng = np.random.default_rng(kills)
    number, in_the_middle, done = 0, 0, 0
    while done < kills:
        journal = folder / f"{engine}-{number}"
        result = None
        while result is None and done < kills:
            result = kill_once(folder, engine, journal, rng)
            done += result is None
            in_the_middle += result is None and rounds_in(journal) > 0
        assert (result or finish(folder, engine, journal)) == expected
        replayed = hashlib.blake2b(desopt.replay(journal).tobytes()).hexdigest()
        assert f"done {replayed}" == expected
        number += 1
    return in_the_middle


def test_fifty_kills_at_random_moments(folder: Path, undisturbed: dict[str, str]) -> None:
    plan = {"threads": 38, "processes": 12}
    with ThreadPoolExecutor(2) as pool:
        middles = pool.map(
            lambda engine: kill_often(folder, engine, plan[engine], undisturbed[engine]), plan
        )
        assert sum(middles) > 25, "most kills should hit a run that has done something"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("engine", ["processes", "hang"])
def test_killed_parent_leaves_no_process_and_no_shared_memory(tmp_path: Path, engine: str) -> None:
    with started(tmp_path, engine, tmp_path / "j") as child:
        processes = child.children(4)  # each of two has a watcher
        assert child.wait_for("round" if engine == "processes" else "round 1 begins")
        everybody = [psutil.Process(child.popen.pid), *processes]
        paths = {entry.path for process in everybody for entry in process.memory_maps()}
        child.popen.kill()
        _, alive = psutil.wait_procs(processes, timeout=300)
        assert not alive
    assert child.popen.returncode == -signal.SIGKILL
    left = [path for path in paths if path.startswith("/dev/shm") and Path(path).exists()]
    assert not left


# --- Ctrl-C ----------------------------------------------------------------------------------


def interrupt(child: Child) -> list[psutil.Process]:
    """SIGINT to the process group, as a terminal sends it; the processes there were."""
    processes = child.children(0)
    os.killpg(child.popen.pid, signal.SIGINT)
    return processes


@pytest.mark.parametrize("engine", ["serial", "threads", "processes"])
def test_interrupted_run_resumes(
    folder: Path, undisturbed: dict[str, str], tmp_path: Path, engine: str
) -> None:
    journal = tmp_path / "j"
    rng = np.random.default_rng(1)
    for _ in range(2):
        before = rounds_in(journal)
        with started(folder, engine, journal, "hold") as child:
            assert child.wait_for("round")
            time.sleep(0.1 * rng.random())
            processes = interrupt(child)
        assert len(processes) == (4 if engine == "processes" else 0)  # each of two has a watcher
        assert not psutil.wait_procs(processes, timeout=300)[1]
        assert "Interrupted: interrupted after round" in child.errors.read_text()
        assert child.popen.returncode not in (0, None)
        rounds = rounds_in(journal)
        assert rounds - before - len(child.rounds()) in (0, 1)
        assert child.lines[-1] == f"interrupted Interrupted {rounds} 6"
        if rounds == (40 if engine == "processes" else 60):
            break
    assert finish(folder, engine, journal) == undisturbed[engine]


def test_interrupted_start_leaves_no_process(folder: Path, tmp_path: Path) -> None:
    with started(folder, "processes", tmp_path / "j") as child:
        child.children(1)
        processes = interrupt(child)
    assert processes
    assert not psutil.wait_procs(processes, timeout=300)[1]
    assert child.popen.returncode not in (0, None)
    assert child.lines == ["ready", "interrupted Interrupted 0 6"]
