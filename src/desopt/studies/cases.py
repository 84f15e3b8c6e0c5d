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
from desopt.contract.errors import check_name
from desopt.data.splits import check_partition
from desopt.run.options import options_of
from desopt.studies.output import short

#: The ``step_rule`` of a case whose step size is a number.
FIXED = "fixed"

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


_OPTIONS = options_of("study")
#: The check of every setting: options are checked as in any run.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **{name: option.check for name, option in _OPTIONS.items()},
    **dict.fromkeys(("data", "problem", "method", "digest", "code"), _text),
    "run": partial(checks.whole, least=0),
    "rows": checks.whole,
    "points": checks.whole,
    "budget": checks.positive,
    "partition": check_partition,
}
#: Defaults of all settings that have one.
DEFAULTS: dict[str, Any] = {
    **{name: option.default_at("study") for name, option in _OPTIONS.items()},
    **dict.fromkeys(("rows", "budget", "digest", "code")),
    "points": 20,
    "partition": "iid",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that decides the numbers of a run, in the paper's symbols.

    data, rows: the data set, and the number of its rows used (None: all)
    digest: of the content of the data set (None: unknown, as in results of desopt 0.1)
    problem, regularization: the loss or ``module:function``, and lambda_p
    method, step_size, momentum, mixture, radius: alpha or "auto", beta, l, mu
    workers, iterations, batch_size: M, K, b
    budget: E, for a budget of E N values of F; or instead ``rounds``: T
    run: the number of the repetition, also the seed
    points: evaluations of the curve, besides round 0
    settings: all others that are not at their defaults, as JSON; None if there are none

    The others (``OTHERS``) are the options of studies without a field here, ``partition`` and
    ``code``, the digest of a Python objective. They are read like fields: ``case.partition``.
    """

    data: str
    problem: str
    method: str
    step_size: float | str
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
    settings: str | None

    def __post_init__(self) -> None:
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                # 1 and 1.0 are one case
                object.__setattr__(self, name, _checked(name, value))
        if (self.budget is None) == (self.rounds is None):
            raise ValueError("a case needs either budget (E of the paper) or rounds, not both")

    def __hash__(self) -> int:
        return self._hash  # queues of many thousand cases are looked through again and again

    @cached_property
    def _hash(self) -> int:
        return hash(self.id)

    def __getattr__(self, name: str) -> Any:
        """The value of one of ``OTHERS``."""
        if name not in OTHERS:
            raise AttributeError(f"a case has no setting {name!r}")
        return self._others.get(name, DEFAULTS[name])

    @cached_property
    def _others(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.settings or "{}")
        return found

    def varied(self, **changes: Any) -> Case:
        """The case with other values of some settings."""
        given = {name: getattr(self, name) for name in FIELDS if name != "settings"}
        return make_case(**{**given, **self._others, **changes})

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
    def step_rule(self) -> str:
        """Whether the step size is ``FIXED`` or the result of a rule, "auto"."""
        return self.step_size if isinstance(self.step_size, str) else FIXED

    @property
    def label(self) -> str:
        names = " ".join(map(short, (self.data, self.problem, self.method)))
        step = self.step_size if isinstance(self.step_size, str) else f"{self.step_size:g}"
        others = "".join(f" {name}={short(str(value))}" for name, value in self._others.items())
        return f"{names} alpha={step}{others} run {self.run}"


FIELDS = tuple(field.name for field in fields(Case))
OPTIONAL = ("rows", "budget", "rounds", "digest", "settings")
#: The settings in ``Case.settings``. A new option of studies becomes one by its declaration.
OTHERS = tuple(name for name in _CHECKS if name not in FIELDS)
#: All that a case may be asked for by name.
NAMES = (*(name for name in FIELDS if name != "settings"), *OTHERS)


def from_mapping(values: Mapping[str, Any]) -> Case:
    """The case with these fields; other keys of the mapping are ignored."""
    return Case(**{name: values[name] for name in FIELDS})


def make_case(**given: Any) -> Case:
    """A case with these settings, and defaults for the others."""
    others = {name: given.pop(name) for name in OTHERS if name in given}
    fixed = {name: value for name, value in DEFAULTS.items() if name not in OTHERS}
    return Case(**{**fixed, **given, "settings": json.dumps(others)})


def _checked(name: str, value: Any) -> Any:
    found = _CHECKS[name](name, value)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(f"{name} must be finite, got {value!r}")
    if isinstance(found, int) and found > MAX_INTEGER:
        raise ValueError(f"{name} must be below 2**63, got {value!r}")
    return found


def _canonical(name: str, text: Any) -> str | None:
    """The settings that are not at their defaults, checked and in order."""
    given = json.loads(_text(name, text))
    if not isinstance(given, dict):
        raise TypeError(f"{name} must be a JSON object, got {text!r}")
    for key in given:
        check_name("setting", key, OTHERS)
    checked = {key: _checked(key, value) for key, value in given.items() if value is not None}
    kept = {key: value for key, value in checked.items() if value != DEFAULTS[key]}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")) if kept else None


_CHECKS["settings"] = _canonical
