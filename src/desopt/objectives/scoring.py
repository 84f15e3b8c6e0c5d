"""Points judged on labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from desopt.contract.types import FloatArray
from desopt.data import Rows, as_rows
from desopt.objectives.linear import LinearModel
from desopt.objectives.losses import LOSSES


@dataclass(frozen=True)
class Part:
    """One side of the split, with what is computed on it."""

    X: Any
    y: FloatArray

    def score(self, x: FloatArray, problem: str, penalty: float) -> tuple[float, int]:
        """The regularised loss and the number of rows on the wrong side.

        A row at exactly 0, as all are at the start, is taken for -1.
        """
        return LinearModel(problem, penalty).score(self._rows, x)

    @cached_property
    def _rows(self) -> Rows:
        """The same, as a linear model takes it."""
        (rows,) = LinearModel(next(iter(LOSSES))).prepare([as_rows((self.X, self.y), "the data")])
        assert isinstance(rows, Rows)
        return rows
