"""Run one case and measure its curve."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from desopt.contract.errors import TheoryWarning
from desopt.contract.types import FloatArray
from desopt.data import load, train_test
from desopt.methods import METHODS, ProblemSize
from desopt.objectives.scoring import LabelledRows
from desopt.run.history import Row
from desopt.run.minimize import minimize
from desopt.studies.cases import Case

#: All runs on a data set share one split: runs differ only in the method's randomness.
SPLIT_SEED = 0


@dataclass(frozen=True)
class Length:
    """The length of a run."""

    rounds: int
    #: Values of F per round.
    samples: int
    #: The cost of a round in rounds of the paper, of M K b values of F each.
    paper_rounds_each: float
    population: int | None


def length(case: Case, rows: int, n: int) -> Length:
    """T = E N / (M K b), at least 1; a population gets as many generations as cost the same."""
    method = METHODS[case.method]
    problem = ProblemSize(
        n=n,
        rows=rows,
        workers=1 if method.single_worker else case.workers,
        iterations=case.iterations,
        batch_size=case.batch_size,
    )
    samples = problem.workers * case.iterations * case.batch_size
    rounds = case.rounds or case.budget * rows / samples  # type: ignore[operator]
    population = method.derived(problem).get("population")
    if population is None:
        return Length(max(1, round(rounds)), samples, 1.0, None)
    each = population * rows / samples
    return Length(max(1, round(rounds / each)), population * rows, each, population)


@dataclass(frozen=True)
class Split:
    """A data set, split into training and test rows, with its description."""

    train: LabelledRows
    test: LabelledRows
    facts: dict[str, Any]

    @classmethod
    def load(cls, name: str, rows: int | None, data_dir: str | None = None) -> Split:
        whole = load(name, data_dir=data_dir, rows=rows, seed=SPLIT_SEED)
        train, test = (LabelledRows(part.X, part.y) for part in train_test(whole, seed=SPLIT_SEED))
        return cls(train, test, {
            "name": name, "train_rows": train.y.size, "test_rows": test.y.size, "n": whole.n,
            "density": whole.density, "generated": int(whole.generated), "origin": whole.origin,
        })  # fmt: skip


@dataclass
class CurveRecorder:
    """A callback of ``minimize`` that evaluates the point at the given rounds."""

    case: Case
    split: Split
    due: frozenset[int]
    points: list[list[Any]] = field(default_factory=list)

    def __call__(self, row: Row) -> None:
        if row["round"] in self.due:
            self.measure(row, row.x)

    def measure(self, row: dict[str, Any], x: FloatArray) -> None:
        """Append a point, with the columns of the store's table."""
        counts = [row[name] for name in ("evaluations", "samples", "bytes_up", "bytes_down")]
        scores: list[float] = []
        for part in (self.split.train, self.split.test):
            scores += part.score(x, self.case.problem, self.case.regularization)
        self.points.append([row["round"], *counts, round(1e6 * row["seconds"]), *scores])


def due_rounds(rounds: int, points: int) -> frozenset[int]:
    """About ``points`` evenly spaced rounds, including round 0 and the last one."""
    return frozenset(np.linspace(0, rounds, min(points, rounds) + 1).round().astype(int).tolist())


def execute(case: Case, split: Split) -> dict[str, Any]:
    """Run the case; returns its result, the description of its data and the points of its curve."""
    wall, cpu = time.perf_counter(), time.process_time()
    n = split.train.X.shape[1]
    run = length(case, split.train.y.size, n)
    curve = CurveRecorder(case, split, due_rounds(run.rounds, case.points))
    start = dict.fromkeys(("round", "evaluations", "samples", "bytes_up", "bytes_down"), 0)
    curve.measure({**start, "seconds": 0.0}, np.zeros(n))
    data = split.train.X, split.train.y
    _search(case, n, data, run.rounds, [curve], population=run.population)
    return {
        "result": {
            "rounds": run.rounds, "paper_rounds_each": run.paper_rounds_each,
            "seconds": curve.points[-1][5] / 1e6, "cpu_seconds": time.process_time() - cpu,
            "wall_seconds": time.perf_counter() - wall, "seed": case.seed,
        },
        "data": split.facts,
        "points": curve.points,
    }  # fmt: skip


def warm_up(case: Case, split: Split) -> None:
    """Compile and load the kernels, so that the measured time is that of the search.

    A few rows of either label suffice.
    """
    y = split.train.y
    few = np.sort(np.concatenate([np.flatnonzero(y == label)[:8] for label in (-1, 1)]))
    small = replace(case, workers=2, iterations=2, batch_size=4)
    n = split.train.X.shape[1]
    _search(small, n, (split.train.X[few], y[few]), 1, [], population=2)
    split.train.score(np.zeros(n), case.problem, 0.0)


def _search(
    case: Case, n: int, data: Any, rounds: int, callbacks: Iterable[Any], **more: Any
) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Studies leave the range of the theory on purpose, and divergence is a result too.
        for category in (TheoryWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        minimize(
            case.problem, np.zeros(n), data, method=case.method, workers=case.workers,
            rounds=rounds, iterations=case.iterations, batch_size=case.batch_size,
            step_size=case.step_size, momentum=case.momentum, mixture=case.mixture,
            radius=case.radius, regularization=case.regularization, seed=case.seed,
            callbacks=callbacks, engine="serial", eval_every=0, progress=False, **more,
        )  # fmt: skip
