"""Names that people gave, on their way to a screen or into a folder.

A data set's name is a path and an item's any text: it may hold a newline, an escape sequence of
a terminal, a slash, or ten thousand characters.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator

#: Characters of a name that are shown, and bytes of one that go into the name of a file.
SHOWN, FILED = 60, 120


def printable(text: str) -> str:
    """The text on one line: what would steer a screen, or not be seen, as an escape."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def short(name: str) -> str:
    """A name as it is shown. One that is cut ends in a digest, so that two stay two."""
    shown = printable(name)
    if len(shown) <= SHOWN:
        return shown
    digest = hashlib.blake2b(shown.encode(), digest_size=3).hexdigest()
    return f"{shown[: SHOWN - 8]}\N{HORIZONTAL ELLIPSIS} {digest}"


def file_name(name: str) -> str:
    """What of a name can be part of a file's: letters, digits, and - _ . inside."""
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip("-.")
    return kept.encode()[:FILED].decode(errors="ignore") or "unnamed"


def distinct(names: Iterable[str]) -> Iterator[str]:
    """The names with a number behind those that a file system may take for one met before."""
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
