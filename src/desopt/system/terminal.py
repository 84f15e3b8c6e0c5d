"""Messages to a stderr that may be closed, full or None."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from typing import TextIO, cast

#: Raised by None, a closed file and a full disk.
_LOST = (AttributeError, ValueError, OSError)


class Stderr:
    """stderr for a console; text that cannot be written is dropped."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self.encoding = getattr(self._stream, "encoding", "utf-8")

    def write(self, text: str) -> int:
        with suppress(*_LOST):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(*_LOST):
            self._stream.flush()

    def isatty(self) -> bool:
        return is_terminal(self._stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees what is written to this stream, which may be closed or None."""
    with suppress(*_LOST):
        return cast(TextIO, stream).isatty()
    return False


def warn(message: str, category: type[Warning] = UserWarning, stacklevel: int = 1) -> None:
    """``warnings.warn``, without an error if the warning cannot be shown."""
    try:
        warnings.warn(message, category, stacklevel + 1)
    except Warning:  # warnings are errors, by the user's choice
        raise
    except (ValueError, OSError):  # stderr is closed
        pass
