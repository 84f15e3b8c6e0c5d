"""A hundred bits from each of ten workers

Logistic regression on scikit-learn's breast cancer data, from function values alone. The rows are
dealt to ten workers; each answers with 100 bits per round, 61 bytes with their frame.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show
from sklearn.datasets import load_breast_cancer

import desopt

DIGEST = "d06a3200b01f37f3"


def run(journal: Path) -> desopt.Result:
    rows, classes = load_breast_cancer(return_X_y=True)
    rows = np.round((rows - rows.mean(axis=0)) / rows.std(axis=0), 6)
    return desopt.minimize(
        "lr", None, (rows, 2.0 * classes - 1.0), rounds=60, step_size=0.3, regularization=1e-3,
        seed=1, eval_every=1, engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    by_round, by_bytes = figure.subplots(1, 2, sharey=True)
    by_round.plot(result.history["round"], result.history["loss"])
    by_bytes.plot(result.history["bytes_up"] / 1000, result.history["loss"])
    by_round.set(xlabel="rounds", ylabel="training loss", yscale="log")
    by_bytes.set(xlabel="kB sent by all workers")


if __name__ == "__main__":
    show(run, draw)
