"""Claims and verdicts, and the tools that the rules share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desopt.report import names
from desopt.report.results import Instance, Results, Series, by_settings
from desopt.studies.paper import SCALES

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not enough data"

#: Fewer instances decide nothing. Three are the three problems on one data set.
MIN_INSTANCES = 3
MAX_EXCEPTIONS = 8  # exceptions listed by name

_FULL = SCALES["full"]
#: The paper's settings and number of runs.
PAPER: dict[str, set[Any]] = {
    "workers": {10},
    "batch_size": {1000},
    "iterations": {_FULL.low[0], _FULL.high[0]},
    "budget": {_FULL.low[1], _FULL.high[1]},
    "rows": {_FULL.rows},
}
RUNS = _FULL.runs


@dataclass(frozen=True)
class Claim:
    """A claim, the verdict, the numbers behind it, and the rule (``definition``).

    ``further``: verdict and numbers on data sets that the claim is not about.
    """

    text: str
    source: str
    verdict: str
    numbers: str
    definition: str
    further: str = ""


def conclude(
    text: str, source: str, definition: str, instances: int, holds: bool, numbers: str
) -> Claim:
    """The verdict; ``UNKNOWN`` with too few instances."""
    if instances < MIN_INSTANCES:
        numbers = f"{count(instances)} complete; {MIN_INSTANCES} are needed"
        return Claim(text, source, UNKNOWN, numbers, definition)
    return Claim(text, source, HOLDS if holds else FAILS, numbers, definition)


def count(number: int) -> str:
    return f"{number} instance{'' if number == 1 else 's'}"


def tally(good: Mapping[Instance, bool], generated: Iterable[Instance] = ()) -> str:
    """``21 of 24 instances; exceptions: ...``."""
    made = set(generated)
    text = f"{sum(good.values())} of {count(len(good))}"
    if both := made & good.keys():
        text += f" ({len(both)} on generated data)"
    bad = [names.instance(i, i in made) for i, ok in good.items() if not ok]
    more = f" and {len(bad) - MAX_EXCEPTIONS} more" if len(bad) > MAX_EXCEPTIONS else ""
    return text + (f"; exceptions: {', '.join(bad[:MAX_EXCEPTIONS])}{more}" if bad else "")


def on_generated(tuned: Mapping[Instance, Mapping[str, Series]]) -> set[Instance]:
    return {i for i, group in tuned.items() if any(s.generated for s in group.values())}


def tuned(results: Results, methods: Sequence[str]) -> dict[Instance, dict[str, Series]]:
    """Each method with its best step size, on instances with the whole grid of step sizes."""
    found = by_settings(results.item("curves"), "method", "step_size")
    grid = {step for group in found.values() for _, step in group}
    result = {}
    for instance, group in found.items():
        if all((method, step) in group for method in methods for step in grid):
            result[instance] = {
                method: min(
                    (group[method, step] for step in sorted(grid, key=names.size)), key=Series.final
                )
                for method in methods
            }
    return result


def departures(results: Results) -> str:
    """How the settings of the comparison differ from the paper's; empty if they agree."""
    series = results.item("curves")
    found = []
    for name, allowed in PAPER.items():
        values = {getattr(s.case, name) for s in series} - allowed
        if values:
            shown = sorted(values, key=lambda value: (value is None, value))
            found.append(", ".join(names.setting(name, value) for value in shown))
    if series and max(s.runs for s in series) < RUNS:
        found.append(f"at most {max(s.runs for s in series)} runs")
        return "; ".join(found)
    for data in names.in_order({s.case.data for s in series}, names.DATA):
        runs = min(s.runs for s in series if s.case.data == data)
        if runs < RUNS:
            found.append(f"{runs} runs on {names.data(data, False)}")
    return "; ".join(found)
