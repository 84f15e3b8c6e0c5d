"""What is kept of a case that has run."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from desopt.contract.types import FloatArray
from desopt.studies.cases import Case

#: Columns of a curve, in ``Outcome.curve`` and in the exported CSV.
CURVE = (
    "round", "paper_round", "evaluations", "samples", "bytes_up", "bytes_down", "seconds",
    "train_loss", "train_error", "test_loss", "test_error",
)  # fmt: skip

#: The text fields of an outcome; the others are numbers.
_TEXT = ("status", "message", "origin", "version", "finished", "machine")


@dataclass(frozen=True)
class Outcome:
    """The result of a case. A failed one has a message, no curve, and zeros for unknown numbers.

    ``seconds`` is the time of the search, as in the curve; ``cpu_seconds`` and ``wall_seconds``
    cover the whole case, evaluation included.
    """

    case: Case
    status: str
    message: str
    rounds: int
    train_rows: int
    test_rows: int
    n: int
    density: float
    generated: bool
    origin: str
    seconds: float
    cpu_seconds: float
    wall_seconds: float
    version: str
    seed: int
    finished: str
    machine: str
    curve: dict[str, FloatArray] = field(repr=False)


def outcome_of(case: Case, row: sqlite3.Row, points: Sequence[sqlite3.Row]) -> Outcome:
    """From the rows of the results file; a TypeError or ValueError where they are damaged."""
    values = dict(row)
    done = {name: values[name] for name in Outcome.__dataclass_fields__ if name in values}
    unknown = {"train_rows": 0, "test_rows": 0, "n": 0, "density": 0.0, "origin": "",
               "seconds": 0.0, "cpu_seconds": 0.0, "wall_seconds": 0.0, "machine": ""}  # fmt: skip
    done |= {name: value for name, value in unknown.items() if done[name] is None}
    done["rounds"] = values["rounds_done"] or 0
    done["generated"] = bool(values["generated"])
    for name, value in done.items():
        if not isinstance(value, str if name in _TEXT else int | float):
            raise TypeError(f"{name} is {value!r}")
    if done["status"] == "done" and not (points and points[0]["round"] == 0):
        raise ValueError("its curve does not begin at round 0")
    curve = {
        name: np.array([math.nan if p[name] is None else p[name] for p in points], np.float64)
        for name in CURVE
    }
    return Outcome(case=case, curve=curve, **done)
