"""Without Unix's processes and locks, as on Windows, everything else works and these are refused.

The program takes away what Windows lacks after the libraries are imported, which choose their own
ways by the real system.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from desopt.system import support

WITHOUT = """
import os, select, signal, socket, sys, mmap, time
import asyncio, multiprocessing, platform, rich.live, subprocess, tempfile
import cloudpickle, numba, numpy as np, platformdirs, scipy.optimize, scipy.sparse, typer

for module, names in {
    os: "fork forkpty killpg setsid getuid geteuid getpgid mkfifo posix_spawn posix_spawnp "
        "memfd_create sched_getaffinity set_blocking sysconf waitid wait4 getppid",
    select: "poll epoll", socket: "AF_UNIX send_fds recv_fds",
    signal: "SIGKILL SIGCONT SIGHUP SIGCHLD SIGALRM pthread_sigmask setitimer",
    mmap: "MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None

import desopt

assert not [name for name in sys.modules if name.startswith("desopt.engines.processes")]
quiet = {"progress": False, "rounds": 3, "workers": 2, "iterations": 5}

def slow(x):  # elsewhere, engine="auto" would take processes
    time.sleep(0.011)
    return float(x @ x)

auto = desopt.minimize(slow, np.ones(3), jobs=2, **quiet)
assert "no processes" in auto.message, auto.message
X = np.random.default_rng(0).standard_normal((60, 4))
data = X, np.sign(X[:, 0])
found = [desopt.minimize("lr", None, data, engine=e, **quiet).x for e in ("serial", "threads")]
assert found[0].tobytes() == found[1].tobytes()
for _ in range(2):  # the second one resumes
    kept = desopt.minimize("lr", None, data, journal="run.journal", **quiet)
assert kept.x.tobytes() == found[0].tobytes() == desopt.replay("run.journal").tobytes()
assert os.listdir() == ["run.journal"]
with desopt.Optimizer(np.ones(2), method="es-csa", journal="asked", rounds=2) as optimizer:
    while trials := optimizer.ask(9):
        for trial in trials:
            optimizer.tell(trial, float(trial.x @ trial.x))
desopt.data.load("susy-like", rows=100)

from desopt.studies.processes import WorkerProcess

for refused in (
    lambda: desopt.minimize(slow, np.ones(3), engine="processes", **quiet),
    lambda: desopt.minimize(slow, np.ones(3), evaluation_timeout=1.0, **quiet),
    lambda: desopt.Command(["echo", "{x}"]),
    WorkerProcess,
):
    try:
        refused()
    except NotImplementedError as error:
        print(error)
"""


def test_this_system_has_everything() -> None:
    assert support.missing() == []


def test_without_unix(tmp_path) -> None:  # type: ignore[no-untyped-def]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert [line.partition(" needs Linux or macOS")[0] for line in said] == [
        "engine 'processes'", "engine 'processes'", "desopt.Command", "a study",
    ]  # fmt: skip
    assert all("has no os.fork. " in line for line in said)


def test_the_lock_module_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    with pytest.raises(NotImplementedError, match=r"has no fcntl\. Do that"):
        support.require_processes("this", "Do that")
