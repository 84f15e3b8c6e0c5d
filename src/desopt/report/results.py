"""The results of a study, summarised: medians and quartiles of the runs, best step sizes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desopt.contract.errors import headline
from desopt.contract.types import FloatArray
from desopt.report.names import ITEMS, METRICS, in_order, paper_rows, size
from desopt.studies.cases import FIELDS, NAMES, Case
from desopt.studies.outcomes import Outcome
from desopt.studies.output import printable
from desopt.studies.store import ItemProgress, Store
from desopt.studies.views import DEFAULT, View

#: Fields of a case that are not settings: they identify the instance, the method and the run.
IDENTIFYING = ("data", "digest", "problem", "code", "method", "run")

Instance = tuple[str, str]  # problem and data set
Band = tuple[FloatArray, FloatArray, FloatArray]  # lower quartile, median, upper quartile


@dataclass(frozen=True)
class Series:
    """All runs of one setting, as a median curve with quartiles.

    ``x`` are the costs (``names.COSTS``), ``y`` the metrics (``names.METRICS``) of its points.
    Rounds are the paper's; evaluations are values of F.
    """

    case: Case  # of the first run
    runs: int
    generated: bool
    x: Mapping[str, FloatArray]
    y: Mapping[str, Band]

    @property
    def instance(self) -> Instance:
        return self.case.problem, self.case.data

    def median(self, metric: str) -> FloatArray:
        return self.y[metric][1]

    def final(self, metric: str = "train_loss") -> float:
        return float(self.median(metric)[-1])

    @property
    def start(self) -> float:
        """The training loss at x0."""
        return float(self.median("train_loss")[0])


@dataclass(frozen=True)
class Results:
    """The results in a folder."""

    items: Mapping[str, Sequence[Series]]
    outcomes: Sequence[Outcome]
    progress: Sequence[ItemProgress]
    about: Mapping[str, str]
    former: int = 0  # results not included: cases that the study no longer has

    @property
    def of_paper(self) -> bool:
        """Whether any of the paper's items is among the results."""
        return bool(self.items.keys() & ITEMS.keys())

    @property
    def views(self) -> Sequence[View]:
        """The figures that a user's study asks for."""
        wanted = self.about.get("figures", "").split()
        return [View.parse(text) for text in wanted] or DEFAULT

    def item(self, name: str) -> Sequence[Series]:
        return self.items.get(name, ())

    def divided(self) -> tuple[Results, Results]:
        """The results on the paper's data sets or their stand-ins, and those on further ones."""
        found = {s.case.data for series in self.items.values() for s in series}
        papers = {name for row in paper_rows(found) for name in row}
        return self._on(papers), self._on(found - papers)

    def _on(self, data: Collection[str]) -> Results:
        items = {
            name: [s for s in series if s.case.data in data] for name, series in self.items.items()
        }
        outcomes = [o for o in self.outcomes if o.case.data in data]
        return replace(self, items=items, outcomes=outcomes)


def _nothing(folder: str | os.PathLike[str], failed: Sequence[Outcome]) -> str:
    """Why there is nothing to report, and what to do."""
    nothing = f"no run in {str(folder)!r} has finished yet, so there is nothing to report; "
    if not failed:
        return nothing + "continue it with desopt suite"
    why = printable(headline(failed[0].message))
    return nothing + f"{len(failed):,} failed: {why}; desopt suite --retry runs them again"


def read_results(
    folder: str | os.PathLike[str], include_former: bool = False, *, seconds: float | None = None
) -> Results:
    """The finished cases of a study, from the folder that ``desopt suite`` wrote.

    ``include_former``: also cases that the study no longer has, and results on data that have
    changed since, as separate data sets. ``seconds``: reading is given up after so long.
    """
    with Store.open(folder, seconds=seconds) as store:
        outcomes, about = store.read(include_former=include_former), store.about()
        members: dict[str, set[str]] = {}
        current = set()
        for item, case, now in store.members():
            current |= {case} if now else set()
            if now or include_former:
                members.setdefault(item, set()).add(case.id)
        progress = store.items(include_former)
        former = store.result_count() - len(outcomes)
    if not any(o.status == "done" for o in outcomes):
        raise ValueError(_nothing(folder, outcomes))
    shown = separate_data(outcomes, current)
    items = {
        name: summarise(shown[id] for id in shown if id in members[name])
        for name in in_order(members, ITEMS)
    }
    found = {name: series for name, series in items.items() if series}
    return Results(found, list(shown.values()), progress, about, former)


