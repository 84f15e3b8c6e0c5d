"""The results of a study as CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from desopt.studies.cases import NAMES
from desopt.studies.outcomes import CURVE, Outcome
from desopt.studies.output import replacing
from desopt.studies.store import Store
from desopt.system.files import cell


def write_csv(
    store: Store, folder: str | os.PathLike[str], ids: Container[str] | None = None
) -> list[Path]:
    """Write cases.csv, one line per case with settings and result, and points.csv.

    ``ids``: of these cases only.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    items: dict[str, list[str]] = {}
    for row in store.query("SELECT id, item FROM members JOIN cases ON key = case_key"):
        items.setdefault(row["id"], []).append(row["item"])
    stored = store.read(include_former=True)
    outcomes = [o for o in stored if ids is None or o.case.id in ids]
    plain = [name for name in Outcome.__dataclass_fields__ if name not in ("case", "curve")]
    named = ["rounds_done" if name == "rounds" else name for name in plain]
    with _table(target / "cases.csv", ["id", "items", *NAMES, *named]) as cases:
        for o in outcomes:
            settings = [getattr(o.case, name) for name in NAMES]
            ended = [getattr(o, name) for name in plain]
            cells = [o.case.id, " ".join(items[o.case.id]), *settings, *ended]
            cases.writerow(map(cell, cells))
    with _table(target / "points.csv", ["id", *CURVE]) as points:
        for o in outcomes:
            columns = [o.curve[name].tolist() for name in CURVE]
            points.writerows([o.case.id, *row] for row in zip(*columns, strict=True))
    return [target / "cases.csv", target / "points.csv"]


@contextmanager
def _table(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        yield writer
