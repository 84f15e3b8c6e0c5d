"""What a case minimises: a loss, a registered objective, a test function, or ``module:name``.

The last is a Python function ``fun(x, batch)`` on the rows of the case's data set; or an object
that needs no data set, like the test functions (``functions.Function``): with ``fun(x, batch)``,
the sampler ``draw(rng, b)`` (without it: ``fun(x)``), the starting point ``x0``, and ``exact(x)``,
the value without noise, which the curve records. Its case has ``data="none"``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from desopt import plugins
from desopt.contract.errors import check_name
from desopt.objectives import objective_names
from desopt.run.code_digest import code_digest
from desopt.studies.functions import FUNCTIONS

#: The ``data`` of a case whose objective needs no data set.
NO_DATA = "none"


def is_python(problem: str) -> bool:
    """Whether it is ``module:name``."""
    return ":" in problem


@cache
def resolved(problem: str) -> Any:
    """The name of an objective, a function, or an object that needs no data set."""
    if is_python(problem):
        return plugins.imported(problem, "problem")
    return FUNCTIONS.get(problem, problem)


def needs_no_data(problem: str) -> bool:
    return hasattr(resolved(problem), "x0")


def check(problem: str, data: str) -> None:
    """Refuse an unknown problem, or one that does not go with the data."""
    if not is_python(problem):
        check_name("problem", problem, [*objective_names(), *FUNCTIONS, "module:function"])
    alone = needs_no_data(problem)
    if alone and data != NO_DATA:
        raise ValueError(f"problem {problem!r} has samples of its own: data must be {NO_DATA!r}")
    if not alone and data == NO_DATA:
        raise ValueError(
            f"problem {problem!r} needs a data set: data may be {NO_DATA!r} only for an object "
            "with fun, x0 and exact"
        )


@cache
def code(problem: str) -> str | None:
    """A digest of a Python objective; None for what belongs to a version of desopt."""
    if not is_python(problem) or problem.startswith("desopt."):
        return None
    found = resolved(problem)
    parts = [getattr(found, name, None) for name in ("fun", "draw", "exact")]
    return code_digest(*([part for part in parts if part is not None] or [found]))
