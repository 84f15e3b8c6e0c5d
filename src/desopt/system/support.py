"""What of the package this operating system supports: the one place that decides.

Programs that leave nothing behind (``system/watcher.py``) need Unix: the processes engine,
``desopt.Command`` and the studies. Nothing else does; locks of files are used where there are any.
Linux has everything. macOS lacks Linux's subreapers, so a program that makes itself a daemon
escapes, and anonymous files in memory, in place of which there are temporary ones.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from importlib.util import find_spec

_NEEDED = (
    (os, ("fork", "getppid", "killpg", "posix_spawn", "setsid", "set_blocking")),
    (select, ("poll",)),
    (signal, ("SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "pthread_sigmask")),
    (socket, ("recv_fds", "send_fds")),
)


def missing() -> list[str]:
    """What this system lacks for programs that leave nothing behind; empty on Linux and macOS."""
    found = [
        f"{module.__name__}.{name}"
        for module, names in _NEEDED
        for name in names
        if not hasattr(module, name)
    ]
    return found if find_spec("fcntl") else [*found, "fcntl"]


def require_processes(what: str, instead: str) -> None:
    """Refuse ``what`` where its processes could not be ended; ``instead`` says what to do."""
    if lacking := missing():
        raise NotImplementedError(
            f"{what} needs Linux or macOS; this system ({sys.platform}) has no {lacking[0]}. "
            f"{instead}"
        )
