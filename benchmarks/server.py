"""The cost of a server's merge: des-mr answers of 63 bytes, rebuilt and added up in order.

n = 47,236, K = 500, l = 8. Answers are generated during the merge, as if they came from a network:
memory must not depend on their number. The merge uses all available cores; run it with
``taskset -c 0`` for one.

    python benchmarks/server.py
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import numpy as np

from desopt.contract.types import Answer
from desopt.methods import DES
from desopt.system.parallel import cores

N, ITERATIONS, ACCEPTED = 47_236, 500, 0.3
COUNTS = (1_000, 10_000, 100_000)


def answers(count: int) -> Iterator[Answer]:
    """Answers with a typical share of accept bits, from a few masks."""
    masks = np.random.default_rng(0).random((256, ITERATIONS)) < ACCEPTED
    payloads = [row.tobytes() for row in np.packbits(masks, axis=1, bitorder="little")]
    return (Answer(worker, payloads[worker % 256]) for worker in range(count))


def peak_megabytes() -> float:
    """The peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kB, on Linux


def main() -> None:
    algorithm = DES(iterations=ITERATIONS)
    state = algorithm.init(np.zeros(N))
    algorithm.merge(state, answers(100))  # compiles
    print(f"{cores()} cores")
    print(f"{'answers':>8} {'seconds':>8} {'answers/s':>10} {'peak MB':>8}")
    for count in COUNTS:
        began = time.perf_counter()
        algorithm.merge(state, answers(count))
        seconds = time.perf_counter() - began
        print(f"{count:8,} {seconds:8.2f} {count / seconds:10,.0f} {peak_megabytes():8.0f}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
