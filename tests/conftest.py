"""What the tests need to pass anywhere: signals, environment and folders as they expect them.

A background job ignores SIGINT, a service has no home, a package may lie in a folder of somebody
else, a terminal may be 20 columns wide. None of that is what a test is about.
"""

import atexit
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import psutil
import pytest

#: What changes the output of programs, where they look for files, how they connect, or how long
#: they take to start: without bytecode every process compiles all of the package.
UNWANTED = ("COLUMNS", "LINES", "TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR", "PY_COLORS",
            "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS",
            "PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE", "MPLBACKEND", "NUMBA_DISABLE_JIT",
            "DESOPT_DATA", "DESOPT_DATA_URL", "RAY_ADDRESS", "HTTP_PROXY", "HTTPS_PROXY",
            "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")  # fmt: skip


def _heed_signals() -> None:
    """Undo what was ignored or blocked by whoever started us: children would inherit it.

    A signal with a handler here has its default action in a program that is started from here.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGTERM", "SIGCHLD"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _usable(folder: str | os.PathLike[str] | None) -> bool:
    return folder is not None and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _kernels_can_be_kept() -> bool:
    """Whether numba can write beside the kernels; this imports nothing yet."""
    spec = importlib.util.find_spec("desopt")
    assert spec is not None, "desopt is not installed: pip install --editable '.[dev]'"
    assert spec.origin is not None
    kernels = Path(spec.origin).parent / "kernels"
    kept = kernels / "__pycache__"
    return _usable(kept if kept.exists() else kernels)


def _settle_in() -> None:
    """Folders of our own where files would go to a home or into the package.

    Processes that this one starts, those of pytest-xdist too, find all of it in the environment.
    """
    if os.environ.get("DESOPT_TESTS") is not None:
        return
    for name in UNWANTED:
        os.environ.pop(name, None)
    own = Path(tempfile.mkdtemp(prefix="desopt-tests-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    os.environ["DESOPT_TESTS"] = str(own)
    os.environ["DESOPT_CACHE"] = str(own / "cache")
    os.environ["TERM"] = "dumb"
    if not _usable(os.environ.get("HOME")):
        (own / "home").mkdir()
        os.environ["HOME"] = str(own / "home")
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR"):
            os.environ.pop(name, None)
    if not _kernels_can_be_kept():  # compiled once, not in every process that a test starts
        os.environ.setdefault("NUMBA_CACHE_DIR", str(own / "kernels"))


_heed_signals()
_settle_in()
# A slow machine is no fault of what is tested, and the folder we are in may not be ours.
hypothesis.settings.register_profile(
    "anywhere",
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("anywhere")


def _children() -> set[psutil.Process]:
    """The processes that this one has started and that are still at work."""
    if hasattr(os, "waitid"):
        try:  # in most tests there are none, and this costs nothing
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return set()
    return {process for process in psutil.Process().children() if _works(process)}


def _works(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _end(process: psutil.Process) -> list[psutil.Process]:
    """Kill a process with all that it has started; those there were."""
    family = [process]
    with suppress(psutil.NoSuchProcess):
        family += process.children(recursive=True)
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    return family


@pytest.fixture(autouse=True)
def _nobody_is_left_behind() -> Iterator[None]:
    """End what a test has left, also where it failed: tests that count processes follow."""
    before = _children()
    yield
    left = [family for process in _children() - before for family in _end(process)]
    psutil.wait_procs(left, timeout=300)
    assert not left, f"left behind by this test: {left}"
