"""desopt: distributed black-box stochastic optimisation by evolution strategies."""

from desopt import data, rng, samplers, theory
from desopt._version import __version__
from desopt.algorithms import METHODS
from desopt.engines import ENGINES
from desopt.history import History, Row
from desopt.minimize import Interrupted, Result, minimize, replay
from desopt.types import EngineError, JournalError, ObjectiveError, TheoryWarning

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
    "minimize",
    "replay",
    "rng",
    "samplers",
    "theory",
]
