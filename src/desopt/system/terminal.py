"""Tables on stdout, and messages to a stderr that may be closed, full or None."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from rich.table import Table

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


def print_whole(table: Table) -> None:
    """Print a table. A narrow terminal breaks its lines, which beats cells that are cut off."""
    from rich.console import Console

    console = Console(highlight=False)
    natural = console.measure(table, options=console.options.update(max_width=1000)).maximum
    console.width = max(console.width, natural)
    console.print(table)


def warn(message: str, category: type[Warning] = UserWarning, stacklevel: int = 1) -> None:
    """``warnings.warn``, without an error if the warning cannot be shown."""
    try:
        warnings.warn(message, category, stacklevel + 1)
    except Warning:  # warnings are errors, by the user's choice
        raise
    except (ValueError, OSError):  # stderr is closed
        pass
