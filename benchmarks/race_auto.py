"""The loss after one second: step_size="auto" against fixed step sizes, and what it costs a round.

Logistic regression with des-mr on one thread. Kernels are warm, and step sizes take turns, so that
ratios within a table mean something on a busy machine.

    python benchmarks/race_auto.py [SECONDS [SET ...]]      sets: news20 mnist covtype
"""

from __future__ import annotations

import sys
from statistics import mean, median
from typing import Any

import numpy as np

import desopt
from desopt.data import load, train_test
from desopt.objectives.scoring import LabelledRows

STEPS: tuple[float | str, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, "auto")
SEEDS = (201, 202, 203)


def race(rows: LabelledRows, step: float | str, seed: int, seconds: float) -> tuple[float, float]:
    """The loss after this time, and the milliseconds of a round."""
    settings: dict[str, Any] = {"method": "des-mr", "engine": "serial", "eval_every": 0}
    settings |= {"progress": False, "seed": seed, "step_size": step}
    x0 = np.zeros(rows.X.shape[1])
    if seconds == 0.0:
        result = desopt.minimize("lr", x0, (rows.X, rows.y), rounds=2, **settings)
    else:
        result = desopt.minimize(
            "lr", x0, (rows.X, rows.y), rounds=10**6, max_seconds=seconds, **settings
        )
    each = 1000 * seconds / max(1, result.nit)
    return rows.score(result.x, "lr", 1e-6)[0], each


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    for name in sys.argv[2:] or ("news20", "mnist", "covtype"):
        part = train_test(load(name), seed=0)[0]
        rows = LabelledRows(part.X, part.y)
        for step in (1.0, "auto"):
            race(rows, step, 0, 0.0)
        found: dict[float | str, list[tuple[float, float]]] = {step: [] for step in STEPS}
        for seed in SEEDS:
            for step in STEPS:
                found[step].append(race(rows, step, seed, seconds))
        print(f"{name}: loss after {seconds:g} s, mean of {len(SEEDS)} runs, and ms per round")
        for step, runs in found.items():
            loss, each = mean(r[0] for r in runs), median(r[1] for r in runs)
            print(f"  {step!s:>5}  {loss:.4f}  {each:6.1f}")


if __name__ == "__main__":
    main()
