"""Federated runs: the data stay on the nodes, and Flower carries the messages.

``server_app`` and ``client_app`` make Flower's ServerApp and ClientApp. docs/federation.md explains
how to run them; ``examples/federation`` is a complete example for one machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import desopt.engines.flower  # noqa: F401 - first: says what to install
from desopt.contract import checks as check
from desopt.contract.errors import EngineError
from desopt.contract.types import Objective
from desopt.engines.flower.client import client_app
from desopt.engines.flower.engine import Federation
from desopt.run.minimize import minimize
from desopt.run.options import options_of

if TYPE_CHECKING:
    from desopt.run.result import Result

_OPTIONS = options_of("federation")
_SETTINGS = _OPTIONS.keys()
_FEDERATION = {name for name, option in _OPTIONS.items() if "minimize" not in option.doors}


def server_app(
    fun: Callable[..., float] | str | Objective,
    x0: Any = None,
    *,
    n: int | None = None,
    finished: Callable[[Result], Any] | None = None,
    **settings: Any,
) -> ServerApp:
    """The ServerApp of a run.

    fun, x0
        As for ``minimize``; the data stay with the nodes.
    n
        The dimension, to start at zeros instead of x0: then no node is ever sent x0.
    finished
        Called with the result.
    settings
        Those of ``minimize`` except for data and engines (``workers`` is the number of nodes
        M), and those of ``Federation``. A run's configuration (``flwr run --run-config
        'rounds=50 step-size=0.3'``) takes precedence. With ``target`` or ``patience``, ``loss``
        is "median" unless given: no single node ends the run.
    """
    unknown = sorted(settings.keys() - _SETTINGS)
    if unknown:
        raise TypeError(f"unknown settings {unknown}; there are {', '.join(sorted(_SETTINGS))}")
    if (x0 is None) == (n is None):
        raise ValueError("give either x0, the starting point, or n, the dimension")
    start = np.zeros(check.whole("n", n)) if x0 is None else x0

    def main(grid: Grid, context: Context) -> None:
        told = {name.replace("-", "_"): value for name, value in context.run_config.items()}
        now = settings | {name: value for name, value in told.items() if name in _SETTINGS}
        result = _run(grid, fun, start, now)
        if finished is not None:
            finished(result)

    app = ServerApp()
    app.main()(main)
    return app


def _run(grid: Grid, fun: Any, x0: Any, settings: dict[str, Any]) -> Result:
    chosen = {name: option.default_at("federation") for name, option in _OPTIONS.items()} | settings
    by_loss = chosen["target"] is not None or chosen["patience"] is not None
    if by_loss and "loss" not in settings:
        chosen["loss"] = "median"
    ours = {name: value for name, value in chosen.items() if name in _FEDERATION}
    theirs = {name: value for name, value in chosen.items() if name not in _FEDERATION}
    federation = Federation(grid, last=theirs["rounds"], **ours)
    return minimize(fun, x0, _elsewhere, engine=federation, **theirs)


def _elsewhere(worker: int) -> Any:
    raise EngineError(f"the data of worker {worker} are on a node of the federation")


__all__ = ["Federation", "client_app", "server_app"]
