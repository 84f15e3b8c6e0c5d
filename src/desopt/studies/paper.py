"""The paper's experiments as cases (section 5 and the supplement).

=========  =================================================  ==============================
item       what varies                                        shown in
=========  =================================================  ==============================
curves     7 methods, 3 problems, data sets, 3 step sizes     Figures 1, 2, supplement
alpha      the same cases, compared over the step sizes       Figures 3, 4
momentum   beta, with des-mr and alpha = 1                    Figure 5
batch      b, with des-mr and alpha = 1; E N stays, T varies  Figure 6
=========  =================================================  ==============================

Table 1, the dimensions of the data sets, needs no run: every result records them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import product

from desopt.methods.registry import COMPARED
from desopt.studies.cases import Case, make_case
from desopt.studies.datasets import Dimensions, dimensions

PROBLEMS = ("lr", "nsvm", "lsvm")
STEP_SIZES = (0.1, 1.0, 10.0)
MOMENTA = (0.0, 0.2, 0.4, 0.6, 0.8)
BATCH_SIZES = (100, 500, 1000, 1500, 2000)
ITEMS = ("curves", "alpha", "momentum", "batch")

#: Table 1.
DATA = ("ijcnn1", "SUSY", "covtype", "mnist", "real-sim", "rcv1")
#: What represents a missing file: a part of it, or else a generated twin of the same dimensions.
STAND_INS = {
    "SUSY": ("susy-30k", "susy-like"),
    "real-sim": ("real-sim-like",),
    "rcv1": ("rcv1-subset", "rcv1-like"),
}
#: Sets that the paper does not have, for the supplement.
FURTHER = ("news20", "a9a", "mushrooms", "heart")


@dataclass(frozen=True)
class Scale:
    """The computational effort: runs, (K, E) for n <= 100 and for n > 100, limits.

    ``rows`` is the largest number of rows used of a data set; the paper's minibatch sizes are
    divided by ``batch_divisor``.
    """

    runs: int
    low: tuple[int, float]
    high: tuple[int, float]
    rows: int | None = None
    batch_divisor: int = 1
    data: tuple[str, ...] = (*DATA, *FURTHER)


SCALES = {
    "smoke": Scale(2, (10, 60), (10, 60), 1000, 20, ("susy-like", "real-sim-like")),
    "small": Scale(5, (100, 1250), (50, 625), 10_000, 2),
    "full": Scale(8, (100, 1000), (500, 5000)),
}


def default_data(scale: str, present: Sequence[str]) -> list[str]:
    """The scale's data sets that are available, and stand-ins of missing ones."""
    names = (representative(name, present) for name in SCALES[scale].data)
    return [name for name in names if name is not None]


def representative(name: str, present: Container[str]) -> str | None:
    """The data set itself, or the first of its stand-ins that is present."""
    return next((each for each in (name, *STAND_INS.get(name, ())) if each in present), None)


def items(
    scale: str, data: Sequence[str], rows: int | None = None, data_dir: str | None = None
) -> dict[str, list[Case]]:
    """The cases of every item on these data sets, of each at most ``rows`` rows."""
    chosen = SCALES[scale]
    curves: list[Case] = []
    momentum: list[Case] = []
    batch: list[Case] = []
    for name, run, problem in product(data, range(chosen.runs), PROBLEMS):
        base = _base(dimensions(name, data_dir), name, problem, run, chosen, rows)
        b = base.batch_size
        curves += [
            replace(base, method=method, step_size=alpha)
            for method, alpha in product(COMPARED, STEP_SIZES)
        ]
        momentum += [replace(base, momentum=beta) for beta in MOMENTA]
        batch += [replace(base, batch_size=size * b // 1000) for size in BATCH_SIZES]
    return {"curves": curves, "alpha": curves, "momentum": momentum, "batch": batch}


def _base(
    known: Dimensions, name: str, problem: str, run: int, scale: Scale, rows: int | None
) -> Case:
    """The case that the items vary: des-mr with alpha = 1."""
    cap = min(known.rows, scale.rows or known.rows, rows or known.rows)
    iterations, budget = scale.low if known.n <= 100 else scale.high
    return make_case(
        data=name, problem=problem, method="des-mr", step_size=1.0, run=run, iterations=iterations,
        budget=budget, batch_size=1000 // scale.batch_divisor,
        rows=None if cap == known.rows else cap,
    )  # fmt: skip
