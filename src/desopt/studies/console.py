"""A study on the terminal: the list of its cases (``--list``) and the progress of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from desopt.studies.cases import Case
from desopt.studies.datasets import dimensions
from desopt.studies.estimates import Estimates, work
from desopt.studies.output import short
from desopt.studies.runner import RunStatus
from desopt.studies.store import Store
from desopt.studies.study import Study
from desopt.system.progress import Progress, duration


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
    header = f"{'cases':>6} {'done':>6} {'work':>5} {'time left':>12}"
    yield f"{'item':<9} {'data set':<{width}} {header}"
    total_work = sum(work(case, data_dir) for case in study.cases)
    for item, cases in study.items.items():
        for name in dict.fromkeys(case.data for case in cases):
            group = [case for case in cases if case.data == name]
            left = [case for case in group if case not in finished]
            seconds = estimates.total(left)
            time_left = "unknown" if seconds is None else duration(seconds)
            share = sum(work(case, data_dir) for case in group) / total_work
            counts = f"{len(group):>6} {len(group) - len(left):>6} {share:>5.0%}"
            yield f"{short(item):<9} {short(name):<{width}} {counts} {time_left:>12}"
    yield "work: share of the whole study, which counts shared cases once; time left: on one core"
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


class RunProgress:
    """Shows the status of a run on stderr: live on a terminal, else as a line now and then."""

    def __init__(self, label: str, jobs: int) -> None:
        self._jobs = jobs
        self._status: RunStatus | None = None
        self._progress = Progress(label, unit="cases", show=True, details=self._running)

    def __enter__(self) -> RunProgress:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(*error)

    def __call__(self, status: RunStatus) -> None:
        self._status = status
        notes = [] if status.finished else ["starting (compiles once)"]
        if status.failed:
            notes.append(f"{status.failed} failed")
        if status.elsewhere:
            notes.append(f"{status.elsewhere} run by other processes")
        self._progress.update(
            status.done + status.failed,
            total=status.total,
            note=", ".join(notes),
            seconds_left=status.seconds_left(self._jobs),
        )

    def _running(self) -> list[str]:
        """The running cases, the oldest first."""
        if self._status is None:
            return []
        now = time.monotonic()
        running = sorted(self._status.running.values(), key=lambda pair: pair[1])
        return [f"{case.label}  {duration(now - start)}" for case, start in running]
