"""Performance profiles (Dolan and More, 2002), as pure functions of numbers.

An instance is solved at the first point of a curve where f(x0) - f >= (1 - delta)(f(x0) - f*),
f* being the best value that any of the compared curves reached. A solver's ratio on an instance
is its cost there over the least cost of all; its profile rho(tau) is the share of the instances
with a ratio of at most tau. What is not solved costs infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from desopt.contract.types import FloatArray

#: A curve: cost so far (0 at x0) and the value of f there.
Curve = tuple[FloatArray, FloatArray]


def first_reached(cost: FloatArray, values: FloatArray, target: float) -> float:
    """The cost at the first value that is not above the target; infinity if there is none."""
    reached = np.flatnonzero(values <= target)  # false for NaN
    return float(cost[reached[0]]) if reached.size else np.inf


def instance_costs(curves: Sequence[Curve], delta: float) -> FloatArray:
    """What each curve of one instance cost until it was solved. All of them begin at x0."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
    start = float(curves[0][1][0])
    best = min(float(np.nanmin(values, initial=np.inf)) for _, values in curves)
    if not best < start:  # nobody came anywhere
        return np.full(len(curves), np.inf)
    target = start - (1 - delta) * (start - best)
    return np.array([first_reached(cost, values, target) for cost, values in curves])


def ratios(costs: FloatArray) -> FloatArray:
    """Costs, instances x solvers, over the least of their row; infinity where unsolved."""
    costs = np.asarray(costs, dtype=np.float64)
    least = np.min(costs, axis=1, keepdims=True, initial=np.inf)
    result = np.full(costs.shape, np.inf)
    np.divide(costs, least, out=result, where=np.isfinite(costs))
    return result


def share(ratio: FloatArray, tau: float) -> float:
    """rho(tau) of one solver, from its ratio on every instance."""
    return float(np.mean(ratio <= tau)) if ratio.size else 0.0


def staircase(ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """rho as steps: from each tau on, this share is solved. Empty when nothing is."""
    tau, count = np.unique(ratio[np.isfinite(ratio)], return_counts=True)
    return tau, np.cumsum(count) / max(ratio.size, 1)


def score(ratio: FloatArray, limit: float) -> float:
    """The mean of rho over the logarithm of tau from 1 to ``limit``: 1 is first everywhere."""
    left = np.log(limit / np.clip(ratio, 1, limit)) / np.log(limit)
    return float(np.mean(left)) if ratio.size else 0.0
