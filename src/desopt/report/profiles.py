"""Performance profiles (Dolan and More, 2002).

An instance is solved at the first point of a curve where f(x0) - f >= (1 - delta)(f(x0) - f*),
f* being the best value of all compared curves. A solver's ratio on an instance is its cost over
the least cost of all solvers; its profile rho(tau) is the share of the instances with a ratio of
at most tau. An unsolved instance costs infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.report.results import Instance, Series, by_settings

#: A curve: cost so far (0 at x0) and the value of f there.
Curve = tuple[FloatArray, FloatArray]


def first_reached(cost: FloatArray, values: FloatArray, target: float) -> float:
    """The cost at the first value not above the target; infinity without such a value."""
    reached = np.flatnonzero(values <= target)  # false for NaN
    return float(cost[reached[0]]) if reached.size else np.inf


def instance_costs(curves: Sequence[Curve], delta: float) -> FloatArray:
    """The cost of each curve until the instance is solved. All curves begin at x0."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
    start = float(curves[0][1][0])
    best = min(float(np.nanmin(values, initial=np.inf)) for _, values in curves)
    if not best < start:  # no progress at all
        return np.full(len(curves), np.inf)
    target = start - (1 - delta) * (start - best)
    return np.array([first_reached(cost, values, target) for cost, values in curves])


def cost_ratios(costs: FloatArray) -> FloatArray:
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
    """rho as a step function: from each tau on, this share is solved. Empty if nothing is."""
    tau, count = np.unique(ratio[np.isfinite(ratio)], return_counts=True)
    return tau, np.cumsum(count) / max(ratio.size, 1)


def score(ratio: FloatArray, limit: float) -> float:
    """The mean of rho over log tau from 1 to ``limit``; 1 means first on every instance."""
    left = np.log(limit / np.clip(ratio, 1, limit)) / np.log(limit)
    return float(np.mean(left)) if ratio.size else 0.0


@dataclass(frozen=True)
class Comparison:
    """The ratios (instances x solvers) on the instances that all solvers were run on."""

    solvers: tuple[tuple[Any, ...], ...]
    instances: tuple[Instance, ...]
    ratios: FloatArray

    def of(self, *solver: Any) -> FloatArray:
        """The ratios of a solver."""
        return self.ratios[:, self.solvers.index(solver)]

    def solved(self, *solver: Any) -> int:
        return int(np.isfinite(self.of(*solver)).sum())


def compare(
    series: Sequence[Series], names: Sequence[str], delta: float, cost: str = "rounds"
) -> Comparison:
    """Compare the values of these settings by training loss against ``cost``."""
    found = by_settings(series, *names)
    solvers = tuple(dict.fromkeys(key for group in found.values() for key in group))
    complete = {i: group for i, group in found.items() if len(group) == len(solvers)}
    costs = [
        instance_costs(
            [(group[key].x[cost], group[key].median("train_loss")) for key in solvers], delta
        )
        for group in complete.values()
    ]
    ratios = cost_ratios(np.array(costs).reshape(len(complete), len(solvers)))
    return Comparison(solvers, tuple(complete), ratios)
