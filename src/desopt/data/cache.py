"""Parsed data sets on disk: a folder of .npy files per source, memory-mapped when opened.

An entry is written beside its final place and then renamed, so it is there whole or not at
all, and never changed afterwards: its name holds the digest of all that it depends on. It holds
the digests of its own files too: an entry that was altered is made anew.
"""

from __future__ import annotations

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
from desopt.data.checks import compressed
from desopt.data.digests import of_file
from desopt.data.matrix import Matrix, csr

#: Changes whenever the same source would give other arrays or other files.
FORMAT_VERSION = 3

_WRITING = ".writing-"
_DAY = 86_400.0

#: Seconds after its last change from which on a file's times tell whether it was changed again:
#: two changes within one tick of the file system's clock have the same time.
_SETTLED = 2.0


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


def digest_of(path: Path, note: Path | None = None) -> str:
    """The digest of a file's content, read again only where it may be another than it was.

    What was found is noted with size, times and i-node. To give a changed file its old time of
    modification does not help: that, like any change, sets the time which nobody can set.
    """
    path = path.resolve()
    note = note or folder() / "digests" / _digest(str(path))
    before, settled = _look(path)
    with suppress(OSError, ValueError):
        known, digest = note.read_text("ascii").split("\n")
        if known == before:
            return digest
    digest = of_file(path)
    if settled and _look(path)[0] == before:
        with suppress(OSError):  # a folder that cannot be written to
            note.parent.mkdir(parents=True, exist_ok=True)
            _replace(note, f"{before}\n{digest}")
    return digest


def _look(path: Path) -> tuple[str, bool]:
    """What tells a file from a changed one, and whether it has been left alone for a while."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path} is not a file")
    times = found.st_mtime_ns, found.st_ctime_ns
    settled = time.time() - max(times) / 1e9 > _SETTLED
    return f"{found.st_dev} {found.st_ino} {found.st_size} {times[0]} {times[1]}", settled


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=_WRITING, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


def _digest(text: str) -> str:
    key = f"{FORMAT_VERSION} {text}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(key, digest_size=8).hexdigest()


_DENSE, _SPARSE = ("X", "labels"), ("data", "indices", "indptr", "shape", "labels")


def _opened(place: Path) -> tuple[Matrix, FloatArray] | None:
    """The arrays of an entry, or None if there is none."""
    if not place.is_dir():
        return None
    try:
        wanted = json.loads((place / "digests.json").read_text("ascii"))
        names = _DENSE if "X" in wanted else _SPARSE
        for name in names:
            file = place / f"{name}.npy"
            if digest_of(file, file.with_suffix(".seen")) != wanted[name]:
                raise ValueError(f"{file} was altered")
        return _matrix({name: _mapped(place / f"{name}.npy") for name in names})
    except Exception:  # damaged in whatever way: make room for another
        shutil.rmtree(place, ignore_errors=True)
        return None


def _matrix(arrays: dict[str, Any]) -> tuple[Matrix, FloatArray]:
    """Matrix and labels of an entry, if they are what an entry holds."""
    labels = arrays["labels"]
    if "X" in arrays:
        X = arrays["X"]
        rows, values = X.shape[0] if X.ndim == 2 and X.flags.c_contiguous else -1, X
    else:
        values, (rows, n) = arrays["data"], map(int, arrays["shape"])
        parts = compressed(values, arrays["indices"], arrays["indptr"], (rows, n), "the entry")
        X = csr(*parts, n)
    if labels.shape != (rows,) or labels.dtype != np.float64 or values.dtype != np.float64:
        raise ValueError("not the arrays of an entry")
    return X, labels


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
    """Remove the entries of former versions of the source, and what killed processes left."""
    prefix = place.name.rpartition("-")[0]
    stale = [path for path in place.parent.glob(f"{prefix}-*") if path != place]
    for path in place.parent.glob(f"{_WRITING}*"):
        with suppress(FileNotFoundError):  # its process has just finished
            if time.time() - path.stat().st_mtime > _DAY:
                stale.append(path)
    for path in stale:
        shutil.rmtree(path, ignore_errors=True)
