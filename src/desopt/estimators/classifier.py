"""Linear classification by any loss, cost or metric of the scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from desopt.contract import checks
from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray
from desopt.estimators.base import LinearEstimator
from desopt.objectives.scores import SCORE_LOSSES, linear_scores

#: The losses of two classes.
CLASSIFICATION = tuple(name for name, loss in SCORE_LOSSES.items() if not loss.real)

#: The loss that stands for costs of decisions: 1 - tanh is a smooth count of errors.
OF_COSTS = "tanh"

#: Counts of errors have traps: rows far on the wrong side say nothing. Their searches, and those
#: of callables, start where this loss leads in a share of the rounds.
START, SHARE, WITH_TRAPS = "logistic", 4, ("tanh", "f1")


def _has_probabilities(estimator: DESClassifier) -> bool:
    if isinstance(estimator.objective, str) and estimator.objective == "logistic":
        return True
    raise AttributeError(
        f"predict_proba needs objective='logistic', got {estimator.objective!r:.60}: scores of "
        "other objectives are no log-odds; wrap the estimator in CalibratedClassifierCV"
    )


class DESClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Linear classification fitted by DES, from values of the objective alone.

    With more than two classes, each is fitted against the rest.

    Parameters
    ----------
    objective : default="logistic"
        ``"logistic"``, ``"tanh"``, ``"hinge"`` or ``"squared_hinge"``, losses of rows; ``"f1"`` or
        ``"auc"``, functions of a batch; a cost matrix, whose entry [i][j] is the cost of deciding
        for class j where i is true; or ``callable(y, score, sample_weight) -> float``, to be
        minimised, with y = 1 for the class and 0 for the rest.
    method, rounds, iterations, workers, step_size, momentum : as in ``desopt.minimize``
        ``workers`` are parallel searches on all rows; ``partial_fit`` adds ``rounds`` rounds.
    batch_size : int or "auto", default="auto"
        Rows of a minibatch: 1000, or 5000 for f1 and callables, which need not be means over rows.
        If there are fewer rows, a batch is all of them.
    regularization : float or "auto", default="auto"
        The weight of ||coef||^2 / 2 in the objective; the intercept counts as a coefficient.
        "auto" is 1 / n_samples (with weights, 1 / their sum), the default of LogisticRegression,
        LinearSVC and Ridge.
    class_weight : dict, "balanced" or None, default=None
    fit_intercept : bool, default=True
    warm_start : bool, default=False
        Whether ``fit`` starts from the coefficients of the last one.
    random_state : int, RandomState or None, default=0
    n_jobs : int or None, default=None
        Threads; they have no influence on the result.
    journal : path or None, default=None
        A file from which the same ``fit`` resumes if it was killed. With more than two classes,
        each has its own file.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray of shape (1, n_features), or (n_classes, n_features) for more than two classes
    intercept_ : ndarray
    n_iter_ : int
        Rounds so far.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from desopt.sklearn import DESClassifier
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> y = X[:, 0] > 0.5
    >>> DESClassifier(objective="f1", rounds=5).fit(X, y).score(X, y) > 0.8
    True
    """

    classes_: Any
    coef_: FloatArray
    intercept_: FloatArray

    def __init__(
        self,
        objective: Any = "logistic",
        *,
        method: Any = "des-mr",
        rounds: int = 100,
        iterations: int = 100,
        workers: int = 10,
        batch_size: Any = "auto",
        step_size: Any = "auto",
        momentum: float = 0.5,
        regularization: Any = "auto",
        class_weight: Any = None,
        fit_intercept: bool = True,
        warm_start: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
        journal: Any = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.method = method
        self.rounds = rounds
        self.iterations = iterations
        self.workers = workers
        self.batch_size = batch_size
        self.step_size = step_size
        self.momentum = momentum
        self.regularization = regularization
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.journal = journal
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, costs: Any = None) -> DESClassifier:
        """Fit to the rows of X and their classes y.

        ``costs``: for each row the cost of an error, or the cost of deciding for each of
        ``classes_``.
        """
        before = (self.classes_, self.coef_, self.intercept_) if self._warm else None
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if self.classes_.size < 2:
            raise ValueError(
                f"y has one class, {self.classes_[0]!r}; a classifier needs at least two classes"
            )
        weights = compute_sample_weight(self.class_weight, y)
        states = [None] * self._problems
        starts = [None] * self._problems if before is None else self._starts(before, X.shape[1])
        return self._go_on(X, y, sample_weight, weights, costs, starts, states)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, costs: Any = None
    ) -> DESClassifier:
        """``rounds`` more rounds on these rows. The first call needs all ``classes``."""
        self._no_journal_in_parts()
        first = not hasattr(self, "coef_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        X, y = self._checked(X, y, reset=first)
        check_classification_targets(y)
        if first:
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} differ from those before, {self.classes_}")
        if self.classes_.size < 2:
            raise ValueError(f"classes has {self.classes_}; at least two classes are needed")
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y has labels that are not among the classes {self.classes_}")
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not for partial_fit, which sees a part of y only; use "
                "compute_class_weight on all labels, and pass the dict"
            )
        weights = compute_sample_weight(self.class_weight, y)
        states = [None] * self._problems if first else self._states
        return self._go_on(X, y, sample_weight, weights, costs, [None] * len(states), states)

    @property
    def _warm(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "coef_")

    @property
    def _problems(self) -> int:
        """One for two classes, else one for each."""
        return 1 if self.classes_.size == 2 else int(self.classes_.size)

    def _starts(self, before: tuple[Any, Any, Any], n: int) -> list[Any]:
        classes, coef, intercept = before
        if coef.shape[1] != n or not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start: {n} features and classes {self.classes_}, but the last fit had "
                f"{coef.shape[1]} and {classes}; set warm_start=False"
            )
        return [np.append(c, b) if self._has_column else c
                for c, b in zip(coef, intercept, strict=True)]  # fmt: skip

    def _go_on(
        self, X: Any, y: Any, sample_weight: Any, class_weights: FloatArray, costs: Any,
        starts: list[Any], states: list[Any],
    ) -> DESClassifier:  # fmt: skip
        if not (np.isfinite(class_weights) & (class_weights >= 0.0)).all():
            raise ValueError(
                f"class_weight must hold finite numbers >= 0, got {self.class_weight!r:.200}"
            )
        number = np.searchsorted(self.classes_, y)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        w, costs = w * class_weights, self._costs(costs, number)
        if costs is not None and costs.ndim == 1:
            w, costs = w * costs, None
        design, n = self._design(X), X.shape[1]
        found = []
        for k, (start, state) in enumerate(zip(starts, states, strict=True)):
            problem = self._problem(k, number, w, costs)
            part = f".{k}" if len(states) > 1 else ""
            found.append(self._search(design, *problem, start, state, part))
        self._states = found
        self.coef_ = np.array([state.x[:n] for state in found])
        self.intercept_ = np.zeros(len(found))
        for k, state in enumerate(found):
            if self._has_column:
                self.intercept_[k] = state.x[n]
            elif self.fit_intercept:
                label, weight = self._problem(k, number, w, costs)
                self.intercept_[k] = -_threshold(linear_scores(X, self.coef_[k]), label, weight)
        self.n_iter_ = self._before + found[0].round
        return self

    def _search(
        self, X: Any, label: FloatArray, weight: FloatArray, start: Any, state: Any, part: str
    ) -> Any:
        """The state after the rounds of one problem, from a start or on from a state."""
        loss, some, before = self._loss(), weight > 0.0, 0
        rounds = checks.whole("rounds", self.rounds)
        if not some.any():
            raise ValueError("the weight of all rows is 0; at least one must be positive")
        if not some.all():
            X, label, weight = X[some], label[some], weight[some]
        if start is None:
            start = np.zeros(X.shape[1])
            if state is None and (callable(loss) or loss in WITH_TRAPS):
                before = rounds // SHARE
            if before:
                first = f"{part}.start"
                start = self._run(START, X, label, weight, start, None, first, rounds=before).x
        if state is None:
            self._before = before
        if callable(loss):
            label = (label > 0.0).astype(np.float64)
        return self._run(loss, X, label, weight, start, state, part, rounds=rounds - before)

    def _loss(self) -> Any:
        """The loss for the rows of one problem."""
        if callable(self.objective):
            return self.objective
        if isinstance(self.objective, str):
            check_name("objective", self.objective, CLASSIFICATION)
            return self.objective
        return OF_COSTS

    def _costs(self, costs: Any, number: Any) -> FloatArray | None:
        """The costs of decisions or of errors for each row, checked; None without any."""
        k = self.classes_.size
        if not (callable(self.objective) or isinstance(self.objective, str)):
            matrix = _numbers("objective as a cost matrix", self.objective)
            if matrix.shape != (k, k) or not np.isfinite(matrix).all():
                raise ValueError(
                    f"objective as a cost matrix must be {k} x {k} finite numbers, a row and a "
                    f"column for each class; got shape {matrix.shape}"
                )
            if costs is not None:
                raise ValueError("give costs for each row or a cost matrix, not both")
            of_rows: FloatArray = matrix[number]
            return of_rows
        if costs is None:
            return None
        given = _numbers("costs", costs)
        if given.shape not in ((number.size,), (number.size, k)) or not np.isfinite(given).all():
            raise ValueError(
                f"costs must be {number.size} finite numbers, the cost of an error in each row, or "
                f"{number.size} x {k}, those of each decision; got shape {given.shape}"
            )
        if given.ndim == 1 and (given < 0.0).any():
            raise ValueError(f"costs of errors must be >= 0, got {given.min():g}")
        return given

    def _problem(
        self, k: int, number: Any, w: FloatArray, costs: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Labels -1 and +1 and weights of one class against the rest.

        With costs of decisions, the label of a row is the cheaper decision, and its weight what
        the other one would cost in addition.
        """
        k = 1 if self._problems == 1 else k
        if costs is None:
            return np.where(number == k, 1.0, -1.0), w
        excess = np.delete(costs, k, axis=1).min(axis=1) - costs[:, k]
        return np.where(excess > 0.0, 1.0, -1.0), w * np.abs(excess)

    def decision_function(self, X: Any) -> FloatArray:
        """The score of each row, or of each row and class; the class is that of the largest."""
        self._fitted()
        X = self._checked(X, reset=False)
        found = [self._score(X, c, b) for c, b in zip(self.coef_, self.intercept_, strict=True)]
        return found[0] if len(found) == 1 else np.column_stack(found)

    def predict(self, X: Any) -> Any:
        """The class of each row."""
        score = self.decision_function(X)
        if score.ndim == 1:
            return self.classes_[(score > 0.0).astype(np.intp)]
        return self.classes_[score.argmax(axis=1)]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, for the logistic objective."""
        p = expit(self.decision_function(X))
        if p.ndim == 1:
            return np.column_stack([1.0 - p, p])
        total = p.sum(axis=1, keepdims=True)
        p[total[:, 0] == 0.0], total[total == 0.0] = 1.0 / p.shape[1], 1.0
        found: FloatArray = p / total
        return found

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of the probabilities."""
        found: FloatArray = np.log(self.predict_proba(X))
        return found


def _threshold(score: FloatArray, label: FloatArray, weight: FloatArray) -> float:
    """The score above which lies as much weight as the positive rows have."""
    some = weight > 0.0  # the others are not there, as in the search
    score, label, weight = score[some], label[some], weight[some]
    order = np.argsort(-score, kind="stable")
    above = np.cumsum(weight[order])
    count = int(np.searchsorted(above, np.cumsum(weight * (label > 0.0))[-1]))
    count = min(max(count, 0), score.size - 2)
    return float(0.5 * (score[order[count]] + score[order[count + 1]]))


def _numbers(name: str, given: Any) -> FloatArray:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, got {given!r:.80} ({error})") from None
