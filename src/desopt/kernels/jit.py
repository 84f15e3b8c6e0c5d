"""How kernels are compiled: every floating-point operation as written, in the order written.

No fast-math flag anywhere. LLVM would use that freedom differently for another CPU, for
read-only arrays, for another order of compiling; and the same run would end with other bits.
``fastmath`` is given although it is off: a function without the option would inherit it from a
caller. What must be fast in spite of that says how: see ``kernels.lanes``.

``error_model="numpy"`` because Python's check for division by zero keeps LLVM from vectorising.
All kernels are cached on disk. They release the GIL, except those marked ``exact_with_gil``: these
take microseconds, less than handing the GIL over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

_common: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

#: The same for implementations given to numba's ``overload``.
EXACT: Any = _common | {"fastmath": False}


def _newest_source() -> float:
    """When the kernels were last changed; all other files may change without a compilation."""
    here = Path(__file__).parent
    return max(path.stat().st_mtime for path in here.glob("*.py"))


@cache
def _drop_stale_code(folder: str) -> None:
    """Forget compiled code in a cache folder that is older than any kernel's source.

    numba checks the file of the function itself only, but compiled code contains that of the
    kernels it calls.
    """
    for index in Path(folder).glob("*.nbi"):
        with suppress(OSError):  # another process was faster, or the folder is read-only
            if index.stat().st_mtime < _NEWEST:
                index.unlink()


_NEWEST = _newest_source()


def _cached(**options: Any) -> Any:
    """Compile with a cache on disk; without one where no folder for it can be written."""

    def decorate(function: Any) -> Any:
        try:
            kernel = njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)
        _drop_stale_code(kernel.stats.cache_path)
        return kernel

    return decorate


exact: Any = _cached(**EXACT)
exact_with_gil: Any = _cached(**EXACT | {"nogil": False})
exact_inline: Any = _cached(inline="always", **EXACT)


def _is_ours(kernel: Any) -> bool:
    """Whether a compiled function belongs to this package."""
    return bool(kernel.py_func.__module__.partition(".")[0] == __name__.partition(".")[0])


class _Interrupts(event.Listener):
    """Keeps Ctrl-C until a kernel of ours is compiled.

    Inside of LLVM it would be lost, or leave a kernel half made.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handler: Any = None
        self._pressed = False

    def on_start(self, started: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # interrupts are for the main thread only
        if self._depth == 0:
            if not _is_ours(started.data["dispatcher"]):
                return
            self._pressed = False
            self._handler = signal.getsignal(signal.SIGINT)
            if callable(self._handler):  # else it is ignored, and stays so
                signal.signal(signal.SIGINT, self._keep)
        self._depth += 1

    def on_end(self, _ended: Any) -> None:
        if self._depth == 0 or threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth == 0 and callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
            if self._pressed:
                signal.raise_signal(signal.SIGINT)

    def _keep(self, _signal: int, _frame: Any) -> None:
        self._pressed = True


event.register("numba:compile", _Interrupts())


class _FirstCompilation(event.Listener):
    """Calls ``say`` when numba compiles something that it does not have on disk."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say: Callable[[], None] | None = say

    def on_start(self, _event: Any) -> None:
        if self._say is not None:
            self._say()
            self._say = None

    def on_end(self, _event: Any) -> None:
        pass


@contextmanager
def compilation_noticed(say: Callable[[], None]) -> Iterator[None]:
    """Call ``say`` once if anything is compiled in this block."""
    with event.install_listener("numba:compile", _FirstCompilation(say)):
        yield
