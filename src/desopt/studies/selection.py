"""``--only``: a part of a study, by the names of items, data sets, problems and methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from desopt.contract.errors import check_name
from desopt.studies.cases import Case

#: The items of a study, by name.
Items = Mapping[str, Sequence[Case]]


def select(items: Items, only: Sequence[str]) -> dict[str, list[Case]]:
    """The cases that one of the selectors asks for; all of them without a selector.

    A selector is names with colons between: ``curves:ijcnn1,covtype:lr`` means the item curves,
    and one of these two data sets, and the problem lr. A name says by itself what it is.
    """
    if not only:
        return {item: list(cases) for item, cases in items.items()}
    wanted = [[part.split(",") for part in selector.split(":")] for selector in only]
    known = sorted(
        {name for item, cases in items.items() for c in cases for name in _names(item, c)}
    )
    for name in (name for parts in wanted for part in parts for name in part):
        check_name("name in --only", name, known)
    chosen = {
        item: [case for case in cases if _asked(_names(item, case), wanted)]
        for item, cases in items.items()
    }
    return {item: cases for item, cases in chosen.items() if cases}


def _names(item: str, case: Case) -> tuple[str, ...]:
    return item, case.data, case.problem, case.method


def _asked(names: tuple[str, ...], wanted: Sequence[Sequence[Sequence[str]]]) -> bool:
    return any(all(any(n in names for n in part) for part in parts) for parts in wanted)


def distinct(items: Items) -> list[Case]:
    """The cases of all items, each once."""
    return list(dict.fromkeys(case for cases in items.values() for case in cases))
