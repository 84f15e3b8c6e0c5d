"""The selectors of ``--only``: a colon means and, a comma means or."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from desopt.contract.errors import check_name

T = TypeVar("T")


def selected(only: Sequence[str], what: str, named: Iterable[tuple[T, Sequence[str]]]) -> list[T]:
    """The things, given with their names, that at least one selector matches; all without any.

    ``curves:ijcnn1,covtype:lr`` matches those called curves, ijcnn1 or covtype, and lr.
    """
    things = list(named)
    wanted = [[part.split(",") for part in selector.split(":")] for selector in only]
    known = sorted({name for _, names in things for name in names})
    for name in (name for parts in wanted for part in parts for name in part):
        check_name("name in --only", name, known)

    def matches(names: Sequence[str]) -> bool:
        return any(all(any(n in names for n in part) for part in parts) for parts in wanted)

    found = [thing for thing, names in things if not wanted or matches(names)]
    if not found:
        raise ValueError(
            f"no {what} matches --only {' '.join(only)}; a colon means and, a comma means or"
        )
    return found
