"""``--list``: the cases of a study in groups, and the time they are expected to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from desopt.studies import costs
from desopt.studies.cases import Case
from desopt.studies.display import duration
from desopt.studies.shapes import shape
from desopt.studies.store import Store
from desopt.studies.study import Study
from desopt.studies.text import short


def lines(study: Study, store: Store | None, jobs: int, data_dir: str | None) -> Iterator[str]:
    """The data sets, then a line per item and data set, then the sums."""
    seconds = costs.estimates(store, study.cases, data_dir)
    finished = {case for case, _ in store.timings()} if store else set()
    width = max(len(short(case.data)) for case in study.cases)
    yield f"{'data set':<{width}} {'rows':>9} {'n':>7}"
    for name in dict.fromkeys(case.data for case in study.cases):
        yield _data_line(name, width, study.cases, data_dir)
    yield ""
    yield f"{'item':<9} {'data set':<{width}} {'cases':>6} {'done':>6} {'to run, one core':>17}"
    for item, cases in study.items.items():
        for name in dict.fromkeys(case.data for case in cases):
            group = [case for case in cases if case.data == name]
            left = [case for case in group if case not in finished]
            time = duration(sum(seconds[case] for case in left))
            done = len(group) - len(left)
            yield f"{short(item):<9} {short(name):<{width}} {len(group):>6} {done:>6} {time:>17}"
    yield ""
    yield _sum(study.cases, finished, seconds, jobs)


def _data_line(name: str, width: int, cases: Sequence[Case], data_dir: str | None) -> str:
    known = shape(name, data_dir)
    used = {case.rows or known.rows for case in cases if case.data == name}
    rows = "/".join(f"{count:,}" for count in sorted(used))
    note = "  generated" if known.generated else ""
    part = f"  of {known.rows:,}" if used != {known.rows} else ""
    return f"{short(name):<{width}} {rows:>9} {known.n:>7,}{part}{note}"


def _sum(cases: Sequence[Case], finished: set[Case], seconds: dict[Case, float], jobs: int) -> str:
    left = [seconds[case] for case in cases if case not in finished]
    if not left:
        return f"{len(cases)} cases, all done"
    # The longest is started first, so the last process ends soon after the others.
    time = max(sum(left) / jobs, max(left))
    return (
        f"{len(cases)} different cases, {len(left)} to run: about {duration(time)} "
        f"with {jobs} at a time"
    )
