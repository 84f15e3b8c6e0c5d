"""A study: named items, each a list of cases; the paper's, or one that a TOML file describes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from desopt._version import __version__
from desopt.contract.errors import check_name
from desopt.data import available
from desopt.studies import costs, runner, toml
from desopt.studies import paper as papers
from desopt.studies.cases import Case
from desopt.studies.identity import digest
from desopt.studies.leases import forget_failures
from desopt.studies.selection import distinct, select
from desopt.studies.store import Store


@dataclass(frozen=True)
class Study:
    """What is to be run."""

    name: str
    items: dict[str, list[Case]]
    #: All cases, whatever part of them ``items`` is.
    whole: dict[str, list[Case]]
    #: Whether results on data sets that it does not name are the study's as well.
    any_data: bool = False

    def only(self, selectors: Sequence[str]) -> Study:
        return replace(self, items=select(self.items, selectors))

    def on(self, digests: Mapping[str, str | None]) -> Study:
        """The same with the digests of its data sets in the cases to run."""
        items = {
            item: [replace(case, digest=digests[case.data]) for case in cases]
            for item, cases in self.items.items()
        }
        return replace(self, items=items)

    @property
    def data(self) -> list[str]:
        """The data sets of the cases to run."""
        return list(dict.fromkeys(case.data for case in self.cases))

    @property
    def cases(self) -> list[Case]:
        return distinct(self.items)


def paper(
    scale: str, data: Sequence[str] = (), rows: int | None = None, data_dir: str | None = None
) -> Study:
    """The paper's experiments at a scale, on these data sets or on the usual ones."""
    check_name("scale", scale, papers.SCALES)
    names = data or papers.default_data(scale, available(data_dir))
    items = papers.items(scale, names, rows, data_dir)
    # It is the same study on any data set: what is not at hand now may have been when it ran.
    return Study(f"paper {scale}", items, items, any_data=True)


def from_toml(path: Path) -> Study:
    """The study that a file describes."""
    name, items = toml.read(path)
    return Study(name, items, items)


class Membership:
    """Whether a case that is in a file belongs to a study as it is defined now.

    The study's settings decide, and the digest of the data as they are now. A result without
    a digest belongs to it until its data set is run again: one of ``renewed``. Where data are not
    at hand, what was the study's when it last ran still is.
    """

    def __init__(self, study: Study, data_dir: str | None, renewed: Iterable[str] = ()) -> None:
        self._settings = {item: set(cases) for item, cases in study.whole.items()}
        self._named = {case.data for cases in study.whole.values() for case in cases}
        self._any_data = study.any_data
        self._renewed = set(renewed)
        self._digest = cache(lambda name: digest_at_hand(name, data_dir))

    def __call__(self, item: str, case: Case, current: bool) -> bool:
        if case.data not in self._named:
            return self._any_data and current
        if replace(case, digest=None) not in self._settings.get(item, ()):
            return False
        if case.digest is None:
            return current and case.data not in self._renewed
        now = self._digest(case.data)
        return current if now is None else case.digest == now


def digest_at_hand(name: str, data_dir: str | None) -> str | None:
    try:
        return digest(name, data_dir)
    except FileNotFoundError:
        return None


def run(
    study: Study,
    folder: Path,
    jobs: int,
    data_dir: str | None = None,
    retry: bool = False,
    watch: Callable[[runner.Status], None] = lambda status: None,
) -> runner.Status:
    """Run what is not finished yet of a study, with results in this folder."""
    # What is missing is said now, not after hours.
    study = study.on({name: digest(name, data_dir) for name in study.data})
    with Store.open(folder, create=True) as store:
        _keep_apart(store, study, folder)
        _warn_of_unknown_data(store, study, folder)
        store.define(study.items, Membership(study, data_dir, study.data))
        if retry:
            forget_failures(store, study.cases)
        expected = costs.estimates(store, study.cases, data_dir)
        return runner.run(store, expected, jobs, data_dir, watch)


def _warn_of_unknown_data(store: Store, study: Study, folder: Path) -> None:
    """Results without a digest are never joined with others: nobody knows their data."""
    again = [case for case in store.cases() if case.digest is None and case.data in study.data]
    if again:
        warnings.warn(
            f"{len(again):,} cases in {folder} do not say which data they were run on, as in "
            "results of desopt 0.1: they are run again; desopt report --all shows the old ones too",
            stacklevel=3,
        )


def csv(study: Study, folder: Path, data_dir: str | None, everything: bool) -> list[Path]:
    """Write what is finished of the study as it is defined now; or of all that is there."""
    member = Membership(study, data_dir)
    with Store.open(folder) as store:
        _check_name(store, study, folder)
        chosen = [case.id for item, case, now in store.members() if member(item, case, now)]
        return store.to_csv(folder, None if everything else set(chosen))


def _check_name(store: Store, study: Study, folder: Path) -> None:
    found = store.about().get("study", study.name)
    if found != study.name:
        raise ValueError(
            f"{folder} holds the study {found!r}, not {study.name!r}; choose another --out"
        )


def _keep_apart(store: Store, study: Study, folder: Path) -> None:
    """One folder, one study: figures that mix two scales would say nothing."""
    _check_name(store, study, folder)
    store.note("study", study.name)
    store.note("version", __version__)
