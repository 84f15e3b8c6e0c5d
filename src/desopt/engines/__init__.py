"""Engines take a task to the workers and bring the answers back, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from desopt.engines.base import Engine, Job

if TYPE_CHECKING:
    from desopt.engines.ray import Ray


def _lazy(module: str, name: str) -> Callable[..., Engine]:
    """The engine's class, imported when it is asked for."""

    def make(**options: Any) -> Engine:
        engine: Engine = getattr(import_module(f"desopt.engines.{module}"), name)(**options)
        return engine

    return make


#: The engines by name; the contract tests run over all of them.
ENGINES: dict[str, Callable[..., Engine]] = {
    "serial": _lazy("serial", "Serial"),
    "threads": _lazy("threads", "Threads"),
    "processes": _lazy("processes", "Processes"),
    "ray": _lazy("ray", "Ray"),
}


def __getattr__(name: str) -> Any:
    if name == "Ray":  # Ray itself is imported only when this is asked for
        return import_module("desopt.engines.ray").Ray
    raise AttributeError(f"module 'desopt.engines' has no attribute {name!r}")


__all__ = ["ENGINES", "Engine", "Job", "Ray"]
