"""A process ends with the one that started it. Imports nothing, to be called first."""

from __future__ import annotations

import sys


def die_with_parent() -> None:
    """Let the kernel see to it, for a process may be stopped or busy when the other one goes."""
    if sys.platform != "linux":
        return
    import ctypes
    import signal
    from contextlib import suppress

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
