"""A bar for what reads or makes data, once it has taken two seconds, on a terminal only."""

from __future__ import annotations

import time
from typing import IO, Any, cast

from desopt.system.terminal import Stderr

PATIENCE = 2.0


class Bar:
    """``update`` says that so much more of ``total`` is done; 0 if the total is not known."""

    def __init__(self, label: str, total: float) -> None:
        self._label, self._total, self._done = label, total or None, 0.0
        self._began = time.monotonic()
        self._shown = Stderr().isatty()
        self._bar: Any = None

    def update(self, amount: float) -> None:
        self._done += amount
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._shown and time.monotonic() - self._began > PATIENCE:
            self._show()

    def _show(self) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
            console=Console(file=cast(IO[str], Stderr())),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self._label, total=self._total, completed=self._done)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
