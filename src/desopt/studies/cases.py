"""A case: one run of one method, as data.

Its id is a digest of its fields. Several figures, processes and machines that need the same case
therefore share one result.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from desopt.studies.output import short

LARGEST = 2**63  # SQLite's integers have 64 bits

_WHOLE = ("run", "rows", "workers", "iterations", "batch_size", "mixture", "points", "rounds")
_REAL = ("step_size", "budget", "momentum", "radius", "regularization")
_FROM_ZERO = ("run", "momentum", "regularization")
_TEXT = ("data", "problem", "method", "digest")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that decides the numbers of a run, in the paper's symbols.

    data, rows: the data set, and the number of its rows used (None: all)
    digest: of the content of the data set (None: unknown, as in results of desopt 0.1)
    problem, regularization: the loss, and lambda_p
    method, step_size, momentum, mixture, radius: alpha, beta, l, mu
    workers, iterations, batch_size: M, K, b
    budget: E, for a budget of E N values of F; or instead ``rounds``: T
    run: the number of the repetition, also the seed
    points: evaluations of the curve, besides round 0
    """

    data: str
    problem: str
    method: str
    step_size: float
    run: int
    rows: int | None = None
    workers: int = 10
    iterations: int
    batch_size: int = 1000
    budget: float | None = None
    rounds: int | None = None
    momentum: float = 0.5
    mixture: int = 8
    radius: float = 1e-6
    regularization: float = 1e-6
    points: int = 20
    digest: str | None = None

    def __post_init__(self) -> None:
        for name in _TEXT:
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                _check_text(name, value)
        for name in (*_WHOLE, *_REAL):
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                # 1 and 1.0 are one case
                object.__setattr__(self, name, _number(name, value))
        if (self.budget is None) == (self.rounds is None):
            raise ValueError("a case needs either budget (E of the paper) or rounds, not both")

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits, the same on every machine.

        Fields that are None are omitted: a field added later changes no existing id.
        """
        given = {name: value for name, value in asdict(self).items() if value is not None}
        text = json.dumps(given, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def seed(self) -> int:
        """The seed of the run, the same for all methods, problems and data sets."""
        return self.run

    @property
    def label(self) -> str:
        names = " ".join(map(short, (self.data, self.problem, self.method)))
        return f"{names} alpha={self.step_size:g} run {self.run}"


FIELDS = tuple(field.name for field in fields(Case))
OPTIONAL = ("rows", "budget", "rounds", "digest")


def from_mapping(values: Mapping[str, Any]) -> Case:
    """The case with these fields; other keys of the mapping are ignored."""
    return Case(**{name: values[name] for name in FIELDS})


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be a non-empty text, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be UTF-8, got {value!r}; rename the file") from None


def _number(name: str, value: Any) -> float:
    whole = name in _WHOLE
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise TypeError(f"{name} must be a {'whole ' if whole else ''}number, got {value!r}")
    least = 0 if name in _FROM_ZERO else 1 if whole else math.ulp(0.0)
    if not least <= value < (LARGEST if whole else math.inf):
        allowed = "positive" if least == math.ulp(0.0) else f"at least {least}"
        most = "below 2**63" if whole else "finite"
        raise ValueError(f"{name} must be {allowed} and {most}, got {value!r}")
    return value if whole else float(value)