def separate_data(outcomes: Sequence[Outcome], current: Collection[Case]) -> dict[str, Outcome]:
    """The outcomes by case id; former data sets get the digest in their name."""
    now, met = _digests(current), _digests(o.case for o in outcomes)
    plain = {data: found for data, found in met.items() if len(found) == 1} | now
    shown = {}
    for o in outcomes:
        case = o.case
        if case.digest not in plain.get(case.data, ()):
            digest = f"digest {case.digest[:8]}" if case.digest else "no digest"
            case = replace(case, data=f"{case.data} ({digest})")
        shown[o.case.id] = replace(o, case=case)
    return shown


def _digests(cases: Iterable[Case]) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for case in cases:
        found.setdefault(case.data, set()).add(case.digest)
    return found


def summarise(outcomes: Iterable[Outcome]) -> list[Series]:
    """One series per setting, in the order of the first runs, without failed runs."""
    groups: dict[tuple[Any, ...], list[Outcome]] = {}
    for o in outcomes:
        if o.status == "done":
            key = tuple(getattr(o.case, name) for name in FIELDS if name != "run")
            groups.setdefault(key, []).append(o)
    return [_series(runs) for runs in groups.values()]


def _series(runs: Sequence[Outcome]) -> Series:
    # A run that stopped early has fewer points: take the points that all runs share.
    common = set.intersection(*(set(run.curve["round"]) for run in runs))
    rows = [np.isin(run.curve["round"], list(common)) for run in runs]

    def column(name: str) -> FloatArray:
        pairs = zip(runs, rows, strict=True)
        return np.array([run.curve[name][at] for run, at in pairs], dtype=np.float64)

    x = {
        "rounds": column("paper_round"),
        "evaluations": column("samples"),
        "upload": column("bytes_up"),
        "bytes": column("bytes_up") + column("bytes_down"),
        "seconds": column("seconds"),
    }
    return Series(
        case=runs[0].case,
        runs=len(runs),
        generated=runs[0].generated,
        x={name: np.median(values, axis=0) for name, values in x.items()},
        y={name: quartiles(column(name)) for name in METRICS},
    )


def quartiles(values: FloatArray) -> Band:
    """25, 50 and 75 % over the runs (rows). A run with NaN counts as the worst."""
    ordered = np.sort(np.where(np.isnan(values), np.inf, values), axis=0)

    def at(share: float) -> FloatArray:  # np.quantile gives NaN between finite and inf
        place, rest = divmod(share * (len(ordered) - 1), 1)
        low: FloatArray = ordered[int(place)]
        return low if rest == 0 else (1 - rest) * low + rest * ordered[int(place) + 1]

    return at(0.25), at(0.5), at(0.75)


def varying(series: Sequence[Series]) -> tuple[str, ...]:
    """The compared settings: those that differ within an instance and method.

    Settings that follow from the method (its mixture, say) or from the data set are not compared.
    Where there is a rule beside fixed step sizes, it is compared with the best of them.
    """
    names = [name for name in (*NAMES, "step_rule") if name not in IDENTIFYING]
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for s in series:
        groups.setdefault((*s.instance, s.case.method), []).append(s.case)
    found = [
        name
        for name in names
        if any(len({getattr(case, name) for case in cases}) > 1 for cases in groups.values())
    ]
    methods = {s.case.method for s in series}
    return ("method", *found) if len(methods) > 1 else tuple(found)


def best_steps(series: Sequence[Series]) -> list[Series]:
    """For every setting, the step size with the least final training loss (median of the runs)."""
    others = [name for name in varying(series) if name not in ("method", "step_size")]
    best: dict[tuple[Any, ...], Series] = {}
    for s in series:
        key = (*s.instance, s.case.method, *(getattr(s.case, name) for name in others))
        rank = (s.final(), size(s.case.step_size))
        if key not in best or rank < (best[key].final(), size(best[key].case.step_size)):
            best[key] = s
    return list(best.values())


def by_settings(
    series: Iterable[Series], *names: str
) -> dict[Instance, dict[tuple[Any, ...], Series]]:
    """The series by instance and values of these settings.

    If several series agree in them, as at several scales, the one with the largest budget counts.
    """
    result: dict[Instance, dict[tuple[Any, ...], Series]] = {}
    for s in series:
        found = result.setdefault(s.instance, {})
        key = tuple(getattr(s.case, name) for name in names)
        if key not in found or _spent(s) > _spent(found[key]):
            found[key] = s
    return result


def _spent(s: Series) -> tuple[float, int]:
    return float(s.x["evaluations"][-1]), s.runs
