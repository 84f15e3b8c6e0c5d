"""Our methods for ``scipy.optimize.minimize``, and for SciPy's functions that call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from desopt.contract.errors import check_name
from desopt.run.minimize import minimize
from desopt.run.observers.callbacks import is_scipys, with_point
from desopt.run.options import options_of
from desopt.run.result import Result
from desopt.run.scipy_constraints import violations
from desopt.system.terminal import warn

#: SciPy's names of options, and ours.
_OURS = {"maxiter": "rounds", "maxfev": "max_evaluations", "disp": "progress"}


def scipy_method(method: Any = None, **settings: Any) -> ScipyMethod:
    """A method for ``scipy.optimize.minimize``::

        scipy.optimize.minimize(fun, x0, method=desopt.scipy_method("des-mr", workers=4))

    method, settings
        As for ``desopt.minimize``, ``data`` included. None: its default.

    SciPy's ``options`` may have all settings too, and they take precedence; ``maxiter`` is
    ``rounds``, ``maxfev`` is ``max_evaluations`` and ``disp`` is ``progress``. ``jac``, ``hess``,
    ``hessp`` and ``tol`` are not used, with a warning. ``fun`` gets an x of its own each time.

    >>> from scipy import optimize
    >>> method = desopt.scipy_method("es-csa", rounds=40)
    >>> found = optimize.minimize(lambda x: float(x @ x), np.ones(2), method=method)
    >>> found.fun < 0.1
    True
    """
    chosen = {} if method is None else {"method": method}
    return ScipyMethod(chosen | _settings(settings))


class ScipyMethod:
    """What SciPy calls with all arguments of its ``minimize``, the options one by one."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def __call__(
        self,
        fun: Callable[..., Any],
        x0: Any,
        args: tuple[Any, ...] = (),
        *,
        jac: Any = None,
        hess: Any = None,
        hessp: Any = None,
        bounds: Any = None,
        constraints: Any = (),
        callback: Callable[..., Any] | None = None,
        tol: float | None = None,
        **options: Any,
    ) -> Result:
        _warn_of_unused(jac=jac, hess=hess, hessp=hessp, tol=tol)
        # SciPy reserves the right to pass more arguments in the future.
        given = self._settings | _settings({k: v for k, v in options.items() if v is not None})
        if bounds is not None:
            given["bounds"] = bounds
        if (violation := violations(constraints)) is not None:
            given["constraints"] = violation
        if callback is not None:
            given |= _with_callback(callback, given)
        own = hasattr(fun, "bind") and not args  # an objective object
        return minimize(fun if own else partial(_value, fun, args), x0, **given)


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by our names; unknown ones are refused."""
    known = [*_OURS, *(name for name in options_of("minimize") if name != "method"), "data"]
    found: dict[str, Any] = {}
    for name, value in options.items():
        check_name("option", name, known)
        ours = _OURS.get(name, name)
        if ours in found:
            both = " and ".join(n for n in options if _OURS.get(n, n) == ours)
            raise ValueError(f"{both} are one option; give one of them")
        found[ours] = bool(value) if name == "disp" else value
    return found


def _warn_of_unused(**given: Any) -> None:
    for name, value in given.items():
        if value is None or value is False:
            continue
        instead = "; end the run by maxiter, maxfev, target or patience" if name == "tol" else ""
        message = f"desopt's methods compare function values and do not use {name}{instead}"
        warn(message, RuntimeWarning, stacklevel=4)


def _value(fun: Callable[..., Any], args: tuple[Any, ...], x: Any, *batch: Any) -> Any:
    """A value as SciPy's own solvers compute it: x may be written to, an array of one will do."""
    value = fun(np.copy(x), *batch, *args)
    single = x.ndim == 1 and isinstance(value, np.ndarray) and value.size == 1
    return value.item() if single else value


def _with_callback(callback: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with SciPy's callback, besides those of ours."""
    before = given.get("callbacks", ())
    ours = (before,) if callable(before) else tuple(before)
    if is_scipys(callback):  # it expects a value after every round
        return {"callbacks": (*ours, callback), "eval_every": given.get("eval_every", 1)}
    return {"callbacks": (*ours, partial(with_point, callback))}
