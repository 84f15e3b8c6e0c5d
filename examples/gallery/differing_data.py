"""Workers whose data differ

Every worker has rows of one label only. Searches on such data lead apart, and the mean of their
ends is no progress. ``des-c`` corrects the comparisons, and ends where ``des-mr`` does when rows
are mixed.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "5174366a4c810fff"


def fit(method: str, journal: Path | None = None, *, apart: bool = True) -> desopt.Result:
    rng = np.random.default_rng(0)
    rows = 1.0 + rng.integers(-16, 17, (2_000, 20)) / 8.0
    labels = np.sign((rows - 1.0).sum(axis=1) + rng.integers(-40, 41, 2_000) / 8.0 + 0.01)
    rows = np.column_stack([rows, np.full(2_000, 4.0)])  # for an intercept
    order = np.argsort(labels, kind="stable") if apart else np.arange(2_000)
    data = [(rows[part], labels[part]) for part in np.array_split(order, 10)]
    return desopt.minimize(
        "lr", None, data, method=method, step_size=0.3, rounds=40, eval_every=1, engine="serial",
        journal=journal,
    )  # fmt: skip


def run(journal: Path) -> desopt.Result:
    return fit("des-c", journal)


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    mixed = fit("des-mr", apart=False)
    for name, found in (("des-mr", fit("des-mr")), ("des-c", result), ("des-mr, mixed", mixed)):
        axes.plot(found.history["loss"], label=name)
    axes.set(xlabel="rounds", ylabel="training loss", yscale="log")
    axes.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
