"""Run one case and measure its curve."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from desopt.contract.errors import TheoryWarning
from desopt.contract.types import FloatArray, IndexArray
from desopt.data import Arrays, Partitioned, load, split, train_test
from desopt.methods import METHODS, ProblemSize
from desopt.objectives.scoring import LabelledRows
from desopt.run.history import Row
from desopt.run.minimize import minimize
from desopt.run.options import options_of
from desopt.studies.cases import Case
from desopt.studies.problems import NO_DATA, resolved

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


def length(case: Case, rows: int | None, n: int) -> Length:
    """T = E N / (M K b), at least 1; one population of all gets generations that cost the same.

    ``rows``: N; None where samples are drawn, b for a value.
    """
    method = METHODS[case.method]
    problem = ProblemSize(
        n=n,
        rows=rows,
        workers=1 if method.single_worker else case.workers,
        iterations=case.iterations,
        batch_size=case.batch_size,
    )
    samples = problem.workers * case.iterations * case.batch_size
    if case.rounds is None and rows is None:
        raise ValueError("budget counts passes over the data, and there are none: give rounds")
    rounds = case.rounds or case.budget * rows / samples  # type: ignore[operator]
    if not method.one_population:
        return Length(max(1, round(rounds)), samples, 1.0, None)
    population = method.derived(problem)["population"]
    value = case.batch_size if rows is None else rows
    each = population * value / samples
    return Length(max(1, round(rounds / each)), population * value, each, population)


class Ground(Protocol):
    """What a case runs on: the data of the search, and the losses to measure."""

    @property
    def facts(self) -> dict[str, Any]: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def n(self) -> int: ...
    def start(self, case: Case) -> FloatArray: ...
    def data(self, case: Case) -> Any: ...
    def few(self, case: Case) -> Any: ...
    def scores(self, case: Case, x: FloatArray) -> list[float | None]: ...


@dataclass(frozen=True)
class Split:
    """A data set, split into training and test rows, with its description."""

    train: LabelledRows
    test: LabelledRows
    facts: dict[str, Any]
    sites: IndexArray | None = None  # of the training rows

    @classmethod
    def load(cls, name: str, rows: int | None, data_dir: str | None = None) -> Split:
        whole = load(name, data_dir=data_dir, rows=rows, seed=SPLIT_SEED)
        halves = train_test(whole, seed=SPLIT_SEED)
        train, test = (LabelledRows(part.X, part.y) for part in halves)
        return cls(train, test, {
            "name": name, "train_rows": train.y.size, "test_rows": test.y.size, "n": whole.n,
            "density": whole.density, "generated": int(whole.generated), "origin": whole.origin,
        }, halves[0].sites)  # fmt: skip

    @property
    def rows(self) -> int:
        return int(self.train.y.size)

    @property
    def n(self) -> int:
        return int(self.train.X.shape[1])

    def start(self, case: Case) -> FloatArray:
        return np.zeros(self.n)

    def data(self, case: Case) -> Any:
        """The training rows, dealt to the workers."""
        if METHODS[case.method].single_worker:
            return self.train.X, self.train.y
        parts = split(case.partition, self.train.y, case.workers, case.seed, self.sites)
        bounds = np.cumsum([0, *map(len, parts)])
        return Partitioned(self._arrays, np.concatenate(parts), bounds)

    @cached_property
    def _arrays(self) -> Arrays:
        """The training rows, checked once for all cases."""
        return Arrays((self.train.X, self.train.y), "data")

    def few(self, case: Case) -> Any:
        """A few training rows of either label."""
        y = self.train.y
        few = np.sort(np.concatenate([np.flatnonzero(y == label)[:8] for label in (-1, 1)]))
        return self.train.X[few], y[few]

    def scores(self, case: Case, x: FloatArray) -> list[float | None]:
        """Loss and misclassified rows: of training, then of test."""
        found: list[float | None] = []
        for part in (self.train, self.test):
            loss, wrong = part.score(x, resolved(case.problem), case.regularization)
            found += [loss, None if math.isnan(wrong) else wrong]
        return found


class Alone:
    """An objective that needs no data set (see ``studies.problems``)."""

    rows = None

    def __init__(self, problem: str) -> None:
        self._problem = resolved(problem)
        self._x0 = np.array(self._problem.x0, np.float64)
        self.n = self._x0.size
        self.facts = {
            "name": NO_DATA, "train_rows": 0, "test_rows": 0, "n": self.n, "density": 1.0,
            "generated": 1, "origin": "samples drawn by the objective",
        }  # fmt: skip

    def start(self, case: Case) -> FloatArray:
        return self._x0.copy()

    def data(self, case: Case) -> Any:
        if case.partition != "iid":
            raise ValueError(
                f"partition {case.partition!r} deals the rows of a data set: {case.problem} has "
                "none, so leave it out"
            )
        return getattr(self._problem, "draw", None)

    few = data

    def scores(self, case: Case, x: FloatArray) -> list[float | None]:
        return [float(self._problem.exact(x)), None, None, None]


@dataclass
class CurveRecorder:
    """A callback of ``minimize`` that evaluates the point at the given rounds."""

    case: Case
    ground: Ground
    due: frozenset[int]
    points: list[list[Any]] = field(default_factory=list)

    def __call__(self, row: Row) -> None:
        if row["round"] in self.due:
            self.measure(row, row.x)

    def measure(self, row: dict[str, Any], x: FloatArray) -> None:
        """Append a point, with the columns of the store's table."""
        counts = [row[name] for name in ("evaluations", "samples", "bytes_up", "bytes_down")]
        scores = self.ground.scores(self.case, x)
        self.points.append([row["round"], *counts, round(1e6 * row["seconds"]), *scores])


