"""DES and its rivals: who is ahead at equal round trips, and at equal bytes?

=========  =============================================================================
item       cases
=========  =============================================================================
tuning     every method with every step size of its grid, one run
rivals     every method with the best of them, at the end of the run and at the bytes that
           the run of DES takes; two runs with other seeds; and zo-nsgd with "auto"
=========  =============================================================================

M = 10, K = 100 function values per worker and round, b = 250, beta = 0.5. Data are dealt at random
(iid), or in the order of their labels (sorted), which leaves most workers with one label. The grid
is {0.1, 0.3, 1, 3} times the centre of a method on a data set, and 0.03 or 10 times where the best
is at the edge. ``CHOSEN`` are the best step sizes of ``tuning`` in committed results;
``report.rivals.choose`` finds them in any.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from desopt.studies.cases import Case, make_case

SCALES = ("full", "smoke")
PARTITIONS = ("iid", "sorted")
#: The run of ``tuning``, and those of ``rivals``.
TUNING, RUNS = 100, (0, 1)
GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
#: The factors that are tried in any case.
BASIC = (0.1, 0.3, 1.0, 3.0)


class Data(NamedTuple):
    """Rows used (None: all), problems and rounds."""

    rows: int | None
    problems: tuple[str, ...] = ("lr", "nsvm", "lsvm")
    rounds: int = 30


DATA = {
    "ijcnn1": Data(None),
    "covtype": Data(50_000),
    "susy-30k": Data(None),
    "mnist": Data(20_000, rounds=20),
    "rcv1-subset": Data(None),
}
SMOKE = {"susy-like": Data(1000, ("lr",), rounds=3)}

#: The centre of a method's grid on the data sets, in their order.
CENTRES: dict[str, tuple[float, ...]] = {
    "des-mr": (3.0, 3.0, 3.0, 3.0, 3.0),
    "des": (3.0, 3.0, 3.0, 1.0, 3.0),
    "des-c": (1.0, 1.0, 1.0, 0.3, 1.0),
    "zo-nsgd": (10.0, 3.0, 3.0, 3.0, 100.0),
    "feedsign": (10.0, 1.0, 1.0, 0.3, 3.0),
    "decomfl": (10.0, 3.0, 1.0, 0.1, 10.0),
    "fedkseed": (1.0, 1.0, 0.3, 0.03, 10.0),
    "fed-zo-sgd": (10.0, 10.0, 3.0, 0.3, 10.0),
    "zo-signsgd": (1.0, 0.3, 0.3, 0.03, 1.0),
    "fedavg-es": (1.0, 1.0, 1.0, 0.3, 1.0),
}
#: Methods with a rule for the step size.
AUTO = ("zo-nsgd",)

#: The best factors of the grid, for every instance in order: of the loss at the end and, where it
#: is another, of that at the bytes of DES.
CHOSEN: dict[str, str] = {
    "des-mr": (
        "0.3 10 1 0.1 0.3 1 0.3 1 1 0.1 1 0.03 0.3 1 3 0.3 0.1 0.1 0.1 0.03 0.3 0.3 0.1 0.03 1 "
        "0.3 1 3 0.3 0.3"
    ),
    "des": (
        "0.3 10 3 0.1 0.3 0.3 0.3 0.03 1 0.1 1 0.03 0.3 0.3 3 0.3 0.3 0.1 0.1 0.1 0.3 3 0.1 0.1 "
        "0.3 0.3 0.3 0.3 0.3 0.3"
    ),
    "zo-nsgd": (
        "1 1 0.3/1 10/1 1 1 1/0.3 1/0.3 10 10/3 0.3/1 0.3 1/0.3 0.3 3/1 3/0.3 0.3 0.3 1 1 3/10 "
        "3 0.3/1 1 1 1 1/3 1/3 1 1"
    ),
    "feedsign": "1 0.1 0.3 0.3 0.3 0.1 3 10 10 10 1 10 1 3 10 10 1 10 1 3 3 10 1 3 1 3 1 3 1 1",
    "decomfl": (
        "3 3/1 3 3 1 1/0.3 0.3 0.3 10/3 10 0.3 0.3/1 1/0.3 0.3 10 10/1 0.3 0.3 3 3 10 10 1 1 3 "
        "3 1/3 1/3 1 1"
    ),
    "fedkseed": (
        "3/10 3/10 10 3/10 1/3 1 1 0.1/0.3 3 10/3 0.3 0.1/0.3 1 0.3 10/3 10/3 0.3 0.3 1/3 0.3/1 "
        "10 3/10 0.3/1 0.3/1 0.3 0.3 0.3 0.1/0.3 0.1/0.3 0.1"
    ),
    "fed-zo-sgd": (
        "3 3/0.3 3 3 1/0.3 1/0.1 1/0.3 0.03/0.1 3/1 1/0.1 0.3 0.03/0.1 1 0.3/0.1 3 1/0.3 0.3 "
        "0.3/0.1 1 0.3/0.1 3 1/0.3 0.3 0.1 3 1 1 1 1 0.3/1"
    ),
    "zo-signsgd": (
        "3/1 0.1/1 10/1 1/3 1 0.1/0.3 1/0.3 0.3 10 10 1/3 1 0.3/0.1 3/0.03 10 10 0.3 3/0.3 1/3 "
        "3/1 10/3 10 1/3 3/1 1 1 1 1 0.3/1 0.3/1"
    ),
    "des-c": (
        "1 1/3 3/1 1 0.3/1 1 1 3 1 0.3/1 1 0.3/0.1 0.3 1 3 0.1/0.3 0.3 3 0.3 0.3 1 1/10 0.3 0.3 "
        "1 1 1/3 1 1 1"
    ),
    "fedavg-es": (
        "1 0.1 3 0.3 1 0.1 1 0.3 10 1 1 0.3 0.3 3 1 1 0.3 0.3 1 1 3 10 0.3 1 3 3 3 3 3 3"
    ),
}


class Instance(NamedTuple):
    """A problem on a data set, dealt in one way to the workers."""

    data: str
    problem: str
    partition: str


def instances() -> list[Instance]:
    return [
        Instance(name, problem, partition)
        for name, data in DATA.items()
        for problem, partition in product(data.problems, PARTITIONS)
    ]


def items(scale: str, data_dir: str | None) -> dict[str, list[Case]]:
    if scale == "smoke":
        return _smoke()
    tuning = [
        _case(instance, DATA[instance.data], method, step, TUNING)
        for instance in instances()
        for method in CENTRES
        for step in _tried(instance, method)
    ]
    rivals = [
        _case(instance, DATA[instance.data], method, step, run)
        for instance in instances()
        for method, step in _best(instance)
        for run in RUNS
    ]
    return {"tuning": tuning, "rivals": rivals}


def grid(method: str, data: str) -> list[float]:
    """The step sizes of a method on a data set, one for each factor of ``GRID``."""
    centre = CENTRES[method][list(DATA).index(data)]
    return [float(f"{centre * factor:.6g}") for factor in GRID]


def _tried(instance: Instance, method: str) -> list[float]:
    """The step sizes of ``tuning``: the basic ones, and those next to the best."""
    steps = grid(method, instance.data)
    tried = {GRID.index(factor) for factor in BASIC}
    if method in CHOSEN:
        for step in chosen(instance, method):
            best = steps.index(step)
            tried |= {best - 1, best, best + 1} & set(range(len(GRID)))
    return [steps[place] for place in sorted(tried)]


def chosen(instance: Instance, method: str) -> tuple[float, float]:
    """The step sizes of ``rivals``: for the end of the run, and for the bytes of DES."""
    steps = grid(method, instance.data)
    factors = CHOSEN[method].split()[instances().index(instance)].split("/")
    best = [steps[GRID.index(float(factor))] for factor in factors]
    return best[0], best[-1]


def _best(instance: Instance) -> Iterator[tuple[str, float | str]]:
    """Methods with the step sizes of ``rivals`` on an instance."""
    for method in CHOSEN:
        for step in dict.fromkeys(chosen(instance, method)):
            yield method, step
    for method in AUTO:
        yield method, "auto"


def _smoke() -> dict[str, list[Case]]:
    (name, data), methods = *SMOKE.items(), ("des", *AUTO)
    here = [Instance(name, data.problems[0], partition) for partition in PARTITIONS]
    tuning = [_case(i, data, method, step, TUNING) for i in here for method in methods
              for step in (0.3, 1.0)]  # fmt: skip
    rivals = [_case(i, data, method, 1.0, run) for i in here for method in methods
              for run in RUNS]  # fmt: skip
    rivals += [_case(i, data, method, "auto", run) for i in here for method in AUTO
               for run in RUNS]  # fmt: skip
    return {"tuning": tuning, "rivals": rivals}


def _case(instance: Instance, data: Data, method: str, step: float | str, run: int) -> Case:
    return make_case(
        data=instance.data, problem=instance.problem, partition=instance.partition, method=method,
        step_size=step, run=run, rows=data.rows, rounds=data.rounds, iterations=100,
        batch_size=250, points=15,
    )  # fmt: skip
