"""Mutations of your own

The coordinates belong together in blocks of four. A sampler that changes one block at a time knows
that; it draws from ``rng`` alone, so that anyone can draw the same steps again. Registered by name,
the journal finds it.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "0d9d3f33fbbc61e0"
BLOCK = 4


def one_block(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """One of n/4 blocks, so the factor sqrt(n/4) gives covariance I."""
    start = BLOCK * int(rng.integers(n // BLOCK))
    signs = 2.0 * rng.integers(0, 2, BLOCK) - 1.0
    return np.arange(start, start + BLOCK), np.sqrt(n // BLOCK) * signs


desopt.register("sampler", "one-block", one_block)


def coupled(x: Any) -> float:
    """A sum over blocks; within a block, numbers that add up to 4 and are alike."""
    total = 0.0
    for a, b, c, d in x.reshape(-1, BLOCK).tolist():
        wrong = a + b + c + d - 4.0
        total += 10.0 * wrong * wrong + (a - b) * (a - b) + (b - c) * (b - c) + (c - d) * (c - d)
    return total


def fit(sampler: str | None, journal: Path | None = None) -> desopt.Result:
    return desopt.minimize(
        coupled, np.zeros(40), method="des", sampler=sampler, workers=4, rounds=30, iterations=60,
        step_size=0.3, eval_every=1, engine="serial", journal=journal,
    )  # fmt: skip


def run(journal: Path) -> desopt.Result:
    return fit("one-block", journal)


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    for name, found in (("Gaussian", fit(None)), ("one block", result)):
        axes.semilogy(found.history["loss"], label=name)
    axes.set(xlabel="rounds", ylabel="objective")
    axes.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
