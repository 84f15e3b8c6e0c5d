"""The progress display: rounds of a run, downloads, data being read or generated, studies.

On a terminal it is a line with a bar, shown once the work has taken two seconds. Elsewhere it is
silent, or, on demand, a plain line now and then. It writes to stderr, which may be closed or None.

    with Progress("des-mr", 100, unit="rounds") as progress:
        for t in range(100):
            ...
            progress.update(done=t + 1, note=f"loss {loss:.6g}")
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, cast

from desopt.system.terminal import Stderr, is_terminal

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds before the display appears on a terminal.
PATIENCE = 2.0
#: Seconds between lines where there is no terminal: the first pause, doubled up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0

#: Columns of the bar: as many as the words leave.
_LEAST_BAR, _LONGEST_BAR = 8, 40


class Progress:
    """A display of how much of some work is done.

    Parameters
    ----------
    label : what is being done
    total : the amount of work in ``unit``s; None or 0 if unknown
    done : the amount done before, for resumed work
    unit : plural noun for the amounts; without it the display shows a percentage
    show : None shows the display on a terminal after two seconds; True at once, and off a terminal
        as lines of text; False never
    keep : whether its last state stays on the terminal
    details : lines below the bar, asked for at every refresh
    """

    def __init__(
        self,
        label: str,
        total: float | None = None,
        *,
        done: float = 0,
        unit: str = "",
        show: bool | None = None,
        keep: bool = False,
        details: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._label, self._total, self._unit, self._note = label, total or None, unit, ""
        self._done = done
        self._show, self._keep, self._details = show, keep, details
        self._stderr = Stderr()
        self._on_terminal = self._stderr.isatty()
        self._live: Any = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._first: tuple[float, float] | None = None  # time and amount at the first update
        self._left: float | None = None
        self._over = False
        self._pause, self._next_line = FIRST_PAUSE, time.monotonic() + FIRST_PAUSE

    def __enter__(self) -> Progress:
        if self._on_terminal and self._show is None:
            # A timer, since the first update may take longer than that.
            self._timer = threading.Timer(PATIENCE, self._start)
            self._timer.daemon = True
            self._timer.start()
        elif self._on_terminal and self._show:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._over = True
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None
            elif self._show and not self._on_terminal and self._first is not None:
                self._write(self.text())  # an error before the first update says enough

    def advance(self, amount: float = 1) -> None:
        """This much more is done."""
        self.update(done=self._done + amount)

    def update(
        self,
        done: float | None = None,
        *,
        label: str | None = None,
        total: float | None = None,
        unit: str | None = None,
        note: str | None = None,
        seconds_left: float | None = None,
    ) -> None:
        """Change what is shown. ``seconds_left`` replaces the estimate from the speed so far."""
        self._label = self._label if label is None else label
        self._total = self._total if total is None else total
        self._note = self._note if note is None else note
        if unit is not None and unit != self._unit:
            self._unit, self._first = unit, None  # another amount has another speed
        self._left = seconds_left
        if done is not None:
            self._done = done
            # Measured from the first update on: what precedes it is start-up.
            self._first = self._first or (time.monotonic(), done)
        over = self._done == self._total  # the end has a line of its own
        if (
            self._show
            and not self._on_terminal
            and not over
            and time.monotonic() >= self._next_line
        ):
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
            self._next_line = time.monotonic() + self._pause
            self._write(self.text())

    def say(self, message: str) -> None:
        """Write a line that stays, above the bar."""
        with self._lock:
            if self._live is not None:
                self._live.console.print(message, markup=False, highlight=False)
            elif self._show or (self._show is None and self._on_terminal):
                self._write(message)

    def text(self) -> str:
        """The state in words."""
        return ", ".join([f"{self._label}: {self._amount()}".removesuffix(": "), *self._facts()])

    def _amount(self) -> str:
        if self._total is None:
            return f"{self._done:,} {self._unit}" if self._unit else ""
        if self._unit:
            return f"{self._done:,} of {self._total:,} {self._unit}"
        return f"{self._done / self._total:.0%}"

    def _facts(self, *, speed_too: bool = True) -> list[str]:
        """The note, the speed and the time left, as far as they are known."""
        now, facts = time.monotonic(), [self._note] if self._note else []
        began, before = self._first or (now, self._done)
        moved = self._done > before and now > began  # a coarse clock may stand still
        speed = (self._done - before) / (now - began) if moved else 0.0
        if speed and self._unit and speed_too:
            facts.append(f"{speed:.3g} {self._unit}/s")
        left = self._left
        if left is None and speed and self._total is not None:
            left = (self._total - self._done) / speed
        if left is not None and self._done != self._total and not self._over:
            facts.append(f"about {duration(left)} left")
        return facts

    def _words(self, room: int) -> str:
        """The words beside the bar: where they are too long, the end of the note is lost."""
        facts = self._facts()
        if len(", ".join([self._amount(), *facts])) > room:
            facts = self._facts(speed_too=False)
        if self._note and len(", ".join([self._amount(), *facts])) > room:
            facts = [*facts[1:], facts[0]]
        return ", ".join(filter(None, [self._amount(), *facts]))

    def _write(self, line: str) -> None:
        self._stderr.write(f"{line}\n")
        self._stderr.flush()

    def _start(self) -> None:
        from rich.live import Live

        self._terminal = self._console()
        live = Live(
            console=self._terminal, get_renderable=self._picture, refresh_per_second=4,
            # What the program prints goes above the bar, but only to its own terminal.
            transient=not self._keep, redirect_stdout=is_terminal(sys.stdout),
        )  # fmt: skip
        with self._lock:
            live.start()
            self._live = live

    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=cast(IO[str], self._stderr))

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        # Cut here: the columns of a table that is too wide would shrink together, the bar first.
        label = Text(self._label)
        label.truncate(self._terminal.width // 2, overflow="ellipsis")
        room = self._terminal.width - label.cell_len - 2  # for bar and words
        words = Text(self._words(room - _LEAST_BAR))
        words.truncate(max(1, room - _LEAST_BAR), overflow="ellipsis")
        width = max(_LEAST_BAR, min(_LONGEST_BAR, room - words.cell_len))
        line = Table.grid(padding=(0, 1))
        for ratio in (None, None, 1):
            line.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        line.add_row(
            label,
            ProgressBar(self._total, self._done, width=width, pulse=self._total is None),
            words,
        )
        return Group(line, *(Text(f"  {text}", style="dim") for text in self._details()))


def duration(seconds: float) -> str:
    """A length of time in words: '3.1 s', '12 min', '2 h 5 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"
