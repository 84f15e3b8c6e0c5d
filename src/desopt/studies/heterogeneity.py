"""Workers whose data differ: what DES loses by it, and how much of that DES-C wins back.

==========  ==========================================================================
item        cases
==========  ==========================================================================
sorted      rows dealt at random (iid) and in the order of their labels (sorted)
dirichlet   Dirichlet shares of the labels, concentration 1, 0.3 and 0.1
quantity    shards of very different sizes, of the same distribution
sites       four hospitals as they are, and their rows dealt at random
==========  ==========================================================================

M = 10 (four hospitals), b = 1000, beta = 0.5. DES-mR, DES-C with full answers and with bits only,
each with every step size of the grid; DES-C with full answers and ZO-NSGD with "auto", each by its
own rule. ZO-NSGD is left out where n is large: its dense directions take hours there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

from desopt.studies.cases import Case, make_case
from desopt.studies.paper import PROBLEMS

#: "short" has a part of the grid for sparse sets, and the bits-only form for iid and sorted rows.
SCALES = ("full", "short", "smoke")
STEP_SIZES = (0.1, 0.3, 1.0, 3.0, 10.0)
SHORT_STEPS = {"des-mr": STEP_SIZES[:4], "des-c": STEP_SIZES[:3]}
SHORT_BITS = {"des-c bits": STEP_SIZES[:3]}
#: No run of these numbers was used to choose anything in the methods.
FIRST_RUN = 200


class Data(NamedTuple):
    """Rows used (None: all), K and T."""

    rows: int | None
    iterations: int
    rounds: int


#: Dense sets with n <= K but mnist; sparse ones with n much larger than K.
DENSE = {
    "ijcnn1": Data(None, 200, 60),
    "a9a": Data(None, 200, 60),
    "mushrooms": Data(None, 200, 60),
    "covtype": Data(50_000, 200, 60),
    "mnist": Data(20_000, 200, 60),
}
SPARSE = {
    "news20": Data(None, 500, 300),
    "rcv1-subset": Data(None, 500, 300),
}
DATA = DENSE | SPARSE
SITES = {"heart-sites": Data(None, 100, 60)}
RUNS, POINTS = 8, 4
#: Methods with their settings.
METHODS: dict[str, dict[str, Any]] = {
    "des-mr": {"method": "des-mr"},
    "des-c": {"method": "des-c"},
    "des-c bits": {"method": "des-c", "correction": "bits"},
}


def items(scale: str, data_dir: str | None) -> dict[str, list[Case]]:
    if scale == "smoke":
        few = {"susy-like": Data(1000, 10, 3)}
        return {"sorted": list(_cases(few, ("iid", "sorted"), scale, (1.0,), runs=2))}
    found = {
        "sorted": _cases(DATA, ("iid", "sorted"), scale),
        "dirichlet": _cases(DATA, ("dirichlet-0.3", "dirichlet-1", "dirichlet-0.1"), scale),
        "quantity": _cases(DATA, ("quantity",), scale),
        "sites": _cases(SITES, ("iid", "sites"), scale, workers=4),
    }
    return {name: list(cases) for name, cases in found.items()}


def _cases(
    sets: dict[str, Data], partitions: Sequence[str], scale: str,
    step_sizes: Sequence[float] = STEP_SIZES, workers: int = 10, runs: int = RUNS,
) -> Iterable[Case]:  # fmt: skip
    for (name, data), problem, partition in product(sets.items(), PROBLEMS, partitions):
        dense = name not in SPARSE
        grids: dict[str, Sequence[float]] = dict.fromkeys(METHODS, step_sizes)
        if not dense and scale == "short":
            grids = {**SHORT_STEPS, **(SHORT_BITS if partition in ("iid", "sorted") else {})}
        for run in range(FIRST_RUN, FIRST_RUN + runs):
            base = make_case(
                data=name, problem=problem, partition=partition, method="des-mr", step_size=1.0,
                run=run, rows=data.rows, iterations=data.iterations, rounds=data.rounds,
                points=POINTS, workers=workers,
            )  # fmt: skip
            for label, grid in grids.items():
                for step in grid:
                    yield base.varied(step_size=step, **METHODS[label])
            yield base.varied(method="des-c", step_size="auto")
            if dense:
                yield base.varied(method="zo-nsgd", step_size="auto")
