"""Progress on the instances of the study ``rivals``, at equal round trips and at equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from desopt.report.results import Series
from desopt.studies.rivals import Instance, chosen

#: The series of every instance by method, one for each of its step sizes.
Found: TypeAlias = Mapping[Instance, Mapping[str, Sequence[Series]]]

#: The comparisons, with their titles.
BASES = {"rounds": "equal round trips", "upload": "equal bytes"}


@dataclass(frozen=True)
class Comparison:
    """The progress of methods on instances, on one basis; ``auto`` methods end in " auto"."""

    basis: str
    progress: Mapping[Instance, Mapping[str, float]]

    def of(self, partition: str) -> dict[Instance, Mapping[str, float]]:
        return {i: found for i, found in self.progress.items() if i.partition == partition}


def _name(series: Series) -> str:
    auto = series.case.step_size == "auto"
    return f"{series.case.method} auto" if auto else series.case.method


def by_instance(series: Iterable[Series]) -> dict[Instance, dict[str, list[Series]]]:
    """All series of an instance by method, one for each of its step sizes."""
    found: dict[Instance, dict[str, list[Series]]] = {}
    for s in series:
        key = Instance(s.case.data, s.case.problem, s.case.partition)
        found.setdefault(key, {}).setdefault(_name(s), []).append(s)
    return found


def loss_at(s: Series, basis: str, budget: float) -> float:
    """The median training loss where the cost reaches the budget."""
    return float(np.interp(budget, s.x[basis], s.median("train_loss")))


def budget_of(group: Mapping[str, Sequence[Series]], basis: str) -> float:
    """The cost of the most frugal method's whole run."""
    return min(float(s.x[basis][-1]) for series in group.values() for s in series)


def with_chosen_step(series: Sequence[Series], basis: str) -> Series:
    """That with the step size that was chosen for the basis, if there are two."""
    s, case = series[0], series[0].case
    if len(series) == 1:
        return s
    step = chosen(Instance(case.data, case.problem, case.partition), case.method)[basis == "upload"]
    return next(s for s in series if s.case.step_size == step)


def loss_of(series: Sequence[Series], basis: str, budget: float) -> float:
    """The same for a method, with the step size chosen for the basis."""
    return loss_at(with_chosen_step(series, basis), basis, budget)


def least_losses(found: Found) -> dict[Any, float]:
    """f* by data set and problem."""
    least: dict[Any, float] = {}
    for i, group in found.items():
        ends = [s.final() for series in group.values() for s in series]
        least[i.data, i.problem] = min([*ends, least.get((i.data, i.problem), np.inf)])
    return least


def compare(found: Found, basis: str) -> Comparison:
    """The progress of every method at the least budget of all."""
    least, progress = least_losses(found), {}
    for i, group in found.items():
        budget = budget_of(group, basis)
        start = next(iter(group.values()))[0].start
        whole = start - least[i.data, i.problem]
        progress[i] = {
            name: (start - loss_of(series, basis, budget)) / whole for name, series in group.items()
        }
    return Comparison(basis, progress)
