"""A study on the terminal: the list of its cases (``--list``) and the progress of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from desopt.studies.cases import Case
from desopt.studies.datasets import dimensions
from desopt.studies.estimates import Estimates
from desopt.studies.output import short
from desopt.studies.runner import RunStatus
from desopt.studies.store import Store
from desopt.studies.study import Study

UNKNOWN = "unknown"
#: Seconds between progress lines without a terminal; the first lines come sooner.
LINE_INTERVAL = 60.0


def case_list(study: Study, store: Store | None, jobs: int, data_dir: str | None) -> Iterator[str]:
    """The data sets, one line per item and data set, and the totals."""
    timings = store.timings() if store else []
    estimates = Estimates(data_dir, timings)
    finished = {case for case, _ in timings}
    width = max(len(short(case.data)) for case in study.cases)
    yield f"{'data set':<{width}} {'rows':>9} {'n':>7}"
    for name in study.data:
        yield _data_line(name, width, study.cases, data_dir)
    yield ""
    yield f"{'item':<9} {'data set':<{width}} {'cases':>6} {'done':>6} {'time left, one core':>20}"
    for item, cases in study.items.items():
        for name in dict.fromkeys(case.data for case in cases):
            group = [case for case in cases if case.data == name]
            left = [case for case in group if case not in finished]
            time_left = duration(estimates.total(left))
            done = len(group) - len(left)
            yield (
                f"{short(item):<9} {short(name):<{width}} {len(group):>6} {done:>6} {time_left:>20}"
            )
    yield ""
    yield _total(study.cases, finished, estimates, jobs)


def _data_line(name: str, width: int, cases: Sequence[Case], data_dir: str | None) -> str:
    size = dimensions(name, data_dir)
    used = {case.rows or size.rows for case in cases if case.data == name}
    rows = "/".join(f"{count:,}" for count in sorted(used))
    note = "  generated" if size.generated else ""
    part = f"  of {size.rows:,}" if used != {size.rows} else ""
    return f"{short(name):<{width}} {rows:>9} {size.n:>7,}{part}{note}"


def _total(cases: Sequence[Case], finished: set[Case], estimates: Estimates, jobs: int) -> str:
    left = [case for case in cases if case not in finished]
    if not left:
        return f"{len(cases)} cases, all done"
    counts = f"{len(cases)} different cases, {len(left)} to run"
    seconds = [s for case in left if (s := estimates.seconds(case)) is not None]
    if len(seconds) < len(left):
        return f"{counts}; times are unknown until the first case has finished"
    # The longest case starts first, so the processes end at about the same time.
    time_left = max(sum(seconds) / jobs, max(seconds))
    return f"{counts}: about {duration(time_left)} with {jobs} at a time, from the measured cases"


class ProgressDisplay:
    """Shows the status of a run on stderr: live on a terminal, else a line now and then."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._live: Any = None
        self._next = time.monotonic() + 5.0
        self._pause = 5.0

    def __enter__(self) -> ProgressDisplay:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4)
            self._live.start()
        return self

    def __call__(self, status: RunStatus) -> None:
        if self._live is not None:
            self._live.update(self._picture(status))
        elif time.monotonic() >= self._next:
            self._pause = min(LINE_INTERVAL, 2 * self._pause)
            self._next = time.monotonic() + self._pause
            print(self._line(status), file=sys.stderr, flush=True)

    def _picture(self, status: RunStatus) -> Any:
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

    def _line(self, status: RunStatus) -> str:
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


def duration(seconds: float | None) -> str:
    """``12 s``, ``3 min``, ``2 h 5 min``, or ``unknown``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"
