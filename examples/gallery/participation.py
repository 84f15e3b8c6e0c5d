"""A few of many devices

A hundred devices with 40 rows each. In every round all of them are asked, or 30, or 10, drawn from
the seed: nobody has to agree on who. By function values, fewer devices per round are no worse.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "30321fc4dd4949f4"


def fit(share: float, rounds: int, journal: Path | None = None) -> desopt.Result:
    rng = np.random.default_rng(0)
    rows = rng.integers(-8, 9, (4_000, 20)) / 8.0
    labels = np.sign(rows @ rng.integers(-8, 9, 20) + rng.integers(-16, 17, 4_000) / 8.0 + 0.1)
    return desopt.minimize(
        "lr", None, (rows, labels), workers=100, rounds=rounds, iterations=50, participation=share,
        step_size=0.5, eval_every=1, engine="serial", journal=journal,
    )  # fmt: skip


def run(journal: Path) -> desopt.Result:
    return fit(0.1, 60, journal)


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    for share, found in ((1.0, fit(1.0, 12)), (0.3, fit(0.3, 30)), (0.1, result)):
        history = found.history
        axes.plot(history["evaluations"], history["loss"], label=f"participation={share}")
    axes.set(xlabel="function values", ylabel="training loss", xscale="log", yscale="log")
    axes.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
