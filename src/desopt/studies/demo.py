"""The demo as a study: all compared methods on scikit-learn's handwritten digits.

The model is logistic regression that separates the digits 5-9 from 0-4. Every method gets the
same workers, rounds and minibatches, and the best of three step sizes. The optimum for reference
comes from scikit-learn's LogisticRegression, which uses gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from desopt.contract.types import FloatArray
from desopt.studies.cases import make_case
from desopt.studies.execute import Split
from desopt.studies.output import replacing
from desopt.studies.study import Study

NAME, ITEM, DATA = "demo", "digits", "digits.npz"
NEEDS = "the demo needs {}: pip install 'desopt[sklearn,report]'"

STEP_SIZES = (0.1, 1.0, 10.0)
#: The compared methods with the step size that is best here.
BEST_STEPS = {
    "des": 0.1,
    "des-mg": 0.1,
    "des-mr": 0.1,
    "fed-zo-gd": 1.0,
    "fed-zo-sgd": 1.0,
    "zo-signsgd": 0.1,
    "es-csa": 0.1,
}
PROBLEM = "lr"
REGULARIZATION = 1e-3
WORKERS, ROUNDS, ITERATIONS, BATCH_SIZE = 10, 120, 100, 100


def demo_study(quick: bool) -> Study:
    """One case per method and step size; ``quick``: with the known best step sizes only."""
    cases = [
        make_case(
            data=DATA, problem=PROBLEM, method=method, step_size=step_size, run=0,
            workers=WORKERS, rounds=ROUNDS, iterations=ITERATIONS, batch_size=BATCH_SIZE,
            regularization=REGULARIZATION, points=ROUNDS,
        )
        for method, best in BEST_STEPS.items()
        for step_size in ((best,) if quick else STEP_SIZES)
    ]  # fmt: skip
    return Study(NAME, {ITEM: cases}, {ITEM: cases})


def write_digits(folder: Path) -> Path:
    """The digits as a data file in this folder: pixels in [0, 1], label +1 for 5-9, else -1."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ModuleNotFoundError(NEEDS.format("scikit-learn")) from error

    pixels, digits = load_digits(return_X_y=True)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / DATA
    with replacing(path) as part, part.open("wb") as file:
        np.savez(file, X=pixels / 16, y=np.where(digits > 4, 1.0, -1.0))
    return path


@dataclass(frozen=True)
class Optimum:
    """The least training loss, and the error of that model on the test rows."""

    x: FloatArray
    train_loss: float
    test_error: float


def optimum(folder: Path) -> Optimum:
    """The optimum of the same objective on the same training rows, from scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    split = Split.load(DATA, None, str(folder))
    X, y = split.train.X, split.train.y
    # scikit-learn minimises C times the sum of the losses + |x|^2 / 2; desopt the mean of the
    # losses + REGULARIZATION |x|^2 / 2.
    model = LogisticRegression(
        C=1 / (REGULARIZATION * y.size), fit_intercept=False, tol=1e-8, max_iter=10_000
    )
    x = model.fit(X, y).coef_[0]
    loss, _ = split.train.score(x, PROBLEM, REGULARIZATION)
    _, wrong = split.test.score(x, PROBLEM, REGULARIZATION)
    return Optimum(x, loss, wrong / split.test.y.size)
