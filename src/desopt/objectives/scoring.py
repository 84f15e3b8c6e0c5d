"""Loss and error of a point on labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from desopt.contract.types import FloatArray
from desopt.data import Rows, as_rows
from desopt.objectives.linear import LinearModel
from desopt.objectives.losses import LOSSES


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows, for example the test rows, on which points are scored."""

    X: Any
    y: FloatArray

    def score(self, x: FloatArray, problem: str, penalty: float) -> tuple[float, int]:
        """The regularised loss and the number of misclassified rows.

        A row with margin 0, as all rows have at x = 0, is classified as -1.
        """
        return LinearModel(problem, penalty).score(self._rows, x)

    @cached_property
    def _rows(self) -> Rows:
        """The rows in the layout of the linear models."""
        (rows,) = LinearModel(next(iter(LOSSES))).prepare([as_rows((self.X, self.y), "the data")])
        assert isinstance(rows, Rows)
        return rows
