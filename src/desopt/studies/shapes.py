"""What is known of a data set without reading it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from desopt.data.catalogue import CATALOGUE, load
from desopt.data.twins import TWINS


@dataclass(frozen=True)
class Shape:
    """N, n and the non-zeros of a row."""

    rows: int
    n: int
    nonzeros: float
    generated: bool = False


@cache
def shape(name: str, data_dir: str | None = None) -> Shape:
    """The published shape of a known set or twin; a file of the user's own is read."""
    if name in CATALOGUE:
        known = CATALOGUE[name]
        return Shape(known.rows, known.n, known.nonzeros / known.rows)
    if name in TWINS:
        twin = TWINS[name]
        return Shape(twin.rows, twin.n, twin.nonzeros, generated=True)
    found = load(name, data_dir=data_dir)
    return Shape(found.rows, found.n, found.density * found.n)
