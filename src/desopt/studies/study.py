"""A study: named items, each a list of cases; the paper's, or one defined in a TOML file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from desopt._version import __version__
from desopt.contract.errors import check_name
from desopt.data import available
from desopt.studies import paper as papers
from desopt.studies import runner, toml
from desopt.studies.builtin import BUILT_IN
from desopt.studies.cases import Case
from desopt.studies.datasets import digest, digest_if_available, dimensions
from desopt.studies.estimates import Estimates
from desopt.studies.export import write_csv
from desopt.studies.leases import forget_failures
from desopt.studies.output import short
from desopt.studies.problems import NO_DATA, code
from desopt.studies.selectors import selected
from desopt.studies.store import Store
from desopt.studies.views import View

#: The cases of a study by item.
Items = Mapping[str, Sequence[Case]]


@dataclass(frozen=True)
class Study:
    """The cases to run (``items``), out of all cases of the study (``whole``)."""

    name: str
    items: dict[str, list[Case]]
    whole: dict[str, list[Case]]
    #: Whether results on data sets that the study does not name belong to it as well.
    any_data: bool = False
    #: The figures of its report, for a study of one's own.
    figures: tuple[View, ...] = ()

    def only(self, selectors: Sequence[str]) -> Study:
        """The part of the study that the selectors of ``--only`` ask for."""
        return replace(self, items=select_cases(self.items, selectors))

    def with_digests(self, digests: Mapping[str, str | None]) -> Study:
        """The study with the digests of its data sets and Python code in the cases to run."""
        items = {
            item: [_identified(case, digests[case.data], code(case.problem)) for case in cases]
            for item, cases in self.items.items()
        }
        return replace(self, items=items)

    @property
    def data(self) -> list[str]:
        """The data sets of the cases to run."""
        return list(dict.fromkeys(case.data for case in self.cases))

    @property
    def cases(self) -> list[Case]:
        """The cases to run. A case of several items is listed once."""
        return distinct_cases(self.items)


def _identified(case: Case, digest: str | None, code: str | None) -> Case:
    found = replace(case, digest=digest)
    return found if found.code == code else found.varied(code=code)


def distinct_cases(items: Items) -> list[Case]:
    return list(dict.fromkeys(case for cases in items.values() for case in cases))


def select_cases(items: Items, only: Sequence[str]) -> dict[str, list[Case]]:
    """The cases matched by at least one selector; all cases without selectors.

    A selector is a list of names separated by colons: ``curves:ijcnn1,covtype:lr`` is the item
    curves, on one of these two data sets, with the problem lr. Names of items, data sets,
    problems, methods and partitions need no prefix.
    """
    if not only:
        return {item: list(cases) for item, cases in items.items()}
    named = (((i, c), _names(i, c)) for i, cases in items.items() for c in cases)
    chosen: dict[str, list[Case]] = {}
    for item, case in selected(only, "case", named):
        chosen.setdefault(item, []).append(case)
    return chosen


def _names(item: str, case: Case) -> tuple[str, ...]:
    return item, case.data, case.problem, case.method, case.partition


def paper(
    scale: str, data: Sequence[str] = (), rows: int | None = None, data_dir: str | None = None
) -> Study:
    """The paper's experiments at a scale, on these data sets or on the scale's own."""
    check_name("scale", scale, papers.SCALES)
    names = data or papers.default_data(scale, available(data_dir))
    items = papers.items(scale, names, rows, data_dir)
    # One study for any choice of data sets: results of earlier runs on others remain part of it.
    return Study(f"paper {scale}", items, items, any_data=True)


def built_in(name: str, scale: str | None = None, data_dir: str | None = None) -> Study:
    """One of the other studies that come with desopt (``builtin.BUILT_IN``)."""
    chosen, items = BUILT_IN[name].items(scale, data_dir)
    return Study(f"{name} {chosen}", items, items)


def from_toml(path: Path) -> Study:
    """The study that a file defines."""
    name, items, figures = toml.read(path)
    return Study(name, items, items, figures=figures)


class CurrentCases:
    """Decides whether a stored case belongs to a study as it is defined now.

    It does if the study has a case with the same settings and the data have not changed (same
    digest). If the data are not on this machine, the case keeps its status. A result without a
    digest keeps its status too, until its data set is run again (``renewed``).
    """

    def __init__(self, study: Study, data_dir: str | None, renewed: Iterable[str] = ()) -> None:
        self._settings = {item: set(cases) for item, cases in study.whole.items()}
        self._named = {case.data for cases in study.whole.values() for case in cases}
        self._any_data = study.any_data
        self._renewed = set(renewed)
        self._digest = cache(lambda name: digest_if_available(name, data_dir))

    def __call__(self, item: str, case: Case, was_current: bool) -> bool:
        if case.data not in self._named:
            return self._any_data and was_current
        if _identified(case, None, None) not in self._settings.get(item, ()):
            return False
        if case.code is not None and case.code != code(case.problem):
            return False
        if case.digest is None:
            return was_current and case.data not in self._renewed
        now = self._digest(case.data)
        return was_current if now is None else case.digest == now


def run(
    study: Study,
    folder: Path,
    jobs: int,
    data_dir: str | None = None,
    retry: bool = False,
    watch: Callable[[runner.RunStatus], None] = lambda status: None,
) -> runner.RunStatus:
    """Run the unfinished cases of a study, ``jobs`` at a time; the results go to ``folder``.

    ``retry`` also runs cases that have failed. ``watch`` is called twice a second.
    """
    # A data set that is missing or too small is reported now, not after hours.
    study = study.with_digests({name: digest(name, data_dir) for name in study.data})
    check_rows(study, data_dir)
    with Store.open(folder, create=True) as store:
        _check_name(store, study, folder)
        store.note("study", study.name)
        store.note("version", __version__)
        if study.figures:
            store.note("figures", " ".join(map(str, study.figures)))
        _warn_of_unknown_data(store, study, folder)
        store.define(study.items, CurrentCases(study, data_dir, study.data))
        if retry:
            forget_failures(store, study.cases)
        estimates = Estimates(data_dir, store.timings())
        return runner.run(store, study.cases, estimates, jobs, watch)


def check_rows(study: Study, data_dir: str | None) -> None:
    """Refuse cases with more rows than their data set has: all of them would fail."""
    wanted = {(case.data, case.rows) for case in study.cases if case.rows is not None}
    for name, rows in sorted(wanted):
        if name != NO_DATA and rows > (most := dimensions(name, data_dir).rows):
            raise ValueError(
                f"rows is {rows:,}, but {short(name)} has {most:,}: take fewer, or leave rows out "
                "for all; items may have rows of their own"
            )


def _check_name(store: Store, study: Study, folder: Path) -> None:
    """One folder, one study: figures that mix two scales would be meaningless."""
    found = store.about().get("study", study.name)
    if found != study.name:
        raise ValueError(
            f"{folder} contains the study {found!r}, not {study.name!r}; choose another --out"
        )


def _warn_of_unknown_data(store: Store, study: Study, folder: Path) -> None:
    """Results without a digest are never combined with others: their data are unknown."""
    again = [case for case in store.cases() if case.digest is None and case.data in study.data]
    if again:
        warnings.warn(
            f"{len(again):,} cases in {folder} do not record which data they were run on, as in "
            "results of desopt 0.1: they are run again; desopt report --all also shows the old "
            "results",
            stacklevel=3,
        )


def export_csv(
    study: Study, folder: Path, data_dir: str | None, include_former: bool = False
) -> list[Path]:
    """Write the finished cases of the study as it is defined now, or all cases, as CSV files."""
    is_current = CurrentCases(study, data_dir)
    with Store.open(folder) as store:
        _check_name(store, study, folder)
        chosen = {case.id for item, case, now in store.members() if is_current(item, case, now)}
        return write_csv(store, folder, None if include_former else chosen)
