"""A user's study, defined in a TOML file.

Keys at the top apply to all items; those of an item, ``[items.NAME]``, add to them or replace
them. A setting is a value or a list of values; the cases are all combinations.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from desopt import plugins
from desopt.contract.errors import check_name
from desopt.methods import METHODS
from desopt.studies import problems
from desopt.studies.builtin import BUILT_IN
from desopt.studies.cases import NAMES, Case, make_case
from desopt.studies.views import DEFAULT, View


class Definition(NamedTuple):
    """The study's name, its items, and the figures that its report shall have."""

    name: str
    items: dict[str, list[Case]]
    figures: tuple[View, ...]


#: Keys whose name differs from that of the field of ``Case``, being plural.
_LISTS = {"data": "data", "problems": "problem", "methods": "method"}
_GRIDS = tuple(name for name in NAMES if name not in (*_LISTS.values(), "run", "digest", "code"))
_KEYS = (*_LISTS, *_GRIDS, "runs", "seeds")
#: The largest number of cases of an item. A typing error should not fill the memory.
MAX_CASES = 1_000_000


def read(path: Path) -> Definition:
    """The study in this file."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file: give 'paper' or the path of a TOML file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"there is no study {str(path)!r}: give paper, {', '.join(BUILT_IN)}, bbob, or the "
            "path of a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    try:
        return _study(content, path.stem)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _study(content: dict[str, Any], stem: str) -> Definition:
    name, items = content.pop("name", stem), content.pop("items", None)
    wanted = _values("figures", content.pop("figures", [*map(str, DEFAULT)]))
    figures = tuple(dict.fromkeys(map(View.parse, wanted)))
    plugins.load(_names("plugins", content.pop("plugins", [])))
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a text, got {name!r}")
    if items is None:
        items = {name: {}}
    if not isinstance(items, dict) or not all(isinstance(item, dict) for item in items.values()):
        raise TypeError("items must be tables: [items.NAME], with the item's keys below it")
    if not items or "" in items:
        raise ValueError("items must have names: [items.NAME], with the item's keys below it")
    for key in content:
        check_name("key", key, ("name", "items", "plugins", "figures", *_KEYS))
    cases = {item: _cases(item, _merged(content, own)) for item, own in items.items()}
    return Definition(name, cases, figures)


def _merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The item's own keys take precedence, also over shared keys that they exclude."""
    for key in own:
        check_name("key", key, _KEYS)
    merged = {**shared, **own}
    for one, other in (("budget", "rounds"), ("runs", "seeds")):
        for mine, theirs in ((one, other), (other, one)):
            if mine in own and theirs not in own:
                merged.pop(theirs, None)
    return {"runs": 1, **merged}


def _cases(item: str, keys: dict[str, Any]) -> list[Case]:
    seeds = _seeds(keys.pop("runs"), keys.pop("seeds", None))
    grid = {_LISTS.get(key, key): _values(key, value) for key, value in keys.items()}
    for key, field in _LISTS.items():
        if field not in grid:
            raise ValueError(f"{key} is missing; item {item!r} needs a list of them")
    for method in grid["method"]:
        check_name("method", method, METHODS)
    for problem, data in product(grid["problem"], grid["data"]):
        problems.check(problem, data)
    count = math.prod(map(len, (seeds, *grid.values())))
    if count > MAX_CASES:
        raise ValueError(f"item {item!r} would have {count:,} cases, more than {MAX_CASES:,}")
    combinations = product(seeds, *grid.values())
    cases = (
        make_case(run=run, **dict(zip(grid, rest, strict=True))) for run, *rest in combinations
    )
    return list(dict.fromkeys(cases))  # a value listed twice, such as 1 and 1.0, is one case


def _values(key: str, value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(one, list | dict) for one in values):
        raise ValueError(f"{key} must be a value or a list of values, got {value!r}")
    return _names(key, values) if key in _LISTS else values


def _names(key: str, value: Any) -> list[str]:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in names):
        raise TypeError(f"{key} must be names, got {value!r}")
    return names


def _seeds(runs: Any, seeds: Any) -> Sequence[int]:
    """Seeds of the runs: 0, 1, ..., unless ``seeds`` are given."""
    if seeds is not None:
        return _values("seeds", seeds)
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise TypeError(f"runs must be a whole number of at least 1, got {runs!r}")
    return range(runs)
