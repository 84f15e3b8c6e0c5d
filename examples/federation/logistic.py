"""The Flower app: logistic regression by des-mr, every node with a data file of its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from desopt.federate import client_app, server_app

N = 500
SETTINGS: dict[str, Any] = {
    "method": "des-mr", "workers": 3, "iterations": 400, "batch_size": 500, "step_size": 0.1,
    "seed": 1,
}  # fmt: skip


def load_shard(node_config: Mapping[str, Any]) -> tuple[Any, Any]:
    """The rows of this node; the path is in its configuration and nobody else knows it."""
    with np.load(node_config["data"]) as file:
        return file["X"], file["y"]


server = server_app("lr", n=N, **SETTINGS)
client = client_app("lr", load_shard)
