"""The methods, a module each; ``registry.METHODS`` has all of them by name."""

from __future__ import annotations

from desopt.methods.base import ProblemSize
from desopt.methods.cma_es import CMAES
from desopt.methods.des import DES
from desopt.methods.es import ES
from desopt.methods.es_csa import ESCSA
from desopt.methods.fed_zo import FedZOGD, FedZOSGD
from desopt.methods.registry import METHODS, Method, make, restore
from desopt.methods.zo_signsgd import ZOSignSGD

__all__ = [
    "CMAES",
    "DES",
    "ES",
    "ESCSA",
    "METHODS",
    "FedZOGD",
    "FedZOSGD",
    "Method",
    "ProblemSize",
    "ZOSignSGD",
    "make",
    "restore",
]
