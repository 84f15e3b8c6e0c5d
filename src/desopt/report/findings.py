"""What a report says about a study: verdicts, tables, figures, and the curves of the page.

A built-in study has a module here with a function ``findings(results) -> Findings``, entered in
``REPORTS`` by the name of the study. ``Results`` has all series of the study by item
(``results.item("name")``), each a median curve with quartiles; ``verdicts.Claim`` and ``conclude``
are for claims, ``tables.Table`` for tables, ``figures.PlannedFigure`` and ``drawing`` for figures.
The paper's study, and studies of one's own, have the findings below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from desopt.report import figures, tables
from desopt.report.claims import judge
from desopt.report.figures import PlannedFigure
from desopt.report.results import Results, Series
from desopt.report.tables import Table
from desopt.report.verdicts import Claim, departures


@dataclass(frozen=True)
class Findings:
    """The content of a report."""

    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[PlannedFigure] = ()
    #: The series that the page draws, by item: a choice, where there are thousands.
    shown: Mapping[str, Sequence[Series]] | None = None
    #: The series of its performance profiles; None: those that are shown.
    profiled: Mapping[str, Sequence[Series]] | None = None
    #: Whether the page shows the figures: where they say more than its curves.
    illustrated: bool = False
    #: The heading of the claims, and the sentence below it.
    heading: str = "Claims"
    intro: str = "Each is decided by a fixed rule from the results alone."
    #: How the settings differ from those that the claims are about; empty if they do not.
    departed: str = ""


#: The modules of reports by the name of the study.
REPORTS: dict[str, str] = {
    "heterogeneity": "desopt.report.heterogeneity",
    "rivals": "desopt.report.rivals",
    "stepsize": "desopt.report.stepsize",
}


def find(results: Results) -> Findings:
    """The findings of the study that the results are of."""
    name = results.about.get("study", "").partition(" ")[0]
    if name in REPORTS:
        module: Any = import_module(REPORTS[name])
        found: Findings = module.findings(results)
        return found
    return Findings(
        claims=judge(results) if results.of_paper else (),
        tables=tables.tables(results),
        figures=figures.planned(results),
        profiled=results.divided()[0].items if results.of_paper else None,
        heading="Claims of the paper",
        intro="The paper's claims, each decided by a fixed rule from the results alone.",
        departed=departures(results),
    )
