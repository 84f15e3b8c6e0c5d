"""Three of ten workers have wrong labels

Their labels are flipped. The mean of all points follows them part of the way; the median of each
coordinate does not.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "15a5074c61a1bdbb"


def workers(liars: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    rows = rng.integers(-8, 9, (4_000, 20)) / 8.0
    labels = np.sign(rows @ rng.integers(-8, 9, 20) + 0.1)
    labels[rng.random(4_000) < 0.1] *= -1.0
    parts = [(rows[i::10], labels[i::10]) for i in range(10)]
    return [(X, -y if i < liars else y) for i, (X, y) in enumerate(parts)]


def fit(
    liars: int, aggregate: str, journal: Path | None = None
) -> tuple[desopt.Result, list[float]]:
    """The result, and the loss on the honest data by rounds."""
    X, y = (np.concatenate(part) for part in zip(*workers(0), strict=True))
    losses: list[float] = []

    def honest(row: desopt.Row) -> None:
        losses.append(float(np.mean(np.log1p(np.exp(-y * (X @ row.x))))))

    result = desopt.minimize(
        "lr", None, workers(liars), rounds=40, iterations=60, step_size=0.3, aggregate=aggregate,
        callbacks=[honest], engine="serial", journal=journal,
    )  # fmt: skip
    return result, losses


def run(journal: Path) -> desopt.Result:
    return fit(3, "median", journal)[0]


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    for liars, aggregate, style in ((0, "mean", "k-"), (3, "mean", "-"), (3, "median", "-")):
        name = f"{aggregate}, {liars} of 10 wrong" if liars else "all honest"
        axes.plot(fit(liars, aggregate)[1], style, label=name)
    axes.set(xlabel="rounds", ylabel="loss on honest data")
    axes.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
