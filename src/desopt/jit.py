"""How kernels are compiled: every floating-point operation as written, in the order written.

No fast-math flag anywhere. LLVM would use that freedom differently for another CPU, for
read-only arrays, for another order of compiling; and the same run would end with other bits.
``fastmath`` is given although it is off: a function without the option would inherit it from a
caller. What must be fast in spite of that says how: see ``kernels.lanes``.

``error_model="numpy"`` because Python's check for division by zero keeps LLVM from vectorising.
All kernels are cached on disk, and release the GIL, but for ``brief`` ones: they are done in
microseconds, when handing the GIL over would take longer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

_MADV_DONTNEED = 4

_common: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

#: The same for implementations given to numba's ``overload``.
EXACT: Any = _common | {"fastmath": False}


def _cached(**options: Any) -> Any:
    """Compile with a cache on disk; without one where no folder for it can be written."""

    def decorate(function: Any) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)

    return decorate


exact: Any = _cached(**EXACT)
brief: Any = _cached(**EXACT | {"nogil": False})
exact_inline: Any = _cached(inline="always", **EXACT)


def _drop_stale_code() -> None:
    """Forget compiled code that is older than any kernel's source.

    numba looks at the file of the function itself only, but the code of a kernel contains that
    of the kernels it calls.
    """
    here = Path(__file__).parent
    compiled = "jit.py", "bits.py", "rng.py"  # all others may change without a compilation
    sources = [*(here / name for name in compiled), *here.glob("kernels/*.py")]
    newest = max(path.stat().st_mtime for path in sources)
    for index in (*here.glob("__pycache__/*.nbi"), *here.glob("kernels/__pycache__/*.nbi")):
        with suppress(OSError):  # another process was faster, or the folder is read-only
            if index.stat().st_mtime < newest:
                index.unlink()


def let_go_of_llvm() -> None:
    """Tell Linux that the pages of LLVM's code, some 60 MB, are not needed for now.

    They are a file's, and come back from there when something is compiled or loaded.
    """
    with suppress(OSError), Path("/proc/self/maps").open() as maps:
        for line in maps:  # one at a time: a long-lived process may have thousands
            # Only code: it is never written to. Other read-only parts hold what the linker put
            # there.
            if "libllvmlite" in line and " r-xp " in line:
                begin, end = (int(address, 16) for address in line.split()[0].split("-"))
                ctypes.CDLL(None).madvise(
                    ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED
                )


_drop_stale_code()
let_go_of_llvm()  # importing numba has touched half of it


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
