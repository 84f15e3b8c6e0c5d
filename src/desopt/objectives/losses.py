"""The losses of the linear models by name, with all facts about them.

The model, reports, command-line help, studies, benchmarks, the tables of the documentation and
the tests derive from ``LOSSES``. A new loss is one function in ``desopt.kernels.losses``, one
entry here and one line in the tests' oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from desopt.contract.types import FloatArray
from desopt.kernels.losses import L2SVM, LR, LSVM, NSVM


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss as a function of the margin a = y z^T x of a row z with label y.

    It must be 0 at a = infinity, the margin that the kernels pad with.
    """

    #: The kernels' number for it.
    kind: int
    #: The name in figures and tables.
    title: str
    #: The model in words.
    model: str
    #: In terms of the margin a.
    formula: str
    #: The same in NumPy, for a vector of margins.
    reference: Callable[[FloatArray], FloatArray]
    convex: bool
    #: Whether the minimiser's scores estimate log-odds, and so tell probabilities.
    log_odds: bool = False


#: The three of the paper (section 5.1) in its order, then others.
LOSSES: dict[str, Loss] = {
    "lr": Loss(
        kind=LR,
        title="LR",
        model="logistic regression",
        formula="log(1 + exp(-a))",
        reference=lambda a: np.logaddexp(0.0, -a),
        convex=True,
        log_odds=True,
    ),
    "nsvm": Loss(
        kind=NSVM,
        title="NSVM",
        model="non-convex support vector machine",
        formula="1 - tanh(a)",
        reference=lambda a: 1.0 - np.tanh(a),
        convex=False,
    ),
    "lsvm": Loss(
        kind=LSVM,
        title="LSVM",
        model="linear support vector machine",
        formula="max(0, 1 - a)",
        reference=lambda a: np.maximum(0.0, 1.0 - a),
        convex=True,
    ),
    "l2svm": Loss(
        kind=L2SVM,
        title="L2SVM",
        model="support vector machine with squared hinge loss",
        formula="max(0, 1 - a)^2",
        reference=lambda a: np.maximum(0.0, 1.0 - a) ** 2,
        convex=True,
    ),
}
