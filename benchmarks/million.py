"""A million simulated workers on one machine, a thousandth of them per round.

Every worker has 20 rows, generated from its number on demand; the data of at most 1,024 workers
are in memory. The problem is logistic regression with n = 100. Workers are heterogeneous: each
sees its own part of the space. The loss is that of workers that never take part.

    python benchmarks/million.py
"""

from __future__ import annotations

import resource
import time

import numpy as np

import desopt
from desopt.contract.types import FloatArray

WORKERS, PARTICIPATION, ROUNDS, ITERATIONS, BATCH = 1_000_000, 0.001, 50, 100, 20
N, ROWS, HELD_OUT = 100, 20, 2_000
TRUTH = np.random.default_rng(0).standard_normal(N)


def load(worker: int) -> tuple[FloatArray, FloatArray]:
    """The rows of one worker: around its own centre, with noisy labels."""
    rng = np.random.default_rng((1, worker))
    X = (rng.standard_normal(N) + rng.standard_normal((ROWS, N))) / np.sqrt(N)
    return X, np.where(X @ TRUTH + 0.3 * rng.standard_normal(ROWS) > 0, 1.0, -1.0)


def held_out() -> tuple[FloatArray, FloatArray]:
    """Rows of workers beyond the million."""
    X, y = zip(*(load(WORKERS + i) for i in range(HELD_OUT)), strict=True)
    return np.concatenate(X), np.concatenate(y)


def megabytes() -> float:
    """The peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kB, on Linux


def main() -> None:
    X, y = held_out()

    def loss(x: FloatArray) -> float:
        return float(np.logaddexp(0, -y * (X @ x)).mean())

    def report(row: desopt.Row) -> None:
        if row["round"] % 10 == 0:
            print(f"{row['round']:6} {loss(row.x):8.4f} {row['answers']:8} "
                  f"{row['bytes_up'] / 1e6:8.2f} {row['bytes_down'] / 1e6:8.1f} "
                  f"{row['seconds']:8.1f} {megabytes():8.0f}", flush=True)  # fmt: skip

    print(
        f"{WORKERS:,} workers, {PARTICIPATION:.1%} of them per round; {megabytes():.0f} MB so far"
    )
    names = "round", "loss", "answers", "MB up", "MB down", "seconds", "peak MB"
    print(f"{names[0]:>6}" + "".join(f" {name:>8}" for name in names[1:]))
    print(f"{0:6} {loss(np.zeros(N)):8.4f}")
    began = time.perf_counter()
    result = desopt.minimize(
        "lr",
        np.zeros(N),
        load,
        workers=WORKERS,
        participation=PARTICIPATION,
        rounds=ROUNDS,
        iterations=ITERATIONS,
        batch_size=BATCH,
        step_size=1.0,
        engine="serial",
        eval_every=0,
        callbacks=[report],
    )
    wrong = np.mean(y * (X @ result.x) <= 0)
    print(f"held-out loss {loss(result.x):.4f}, wrong side {wrong:.1%}; "
          f"{time.perf_counter() - began:.0f} s in all")  # fmt: skip


if __name__ == "__main__":
    main()
