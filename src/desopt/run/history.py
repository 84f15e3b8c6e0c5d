"""What a run reports: a row per round, and why it ended."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from desopt.contract.types import FloatArray

if TYPE_CHECKING:
    from desopt.run.result import Result  # loads scipy.optimize

#: ``round``: rounds done. ``loss``: the full objective at this point, NaN if not evaluated.
#: ``answers``: workers that answered in this round. All others are totals since the start of the
#: run; ``bytes_up`` and ``bytes_down`` are those of the wire's messages, ``repeated`` counts
#: workers' rounds that were computed again after a process or a machine died.
COLUMNS = (
    "round", "evaluations", "samples", "bytes_up", "bytes_down", "seconds", "loss", "nans",
    "answers", "repeated",
)  # fmt: skip


class Row(dict[str, Any]):
    """One round as a dict. The rows that callbacks get have ``x``, the point after the round.

    >>> rows = []
    >>> fun = lambda x: float(x @ x)
    >>> result = desopt.minimize(fun, np.ones(2), rounds=3, callbacks=[rows.append])
    >>> rows[0]["round"], rows[0].x.shape
    (1, (2,))
    """

    x: FloatArray


class History(Sequence[Row]):
    """All rows. ``history[3]`` is a row, ``history["loss"]`` a column as an array.

    >>> history = desopt.minimize(lambda x: float(x @ x), np.ones(2), rounds=3).history
    >>> history["round"]
    array([1., 2., 3.])
    >>> history[0]["answers"]
    1
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = list(rows)

    def append(self, row: Row) -> None:
        self._rows.append(row)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Row]: ...
    @overload
    def __getitem__(self, key: str) -> FloatArray: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in COLUMNS:
                raise KeyError(f"{key!r} is no column; there are {', '.join(COLUMNS)}")
            return np.array([row[key] for row in self._rows], np.float64)
        return self._rows[key]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"History({len(self)} rounds; columns {', '.join(COLUMNS)})"

    def evaluated(self) -> list[Row]:
        """The rows of rounds where the full objective was evaluated."""
        return [row for row in self._rows if not math.isnan(row["loss"])]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """One line per round; an empty field where the loss was not evaluated."""
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(_blank(row, "") for row in self._rows)

    def to_jsonl(self, path: str | os.PathLike[str]) -> None:
        """One JSON object per line; null where the loss was not evaluated."""
        with open(path, "w") as file:
            for row in self._rows:
                file.write(json.dumps(_blank(row, None)) + "\n")


def _blank(row: Row, empty: Any) -> dict[str, Any]:
    """The row in the order of the columns, with ``empty`` for NaN."""
    values = {name: row[name] for name in COLUMNS}
    return {
        name: empty if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()
    }


class Status(IntEnum):
    """Why a run ended. The last two are no success: interrupted, and still open."""

    ROUNDS = 0
    TARGET = 1
    PATIENCE = 2
    EVALUATIONS = 3
    SECONDS = 4
    CALLBACK = 5
    INTERRUPTED = 6
    OPEN = 7


class End(NamedTuple):
    """The end of a run: why, as a number and in words."""

    status: Status
    message: str


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run. ``result`` is the result so far; a journal, if any, resumes the run.

    >>> try:
    ...     raise desopt.Interrupted(desopt.minimize(lambda x: float(x @ x), np.ones(2), rounds=3))
    ... except KeyboardInterrupt as stop:
    ...     print(stop.result.nit)
    3
    """

    def __init__(self, result: Result) -> None:
        super().__init__(result.message)
        self.result = result
