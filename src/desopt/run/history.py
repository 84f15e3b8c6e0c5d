"""What a run reports: one row per round."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from desopt.contract.types import FloatArray

#: round: rounds done; the others are totals since the start of the run, but for ``loss``, the
#: full objective at this point (NaN in rounds where it was not evaluated), and ``answers``, the
#: workers that answered in this round. ``repeated`` counts workers' rounds that were computed
#: again because a process or a machine died.
COLUMNS = (
    "round", "evaluations", "samples", "bytes_up", "bytes_down", "seconds", "loss", "nans",
    "answers", "repeated",
)  # fmt: skip


class Row(dict[str, Any]):
    """One round as a dict; ``x`` is the point after it (read-only), for callbacks."""

    x: FloatArray


class History(Sequence[Row]):
    """All rows. ``history[3]`` is a row, ``history["loss"]`` a column as an array."""

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
    """The row in the order of the columns; floats written so that they read back exactly."""
    values = {name: row[name] for name in COLUMNS}
    return {
        name: empty if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()
    }
