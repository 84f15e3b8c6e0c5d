"""What a round of des-c costs beside one of des-mr: the workers' iterations, and all of it.

Logistic regression on one thread, ten workers. Seconds are the processor's, and the methods take
turns: the ratio of a turn is that of two medians measured within a second.

    python benchmarks/corrected.py [--set rcv1-subset] [--iterations 500] [--turns 15]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import desopt
from desopt.contract.types import Answer, FloatArray, Task
from desopt.data import DataSet, load
from desopt.engines.serial import Serial

METHODS: dict[str, dict[str, Any]] = {
    "des-mr": {"method": "des-mr"},
    "des-c": {"method": "des-c"},
    "des-c, bits only": {"method": "des-c", "correction": "bits"},
}
SETS = ("rcv1-subset", "news20", "mnist", "a9a")
ROUNDS = 24


class Timed(Serial):
    """Notes what the workers take in every round."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def round(self, task: Task) -> Iterator[Answer]:
        began = time.process_time()
        answers = list(super().round(task))
        self.seconds.append(time.process_time() - began)
        return iter(answers)


def milliseconds(data: DataSet, settings: dict[str, Any], iterations: int) -> FloatArray:
    """Of the workers and of a whole round: medians, without the first rounds (no estimates)."""
    ends, engine = list[float](), Timed()
    desopt.minimize(
        "lr", None, (data.X, data.y), **settings, engine=engine, eval_every=0, progress=False,
        seed=5, step_size=0.3, iterations=iterations, rounds=ROUNDS,
        callbacks=lambda _: ends.append(time.process_time()),
    )  # fmt: skip
    return 1000 * np.array([np.median(engine.seconds[3:]), np.median(np.diff(ends)[2:])])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--set", action="append", choices=SETS, help="only this one; repeatable")
    parser.add_argument("--iterations", type=int, default=500, help="K (500)")
    parser.add_argument("--turns", type=int, default=15, help="of each method (15)")
    given = parser.parse_args()
    for name in given.set or SETS:
        data = load(name)
        for settings in METHODS.values():
            milliseconds(data, settings, given.iterations)  # compiles
        turns = np.array(
            [
                [milliseconds(data, settings, given.iterations) for settings in METHODS.values()]
                for _ in range(given.turns)
            ]
        )
        for what, part in zip(("workers", "round"), np.moveaxis(turns, -1, 0), strict=True):
            print(f"{name}, {what}: ms, and the ratio to des-mr with its quartiles")
            for method, times in zip(METHODS, part.T, strict=True):
                low, ratio, high = np.quantile(times / part[:, 0], [0.25, 0.5, 0.75])
                line = f"{np.median(times):6.2f}  {ratio:.2f} ({low:.2f} to {high:.2f})"
                print(f"  {method:18} {line}")


if __name__ == "__main__":
    main()
