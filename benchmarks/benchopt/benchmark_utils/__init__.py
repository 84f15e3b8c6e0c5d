"""The paper's losses in plain NumPy: the judge of all solvers, and the values of those not ours."""

import numpy as np

#: Of the margins a = y z^T x, by the names of desopt.
LOSSES = {
    "lr": lambda a: np.logaddexp(0.0, -a),
    "nsvm": lambda a: 1.0 - np.tanh(a),
    "lsvm": lambda a: np.maximum(0.0, 1.0 - a),
}


def value(x, X, y, loss, regularization):
    """f(x) over these rows."""
    return float(np.mean(LOSSES[loss](y * (X @ x))) + 0.5 * regularization * (x @ x))
