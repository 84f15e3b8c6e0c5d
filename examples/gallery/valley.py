"""A curved valley by CMA-ES

Rosenbrock's function, without data: ``method="cma-es"`` learns the direction of the valley and
follows it. The points are the means of the generations.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "8d8c8c01e3a55d90"


def rosenbrock(x: Any) -> float:
    a, b = float(x[0]), float(x[1])
    return (1.0 - a) * (1.0 - a) + 100.0 * (b - a * a) * (b - a * a)


def run(journal: Path) -> desopt.Result:
    return desopt.minimize(
        rosenbrock, [-1.5, 1.5], method="cma-es", step_size=0.3, max_evaluations=1_000, seed=1,
        engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    a, b = np.meshgrid(np.linspace(-2.0, 2.0, 200), np.linspace(-1.0, 3.0, 200))
    f = (1.0 - a) ** 2 + 100.0 * (b - a * a) ** 2
    axes.contour(a, b, f, levels=np.geomspace(0.1, 1000.0, 9), colors="#cccccc", linewidths=0.8)
    path = np.array([desopt.replay(journal, round=t) for t in range(result.nit + 1)])
    axes.plot(*path.T, "o-", ms=3)
    axes.plot(1.0, 1.0, "k*", ms=12)
    axes.set(title=f"{result.nfev} values, {result.fun:.1e} at the end")


if __name__ == "__main__":
    show(run, draw)
