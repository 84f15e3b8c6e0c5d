"""The progress bar: a run as a person sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from desopt.contract.types import Answer
from desopt.run.history import Row
from desopt.run.observers.record import Record
from desopt.system.progress import Progress


class ProgressBar:
    """Rounds done, the last loss, speed and time left; ``show`` as for ``Progress``."""

    def __init__(self, label: str, rounds: int, show: bool | None) -> None:
        self._label = label
        self._bar = Progress(f"{label} starting", rounds, unit="rounds", show=show, keep=True)

    def __enter__(self) -> ProgressBar:
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__(*_)

    def compiling(self) -> None:
        """Say why the first run after an installation takes longer."""
        self._bar.say("compiling the kernels: once after installation, some seconds")

    def begin(self, record: Record) -> None:
        self._bar.update(record.state.round, label=self._label)

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> None:
        note = None if math.isnan(row["loss"]) else f"loss {row['loss']:.6g}"
        self._bar.update(row["round"], note=note)

    def end(self) -> None:
        pass
