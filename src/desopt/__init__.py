"""desopt: distributed black-box stochastic optimisation by evolution strategies.

Names are imported when they are first used, so that ``desopt --help`` need not load numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from desopt._version import __version__

if TYPE_CHECKING:
    from desopt import data, engines, rng, samplers, theory
    from desopt import federate as federate  # needs Flower, so not in __all__
    from desopt.algorithms import METHODS
    from desopt.engines import ENGINES
    from desopt.history import History, Row
    from desopt.loop import Interrupted, Result, minimize, replay
    from desopt.types import EngineError, JournalError, ObjectiveError, TheoryWarning

_HOME = {
    "ENGINES": "desopt.engines",
    "METHODS": "desopt.algorithms",
    "EngineError": "desopt.types",
    "History": "desopt.history",
    "Interrupted": "desopt.loop",
    "JournalError": "desopt.types",
    "ObjectiveError": "desopt.types",
    "Result": "desopt.loop",
    "Row": "desopt.history",
    "TheoryWarning": "desopt.types",
    "minimize": "desopt.loop",
    "replay": "desopt.loop",
}
_MODULES = ("data", "engines", "federate", "rng", "samplers", "theory")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"desopt.{name}")
    else:
        raise AttributeError(f"module 'desopt' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "ENGINES",
    "METHODS",
    "EngineError",
    "History",
    "Interrupted",
    "JournalError",
    "ObjectiveError",
    "Result",
    "Row",
    "TheoryWarning",
    "__version__",
    "data",
    "engines",
    "minimize",
    "replay",
    "rng",
    "samplers",
    "theory",
]