def due_rounds(rounds: int, points: int) -> frozenset[int]:
    """About ``points`` evenly spaced rounds, including round 0 and the last one."""
    return frozenset(np.linspace(0, rounds, min(points, rounds) + 1).round().astype(int).tolist())


def execute(case: Case, ground: Ground) -> dict[str, Any]:
    """Run the case; returns its result, the description of its data and the points of its curve."""
    wall, cpu = time.perf_counter(), time.process_time()
    run = length(case, ground.rows, ground.n)
    curve = CurveRecorder(case, ground, due_rounds(run.rounds, case.points))
    start = dict.fromkeys(("round", "evaluations", "samples", "bytes_up", "bytes_down"), 0)
    curve.measure({**start, "seconds": 0.0}, ground.start(case))
    _search(case, ground.start(case), ground.data(case), run.rounds, [curve],
            population=run.population)  # fmt: skip
    return {
        "result": {
            "rounds": run.rounds, "paper_rounds_each": run.paper_rounds_each,
            "seconds": curve.points[-1][5] / 1e6, "cpu_seconds": time.process_time() - cpu,
            "wall_seconds": time.perf_counter() - wall, "seed": case.seed,
        },
        "data": ground.facts,
        "points": curve.points,
    }  # fmt: skip


def warm_up(case: Case, ground: Ground) -> None:
    """Compile and load the kernels, so that the measured time is that of the search.

    A few rows of either label suffice, but not a single round: what looks back at the last steps
    calls other kernels once there are some.
    """
    small = case.varied(workers=2, batch_size=4, participation=1.0)
    start = ground.start(case)
    _search(small, start, ground.few(small), 3, [], population=4)  # the least that cma-es takes
    ground.scores(case, start)


#: The options of ``minimize`` that a case has, by their names there.
_PASSED = options_of("minimize").keys() & options_of("study").keys()


def _search(
    case: Case, start: FloatArray, data: Any, rounds: int, callbacks: Iterable[Any], **more: Any
) -> None:
    settings = {name: getattr(case, name) for name in _PASSED}
    settings |= {"rounds": rounds, "seed": case.seed, "callbacks": callbacks, **more}
    fun = resolved(case.problem)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Studies leave the range of the theory on purpose, and divergence is a result too.
        for category in (TheoryWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        minimize(getattr(fun, "fun", fun), start, data, engine="serial", eval_every=0,
                 progress=False, **settings)  # fmt: skip
