"""What a person is told, where there may be no person: stderr that is closed, full or None."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from typing import TextIO, cast

#: What None, a closed file and a full disk raise.
_LOST = (AttributeError, ValueError, OSError)


class Stderr:
    """stderr, for a console; what cannot be written is dropped."""

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
    """``warnings.warn``; a warning that cannot be shown does not end the run."""
    try:
        warnings.warn(message, category, stacklevel + 1)
    except Warning:  # the user wants them as errors
        raise
    except (ValueError, OSError):  # stderr is closed
        pass
