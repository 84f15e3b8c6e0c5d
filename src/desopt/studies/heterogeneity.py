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
own rule. Where n is large, ZO-NSGD has half of the runs, on sorted rows only: its dense directions
take 30 to 40 times as long as the steps of DES-C there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

from desopt.studies.cases import Case, make_case
from desopt.studies.paper import PROBLEMS

SCALES = ("full", "smoke")
STEP_SIZES = (0.1, 0.3, 1.0, 3.0, 10.0)
#: No run of these numbers was used to choose anything in the methods but the step size of des-c.
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
#: Settings of the methods that have every step size.
METHODS: tuple[dict[str, Any], ...] = (
    {"method": "des-mr"},
    {"method": "des-c"},
    {"method": "des-c", "correction": "bits"},
)


def items(scale: str, data_dir: str | None) -> dict[str, list[Case]]:
    if scale == "smoke":
        few = {"susy-like": Data(1000, 10, 3)}
        return {"sorted": list(_cases(few, ("iid", "sorted"), (1.0,), runs=2))}
    found = {
        "sorted": _cases(DATA, ("iid", "sorted")),
        "dirichlet": _cases(DATA, ("dirichlet-0.3", "dirichlet-1", "dirichlet-0.1")),
        "quantity": _cases(DATA, ("quantity",)),
        "sites": _cases(SITES, ("iid", "sites"), workers=4),
    }
    return {name: list(cases) for name, cases in found.items()}


def _cases(
    sets: dict[str, Data], partitions: Sequence[str],
    step_sizes: Sequence[float] = STEP_SIZES, workers: int = 10, runs: int = RUNS,
) -> Iterable[Case]:  # fmt: skip
    for (name, data), problem, partition in product(sets.items(), PROBLEMS, partitions):
        for run in range(FIRST_RUN, FIRST_RUN + runs):
            base = make_case(
                data=name, problem=problem, partition=partition, method="des-mr", step_size=1.0,
                run=run, rows=data.rows, iterations=data.iterations, rounds=data.rounds,
                points=POINTS, workers=workers,
            )  # fmt: skip
            for settings, step in product(METHODS, step_sizes):
                yield base.varied(step_size=step, **settings)
            yield base.varied(method="des-c", step_size="auto")
            if name not in SPARSE or partition == "sorted":  # elsewhere on text it takes hours
                yield base.varied(method="zo-nsgd", step_size="auto")
