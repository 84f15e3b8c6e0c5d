"""The progress bar: loss, rounds per second, time left. Silent when not on a terminal."""

from __future__ import annotations

import math
from types import TracebackType
from typing import IO, Any, cast

from desopt.run.history import Row
from desopt.system.terminal import Stderr


class ProgressBar:
    """A bar on stderr; ``show=None`` shows it on a terminal only."""

    def __init__(self, label: str, rounds: int, done: int, show: bool | None) -> None:
        self._shown = Stderr().isatty() if show is None else show
        self._label, self._rounds, self._done = label, rounds, done
        self._bar: Any = None
        self._loss = math.nan

    def __enter__(self) -> ProgressBar:
        if self._shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]}"),
                TextColumn("{task.fields[rate]} rounds/s"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(file=cast(IO[str], Stderr())),
            )
            self._bar.start()
            self._task = self._bar.add_task(
                self._label, total=self._rounds, completed=self._done, loss="-", rate="-"
            )
        return self

    def compiling(self) -> None:
        """Say that the first run after an installation takes longer, and why."""
        if self._bar is not None:
            self._bar.console.print("compiling the kernels: once after installation, some seconds")

    def note(self, text: str) -> None:
        """Say what is going on before the first round is done."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"{self._label} [dim]{text}[/dim]")

    def update(self, row: Row) -> None:
        if self._bar is None:
            return
        if not math.isnan(row["loss"]):
            self._loss = row["loss"]
        speed = self._bar.tasks[0].speed
        self._bar.update(
            self._task,
            description=self._label,
            completed=row["round"],
            loss="-" if math.isnan(self._loss) else f"{self._loss:.6g}",
            rate="-" if not speed else f"{speed:.3g}",
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
