"""Data sets without loading them: their dimensions, and a digest of their content.

The digest is part of a case. When a file changes, its cases change with it, and results on the
old content are not mixed with those on the new one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from desopt.contract.streams import STREAM_VERSION
from desopt.data import CATALOGUE, find, load
from desopt.data.cache import file_digest
from desopt.data.twins import TWINS, VERSION
from desopt.studies.problems import NO_DATA


@dataclass(frozen=True)
class Dimensions:
    """N, n and the mean number of non-zeros per row."""

    rows: int
    n: int
    nonzeros: float
    generated: bool = False


@cache
def dimensions(name: str, data_dir: str | None = None) -> Dimensions:
    """The published dimensions of a known set or a twin; a user's file is loaded."""
    if name == NO_DATA:
        return Dimensions(0, 1, 1, generated=True)
    if name in CATALOGUE:
        known = CATALOGUE[name]
        return Dimensions(known.rows, known.n, known.nonzeros / known.rows)
    if name in TWINS:
        twin = TWINS[name]
        return Dimensions(twin.rows, twin.n, twin.nonzeros, generated=True)
    found = load(name, data_dir=data_dir)
    return Dimensions(found.rows, found.n, found.density * found.n)


def digest(name: str, data_dir: str | None = None) -> str:
    """32 hexadecimal digits: of a file's content, or of the recipe of a generated twin.

    For a known set, the treatment of its values and labels is part of the digest.
    """
    if name == NO_DATA:
        return _hex(NO_DATA.encode())
    if name in TWINS:
        return _hex(f"{name} {TWINS[name]} {VERSION} {STREAM_VERSION}".encode())
    path = find(name, data_dir)
    if name not in CATALOGUE:
        return file_digest(path)
    known = CATALOGUE[name]
    files = [path / file for file in known.sites] or [path]
    content = "".join(map(file_digest, files))
    return _hex(bytes.fromhex(content) + f"{known.scaling} {known.above} {known.n}".encode())


def digest_if_available(name: str, data_dir: str | None) -> str | None:
    """The digest, or None if the data set is not on this machine."""
    try:
        return digest(name, data_dir)
    except FileNotFoundError:
        return None


def _hex(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
