"""Federated runs: the data stay on the nodes, and Flower carries the messages.

``server_app`` and ``client_app`` make Flower's ServerApp and ClientApp. docs/federation.md explains
how to run them; ``examples/federation`` is a complete example for one machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
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
from desopt.objectives import LOSSES
from desopt.objectives.inputs import Inputs, PreparedModel
from desopt.objectives.model import model_of, provenance_of
from desopt.run.arguments import as_callbacks
from desopt.run.journal import read_header
from desopt.run.minimize import minimize
from desopt.run.options import options_of
from desopt.run.sites import SiteLog, round_line

if TYPE_CHECKING:
    from desopt.run.result import Result

_OPTIONS = options_of("federation")
_SETTINGS = _OPTIONS.keys()
_FEDERATION = {name for name, option in _OPTIONS.items() if "minimize" not in option.doors}

#: Settings about the columns of a linear model; the rest of ours are those of ``Federation``.
TABLE = ("columns", "standardize", "intercept", "model")


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
        The dimension, for a start at zeros instead of x0. No node is then sent x0.
    columns, standardize, intercept, model
        For the linear models, instead of x0 and n: the names of the columns, which every site's
        data must have; whether they are scaled by their mean and deviation over all sites; whether
        there is a column of ones; and a file for the final model (``desopt.load_model``). The
        sites then have the model too, and send their metrics of it (``client_app``).
    finished
        Called with the result; ``result.metrics`` are the sites' own, by site.
    settings
        Those of ``minimize`` except for data and engines (``workers`` is the number of nodes
        M), and those of ``Federation``. A run's configuration (``flwr run --run-config
        'rounds=50 step-size=0.3'``) takes precedence. With ``target`` or ``patience``, ``loss``
        is "median" unless given, so that no single node ends the run. ``progress=False`` leaves
        out the line that every round prints.

    >>> from desopt.federate import server_app
    >>> type(server_app("lr", n=5, workers=3, rounds=10, deadline=60.0)).__name__
    'ServerApp'
    """
    unknown = sorted(settings.keys() - _SETTINGS)
    if unknown:
        raise TypeError(f"unknown settings {unknown}; there are {', '.join(sorted(_SETTINGS))}")
    if sum(given is not None for given in (x0, n, settings.get("columns"))) != 1:
        raise ValueError(
            "give either x0, the starting point, or n, the dimension, or columns, their names"
        )
    start = x0 if n is None else np.zeros(check.whole("n", n))

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
    table = {name: chosen.pop(name) for name in TABLE}
    say = _nothing if chosen["progress"] is False else _say
    log = SiteLog(chosen["journal"])
    ours = {name: value for name, value in chosen.items() if name in _FEDERATION}
    theirs = {name: value for name, value in chosen.items() if name not in _FEDERATION}
    federation = Federation(grid, last=theirs["rounds"], say=say, sites=log.names(), **ours)
    trains_a_table = any(value is not None and value is not False for value in table.values())
    if trains_a_table:
        fun = _prepared(federation, fun, table, theirs)
        del theirs["regularization"]  # it has its own
        x0 = np.zeros(_width(fun)) if x0 is None else x0

    def told(row: Any) -> None:
        say(round_line(row, theirs["rounds"], federation.report))
        log.write(**federation.report)

    callbacks = (told, *as_callbacks(theirs.pop("callbacks")))
    log.write(begin=theirs["rounds"], sites=log.names())
    theirs |= {"progress": False, "callbacks": callbacks}
    try:
        result = minimize(fun, x0, _elsewhere, engine=federation, **theirs)
    except Exception as error:
        end = f"failed: {str(error).partition(chr(10))[0]}"
        say(end)
        log.write(end=end)
        raise
    if trains_a_table:
        _conclude(federation, fun, result, table["model"], say)
    result["metrics"] = federation.metrics
    up, down = (result.history[-1][way] if result.history else 0 for way in _BYTES)
    say(
        f"done: {result.message}; loss {result.fun:.5g}, {up:,} bytes up, {down:,} down"
        + (f"; the model is in {table['model']}" if table["model"] else "")
    )
    log.write(end=result.message, metrics=federation.metrics)
    return result


_BYTES = "bytes_up", "bytes_down"


def _say(line: str) -> None:
    """To whoever watches the run: Flower takes the ServerApp's output to ``flwr run --stream``."""
    print(line, flush=True)


def _nothing(line: str) -> None:
    pass


def _prepared(
    federation: Federation, fun: Any, table: dict[str, Any], settings: dict[str, Any]
) -> PreparedModel:
    """The linear model of these columns; the sites' moments are asked for once in a run."""
    if fun not in LOSSES:
        raise ValueError(
            f"columns, standardize, intercept and model are for the linear models "
            f"({', '.join(LOSSES)}), got fun={fun!r:.80}"
        )
    columns = table["columns"]
    if columns is None:
        raise ValueError("give columns=NAMES with standardize, intercept or model")
    names = columns.split(",") if isinstance(columns, str) else columns
    inputs = Inputs(tuple(names), intercept=table["intercept"])
    journal = settings["journal"]
    if table["standardize"] and journal is not None and Path(journal).is_file():
        inputs = _resumed(Path(journal), inputs)
    elif table["standardize"]:
        moments = federation.survey(inputs.columns or (), settings["workers"])
        inputs = inputs.standardised(moments.values())
        federation.say(f"columns standardised by {len(moments)} of {settings['workers']} sites")
    return PreparedModel(fun, check.real("regularization", settings["regularization"]), inputs)


def _resumed(journal: Path, inputs: Inputs) -> Inputs:
    """The inputs as the run of a journal began with; if they are others, it will be refused."""
    known = read_header(journal)["config"]["objective"].get("inputs")
    before = inputs if known is None else Inputs.restore(known)
    return before if replace(before, means=None, scales=None) == inputs else inputs


def _width(model: PreparedModel) -> int:
    return len(model.inputs.columns or ()) + model.inputs.intercept


def _conclude(
    federation: Federation,
    model: PreparedModel,
    result: Result,
    path: str | None,
    say: Callable[[str], None],
) -> None:
    """Write the model, and let the sites have and judge it."""
    if path is not None:
        provenance = provenance_of(federation.description, result.nit, result.x)
        model_of(result.x, model.loss, model.inputs, provenance).save(path)
    absent = federation.conclude()
    for site, metrics in federation.metrics.items():
        say(f"{site}: {', '.join(f'{name} {value:.4g}' for name, value in metrics.items())}")
    if absent:
        say(f"without the final model: {', '.join(absent)}")


def _elsewhere(worker: int) -> Any:
    raise EngineError(f"the data of worker {worker} are on a node of the federation")


__all__ = ["Federation", "client_app", "server_app"]
