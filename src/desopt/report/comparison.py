"""Settings compared over all instances by their performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.report import profiles
from desopt.report.select import Instance, Series, richest


@dataclass(frozen=True)
class Comparison:
    """Ratios (instances x solvers) of the instances on which every solver was run."""

    solvers: tuple[tuple[Any, ...], ...]
    instances: tuple[Instance, ...]
    ratios: FloatArray
    left_out: int  # instances that lack a solver

    def of(self, *solver: Any) -> FloatArray:
        """A solver's ratios."""
        return self.ratios[:, self.solvers.index(solver)]

    def solved(self, *solver: Any) -> int:
        return int(np.isfinite(self.of(*solver)).sum())


def compare(
    series: Sequence[Series], names: Sequence[str], delta: float, axis: str = "rounds"
) -> Comparison:
    """Compare what differs in these settings by the training loss, paying in units of ``axis``."""
    found = richest(series, *names)
    solvers = tuple(dict.fromkeys(key for group in found.values() for key in group))
    complete = {i: group for i, group in found.items() if len(group) == len(solvers)}
    costs = [
        profiles.instance_costs(
            [(group[key].x[axis], group[key].median("train_loss")) for key in solvers], delta
        )
        for group in complete.values()
    ]
    ratios = profiles.ratios(np.array(costs).reshape(len(complete), len(solvers)))
    return Comparison(solvers, tuple(complete), ratios, len(found) - len(complete))
