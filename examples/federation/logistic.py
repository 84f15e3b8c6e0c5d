"""The Flower app: logistic regression by des-mr, with a data file per node."""

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
    """The rows of this node, from the path in its own configuration."""
    with np.load(node_config["data"]) as file:
        return file["X"], file["y"]


server = server_app("lr", n=N, **SETTINGS)
client = client_app("lr", load_shard)
