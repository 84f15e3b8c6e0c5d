"""What the numbers of a data set are made from, as a digest.

It is part of a case: results of a file that has changed since are those of other cases.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from desopt.contract.streams import STREAM_VERSION
from desopt.data import CATALOGUE, find
from desopt.data.twins import TWINS, VERSION

#: Digests of files that this process has read, and the state in which it found them.
_read: dict[Path, tuple[tuple[int, ...], bytes]] = {}


def digest(name: str, data_dir: str | None = None) -> str:
    """Thirty-two hexadecimal digits: of a file its content, of a twin how it is generated.

    Of a known set, the treatment of its values and labels counts as well. A file is read again
    only when it looks changed.
    """
    if name in TWINS:
        return _hex(f"{name} {TWINS[name]} {VERSION} {STREAM_VERSION}".encode())
    content = _content(find(name, data_dir).resolve())
    if name not in CATALOGUE:
        return content.hex()
    known = CATALOGUE[name]
    return _hex(content + f"{known.scaling} {known.above} {known.n}".encode())


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        state = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
        if path not in _read or _read[path][0] != state:
            _read[path] = state, hashlib.file_digest(file, _blake2b).digest()
    return _read[path][1]


def _blake2b(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def _hex(data: bytes) -> str:
    return _blake2b(data).hexdigest()
