"""Loss and error of a point on labelled rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Batches, FloatArray
from desopt.data import Batch, Rows, as_rows
from desopt.objectives import as_objective
from desopt.objectives.linear import LinearModel
from desopt.objectives.losses import LOSSES


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows, for example the test rows, on which points are scored."""

    X: Any
    y: FloatArray

    def score(self, x: FloatArray, problem: Any, penalty: float) -> tuple[float, float]:
        """The regularised loss and the number of misclassified rows.

        ``problem`` is what ``minimize`` takes as ``fun``.

        A row with margin 0, as all rows have at x = 0, is classified as -1. With an objective of
        the user's own, rows are classified by z^T x if x has one number per column.
        """
        if isinstance(problem, str) and problem in LOSSES:
            return LinearModel(problem, penalty).score(self._rows, x)
        objective = as_objective(problem, penalty, None)
        (rows,) = objective.prepare([as_rows((self.X, self.y), "the data")])
        stream = Stream(0, 0, 0, 0, Purpose.EVALUATION)
        loss = objective.bind(Batch(rows, rows.size, stream, Batches.ALL), x).value(x)
        if x.size != self.X.shape[1]:
            return loss, math.nan
        return loss, int(np.count_nonzero((self.X @ x > 0.0) != (self.y > 0.0)))

    @cached_property
    def _rows(self) -> Rows:
        """The rows in the layout of the linear models."""
        (rows,) = LinearModel(next(iter(LOSSES))).prepare([as_rows((self.X, self.y), "the data")])
        assert isinstance(rows, Rows)
        return rows
