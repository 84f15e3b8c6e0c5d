"""A hundred thousand coordinates, sixty bytes an answer

Sparse rows, as texts have them: 100,000 columns, 40 words in a row. A worker's answer in a round
has 61 bytes; x has 800,000. The dashed line is what ten dense copies of x per round would take.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from show import show

import desopt

DIGEST = "f0473ed0ecdc2903"
ROWS, COLUMNS, WORDS = 4_000, 100_000, 40


def texts() -> tuple[Any, Any]:
    """Rows of 40 words; 200 of the words are frequent, and the first 50 of these speak for +1."""
    rng = np.random.default_rng(0)
    frequent = rng.integers(0, 200, (ROWS, WORDS // 4))
    rare = rng.integers(200, COLUMNS, (ROWS, WORDS - WORDS // 4))
    columns = np.concatenate([frequent, rare], axis=1)
    entries = (np.full(columns.size, 0.25), columns.ravel(), np.arange(0, columns.size + 1, WORDS))
    labels = np.where((frequent < 50).sum(axis=1) > 2, 1.0, -1.0)
    return sparse.csr_array(entries, shape=(ROWS, COLUMNS)), labels


def run(journal: Path) -> desopt.Result:
    return desopt.minimize(
        "lr", None, texts(), rounds=60, step_size=0.3, batch_size=400, eval_every=1,
        engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    left, right = figure.subplots(1, 2)
    left.plot(result.history["loss"])
    left.set(xlabel="rounds", ylabel="training loss")
    right.semilogy(result.history["bytes_up"], label="sent by ten workers")
    right.semilogy(10 * 8 * COLUMNS * result.history["round"], "--", label="dense points")
    right.set(xlabel="rounds", ylabel="bytes")
    right.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
