"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PART = ".part"
_DAY = 86_400.0


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside this one to write to; it takes its place when all went well."""
    _clear(path.parent)
    part = path.with_name(f".{path.name}.{os.getpid()}{_PART}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _clear(folder: Path) -> None:
    """Remove what killed processes left."""
    for part in folder.glob(f".*{_PART}"):
        with suppress(OSError):  # another one was faster
            if time.time() - part.stat().st_mtime > _DAY:
                part.unlink()
