"""A policy from episodes

A cart pushes left or right, 50 times a second, to keep a pole upright. The value is the share of
time lost when it falls: a count, which has no gradient. Four workers play ten episodes each per
value, other ones in every round.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt
from desopt.objectives.control import CartPole

DIGEST = "c6d7421703b35705"
POLE = CartPole(hidden=4, spread=0.1)


def run(journal: Path) -> desopt.Result:
    x0 = np.round(0.1 * np.random.default_rng(0).standard_normal(24), 6)
    return desopt.minimize(
        POLE, x0, POLE.episodes, workers=4, rounds=20, iterations=50, batch_size=10,
        engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    starts = POLE.episodes(np.random.default_rng(1), 20)
    steps = [
        [POLE.balanced(desopt.replay(journal, round=t), start) for start in starts]
        for t in range(21)
    ]
    axes.plot(steps, color="#cccccc", lw=0.8)
    axes.plot(np.median(steps, axis=1), lw=2.5)
    axes.set(xlabel="rounds", ylabel="steps balanced", title="20 new episodes, and their median")


if __name__ == "__main__":
    show(run, draw)
