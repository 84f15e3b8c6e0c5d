"""Linear scores: any loss of labels and scores, with a weight for each row.

f(x) = (1/N) sum_i w_i loss(y_i, z_i^T x) + penalty/2 ||x||^2, where the weights have the mean 1; or
a loss of all rows of a batch, such as 1 - F1; or a Python function of labels, scores and weights.
Data are (X, y) or (X, y, w).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from desopt.contract.errors import Failed, check_name, failure
from desopt.contract.types import FloatArray, LocalSearch
from desopt.data import Arrays, Batch, Loaders, NoData, Partitioned, Rows, Shard, all_finite
from desopt.kernels import scores
from desopt.kernels.losses import L2SVM, LR, LSVM, NSVM
from desopt.methods.proposals import MixtureProposals
from desopt.methods.searches import OnePlusOne, TwoParts
from desopt.objectives.functions import as_number
from desopt.objectives.linear import LinearFunction, LinearModel, as_plain
from desopt.objectives.local import drive
from desopt.objectives.losses import LOSSES
from desopt.objectives.tables import LabelledTable, as_float_matrix, table_of

#: loss(labels, scores, weights) -> float, the mean over a batch.
BatchLoss: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], Any]


@dataclass(frozen=True, kw_only=True)
class ScoreLoss:
    """A loss of labels y, scores s and weights w."""

    #: The kernels' number for it.
    kind: int
    formula: str
    #: The same in NumPy: the value on a batch, for y, s, w and the parameter.
    reference: Callable[[FloatArray, FloatArray, FloatArray, float], float]
    #: Whether labels are real numbers; else they are -1 and +1.
    real: bool = False
    #: Whether it is a mean, over rows or pairs of rows, and whether one of losses of y s.
    mean: bool = True
    margin: bool = False


def _margin(kind: int) -> ScoreLoss:
    (loss,) = (loss for loss in LOSSES.values() if loss.kind == kind)
    return ScoreLoss(
        kind=kind,
        formula=loss.formula,
        reference=lambda y, s, w, _: float(np.mean(w * loss.reference(y * s))),
        margin=True,
    )


def _residual(kind: int, formula: str, of: Callable[[FloatArray, float], FloatArray]) -> ScoreLoss:
    return ScoreLoss(
        kind=kind,
        formula=formula,
        reference=lambda y, s, w, p: float(np.mean(w * of(y - s, p))),
        real=True,
    )


def _f1(y: FloatArray, s: FloatArray, w: FloatArray, _: float) -> float:
    p = 0.5 * w * (1.0 + np.tanh(s))
    return float(1.0 - 2.0 * p[y > 0].sum() / (w[y > 0].sum() + p.sum()))


def _auc(y: FloatArray, s: FloatArray, w: FloatArray, _: float) -> float:
    """Over all pairs; the kernel takes a part of them."""
    above, below = y > 0, y < 0
    wrong = 0.5 * (1.0 - np.tanh(s[above][:, None] - s[below][None, :]))
    return float(np.average(wrong, weights=w[above][:, None] * w[below][None, :]))


#: By name; a is the margin y s, r the residual y - s, p the parameter.
SCORE_LOSSES: dict[str, ScoreLoss] = {
    "logistic": _margin(LR),
    "tanh": _margin(NSVM),
    "hinge": _margin(LSVM),
    "squared_hinge": _margin(L2SVM),
    "squared": _residual(scores.SQUARED, "r^2 / 2", lambda r, _: 0.5 * r * r),
    "absolute": _residual(scores.ABSOLUTE, "|r|", lambda r, _: np.abs(r)),
    "huber": _residual(
        scores.HUBER,
        "r^2 / 2 up to |r| = p, then p (|r| - p / 2)",
        lambda r, p: np.where(np.abs(r) <= p, 0.5 * r * r, p * (np.abs(r) - 0.5 * p)),
    ),
    "pinball": _residual(
        scores.PINBALL, "max(p r, (p - 1) r)", lambda r, p: np.maximum(p * r, (p - 1.0) * r)
    ),
    "f1": ScoreLoss(
        kind=scores.F1,
        formula="1 - 2 TP / (positives + taken for positive), counts expected by 1 / (1 + e^-2s)",
        reference=_f1,
        mean=False,
    ),
    "auc": ScoreLoss(
        kind=scores.AUC,
        formula="the share of pairs in the wrong order, expected by 1 / (1 + e^2d)",
        reference=_auc,
    ),
}


class ScoreTable(LabelledTable):
    """X, labels, weights, and ones: for the kernels a score is the margin of a row labelled 1."""

    @cached_property
    def weighted(self) -> bool:
        return bool((self[2] != 1.0).any())

    def __new__(cls, arrays: Any, where: str) -> ScoreTable:
        if not isinstance(arrays, Arrays):
            raise TypeError(f"a table is made of checked Arrays, got {type(arrays).__name__}")
        shapes = [array.shape for array in arrays]
        if [len(shape) for shape in shapes] not in ([2, 1], [2, 1, 1]) or shapes[0][1] == 0:
            raise ValueError(
                f"{where}: data must be (X, y) or (X, y, weights), a matrix and one or two "
                f"vectors; got shapes {', '.join(map(str, shapes))}"
            )
        if any(array.dtype.kind not in "fiub" for array in arrays):
            kinds = ", ".join(str(array.dtype) for array in arrays)
            raise TypeError(f"{where}: data must be real numbers, got dtypes {kinds}")
        X, ones = as_float_matrix(arrays[0], where), np.ones(shapes[0][0])
        y, *given = (np.require(array, np.float64, ["C", "A"]) for array in arrays[1:])
        (w,) = given or (ones,)
        if not (all_finite(y) and all_finite(w)):
            raise ValueError(f"{where}: y and weights must be finite; remove these rows first")
        if (w < 0.0).any():
            raise ValueError(f"{where}: weights must be >= 0, got {w.min():g}")
        return tuple.__new__(cls, (X, y, w, ones))


@dataclass(frozen=True)
class ScoreModel:
    """A loss by name (``SCORE_LOSSES``) or as a function, of labels and linear scores.

    ``parameter`` is that of huber and pinball. A batch as large as the data is the data.
    """

    loss: str | BatchLoss
    penalty: float = 1e-6
    parameter: float = 1.0
    in_box = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise ValueError(f"regularization must be a number >= 0, got {self.penalty!r}")
        if not callable(self.loss):
            check_name("loss", self.loss, SCORE_LOSSES)

    @property
    def compiled(self) -> bool:
        return isinstance(self.loss, str)

    @property
    def additive(self) -> bool:
        """Whether values are means over rows."""
        return isinstance(self.loss, str) and (self.of_margins or SCORE_LOSSES[self.loss].real)

    @property
    def of_margins(self) -> bool:
        """Whether the loss is one of the margin y s."""
        return isinstance(self.loss, str) and SCORE_LOSSES[self.loss].margin

    @property
    def numbers(self) -> tuple[int, float]:
        return SCORE_LOSSES[self.loss].kind if isinstance(self.loss, str) else -1, self.penalty

    def settings(self) -> dict[str, Any]:
        name = self.loss if isinstance(self.loss, str) else "callable"
        return {"name": f"score {name}", "penalty": self.penalty, "parameter": self.parameter}

    dimension = LinearModel.dimension  # by the columns of X

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        """Shards with arrays for the kernels, converted once and shared."""
        if isinstance(shards, Loaders):
            return shards
        if isinstance(shards, Partitioned):
            (whole,) = self.prepare([Rows(shards.arrays)], some=some)
            return replace(shards, arrays=whole.arrays, single=False)
        tables: dict[tuple[int, ...], ScoreTable] = {}  # shards of the same arrays share one
        prepared: list[Shard] = []
        for shard in shards:
            if isinstance(shard, NoData):
                raise TypeError("data is missing: a loss of scores needs data=(X, y)")
            if isinstance(shard, Rows):
                key = tuple(map(id, shard.arrays))
                if key not in tables:
                    tables[key] = ScoreTable(shard.arrays, shard.where)
                shard = replace(shard, arrays=tables[key], single=False)
            prepared.append(shard)
        return prepared

    def bind(self, batch: Batch, x: FloatArray) -> ScoreFunction:
        return ScoreFunction(self, batch, x)


class ScoreFunction(LinearFunction):
    """A loss of scores on one batch, or on a fresh one for each iteration."""

    def __init__(self, model: ScoreModel, batch: Batch, x: FloatArray) -> None:
        batch = batch.or_all()
        super().__init__(model, batch, x)
        self._function = None if isinstance(model.loss, str) else model.loss
        self._parameter = model.parameter
        self._labels: tuple[Any, ...] | None = None  # row numbers, their labels and weights
        table = table_of(batch.shard.arrays) if batch.shard.arrays else None
        # Without weights, a loss of the margin is that of a linear model, with all its kernels.
        self._plain = model.of_margins and isinstance(table, ScoreTable) and not table.weighted

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        if self._plain:
            return super().value(x, iteration)
        layout, numbers, ones = self._data(x, iteration)
        scored, point = self._of_batch(), as_plain(x)
        if self._function is None:
            return float(scores.scored_value(layout, numbers, ones, point, *self._loss, scored))
        _, labels, weights = scored
        score = np.empty(numbers.size)
        scores.fill_scores(layout, numbers, ones, point, score)
        try:
            value = as_number(self._function(labels, score, weights))
        except Failed:
            raise
        except Exception as error:
            raise failure("the objective", error) from error
        return value + float(scores.ridge(point, self._loss[1]))

    def run(self, search: LocalSearch) -> None:
        """Searches with mixture mutations in one call, all others by values."""
        if self._plain or isinstance(search, TwoParts):
            super().run(search)
            return
        if not self._searched(search):
            drive(search, self.value)

    def _searched(self, search: LocalSearch) -> bool:
        if self._function is not None or not isinstance(search, OnePlusOne):
            return False
        return isinstance(search.proposals, MixtureProposals) and self._one_plus_one(search)

    def _data(self, x: FloatArray, iteration: int = 0) -> tuple[Any, Any, FloatArray]:
        layout, numbers, labels = super()._data(x, iteration)
        return layout, numbers, labels if self._plain else self._drawn[0][3]

    def _scored(self, x: FloatArray) -> tuple[Any, ...] | None:
        if self._plain:
            return None
        self._data(x)
        return self._of_batch()

    def _of_batch(self) -> tuple[Any, ...]:
        """Parameter, labels and weights of the batch that was drawn last."""
        table, numbers = self._drawn
        if self._labels is None or self._labels[0] is not numbers:
            self._labels = numbers, table[1][numbers], table[2][numbers]
        return self._parameter, *self._labels[1:]


def linear_scores(X: Any, x: FloatArray) -> FloatArray:
    """z^T x for each row z of a checked matrix, as training computes it: the same bits anywhere."""
    table = ScoreTable(Arrays((X, np.zeros(X.shape[0])), "X"), "X")
    out = np.empty(X.shape[0])
    numbers = np.arange(X.shape[0])
    scores.fill_scores(table.layout, numbers, table[3], as_plain(x), out)
    return out
