"""The journal of a run: resumed at the beginning, written after every round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from desopt.contract.types import Answer, FloatArray
from desopt.engines import Job
from desopt.run import header as headers
from desopt.run import journal as journals
from desopt.run.code_digest import user_code_of
from desopt.run.history import History, Row
from desopt.run.journal_file import refusing
from desopt.run.observers.record import Record
from desopt.run.replay import forward


class JournalWriter:
    """Appends rounds to the journal, and the state every ``snapshot_every`` rounds (0: never).

    The file is made after the first round: a run that fails before leaves nothing behind.
    """

    def __init__(self, path: Path, job: Job, snapshot_every: int) -> None:
        self._path, self._job, self._every = path, job, snapshot_every
        # Digests of the user's code, before it runs: it may change its closures.
        self.code = user_code_of(job.objective, job.algorithm, job.shards)
        self._log: journals.Journal | None = None

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.close()

    def resumed(self, x0: FloatArray) -> Record | None:
        """The rounds in the journal, if it exists; refused if it is another run's."""
        if not self._path.exists():
            return None
        mine = headers.header_of(self._job, x0, math.nan, self.code)

        def check(header: dict[str, Any]) -> None:
            headers.check_versions(self._path, header)
            headers.check_config(self._path, header, mine["config"])

        self._log, contents = journals.Journal.reopen(self._path, check)
        headers.warn_of_other_code(self._path, contents.header, self.code, 5)
        return self._record(contents, x0)

    def _record(self, contents: journals.Contents, x0: FloatArray) -> Record:
        """State, history and best point at the end of the journal."""
        initial = headers.initial_value(contents.header)
        losses = [initial, *(row["loss"] for row in contents.rows)]
        finite = [round for round, loss in enumerate(losses) if math.isfinite(loss)]
        best = min(finite, key=lambda round: (losses[round], round), default=0)
        with refusing(self._path, "what it holds"):
            at_best, last = forward(self._job.algorithm, contents, (best, len(contents.rows)), x0)
        record = Record(last, History(contents.rows), initial, space=self._job.space)
        record.compare(losses[best], at_best.x)
        return record

    def begin(self, record: Record) -> None:
        self._first, self._initial = record.state, record.initial

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> None:
        if self._log is None:
            header = headers.header_of(self._job, self._first.x, self._initial, self.code)
            self._log = journals.Journal.create(self._path, header, self._first)
        self._log.append(row, answers)
        if self._every and state.round % self._every == 0:
            self._log.snapshot(state)

    def end(self) -> None:
        pass

    def complete(self, record: Record) -> None:
        """Append the last round if an interrupt came between record and journal."""
        written = 0 if self._log is None else self._log.rounds
        if written < record.state.round:
            self.round(record.history[-1], record.state, record.answers)
