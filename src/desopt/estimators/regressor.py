"""Linear regression by any loss of the residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight

from desopt.contract import checks
from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray
from desopt.estimators.base import LinearEstimator
from desopt.objectives.scores import SCORE_LOSSES

#: The losses of residuals.
REGRESSION = tuple(name for name, loss in SCORE_LOSSES.items() if loss.real)


class DESRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Linear regression fitted by DES, from values of the loss alone.

    Parameters
    ----------
    objective : {"squared", "absolute", "huber", "pinball"} or callable, default="squared"
        The loss of the residuals, or ``callable(y, score, sample_weight) -> float``, the value on a
        batch. Huber is quadratic up to ``delta``; pinball is that of the quantile ``quantile``.
    delta : float, default=1.0
    quantile : float, default=0.5
    method, rounds, iterations, workers, step_size, momentum : as in ``desopt.minimize``
        ``workers`` are parallel searches on all rows; ``partial_fit`` adds ``rounds`` rounds.
    batch_size : int or "auto", default="auto"
        Rows of a minibatch: 1000, or 5000 for a callable. If there are fewer rows, a batch is all
        of them.
    regularization : float or "auto", default="auto"
        The weight of ||coef||^2 / 2 in the objective; the intercept counts as a coefficient.
        "auto" is 1 / n_samples (with weights, 1 / their sum), the default of LogisticRegression,
        LinearSVC and Ridge.
    fit_intercept : bool, default=True
    warm_start : bool, default=False
        Whether ``fit`` starts from the coefficients of the last one.
    random_state : int, RandomState or None, default=0
    n_jobs : int or None, default=None
        Threads; they have no influence on the result.
    journal : path or None, default=None
        A file from which the same ``fit`` resumes if it was killed.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_iter_ : int
        Rounds so far.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from desopt.sklearn import DESRegressor
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> model = DESRegressor(rounds=20).fit(X, X @ [1.0, 2.0, 3.0])
    >>> model.score(X, X @ [1.0, 2.0, 3.0]) > 0.9
    True
    """

    def __init__(
        self,
        objective: Any = "squared",
        *,
        delta: float = 1.0,
        quantile: float = 0.5,
        method: Any = "des-mr",
        rounds: int = 100,
        iterations: int = 100,
        workers: int = 10,
        batch_size: Any = "auto",
        step_size: Any = "auto",
        momentum: float = 0.5,
        regularization: Any = "auto",
        fit_intercept: bool = True,
        warm_start: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
        journal: Any = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.delta = delta
        self.quantile = quantile
        self.method = method
        self.rounds = rounds
        self.iterations = iterations
        self.workers = workers
        self.batch_size = batch_size
        self.step_size = step_size
        self.momentum = momentum
        self.regularization = regularization
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.journal = journal
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DESRegressor:
        """Fit to the rows of X and their targets y."""
        X, y = self._checked(X, y, reset=True, y_numeric=True)
        warm = self.warm_start and hasattr(self, "coef_")
        start = np.append(self.coef_, self.intercept_) if warm else None
        if start is not None and start.size != X.shape[1] + 1:
            raise ValueError(
                f"warm_start: X has {X.shape[1]} features, the last fit had {start.size - 1}; "
                "set warm_start=False"
            )
        return self._go_on(X, y, sample_weight, start, None)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> DESRegressor:
        """``rounds`` more rounds on these rows."""
        self._no_journal_in_parts()
        first = not hasattr(self, "coef_")
        X, y = self._checked(X, y, reset=first, y_numeric=True)
        return self._go_on(X, y, sample_weight, None, None if first else self._state)

    def _go_on(
        self, X: Any, y: Any, sample_weight: Any, start: FloatArray | None, state: Any
    ) -> DESRegressor:
        loss, parameter = self._loss()
        y = np.asarray(y, np.float64)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not (w > 0).all():
            X, y, w = X[w > 0], y[w > 0], w[w > 0]
        if y.size == 0:
            raise ValueError("sample_weight is 0 for all rows; at least one must be positive")
        if state is None:
            self._offset = self._centre(y, w)
        x0 = np.zeros(X.shape[1] + self._has_column)
        if start is not None:
            x0[: X.shape[1]] = start[:-1]
            if self._has_column:
                x0[-1] = start[-1] - self._offset
        target, design = y - self._offset, self._design(X)
        self._state = self._run(loss, design, target, w, x0, state, parameter=parameter)
        x = self._state.x
        self.coef_ = x[: X.shape[1]].copy()
        self.intercept_ = float(self._offset + x[-1]) if self._has_column else 0.0
        self.n_iter_ = self._state.round
        return self

    def _loss(self) -> tuple[Any, float]:
        if callable(self.objective):
            return self.objective, 1.0
        check_name("objective", self.objective, REGRESSION)
        if self.objective == "huber":
            return self.objective, checks.positive("delta", self.delta)
        if self.objective == "pinball":
            quantile = checks.real("quantile", self.quantile)
            if not 0.0 < quantile < 1.0:
                raise ValueError(f"quantile must be between 0 and 1, got {quantile!r}")
            return self.objective, quantile
        return self.objective, 1.0

    def _centre(self, y: FloatArray, w: FloatArray) -> float:
        """The mean of y, from where the intercept is searched; a callable sees y as it is."""
        if not self._has_column or callable(self.objective):
            return 0.0
        return math.fsum(w * y) / math.fsum(w)

    def predict(self, X: Any) -> FloatArray:
        """The scores of the rows."""
        self._fitted()
        return self._score(self._checked(X, reset=False), self.coef_, self.intercept_)
