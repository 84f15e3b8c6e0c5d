"""``step_size="auto"`` against the best of a grid of fixed step sizes, at the same budget.

=========  ====================================================================================
item       cases
=========  ====================================================================================
linear     three losses on eight data sets, ten workers; more of nsvm on covtype, whose basins
           are traps
functions  noisy test functions (``studies.functions``), ten workers
few        one, two and four workers
scales     data or variables times 2^10 and 2^-10, and values times 2^20: with "auto" only
=========  ====================================================================================

An instance is a problem, a data set, a sampler, and M, K and T. Every instance has the step sizes
of ``GRID`` and "auto", three runs each. K goes from 10 to 1600, T from 5 to 500. The rule's
constants were chosen with other seeds, in part on other instances (docs/step-size.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from desopt.contract.types import FloatArray
from desopt.studies.cases import Case, make_case
from desopt.studies.functions import FUNCTIONS
from desopt.studies.problems import NO_DATA

SCALES = ("full", "smoke")
GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
AUTO = "auto"
#: The runs, and seeds, of each instance.
RUNS = (101, 102, 103)
#: Losses and errors recorded of a run besides the first; the last one counts.
POINTS = 4


class Instance(NamedTuple):
    """What is minimised, by which sampler, and M, K and T."""

    data: str
    problem: str
    method: str
    iterations: int
    rounds: int
    workers: int = 10

    def case(self, step_size: float | str, run: int, problem: str | None = None) -> Case:
        # rows that the quadratic draws are the noise; those of the others are only averaged
        batch = 100 if self.problem == "quadratic" else 1000
        return make_case(
            data=self.data, problem=problem or self.problem, method=self.method,
            iterations=self.iterations, rounds=self.rounds, workers=self.workers,
            batch_size=batch, step_size=step_size, run=run, points=min(POINTS, self.rounds),
        )  # fmt: skip


# K and T of the linear models: K T is about 5,000, but for T >= 5.
_SHAPES = ((100, 50), (500, 10), (10, 500), (1600, 5), (50, 100), (200, 25), (20, 250), (800, 6))
_METHODS = ("des-mr", "des-mg", "des")
_DATA = ("ijcnn1", "covtype", "a9a", "mushrooms", "susy-30k", "mnist", "rcv1-subset", "news20")
_LOSSES = ("lr", "nsvm", "lsvm")


def _linear() -> Iterator[Instance]:
    for i, data in enumerate(_DATA):
        for j, problem in enumerate(_LOSSES):
            method, shape = _METHODS[(i + j) % 3], _SHAPES[(i + 3 * j) % 8]
            if method == "des" and data in ("rcv1-subset", "news20"):
                method = "des-mg"  # O(n) per step: 62,061 numbers
            yield Instance(data, problem, method, *shape)
    yield Instance("covtype", "nsvm", "des-mr", 100, 100)
    yield Instance("covtype", "nsvm", "des-mg", 400, 20)


def _functions() -> Iterator[Instance]:
    for problem, method, iterations, rounds in (
        ("sphere", "des-mr", 100, 30),
        ("sphere", "des", 10, 300),
        ("ellipsoid", "des-mg", 400, 10),
        ("ellipsoid", "des", 50, 60),
        ("rosenbrock", "des-mr", 100, 40),
        ("rosenbrock", "des-mg", 1600, 5),
        ("quadratic", "des-mr", 20, 120),
        ("quadratic", "des", 200, 15),
        ("unsteady-10", "des-mg", 100, 30),
        ("unsteady-10", "des", 10, 300),
        ("unsteady-100", "des-mr", 50, 50),
        ("unsteady-1000", "des-mr", 400, 12),
        ("unsteady-1000", "des", 10, 60),
    ):
        yield Instance(NO_DATA, problem, method, iterations, rounds)


def _few() -> Iterator[Instance]:
    for workers in (1, 2, 4):
        for data, problem, method, iterations, rounds in (
            ("ijcnn1", "lr", "des-mr", 100, 100),
            ("a9a", "nsvm", "des", 100, 50),
            ("covtype", "lsvm", "des-mg", 100, 100),
            ("mnist", "lr", "des-mr", 500, 20),
            ("mushrooms", "lsvm", "des-mr", 50, 200),
            (NO_DATA, "sphere", "des", 100, 40),
            (NO_DATA, "quadratic", "des-mr", 100, 50),
            (NO_DATA, "unsteady-10", "des-mg", 100, 40),
        ):
            yield Instance(data, problem, method, iterations, rounds, workers)


#: Instances of ``linear`` and ``functions``, or like them, whose variables are scaled.
_SCALED = (
    Instance("ijcnn1", "lr", "des-mr", 100, 50),
    Instance("a9a", "lsvm", "des-mg", 50, 100),
    Instance("mushrooms", "nsvm", "des-mr", 50, 100),
    Instance(NO_DATA, "sphere", "des-mr", 100, 30),
    Instance(NO_DATA, "rosenbrock", "des-mr", 100, 40),
    Instance(NO_DATA, "quadratic", "des-mr", 20, 120),
)
#: Those whose values are.
_TIMES = ("sphere", "rosenbrock", "quadratic")

# --- the scaled problems, as module:name ---------------------------------------------------------

UP, DOWN, TIMES = 2.0**10, 2.0**-10, 2.0**20


def _margins(x: FloatArray, batch: Any, scale: float) -> FloatArray:
    """Of data times ``scale``; the penalty, times its square, makes it the problem as it was."""
    Z, y = batch
    margins: FloatArray = y * (Z @ (scale * x))
    return margins


def _penalised(losses: FloatArray, x: FloatArray, scale: float) -> float:
    return float(np.mean(losses) + 5e-7 * np.sum((scale * x) ** 2))


def lr_up(x: FloatArray, batch: Any) -> float:
    return _penalised(np.logaddexp(0.0, -_margins(x, batch, UP)), x, UP)


def lr_down(x: FloatArray, batch: Any) -> float:
    return _penalised(np.logaddexp(0.0, -_margins(x, batch, DOWN)), x, DOWN)


def nsvm_up(x: FloatArray, batch: Any) -> float:
    return _penalised(1.0 - np.tanh(_margins(x, batch, UP)), x, UP)


def nsvm_down(x: FloatArray, batch: Any) -> float:
    return _penalised(1.0 - np.tanh(_margins(x, batch, DOWN)), x, DOWN)


def lsvm_up(x: FloatArray, batch: Any) -> float:
    return _penalised(np.maximum(0.0, 1.0 - _margins(x, batch, UP)), x, UP)


def lsvm_down(x: FloatArray, batch: Any) -> float:
    return _penalised(np.maximum(0.0, 1.0 - _margins(x, batch, DOWN)), x, DOWN)


# the variables of a function times 1 / scale are its data times scale
sphere_up, sphere_down = (FUNCTIONS["sphere"].scaled(x=1.0 / s) for s in (UP, DOWN))
rosenbrock_up, rosenbrock_down = (FUNCTIONS["rosenbrock"].scaled(x=1.0 / s) for s in (UP, DOWN))
quadratic_up, quadratic_down = (FUNCTIONS["quadratic"].scaled(x=1.0 / s) for s in (UP, DOWN))
sphere_times, rosenbrock_times, quadratic_times = (
    FUNCTIONS[name].scaled(value=TIMES) for name in _TIMES
)


def variant(problem: str, how: str) -> str:
    """The name of a scaled problem."""
    return f"{__name__}:{problem}_{how}"


def base_of(problem: str) -> tuple[str, str]:
    """The problem that a name is a variant of, and how it was scaled ("" if it is not)."""
    module, _, name = problem.partition(":")
    if module != __name__:
        return problem, ""
    base, _, how = name.rpartition("_")
    return base, how


def items(scale: str, data_dir: str | None = None) -> dict[str, list[Case]]:
    """The cases of every item."""
    if scale == "smoke":
        small = [Instance(NO_DATA, name, "des-mr", 20, 5) for name in _TIMES]
        few = [each._replace(workers=2) for each in small]
        twin = [Instance("susy-like", problem, "des-mr", 20, 5) for problem in _LOSSES]
        found = {"linear": twin, "functions": small, "few": few, "scales": small}
        cases = {
            name: list(_cases(each, (101, 102), name == "scales")) for name, each in found.items()
        }
        return {
            name: [case.varied(rows=1000) if case.data != NO_DATA else case for case in each]
            for name, each in cases.items()
        }
    return {
        "linear": list(_cases(list(_linear()))),
        "functions": list(_cases(list(_functions()))),
        "few": list(_cases(list(_few()))),
        "scales": list(_cases(_SCALED, scaled=True)),
    }


def _cases(
    instances: Sequence[Instance], runs: Sequence[int] = RUNS, scaled: bool = False
) -> Iterator[Case]:
    for instance in instances:
        for run in runs:
            for step in (*GRID, AUTO):
                yield instance.case(step, run)
            if scaled:
                ways = ["up", "down", *(["times"] if instance.problem in _TIMES else [])]
                for how in ways:
                    yield instance.case(AUTO, run, variant(instance.problem, how))
