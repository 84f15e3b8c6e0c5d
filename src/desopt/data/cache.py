"""Parsed data sets on disk: a folder of .npy files per source, memory-mapped when opened.

An entry is written beside its final place and then renamed, so it is there whole or not at
all, and never changed afterwards: its name holds the digest of all that it depends on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import platformdirs
from scipy import sparse

from desopt.data.matrix import Matrix, csr
from desopt.types import FloatArray

#: Changes whenever the same source would give other arrays or other files.
FORMAT_VERSION = 2

_WRITING = ".writing-"
_DAY = 86_400.0


def folder() -> Path:
    """Where desopt keeps data: ``DESOPT_CACHE`` or the user's cache folder."""
    chosen = os.environ.get("DESOPT_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("desopt", appauthor=False)


def through(
    name: str, source: str, state: Callable[[], str], make: Callable[[], tuple[Matrix, FloatArray]]
) -> tuple[Matrix, FloatArray]:
    """What ``make`` gives, from the cache if it is there.

    ``source`` says what the arrays are made from and ``state()`` in which version. If that is
    another after ``make`` than before, nothing is kept.
    """
    before = state()
    place = folder() / "parsed" / f"{name}-{_digest(source)}-{_digest(before)}"
    found = _opened(place)
    if found is None:
        found = make()
        if state() == before and _written(place, *found):
            found = _opened(place) or found
    return found


def _digest(text: str) -> str:
    key = f"{FORMAT_VERSION} {text}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(key, digest_size=8).hexdigest()


def _opened(place: Path) -> tuple[Matrix, FloatArray] | None:
    """The arrays of an entry, or None if there is none."""
    try:
        labels = _mapped(place / "labels.npy")
        if (place / "X.npy").exists():
            return _mapped(place / "X.npy"), labels
        names = ("data", "indices", "indptr", "shape")
        data, indices, indptr, shape = (_mapped(place / f"{name}.npy") for name in names)
        return csr(data, indices, indptr, int(shape[1])), labels
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, EOFError):  # damaged: make room for another
        shutil.rmtree(place, ignore_errors=True)
        return None


def _mapped(path: Path) -> FloatArray:
    """Copy-on-write, so the file never changes; for read-only arrays numba compiles anew."""
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))


def _written(place: Path, X: Matrix, labels: FloatArray) -> bool:
    """Write an entry; False where the folder is read-only or the disk full."""
    arrays = {"X": X}
    if sparse.issparse(X):
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr,
                  "shape": np.array(X.shape)}  # fmt: skip
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=_WRITING) as temporary:
            entry = Path(temporary, "entry")
            entry.mkdir()
            for name, array in (arrays | {"labels": labels}).items():
                _save(entry / f"{name}.npy", array)
            with suppress(OSError):  # another process was faster
                entry.rename(place)
    except OSError:
        return False
    _drop_older(place)
    return True


def _save(path: Path, array: FloatArray) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())  # before the rename, or a power cut could leave an empty file


def _drop_older(place: Path) -> None:
    """Remove the entries of former versions of the source, and what killed processes left."""
    prefix = place.name.rpartition("-")[0]
    stale = [path for path in place.parent.glob(f"{prefix}-*") if path != place]
    for path in place.parent.glob(f"{_WRITING}*"):
        with suppress(FileNotFoundError):  # its process has just finished
            if time.time() - path.stat().st_mtime > _DAY:
                stale.append(path)
    for path in stale:
        shutil.rmtree(path, ignore_errors=True)
