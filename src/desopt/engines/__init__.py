"""Engines take a task to the workers and bring the answers back, nothing else.

>>> list(desopt.ENGINES) == list(desopt.engines.ENGINES)
True
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from desopt.engines.base import Engine, Job

if TYPE_CHECKING:
    from desopt.engines.executor import Executor
    from desopt.engines.ray.engine import Ray


def _class(module: str, name: str) -> Any:
    """An engine's class, imported when it is needed."""
    try:
        return getattr(import_module(f"desopt.engines.{module}"), name)
    except ModuleNotFoundError as error:
        extra = module.partition(".")[0]
        if error.name != extra:
            raise
        raise ImportError(
            f"engine {extra!r} needs a package that is missing: pip install 'desopt[{extra}]'"
        ) from error


def _lazy(module: str, name: str) -> Callable[..., Engine]:
    def make(**options: Any) -> Engine:
        engine: Engine = _class(module, name)(**options)
        return engine

    return make


def _federation(grid: Any = None, **options: Any) -> Engine:
    """Flower's engine; only a ServerApp has the grid through which it reaches the nodes."""
    if grid is None:
        raise ValueError(
            "engine 'flower' needs the grid of a Flower ServerApp, which minimize does not have: "
            "make the app with desopt.federate.server_app(fun, x0, ...) and start it with "
            "'flwr run', or pass engine=desopt.federate.Federation(grid) in an app of your own"
        )
    engine: Engine = _class("flower.engine", "Federation")(grid, **options)
    return engine


def _executor(pool: Any = None, **options: Any) -> Engine:
    """The engine of a pool, which no name stands for."""
    if pool is None:
        raise ValueError(
            "engine 'executor' needs a pool: engine=desopt.engines.Executor(pool), with a "
            "concurrent.futures.Executor or a function that makes one"
        )
    engine: Engine = _class("executor", "Executor")(pool, **options)
    return engine


#: The engines by name; the contract tests run over all of them.
ENGINES: dict[str, Callable[..., Engine]] = {
    "serial": _lazy("serial", "Serial"),
    "threads": _lazy("threads", "Threads"),
    "processes": _lazy("processes.engine", "Processes"),
    "ray": _lazy("ray.engine", "Ray"),
    "flower": _federation,
    "executor": _executor,
}


def __getattr__(name: str) -> Any:
    if name in (modules := {"Executor": "executor", "Ray": "ray.engine"}):
        return _class(modules[name], name)
    raise AttributeError(f"module 'desopt.engines' has no attribute {name!r}")


__all__ = ["ENGINES", "Engine", "Executor", "Job", "Ray"]
