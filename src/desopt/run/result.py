"""The result of a run, as SciPy's users know it.

``scipy.optimize`` takes 0.1 s and 20 MB to load, so this module is imported when a result is made
and not with the package.
"""

from __future__ import annotations

import numbers
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import OptimizeResult

from desopt.contract.codec import digest_of
from desopt.contract.scattered import Scattered
from desopt.contract.types import FloatArray
from desopt.run.evaluations import Evaluations
from desopt.run.history import History

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result(OptimizeResult):  # type: ignore[misc]  # SciPy has no types
    """The result of ``minimize``: a ``scipy.optimize.OptimizeResult`` with further fields.

    ``fun`` is the full objective at ``x`` (NaN with ``eval_every=0``), ``nfev`` the number of
    values of the local functions that were computed, ``nit`` the number of rounds. ``best_fun``
    is the least value of the objective in the history and at x0, ``best_x`` the first point with
    this value; without any evaluation they are NaN and ``x``. ``method`` is that of the run;
    ``message`` says why the run ended and what was chosen. ``evaluations`` has every single value
    if values are slow. Besides ``nfev``, ``nfev_ahead`` counts values that were computed ahead and
    not used, and ``nfev_objective`` values of a plain function for the history.

    Fields are attributes and keys: ``result.x`` is ``result["x"]``. The names of dict's methods
    are not fields.

    >>> result = desopt.minimize(lambda x: float(x @ x), np.ones(2), rounds=3)
    >>> result.nit == result["nit"] == len(result.history) == 3
    True
    >>> result.best_fun <= result.initial_fun
    True
    >>> result.digest == desopt.minimize(lambda x: float(x @ x), np.ones(2), rounds=3).digest
    True
    """

    x: FloatArray
    fun: float
    nfev: int
    nit: int
    success: bool
    status: int
    message: str
    engine: str
    initial_fun: float
    nan_count: int
    history: History
    best_x: FloatArray
    best_fun: float
    method: str
    evaluations: Evaluations
    nfev_ahead: int
    nfev_objective: int

    @property
    def digest(self) -> str:
        """Digest of the bits of ``x``, to compare runs by; as ``desopt replay --digest``."""
        return digest_of(self.get("x"))

    def __getitem__(self, name: str) -> Any:
        """A field. What is scattered becomes an array when somebody looks at it."""
        value = super().__getitem__(name)
        if isinstance(value, Scattered):
            value = self[name] = np.asarray(value)
        return value

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw convergence and points with matplotlib; save the figure if a path is given."""
        from desopt.run.plot import plot

        return plot(self, path)

    def __repr__(self) -> str:
        """SciPy's table of ``x``, shortened, and of all fields that are a number or a text."""
        shown = {name: self[name] for name in self if name == "x" or _is_short(self.get(name))}
        return repr(OptimizeResult(shown))

    def __dir__(self) -> list[str]:
        """The fields, and what is computed from them."""
        return [*self, *(name for name in vars(Result) if not name.startswith("_"))]


def _is_short(value: Any) -> bool:
    return value is None or isinstance(value, str | numbers.Number)
