"""What the estimators share: their settings, one run of DES, scores.

All workers of a fit have all rows: they are parallel searches, each on minibatches of its own, and
``n_jobs`` threads run them. The bits of a fit depend on data, settings and ``random_state`` only.
"""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from desopt.contract import checks
from desopt.contract.types import FloatArray
from desopt.objectives.scores import SCORE_LOSSES, ScoreModel, linear_scores
from desopt.run import arguments, options
from desopt.run.minimize import job_of
from desopt.run.session import Session

#: Rows of a minibatch; more for a function of a batch that may be no mean over rows or pairs of
#: rows, and so biased on few.
ROWS, ROWS_OF_RATIO = 1000, 5000


class LinearEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear score, fitted by values of its loss."""

    objective: Any
    method: Any
    rounds: int
    iterations: int
    workers: int
    batch_size: Any
    step_size: Any
    momentum: float
    regularization: Any
    fit_intercept: bool
    warm_start: bool
    random_state: Any
    n_jobs: int | None
    journal: Any
    verbose: Any

    def _checked(self, X: Any, y: Any = "no_validation", *, reset: bool, **more: Any) -> Any:
        """X, and y if given, as scikit-learn checks them; X in float64, CSR where it is sparse."""
        return validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64, **more)

    def _score(self, X: Any, x: FloatArray, intercept: float) -> FloatArray:
        return linear_scores(X, x) + intercept

    def _design(self, X: Any) -> Any:
        """X, with a column of ones if there is an intercept."""
        if not self._has_column:
            return X
        ones = np.ones((X.shape[0], 1))
        if sparse.issparse(X):
            return sparse.hstack([X, sparse.csr_array(ones)], format="csr")
        return np.hstack([X, ones])

    @property
    def _has_column(self) -> bool:
        """Whether the intercept is searched like a coefficient; an AUC does not depend on it."""
        of_order = isinstance(self.objective, str) and self.objective == "auc"
        return bool(self.fit_intercept) and not of_order

    def _run(
        self, loss: Any, X: Any, y: FloatArray, w: FloatArray, x0: FloatArray, state: Any,
        part: str = "", parameter: float = 1.0, rounds: int | None = None,
    ) -> Any:  # fmt: skip
        """Rounds from x0, or on from a state; the state after them. X is a design matrix."""
        total = math.fsum(w)
        auto = isinstance(self.regularization, str) and self.regularization == "auto"
        penalty = 1.0 / total if auto else checks.real("regularization", self.regularization)
        model, jobs = ScoreModel(loss, penalty, parameter), effective_n_jobs(self.n_jobs)
        given: dict[str, Any] = {
            "method": self.method, "iterations": self.iterations, "step_size": self.step_size,
            "momentum": self.momentum,
            "workers": checks.whole("workers", self.workers),
            "rounds": checks.whole("rounds", self.rounds if rounds is None else rounds),
            "batch_size": self._rows(model), "seed": self._seed(),
            "jobs": jobs if jobs > 1 else None, "eval_every": None if self.verbose else 0,
            "progress": bool(self.verbose), "journal": self._journal(part),
        }  # fmt: skip
        settings = options.checked("minimize", given)
        if state is not None:
            settings.rounds += state.round
        workers = 1 if arguments.for_one_worker(self.method) else settings.workers
        # weights with the mean 1, and none where all are the same
        data = (X, y) if (w == w[0]).all() else (X, y, w * (w.size / total))
        job, start = job_of(model, x0, [data] * workers, settings)
        if state is not None:
            _refuse_other_state(job.algorithm.init(start), state)
        with Session(job, start, settings, plain=False, state=state) as run:
            run.run("threads" if jobs > 1 else "serial")
            return run.record.state

    def _rows(self, model: ScoreModel) -> Any:
        if self.batch_size != "auto":
            return self.batch_size
        mean = isinstance(model.loss, str) and SCORE_LOSSES[model.loss].mean
        return ROWS if mean else ROWS_OF_RATIO

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _journal(self, part: str) -> Path | None:
        """The file of one run; those of several classes have their number in the name."""
        if self.journal is None:
            return None
        path = Path(self.journal)
        if not path.name:
            raise ValueError(f"journal must be a file, got the folder {str(self.journal)!r}")
        return path.with_name(f"{path.stem}{part}{path.suffix}")

    def _no_journal_in_parts(self) -> None:
        if self.journal is not None:
            raise ValueError(
                f"journal={str(self.journal)!r} is for fit, whose data stay the same; "
                "partial_fit keeps none: set journal=None"
            )

    def _fitted(self) -> None:
        check_is_fitted(self, "coef_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _refuse_other_state(fresh: Any, state: Any) -> None:
    """Refuse to go on from the state of a run of other numbers."""
    same = isinstance(state, type(fresh)) and all(
        np.shape(getattr(state, part.name)) == np.shape(getattr(fresh, part.name))
        for part in fields(fresh)
    )
    if not same:
        raise ValueError(
            "partial_fit goes on with the state of the last call, which method, step_size, "
            "workers, fit_intercept or objective no longer fit; set them as they were, or call fit"
        )
