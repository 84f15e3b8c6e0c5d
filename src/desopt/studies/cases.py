"""A case: one run of one method, as data.

Its id is a digest of its fields. Several figures, processes and machines that need the same case
therefore share one result.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial
from typing import Any

from desopt.contract import checks
from desopt.run.options import options_of
from desopt.studies.output import short

#: SQLite's integers have 64 bits.
MAX_INTEGER = 2**63 - 1


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be a non-empty text, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be UTF-8, got {value!r}; rename the file") from None
    return value


_SETTINGS = options_of("study")
#: The check of every field: settings are checked as in any run.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **{name: option.check for name, option in _SETTINGS.items()},
    **dict.fromkeys(("data", "problem", "method", "digest"), _text),
    "run": partial(checks.whole, least=0),
    "rows": checks.whole,
    "points": checks.whole,
    "budget": checks.positive,
}
#: Defaults of all fields that have one.
DEFAULTS: dict[str, Any] = {
    **{name: option.default_at("study") for name, option in _SETTINGS.items()},
    **dict.fromkeys(("rows", "budget", "digest")),
    "points": 20,
}


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
    rows: int | None
    workers: int
    iterations: int
    batch_size: int
    budget: float | None
    rounds: int | None
    momentum: float
    mixture: int
    radius: float
    regularization: float
    points: int
    digest: str | None

    def __post_init__(self) -> None:
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                # 1 and 1.0 are one case
                object.__setattr__(self, name, _checked(name, value))
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


def make_case(**given: Any) -> Case:
    """A case with these fields, and defaults for the others."""
    return Case(**{**DEFAULTS, **given})


def _checked(name: str, value: Any) -> Any:
    found = _CHECKS[name](name, value)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(f"{name} must be finite, got {value!r}")
    if isinstance(found, int) and found > MAX_INTEGER:
        raise ValueError(f"{name} must be below 2**63, got {value!r}")
    return found
