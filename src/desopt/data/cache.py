"""Parsed data sets on disk: a folder of .npy files per source, memory-mapped when opened.

Entries are written under a temporary name and then renamed, so they are complete or absent.
An entry's name holds the digest of everything that it depends on, so it never changes. It holds
the digests of its own files as well: an altered entry is discarded and made again.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from scipy import sparse

from desopt.contract.types import FloatArray
from desopt.data.digests import of_file
from desopt.data.matrices import Matrix, checked_csr, csr
from desopt.system.files import write_whole

#: Incremented whenever the same source would give different arrays or files.
FORMAT_VERSION = 4

_WRITING = ".writing-"
_DAY = 86_400.0

#: Seconds after which a later change of a file is sure to show in its times: two changes within
#: one tick of the file system's clock have the same time.
_SETTLED = 2.0


def folder() -> Path:
    """The folder for cached data: ``DESOPT_CACHE`` or the user's cache folder."""
    chosen = os.environ.get("DESOPT_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("desopt", appauthor=False)


def cached(
    name: str, source: str, state: Callable[[], str], make: Callable[[], tuple[Matrix, FloatArray]]
) -> tuple[Matrix, FloatArray]:
    """The arrays of ``make()``, from the cache if possible.

    ``source`` identifies what the arrays are made from and ``state()`` its version. Nothing is
    kept if the version changes during ``make``.
    """
    before = state()
    place = folder() / "parsed" / f"{name[:50]}-{_digest(source)}-{_digest(before)}"
    found = _opened(place)
    if found is None:
        found = make()
        if state() == before and _written(place, *found):
            found = _opened(place) or found
    return found


def file_digest(path: Path, note: Path | None = None) -> str:
    """The digest of a file's content, computed again only if the file may have changed.

    It is stored with the file's size, times and i-node. Resetting the modification time of a
    changed file does not hide the change: it updates ctime, which cannot be set.
    """
    path = path.resolve()
    note = note or folder() / "digests" / _digest(str(path))
    before, settled = _version(path)
    with suppress(OSError, ValueError):
        known, digest = note.read_text("ascii").split("\n")
        if known == before:
            return digest
    digest = of_file(path)
    if settled and _version(path)[0] == before:
        with suppress(OSError):  # a read-only folder
            note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(note, f"{before}\n{digest}".encode("ascii"))
    return digest


def _version(path: Path) -> tuple[str, bool]:
    """What identifies the version of a file, and whether it is older than ``_SETTLED``."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path} is not a file")
    times = found.st_mtime_ns, found.st_ctime_ns
    settled = time.time() - max(times) / 1e9 > _SETTLED
    return f"{found.st_dev} {found.st_ino} {found.st_size} {times[0]} {times[1]}", settled


def _digest(text: str) -> str:
    key = f"{FORMAT_VERSION} {text}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(key, digest_size=8).hexdigest()


_DENSE, _SPARSE = ("X", "labels"), ("data", "indices", "indptr", "shape", "labels")


def _opened(place: Path) -> tuple[Matrix, FloatArray] | None:
    """The arrays of an entry, or None if there is none."""
    if not os.path.isdir(place):  # Path.is_dir would raise where nobody may look
        return None
    try:
        wanted = json.loads((place / "digests.json").read_text("ascii"))
        names = _DENSE if "X" in wanted else _SPARSE
        for name in names:
            file = place / f"{name}.npy"
            if file_digest(file, file.with_suffix(".seen")) != wanted[name]:
                raise ValueError(f"{file} was altered")
        return _matrix({name: _mapped(place / f"{name}.npy") for name in names})
    except Exception:  # damaged in any way: make room for a new one
        shutil.rmtree(place, ignore_errors=True)
        return None


def _matrix(arrays: dict[str, Any]) -> tuple[Matrix, FloatArray]:
    """Matrix and labels of an entry; an error if its arrays do not fit together."""
    labels = arrays["labels"]
    if "X" in arrays:
        X = arrays["X"]
        rows, values = X.shape[0] if X.ndim == 2 and X.flags.c_contiguous else -1, X
    else:
        values, (rows, n) = arrays["data"], map(int, arrays["shape"])
        parts = checked_csr(values, arrays["indices"], arrays["indptr"], (rows, n), "the entry")
        X = csr(*parts, n)
    if labels.shape != (rows,) or labels.dtype != np.float64 or values.dtype != np.float64:
        raise ValueError("not the arrays of an entry")
    return X, labels


def _mapped(path: Path) -> FloatArray:
    """Copy-on-write: the file never changes, and numba needs no version for read-only arrays."""
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
            digests = {}
            for name, array in (arrays | {"labels": labels}).items():
                _save(entry / f"{name}.npy", array)
                digests[name] = of_file(entry / f"{name}.npy")
            (entry / "digests.json").write_text(json.dumps(digests), "ascii")
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
    """Remove entries of earlier versions of the source, and leftovers of killed processes."""
    prefix = place.name.rpartition("-")[0]
    stale = [path for path in place.parent.glob(f"{glob.escape(prefix)}-*") if path != place]
    for path in place.parent.glob(f"{_WRITING}*"):
        with suppress(FileNotFoundError):  # its process has just completed it
            if time.time() - path.stat().st_mtime > _DAY:
                stale.append(path)
    for path in stale:
        shutil.rmtree(path, ignore_errors=True)
