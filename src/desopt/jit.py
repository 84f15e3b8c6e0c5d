"""How kernels are compiled: three decorators that say what floating point may do.

==========  ==============================================================================
exact       every operation as written: for whatever decides bits of x or of the streams
fused       a * b + c may be one rounding instead of two: values that decide comparisons
sums        additions may be reordered as well, for SIMD: sums of such values
==========  ==============================================================================

None of them assumes away NaN or infinity. ``fastmath`` is always given, also when it is off:
a function without the option would inherit it from the caller that happens to compile it
first, and be cached so. ``error_model="numpy"`` because Python's check for division by zero
keeps LLVM from vectorising. All release the GIL and are cached on disk.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import njit

_common: Any = {"nogil": True, "error_model": "numpy"}

#: The same for implementations given to numba's ``overload``.
EXACT: Any = _common | {"fastmath": False}
FUSED: Any = _common | {"fastmath": {"contract"}}
SUMS: Any = _common | {"fastmath": {"contract", "reassoc", "nsz"}}

exact: Any = njit(cache=True, **EXACT)
exact_inline: Any = njit(cache=True, inline="always", **EXACT)
fused: Any = njit(cache=True, **FUSED)
sums: Any = njit(cache=True, **SUMS)


def _drop_stale_code() -> None:
    """Forget compiled code that is older than any kernel's source.

    numba looks at the file of the function itself only, but the code of a kernel contains that
    of the kernels it calls.
    """
    here = Path(__file__).parent
    sources = [*here.glob("*.py"), *here.glob("kernels/*.py")]
    newest = max(path.stat().st_mtime for path in sources)
    for index in (*here.glob("__pycache__/*.nbi"), *here.glob("kernels/__pycache__/*.nbi")):
        with suppress(OSError):  # another process was faster, or the folder is read-only
            if index.stat().st_mtime < newest:
                index.unlink()


_drop_stale_code()
