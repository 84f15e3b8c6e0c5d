"""How long cases take, learned from the cases that have finished.

The amount of work of a case is a count: row entries read by the search and by the evaluation of
its curve. Seconds per unit of work are measured, never assumed: from finished cases of the same
method and data set, else of the same method, else of any case. Before the first case has
finished, the time is unknown.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from functools import cache

import numpy as np

from desopt.studies.cases import Case
from desopt.studies.datasets import dimensions
from desopt.studies.execute import length
from desopt.studies.problems import NO_DATA, resolved

#: Row entries that a compiled search reads in the time of a Python function, per variable.
_PYTHON = 100


@cache  # the time left is estimated twice a second
def work(case: Case, data_dir: str | None = None) -> float:
    """Row entries that the case reads: relative cost, without a unit of time."""
    if case.data == NO_DATA:  # a value costs about the same for any b
        n = np.size(resolved(case.problem).x0)
        return float(_PYTHON * n * length(case, None, n).rounds * case.workers * case.iterations)
    size = dimensions(case.data, data_dir)
    rows = case.rows or size.rows
    run = length(case, int(0.8 * rows), size.n)  # on the training rows
    curve_points = min(case.points, run.rounds) + 1
    return size.nonzeros * (run.rounds * run.samples + rows * curve_points)


class Estimates:
    """Expected seconds of cases; finished cases improve them."""

    def __init__(self, data_dir: str | None, finished: Iterable[tuple[Case, float]] = ()) -> None:
        self.data_dir = data_dir
        #: Seconds per unit of work of the finished cases, sorted, by kind of case.
        self._rates: dict[tuple[str, ...], list[float]] = {}
        for case, seconds in finished:
            self.learn(case, seconds)

    def learn(self, case: Case, seconds: float) -> None:
        """Take the measured seconds of a finished case into account."""
        rate = seconds / work(case, self.data_dir)
        for kind in _kinds(case):
            insort(self._rates.setdefault(kind, []), rate)

    def seconds(self, case: Case) -> float | None:
        """Expected seconds on one core; None if nothing has been measured yet."""
        rates = next((self._rates[kind] for kind in _kinds(case) if kind in self._rates), None)
        return None if rates is None else rates[len(rates) // 2] * work(case, self.data_dir)

    def total(self, cases: Iterable[Case]) -> float | None:
        """Expected seconds of all these cases, one after the other."""
        each = [self.seconds(case) for case in cases]
        return None if None in each else sum(s for s in each if s is not None)


def _kinds(case: Case) -> tuple[tuple[str, ...], ...]:
    """Groups of similar cases, the most similar first."""
    return (case.method, case.data), (case.method,), ()
