"""The notice before a slow run: how many values, how long, and what Ctrl-C keeps."""

from __future__ import annotations

from desopt.engines.by_value import SLOW
from desopt.run.observers.progress import ProgressBar

#: Seconds of a run that are worth a notice.
_LONG = 10.0


class SlowRun:
    """Says once, after the first slow value, how long the run will take."""

    def __init__(
        self, bar: ProgressBar, planned: int, kept: bool, max_seconds: float | None = None
    ) -> None:
        self._bar, self._planned, self._kept, self._most = bar, planned, kept, max_seconds
        self._said = planned == 0
        self.slots = 1  # values computed at the same time

    def value(self, seconds: float) -> None:
        """One more value, computed in this time."""
        total = self._planned * seconds / max(1, min(self.slots, self._planned))
        if self._said or seconds < SLOW or total < _LONG:
            return
        self._said = True
        keeps = "Ctrl-C keeps all of them" if self._kept else "journal=FILE would keep them"
        ends = ""
        if self._most is not None and self._most < total:
            ends = f", but max_seconds={self._most:g} ends the run first"
        self._bar.say(
            f"{self._planned:,} values planned, about {in_words(total)} at {in_words(seconds)} "
            f"each{ends}; {keeps}"
        )


def in_words(seconds: float) -> str:
    """A duration for people: 50 ms, 8.2 s, 84 min, 3.1 h, 12 days."""
    for limit, size, unit in (
        (1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h"),
    ):  # fmt: skip
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400.0:.3g} days"
