"""What a user's function may start, for tests/engines/test_left_behind.py.

Each process is noted by its number, in a file that the test reads.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# It forks twice, has a session of its own and an empty environment, and ignores signals.
DAEMON = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
leader = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == leader:  # it is noted when the one between is gone
    time.sleep(0.01)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
with open(sys.argv[1], "a") as file:
    file.write(f"daemon {os.getpid()}\\n")
os.closerange(0, 3)
time.sleep(1000)
"""


def note(folder: str, name: str, pid: int) -> None:
    with open(Path(folder, "pids"), "a") as file:
        file.write(f"{name} {pid}\n")


def start_family(folder: str) -> None:
    """One process of each kind; returns when all are noted."""
    note(folder, "worker", os.getpid())
    note(folder, "subprocess", subprocess.Popen(["sleep", "1000"]).pid)
    note(folder, "session", subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    daemon = [sys.executable, "-S", "-c", DAEMON, str(Path(folder, "pids"))]
    subprocess.run(daemon, env={}, check=True)
    fork = os.fork()  # has every file descriptor that the process has
    if fork == 0:
        time.sleep(1000)
        os._exit(0)
    note(folder, "fork", fork)
    while "daemon" not in Path(folder, "pids").read_text():
        time.sleep(0.01)


def hold_the_gil() -> None:
    ctypes.PyDLL(None).sleep(1000)


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep() -> None:
    time.sleep(1000)
