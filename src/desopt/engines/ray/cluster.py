"""A Ray cluster as the engine uses it: connection, nodes for actors, object store."""

from __future__ import annotations

import logging
import os
import secrets
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import ray

from desopt.engines.processes.memory import Array


def connect(address: str | None, options: dict[str, Any]) -> bool:
    """Connect to a cluster, or start Ray on this machine; False if it was initialised already."""
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS", "local")
    usual: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        usual["include_dashboard"] = False
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        _keep_token_in_memory()
    ray.init(address=address, **(usual | options))
    return True


def _keep_token_in_memory() -> None:
    """Give a Ray that we start a token in the environment, unless there is one.

    Ray would write one into the home folder, and demand it of every cluster started later.
    """
    known = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
    if not any(map(os.environ.get, known)) and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def node_of_each_cpu() -> list[str]:
    """The node of every CPU of the cluster, one after the other: the first few are spread out."""
    nodes = [
        [node["NodeID"]] * int(node["Resources"].get("CPU", 0))
        for node in ray.nodes()
        if node["Alive"]
    ]
    spread = [node for node in chain(*zip_longest(*nodes)) if node is not None]
    return spread or [ray.get_runtime_context().get_node_id()]


class SharedObjects:
    """References to values in the cluster's object store; each is put there once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Array | bytes) -> Any:
        """The reference to the value."""
        if id(value) not in self._known:
            self._known[id(value)] = value, ray.put(value)  # kept: its id must stay its own
        return self._known[id(value)][1]
