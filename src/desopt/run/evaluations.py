"""``result.evaluations``: the single values of a run, as a table."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from desopt.contract.types import FloatArray
from desopt.engines.trials import OBJECTIVE, Key, Outcome
from desopt.system.files import cell

FIELDS = ("id", "round", "worker", "value", "seconds", "rows", "when", "failed", "reason")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One value of fun. ``when`` is the time of its end, in seconds since 1970.

    ``x`` is None for more than 1,000 variables; ``desopt.replay(journal, trial=id)`` rebuilds it.
    ``failed``: there is no value, for this ``reason``. ``objective``: computed for the history and
    not for the search.
    """

    key: Key
    value: float
    seconds: float
    rows: int
    when: float
    reason: str
    x: FloatArray | None

    @property
    def id(self) -> str:
        return str(self.key)

    @property
    def round(self) -> int:
        return self.key.round

    @property
    def worker(self) -> int:
        return self.key.worker

    @property
    def failed(self) -> bool:
        return bool(self.reason)

    @property
    def objective(self) -> bool:
        return self.key.number == OBJECTIVE

    def outcome(self) -> Outcome:
        return Outcome(self.value, self.rows, self.seconds, self.reason)


class Evaluations(Sequence[Evaluation]):
    """All single values in the order in which they were computed, those ahead included.

    ``best`` has the least value; for a function without data and noise it is the best point seen.
    """

    def __init__(self, items: Iterable[Evaluation] = ()) -> None:
        self._items: list[Evaluation] = []
        self._by_key: dict[Key, Evaluation] = {}
        self.failures = self.searched = 0  # values that failed, and those of searches
        self.best: Evaluation | None = None
        for item in items:
            self.append(item)

    @overload
    def __getitem__(self, at: int) -> Evaluation: ...
    @overload
    def __getitem__(self, at: slice) -> list[Evaluation]: ...
    def __getitem__(self, at: Any) -> Any:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self._items)

    def __repr__(self) -> str:
        return f"Evaluations({len(self)} values, {self.failures} failed)"

    @property
    def failed(self) -> list[Evaluation]:
        return [item for item in self._items if item.failed]

    def find(self, key: Key) -> Evaluation | None:
        return self._by_key.get(key)

    def append(self, item: Evaluation) -> None:
        """Add a value; the first one of a trial counts."""
        if self._by_key.setdefault(item.key, item) is not item:
            return
        self._items.append(item)
        self.failures += item.failed
        self.searched += not item.objective
        if not item.failed and (self.best is None or item.value < self.best.value):
            self.best = item

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """One line per value; x in columns x0, x1, ..., empty where it is not stored.

        A reason that a spreadsheet would evaluate gets an apostrophe.
        """
        n = max((item.x.size for item in self._items if item.x is not None), default=0)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*FIELDS, *(f"x{i}" for i in range(n))])
            for item in self._items:
                x = [""] * n if item.x is None else item.x.tolist()
                writer.writerow([*map(cell, _plain(item, "").values()), *x])

    def to_jsonl(self, path: str | os.PathLike[str]) -> None:
        """One JSON object per line; null where there is no value or x is not stored."""
        with open(path, "w", encoding="utf-8") as file:
            for item in self._items:
                x = None if item.x is None else item.x.tolist()
                file.write(json.dumps(_plain(item, None) | {"x": x}) + "\n")


def _plain(item: Evaluation, empty: Any) -> dict[str, Any]:
    values = {name: getattr(item, name) for name in FIELDS}
    return values | {"value": item.value if math.isfinite(item.value) else empty}
