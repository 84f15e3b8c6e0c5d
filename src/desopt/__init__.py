"""desopt: distributed black-box stochastic optimisation by evolution strategies.

Names are imported when they are first used, so that ``desopt --help`` need not load numba.

>>> list(desopt.LOSSES)
['lr', 'nsvm', 'lsvm', 'l2svm']
>>> desopt.METHODS["des-mr"].title
'DES-mR'
>>> "threads" in desopt.ENGINES
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from desopt._version import __version__

if TYPE_CHECKING:
    from desopt import data, engines, testing, theory
    from desopt import federate as federate  # needs Flower, so not in __all__
    from desopt import sklearn as sklearn  # needs scikit-learn
    from desopt import torch as torch  # needs PyTorch
    from desopt import trackers as trackers  # each needs its own package
    from desopt.contract import streams
    from desopt.contract.errors import (
        EngineError,
        Failed,
        JournalError,
        ObjectiveError,
        TheoryWarning,
    )
    from desopt.engines import ENGINES
    from desopt.methods import METHODS, samplers
    from desopt.objectives import LOSSES
    from desopt.objectives.command import Command
    from desopt.objectives.model import Model, load_model
    from desopt.objectives.sensors import SensorSelection
    from desopt.objectives.survival import Cox
    from desopt.plugins import register
    from desopt.run.history import History, Interrupted, Row
    from desopt.run.minimize import minimize
    from desopt.run.optimizer import OpenTrial, Optimizer, tell
    from desopt.run.replay import replay
    from desopt.run.result import Result
    from desopt.run.scipy_method import scipy_method

#: The module of each name, imported when the name is first used.
_HOME = {
    "ENGINES": "desopt.engines",
    "LOSSES": "desopt.objectives",
    "METHODS": "desopt.methods",
    "Command": "desopt.objectives.command",
    "Cox": "desopt.objectives.survival",
    "EngineError": "desopt.contract.errors",
    "Failed": "desopt.contract.errors",
    "History": "desopt.run.history",
    "Interrupted": "desopt.run.history",
    "JournalError": "desopt.contract.errors",
    "Model": "desopt.objectives.model",
    "ObjectiveError": "desopt.contract.errors",
    "OpenTrial": "desopt.run.optimizer",
    "Optimizer": "desopt.run.optimizer",
    "Result": "desopt.run.result",
    "Row": "desopt.run.history",
    "SensorSelection": "desopt.objectives.sensors",
    "TheoryWarning": "desopt.contract.errors",
    "load_model": "desopt.objectives.model",
    "minimize": "desopt.run.minimize",
    "register": "desopt.plugins",
    "replay": "desopt.run.replay",
    "tell": "desopt.run.optimizer",
    "scipy_method": "desopt.run.scipy_method",
}
_MODULES = {
    "data": "desopt.data",
    "engines": "desopt.engines",
    "federate": "desopt.federate",
    "samplers": "desopt.methods.samplers",
    "sklearn": "desopt.sklearn",
    "streams": "desopt.contract.streams",
    "testing": "desopt.testing",
    "theory": "desopt.theory",
    "torch": "desopt.torch",
    "trackers": "desopt.trackers",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'desopt' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "ENGINES",
    "LOSSES",
    "METHODS",
    "Command",
    "Cox",
    "EngineError",
    "Failed",
    "History",
    "Interrupted",
    "JournalError",
    "Model",
    "ObjectiveError",
    "OpenTrial",
    "Optimizer",
    "Result",
    "Row",
    "SensorSelection",
    "TheoryWarning",
    "__version__",
    "data",
    "engines",
    "load_model",
    "minimize",
    "register",
    "replay",
    "samplers",
    "scipy_method",
    "streams",
    "tell",
    "testing",
    "theory",
]
