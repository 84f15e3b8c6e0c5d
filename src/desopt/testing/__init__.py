"""Checks of desopt's contracts, for your own methods, samplers, objectives and engines.

::

    from desopt import testing

    testing.check_method(MyMethod(iterations=10))
    testing.check_sampler(MySampler())
    testing.check_objective(MyObjective(), data=(X, y), x=np.zeros(5))
    testing.check_engine(MyEngine)

A check returns nothing, or raises an AssertionError with one sentence on the contract and one on
what was seen. No test framework is needed. desopt's own tests call the same functions.
"""

from __future__ import annotations

from desopt.testing.engines import check_engine
from desopt.testing.methods import check_method
from desopt.testing.objectives import check_objective
from desopt.testing.samplers import check_sampler

__all__ = ["check_engine", "check_method", "check_objective", "check_sampler"]
