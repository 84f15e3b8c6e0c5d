"""A published snapshot, from a file or a web server of the peer's own choice.

Nobody need trust the place: what is fetched must belong to the run, and lead to the digest in the
server's message.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

#: Seconds that a web server may be silent.
_TIMEOUT = 60.0


def fetch(source: str, limit: int) -> bytes:
    """The bytes at a URL (http, https) or in a file; ValueError beyond ``limit``, or OSError."""
    if source.partition("://")[0] in ("http", "https"):
        with urllib.request.urlopen(source, timeout=_TIMEOUT) as reply:
            data: bytes = reply.read(limit + 1)
    else:
        with Path(source).open("rb") as file:
            data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{source} has more than {limit} bytes, the most that a snapshot takes")
    return data
