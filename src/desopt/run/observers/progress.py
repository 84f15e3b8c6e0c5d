"""The progress bar and the callbacks: a round as a person and a program see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from desopt.contract.space import Space
from desopt.contract.types import Answer
from desopt.run.history import End, Row, Status
from desopt.run.observers.record import Record
from desopt.system.progress import Progress

#: Called with each row; True ends the run.
Callback: TypeAlias = Callable[[Row], Any]


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


class Callbacks:
    """The user's functions. Each gets the row with ``x``; all are called, whatever they return."""

    def __init__(self, callbacks: tuple[Callback, ...], space: Space | None = None) -> None:
        self._callbacks, self._space = callbacks, space

    def begin(self, record: Record) -> None:
        pass

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> End | None:
        if not self._callbacks:
            return None
        seen = Row(row)  # a copy that may be kept; with x, the history would grow by n per round
        seen.x = state.x.view() if self._space is None else self._space.decode(state.x)
        seen.x.flags.writeable = False
        stops = [bool(callback(seen)) for callback in self._callbacks]
        return End(Status.CALLBACK, "stopped by a callback") if any(stops) else None

    def end(self) -> None:
        pass
