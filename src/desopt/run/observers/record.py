"""What a run has reached: state, history and best point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt.contract.scattered import stored
from desopt.contract.space import Space
from desopt.contract.types import Answer, FloatArray
from desopt.run.history import End, History, Row, Status

if TYPE_CHECKING:
    from desopt.run.result import Result


@dataclass
class Record:
    """The rounds so far, those of a resumed journal included. ``initial`` is f(x0)."""

    state: Any
    history: History = field(default_factory=History)
    initial: float = math.nan
    best_fun: float = math.nan
    best_x: FloatArray | None = None
    #: Between the states' x and the user's, where they differ.
    space: Space | None = None
    #: Of the last round of this session.
    row: Row | None = None
    answers: Sequence[Answer] = ()

    def begin(self, record: Record) -> None:
        if not self.history:
            self.compare(self.initial, self.state.x)

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> None:
        # Ctrl-C comes where something is called: it finds all three of a round, or none.
        self.row, self.state, self.answers = row, state, answers
        self.settle()

    def settle(self) -> None:
        """Enter the last round into history and best point; a second time changes nothing."""
        if self.row is None:
            return
        if not self.history or self.history[-1] is not self.row:
            self.history.append(self.row)
        self.compare(self.row["loss"], self.state.x)

    def end(self) -> None:
        if self.history:  # the last row may have been evaluated since
            self.compare(self.history[-1]["loss"], self.state.x)

    def compare(self, loss: float, x: FloatArray) -> None:
        """Keep the best point. States are never modified, so that x need not be copied."""
        if math.isfinite(loss) and not loss >= self.best_fun:
            self.best_fun, self.best_x = loss, x

    def result(self, end: End, engine: str, why: str, **more: Any) -> Result:
        """The result of a run that ended so; ``why`` says what was chosen for it."""
        from desopt.run.result import Result  # late: loads scipy.optimize

        last = self.history[-1] if self.history else {}
        nans = int(last.get("nans", 0))
        message = end.message
        if nans:
            failed = "1 value failed or was" if nans == 1 else f"{nans} values failed or were"
            message += f"; {failed} not finite"
        x = self._of_user(self.state.x)
        return Result(
            x=x,
            fun=float(last.get("loss", self.initial)),
            nfev=int(last.get("evaluations", 0)),
            nit=int(self.state.round),
            success=end.status < Status.INTERRUPTED and bool(np.isfinite(stored(x)).all()),
            status=int(end.status),
            message=f"{message} ({why})",
            engine=engine,
            initial_fun=float(self.initial),
            nan_count=nans,
            history=self.history,
            best_x=self._of_user(self.state.x if self.best_x is None else self.best_x),
            best_fun=float(self.best_fun),
            **more,
        )

    def _of_user(self, x: FloatArray) -> FloatArray:
        """In the user's variables; a copy, since a callback may have kept the state's own."""
        return x.copy() if self.space is None else self.space.decode(x)
