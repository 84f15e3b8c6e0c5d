"""The progress bar: a run as a person sees it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from desopt.contract.types import Answer
from desopt.run.history import Row
from desopt.run.observers.record import Record
from desopt.system.progress import Progress

#: Seconds between two updates by single values.
_PAUSE = 0.1


class ProgressBar:
    """Best value, failures and time left, by the budget that will be spent first.

    Budgets are rounds, function values and seconds; ``show`` is as for ``Progress``.
    """

    def __init__(
        self,
        label: str,
        rounds: int,
        show: bool | None,
        *,
        max_evaluations: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self._label = label
        self._rounds, self._max_evaluations, self._max_seconds = (
            rounds, max_evaluations, max_seconds,
        )  # fmt: skip
        self._round, self._evaluations, self._failed = 0, 0, 0
        self._loss = self._best = math.nan
        self._began = time.monotonic()  # seconds of a resumed run included
        self._next = -math.inf
        unit = "rounds" if max_evaluations is None else "values"
        self._bar = Progress(
            f"{label} starting", max_evaluations or rounds, unit=unit, show=show, keep=True
        )

    def __enter__(self) -> ProgressBar:
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__(*_)

    def compiling(self) -> None:
        """Say why the first run after an installation takes longer."""
        self._bar.say("compiling the kernels: once after installation, some seconds")

    def say(self, message: str) -> None:
        """Write a line that stays, if the bar is shown."""
        self._bar.say(message)

    def begin(self, record: Record) -> None:
        self._best = record.best_fun
        self._round = record.state.round
        last: dict[str, Any] = record.history[-1] if record.history else {}
        self._evaluations, self._failed = last.get("evaluations", 0), last.get("nans", 0)
        self._began = time.monotonic() - last.get("seconds", 0.0)
        self._bar.update(label=self._label)
        self._show()

    def value(self, evaluations: int, best: float, failed: int) -> None:
        """Within a round: values so far, the best of them (NaN: unknown) and how many failed.

        Cheap enough for every single value: the display changes at most ten times a second.
        """
        # some are ahead, beyond what the budget counts
        most = self._max_evaluations
        self._evaluations = evaluations if most is None else min(evaluations, most)
        self._failed = failed
        self._improve(best)
        if time.monotonic() >= self._next:
            self._show()

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> None:
        self._round = row["round"]
        self._evaluations = max(self._evaluations, row["evaluations"])
        self._failed = max(self._failed, row["nans"])
        if not math.isnan(row["loss"]):
            self._loss = row["loss"]
            self._improve(self._loss)
        self._show()

    def end(self) -> None:
        pass

    def _improve(self, value: float) -> None:
        if not value >= self._best and not math.isnan(value):
            self._best = value

    def _show(self) -> None:
        now = time.monotonic()
        self._next = now + _PAUSE
        unit, done, total = self._first_to_end(now - self._began)
        left = total - done if unit == "" else None
        self._bar.update(done, total=total, unit=unit, note=self._note(), seconds_left=left)

    def _first_to_end(self, seconds: float) -> tuple[str, float, float]:
        """Unit, amount and total of the budget of which the largest share is spent."""
        budgets: list[tuple[str, float, float]] = []
        if self._max_evaluations is not None:
            budgets.append(("values", self._evaluations, self._max_evaluations))
        if self._max_seconds is not None:  # without a unit, hence in per cent
            budgets.append(("", min(seconds, self._max_seconds), self._max_seconds))
        budgets.append(("rounds", self._round, self._rounds))
        return max(budgets, key=lambda budget: budget[1] / budget[2])  # the first, if equal

    def _note(self) -> str:
        facts = []
        if self._loss != self._best and not math.isnan(self._loss):
            facts.append(f"loss {self._loss:.6g}")
        if not math.isnan(self._best):
            facts.append(f"best {self._best:.6g}")
        if self._failed:
            facts.append(f"{self._failed:,} failed")
        return ", ".join(facts)
