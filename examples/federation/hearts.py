"""The Flower app: heart disease at four hospitals, by logistic regression."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from desopt.federate import client_app, server_app

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal",
)  # fmt: skip
HELD_OUT = 0.25
SETTINGS: dict[str, Any] = {
    "method": "des-mr", "workers": 4, "iterations": 400, "batch_size": 100, "step_size": 0.1,
    "seed": 1, "regularization": 1e-3,
}  # fmt: skip


def load_shard(node_config: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The patients of this hospital: columns by name, and -1 for healthy, +1 for ill."""
    lines = Path(node_config["data"]).read_text(encoding="ascii").splitlines()
    cells = [
        [math.nan if cell == "?" else float(cell) for cell in line.split(",")] for line in lines
    ]
    table = np.array(cells)
    columns = dict(zip(COLUMNS, table.T, strict=False))  # the last column is the diagnosis
    for name in ("trestbps", "chol"):  # nobody has a blood pressure or a cholesterol of 0
        columns[name] = np.where(columns[name] == 0.0, math.nan, columns[name])
    return columns, np.where(table[:, -1] > 0.0, 1.0, -1.0)


server = server_app("lr", columns=COLUMNS, standardize=True, intercept=True, **SETTINGS)
client = client_app(
    "lr",
    load_shard,
    regularization=SETTINGS["regularization"],
    held_out=HELD_OUT,
    metrics=["auc", "accuracy"],
)
