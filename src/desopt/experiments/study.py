"""A study: named items, each a list of cases; the paper's, or one that a TOML file describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from desopt._version import __version__
from desopt.data import available, find
from desopt.data.twins import TWINS
from desopt.experiments import costs, runner, toml
from desopt.experiments import paper as papers
from desopt.experiments.cases import Case
from desopt.experiments.claims import forget_failures
from desopt.experiments.selection import distinct, select
from desopt.experiments.store import Store
from desopt.types import check_name


@dataclass(frozen=True)
class Study:
    """What is to be run."""

    name: str
    items: dict[str, list[Case]]

    def only(self, selectors: Sequence[str]) -> Study:
        return replace(self, items=select(self.items, selectors))

    @property
    def cases(self) -> list[Case]:
        return distinct(self.items)


def paper(
    scale: str, data: Sequence[str] = (), rows: int | None = None, data_dir: str | None = None
) -> Study:
    """The paper's experiments at a scale, on these data sets or on the usual ones."""
    check_name("scale", scale, papers.SCALES)
    names = data or papers.default_data(scale, available(data_dir))
    return Study(f"paper {scale}", papers.items(scale, names, rows))


def from_toml(path: Path) -> Study:
    """The study that a file describes."""
    return Study(*toml.read(path))


def run(
    study: Study,
    folder: Path,
    jobs: int,
    data_dir: str | None = None,
    retry: bool = False,
    watch: Callable[[runner.Status], None] = lambda status: None,
) -> runner.Status:
    """Run what is not finished yet of a study, with results in this folder."""
    for name in dict.fromkeys(case.data for case in study.cases):
        if name not in TWINS:
            find(name, data_dir)  # what is missing is said now, not after hours
    with Store.open(folder, create=True) as store:
        _keep_apart(store, study, folder)
        store.add(study.items)
        if retry:
            forget_failures(store, study.cases)
        expected = costs.estimates(store, study.cases, data_dir)
        return runner.run(store, expected, jobs, data_dir, watch)


def _keep_apart(store: Store, study: Study, folder: Path) -> None:
    """One folder, one study: figures that mix two scales would say nothing."""
    found = store.about().get("study", study.name)
    if found != study.name:
        raise ValueError(
            f"{folder} holds the study {found!r}, not {study.name!r}; choose another --out"
        )
    store.note("study", study.name)
    store.note("version", __version__)
