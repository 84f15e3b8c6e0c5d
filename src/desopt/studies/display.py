"""What a person sees while a study runs: a live display on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from desopt.studies.runner import Status

#: Seconds between lines where there is no terminal; the first ones come sooner.
LINES = 60.0


class Display:
    """Shows a ``Status`` on stderr."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._live: Any = None
        self._next = time.monotonic() + 5.0
        self._pause = 5.0

    def __enter__(self) -> Display:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4)
            self._live.start()
        return self

    def __call__(self, status: Status) -> None:
        if self._live is not None:
            self._live.update(self._picture(status))
        elif time.monotonic() >= self._next:
            self._pause = min(LINES, 2 * self._pause)
            self._next = time.monotonic() + self._pause
            print(self._line(status), file=sys.stderr, flush=True)

    def _picture(self, status: Status) -> Any:
        from rich.console import Group
        from rich.padding import Padding
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        now = time.monotonic()
        running = sorted(status.running.values(), key=lambda pair: pair[1])
        ended = status.done + status.failed
        return Group(
            Text(self._line(status)),
            Padding(ProgressBar(total=max(1, status.total), completed=ended, width=60), 0),
            *(Text(f"  {case.label}  {duration(now - at)}", style="dim") for case, at in running),
        )

    def _line(self, status: Status) -> str:
        left = status.seconds_left(self._jobs)
        parts = [f"{status.done} of {status.total} cases done"]
        if status.failed:
            parts.append(f"{status.failed} failed")
        if status.elsewhere:
            parts.append(f"{status.elsewhere} run by other processes")
        if left is not None and status.done + status.failed < status.total:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()


def duration(seconds: float) -> str:
    """As a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"
