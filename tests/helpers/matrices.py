"""Functions of a matrix with the bits of plain ones: sums in the same order, row by row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desopt import METHODS
from desopt.data import as_shards
from desopt.engines import Job
from desopt.objectives import PythonObjective, VectorizedObjective
from helpers.searching import make

Floats = NDArray[np.float64]
N, M = 5, 4
RANDOM = np.random.default_rng(0)
DATA = np.round(8 * RANDOM.standard_normal((52, N))), np.arange(52.0)
START = np.linspace(-1.0, 1.0, N)


def square(x: Floats) -> float:
    return float(squares(x[None])[0])


def squares(X: Floats) -> Floats:
    found = np.zeros(len(X))
    for column in X.T:
        found += column * column
    return found


def residual(x: Floats, batch: Any) -> float:
    return float(residuals(x[None], tuple(array[None] for array in batch))[0])


def residuals(X: Any, batch: Any) -> Any:
    """The mean of squares, for batches (points, rows, n) and (points, rows) of any library."""
    A, y = batch
    errors = -y
    for j in range(X.shape[1]):
        errors = errors + A[:, :, j] * X[:, j, None]
    found = 0.0
    for row in range(errors.shape[1]):
        found = found + errors[:, row] * errors[:, row]
    return found / errors.shape[1]


def job_of(fun: Any, name: str, data: Any = None, matrix: bool = True, **changes: Any) -> Job:
    """A job of M workers, or of one for a method without more."""
    workers = 1 if METHODS[name].single_worker else M
    algorithm = make(name, **{"iterations": 6, "radius": 0.01, "step_size": 0.1, **changes})
    objective = VectorizedObjective(fun) if matrix else PythonObjective(fun)
    shards = objective.prepare(as_shards(data, workers, 0))
    return Job(algorithm, objective, shards, 7, 0, N)
