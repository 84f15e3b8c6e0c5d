"""The loss after one second: step_size="auto" against fixed step sizes, and what it costs a round.

Logistic regression with des-mr on one thread. Seconds are the processor's, so that a busy machine
matters less; kernels are warm, and step sizes take turns.

    python benchmarks/race_auto.py [--seconds 1] [--iterations 100] [--set news20]
"""

from __future__ import annotations

import argparse
import time
from statistics import mean, median
from typing import Literal

import numpy as np

import desopt
from desopt.data import load, train_test
from desopt.objectives.scoring import LabelledRows

Size = float | Literal["auto"]

STEPS: tuple[Size, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, "auto")
SEEDS = (201, 202, 203)
SETS = ("news20", "mnist", "covtype")


def race(
    rows: LabelledRows, step: Size, seed: int, seconds: float, iterations: int
) -> tuple[float, float]:
    """The loss after this time, and the milliseconds of a round."""
    began = time.process_time()
    result = desopt.minimize(
        "lr", np.zeros(rows.X.shape[1]), (rows.X, rows.y), method="des-mr", engine="serial",
        eval_every=0, progress=False, seed=seed, step_size=step, iterations=iterations,
        rounds=10**6, callbacks=lambda _: time.process_time() - began >= seconds,
    )  # fmt: skip
    spent = time.process_time() - began
    return rows.score(result.x, "lr", 1e-6)[0], 1000 * spent / result.nit


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a run (1)")
    parser.add_argument("--iterations", type=int, default=100, help="K (100)")
    parser.add_argument("--set", action="append", choices=SETS, help="only this one; repeatable")
    given = parser.parse_args()
    for name in given.set or SETS:
        part = train_test(load(name), seed=0)[0]
        rows = LabelledRows(part.X, part.y)
        for step in STEPS[-2:]:
            race(rows, step, 0, 0.0, given.iterations)
        found: dict[Size, list[tuple[float, float]]] = {step: [] for step in STEPS}
        for seed in SEEDS:
            for step in STEPS:
                found[step].append(race(rows, step, seed, given.seconds, given.iterations))
        print(f"{name}: loss after {given.seconds:g} s, mean of {len(SEEDS)} runs; ms per round")
        for step, runs in found.items():
            loss, each = mean(r[0] for r in runs), median(r[1] for r in runs)
            print(f"  {step!s:>5}  {loss:.4f}  {each:6.1f}", flush=True)


if __name__ == "__main__":
    main()
