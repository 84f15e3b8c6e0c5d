"""A simulator that fails

Where the solver diverges there is no value: the function raises ``desopt.Failed``, and the run goes
on. ``log_values=True`` keeps every point, so that the border can be seen afterwards.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "ca0eb7d9de5c21fb"


def simulate(x: Any) -> float:
    a, b = float(x[0]), float(x[1])
    if a * a + b * b < 1.0 or a + b < -0.5:
        raise desopt.Failed("the solver diverged")
    return (a - 0.8) * (a - 0.8) + 3.0 * (b - 0.5) * (b - 0.5)


def run(journal: Path) -> desopt.Result:
    return desopt.minimize(
        simulate, [-1.5, 2.0], method="cma-es", step_size=0.3, max_evaluations=200,
        log_values=True, engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    rows = [(*each.x, each.failed) for each in result.evaluations if each.x is not None]
    points = np.array([row[:2] for row in rows])
    failed = np.array([row[2] for row in rows], bool)
    axes.scatter(*points[~failed].T, s=10, label="value")
    axes.scatter(*points[failed].T, s=14, marker="x", label="failed")
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), "k-", lw=0.8)
    axes.plot(*result.x, "k*", ms=12, label="found")
    axes.set(aspect="equal", title=f"{failed.sum()} of {len(rows)} values failed")
    axes.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
