"""Observers of a run: everything around the loop.

=============  ====================================================================
evaluation     evaluates the full objective when it is due
stopping       ends the run by its rules (``desopt.run.stopping``)
record         keeps history, state and best point: what the result is made of
journal        writes answers and states to the journal
progress       shows a progress bar
callbacks      calls the user's functions
=============  ====================================================================

They are told of a round in this order: a row is complete before it is recorded, and recorded
before the user's own code sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from desopt.contract.types import Answer
from desopt.run.history import End, Row
from desopt.run.observers.record import Record


class Observer(Protocol):
    """Told of a run. Whatever it returns but None ends the run."""

    def begin(self, record: Record) -> End | None:
        """The run begins, or continues after the rounds of the record."""

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> End | None:
        """A round is done; the engine is at the state after it."""

    def end(self) -> None:
        """The run has ended; not called after an error or an interrupt."""


__all__ = ["Observer", "Record"]
