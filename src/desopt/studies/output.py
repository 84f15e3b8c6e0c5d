"""Output: names made safe for a screen or a file name, and files that are written atomically.

The name of a data set is a path and that of an item any text. Either may contain a newline, a
terminal's escape sequence, a slash or ten thousand characters.
"""

from __future__ import annotations

import hashlib
import os
import time
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Length limits: of a name on the screen, in characters; of a name in a file name, in bytes.
MAX_SHOWN, MAX_FILE_NAME = 60, 120

_PART = ".part"
_DAY = 86_400.0


def printable(text: str) -> str:
    """The text on one line, with control and invisible characters as escapes."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def short(name: str) -> str:
    """A name for display. A truncated name ends in a digest, which keeps two names distinct."""
    shown = printable(name)
    if len(shown) <= MAX_SHOWN:
        return shown
    digest = hashlib.blake2b(shown.encode(), digest_size=3).hexdigest()
    return f"{shown[: MAX_SHOWN - 8]}\N{HORIZONTAL ELLIPSIS} {digest}"


def file_name(name: str) -> str:
    """A name reduced to what is safe in a file name: letters, digits, and - _ . inside."""
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip("-.")
    return kept.encode()[:MAX_FILE_NAME].decode(errors="ignore") or "unnamed"


def unique_names(names: Iterable[str]) -> Iterator[str]:
    """The names, numbered where a file system may confuse one with an earlier one."""
    met: set[str] = set()
    for name in names:
        found, count = name, 1
        while _folded(found) in met:
            count += 1
            found = f"{name}-{count}"
        met.add(_folded(found))
        yield found


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file in the same folder; it replaces ``path`` if the block succeeds."""
    _remove_leftovers(path.parent)
    part = path.with_name(f".{path.name}.{os.getpid()}{_PART}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes."""
    for part in folder.glob(f".*{_PART}"):
        with suppress(OSError):  # another process was faster
            if time.time() - part.stat().st_mtime > _DAY:
                part.unlink()
