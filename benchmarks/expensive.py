"""Expensive functions: the excess over the optimum after few values, against other packages.

A simulator of six parameters with failures, and three noisy test functions with 100 n values. All
have the same starting points, initial step sizes and budgets. What counts is the noise-free value
at the point that a package returns. Results are appended to a CSV file: an interrupted benchmark
continues, and ``--table`` prints what there is.

    pip install cmaes cma nevergrad scipy
    python benchmarks/expensive.py
    python benchmarks/expensive.py --problem rotated -n 100 --solver cma-es --solver cmaes
    python benchmarks/expensive.py --table
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import desopt
from desopt.system.progress import Progress

Floats = NDArray[np.float64]

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "expensive" / "results.csv"

#: Starts of each solver for n; fewer where one takes minutes.
STARTS = 10
STARTS_AT = {1000: 3}
FEWER = {
    ("cmaes", 1000): 1, ("pycma", 1000): 1, ("ngopt", 1000): 1, ("ngopt", 100): 3,
    ("oneplusone", 100): 3,
}  # fmt: skip
SIZES = (6, 20, 100, 1000)
#: The standard deviation of the noise: NOISE (1 + f - f*).
NOISE = 0.01


# --- problems ----------------------------------------------------------------------------------


class Spent(Exception):
    """Raised by a function whose budget is used up."""


@dataclass
class Problem:
    """One start: a noise-free f >= 0 with f* = 0, where to begin, and the budget.

    ``box`` is the same interval for all variables, the only ones that are allowed if ``closed``;
    else SciPy's differential evolution needs it. ``fails`` says where there is no value.
    """

    f: Callable[[Floats], float]
    x0: Floats
    sigma: float
    budget: int
    noise: np.random.Generator
    box: tuple[float, float] = (-5.0, 5.0)
    closed: bool = False
    fails: Callable[[Floats], bool] = lambda x: False
    failing: float = 0.0  # the share of values that are missing at random
    used: int = 0
    best: float = math.inf
    best_x: Floats = field(default_factory=lambda: np.zeros(0))

    def __call__(self, x: Floats) -> float:
        """A noisy value; NaN for a failure."""
        if self.used >= self.budget:
            raise Spent
        self.used += 1
        z, u = self.noise.standard_normal(), self.noise.random()
        x = self.inside(x)
        if u < self.failing or self.fails(x):
            return math.nan
        value = self.f(x)
        value += NOISE * (1.0 + value) * z
        if value < self.best:
            self.best, self.best_x = value, x
        return value

    def penalised(self, x: Floats) -> float:
        """For packages that do not know of failures: a value worse than all others."""
        value = self(x)
        return PENALTY if math.isnan(value) else value

    def inside(self, x: Floats) -> Floats:
        x = np.array(x, dtype=np.float64)
        return np.clip(x, *self.box) if self.closed else x

    def excess(self, x: Floats) -> float:
        x = self.inside(x)
        return PENALTY if self.fails(x) else self.f(x)


PENALTY = 1e3


def rosenbrock(n: int, rng: np.random.Generator) -> Callable[[Floats], float]:
    return lambda x: float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def ellipsoid(n: int, rng: np.random.Generator) -> Callable[[Floats], float]:
    """Condition number 1e6, axes parallel to the coordinates."""
    weight, optimum = 10.0 ** np.linspace(0, 6, n), rng.standard_normal(n)
    return lambda x: float(np.sum(weight * (x - optimum) ** 2))


def rotated(n: int, rng: np.random.Generator) -> Callable[[Floats], float]:
    """The ellipsoid after a cosine transform of shuffled coordinates with random signs."""
    from scipy.fft import dct

    weight, optimum = 10.0 ** np.linspace(0, 6, n), rng.standard_normal(n)
    order, signs = rng.permutation(n), rng.choice([-1.0, 1.0], n)
    return lambda x: float(
        np.sum(weight * dct((signs * (x - optimum))[order], norm="ortho")[order] ** 2)
    )


FUNCTIONS = {"rosenbrock": rosenbrock, "ellipsoid": ellipsoid, "rotated": rotated}

#: Bounds of the simulator's parameters p; searched is u = log(p / lower) / log(upper / lower).
LOWER = np.array([1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0])
UPPER = np.array([1e-2, 1e0, 1e1, 1e2, 1e3, 1e4])


def parameters(u: Floats) -> Floats:
    return np.asarray(LOWER * (UPPER / LOWER) ** u)


def coordinates(p: Floats) -> Floats:
    return np.asarray(np.log(p / LOWER) / np.log(UPPER / LOWER))


def simulator(rng: np.random.Generator, budget: int = 600) -> Problem:
    """A correlated valley of condition 100 in log p, next to it two regions without values.

    Nor have 3 % of all other points. The minimum is at least 0.2 away from the bounds of u.
    """
    optimum = rng.uniform(0.2, 0.8, 6)
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    weight = 10.0 ** np.linspace(0, 2, 6)

    def value(u: Floats) -> float:
        return float(np.sum(weight * (turn @ (u - optimum)) ** 2))

    def fails(u: Floats) -> bool:  # crashes, and lies out of the domain
        return bool(u[0] + u[3] > optimum[0] + optimum[3] + 0.3 or u[5] < optimum[5] - 0.25)

    x0 = rng.uniform(0.1, 0.9, 6)
    while fails(x0):
        x0 = rng.uniform(0.1, 0.9, 6)
    return Problem(value, x0, 0.2, budget, rng, (0.0, 1.0), True, fails, 0.03)


def make_problem(name: str, n: int, start: int) -> Problem:
    rng = np.random.default_rng([n, start])
    if name == "simulator":
        return simulator(rng)
    f = FUNCTIONS[name](n, rng)
    return Problem(f, 0.5 * rng.standard_normal(n), 0.5, 100 * n, rng)


# --- solvers: each returns the point that its users are told to take -----------------------------


def ours(method: str, **settings: Any) -> Callable[[Problem, int], Floats]:
    def solve(problem: Problem, seed: int) -> Floats:
        fun: Callable[[Floats], float] = problem
        x0, sigma, own = problem.x0, problem.sigma, settings
        if problem.closed:  # by the parameters themselves; a step of 1 is a quarter of the range
            fun, x0, sigma = (lambda p: problem(coordinates(p))), parameters(x0), 4 * sigma
            own = settings | {"bounds": [*zip(LOWER, UPPER, strict=True)], "scale": "log"}
        result = desopt.minimize(
            fun, x0, method=method, step_size=sigma, seed=seed, workers=1, rounds=10**9,
            max_evaluations=problem.budget, eval_every=0, engine="serial", **own,
        )  # fmt: skip
        return coordinates(result.x) if problem.closed else result.x

    return solve


def generations(
    problem: Problem, ask: Callable[[], Any], tell: Callable[[Any], None], size: int
) -> None:
    """Whole generations as long as the budget lasts."""
    while problem.used + size <= problem.budget:
        tell([(x, problem.penalised(x)) for x in (ask() for _ in range(size))])


def cmaes(problem: Problem, seed: int, *, diagonal: bool = False) -> Floats:
    from cmaes import CMA, SepCMA

    bounds = np.tile(problem.box, (problem.x0.size, 1)) if problem.closed else None
    kind = SepCMA if diagonal else CMA
    optimizer = kind(problem.x0, problem.sigma, bounds=bounds, seed=seed + 1)
    generations(problem, optimizer.ask, optimizer.tell, optimizer.population_size)
    return np.array(optimizer._mean if diagonal else optimizer.mean)


def sep_cmaes(problem: Problem, seed: int) -> Floats:
    return cmaes(problem, seed, diagonal=True)


def pycma(problem: Problem, seed: int) -> Floats:
    import cma

    options: dict[str, Any] = {"seed": seed + 1, "verbose": -9, "maxfevals": problem.budget}
    if problem.closed:
        options["bounds"] = list(problem.box)
    es = cma.CMAEvolutionStrategy(problem.x0, problem.sigma, options)
    while problem.used + es.popsize <= problem.budget:
        points = es.ask()
        es.tell(points, [problem.penalised(x) for x in points])
    return np.array(es.result.xfavorite)


def differential_evolution(problem: Problem, seed: int) -> Floats:
    from scipy.optimize import differential_evolution

    bounds = [problem.box] * problem.x0.size
    with suppress(Spent):
        differential_evolution(
            problem.penalised, bounds, x0=problem.x0, rng=seed, polish=False, maxiter=10**9,
            tol=0.0,
        )  # fmt: skip
    return problem.best_x


def nevergrad(name: str) -> Callable[[Problem, int], Floats]:
    def solve(problem: Problem, seed: int) -> Floats:
        import nevergrad as ng

        array = ng.p.Array(init=problem.x0)
        if problem.closed:
            array = array.set_bounds(*problem.box)
        array = array.set_mutation(sigma=problem.sigma)
        array.random_state.seed(seed)
        optimizer = ng.optimizers.registry[name](array, budget=problem.budget, num_workers=1)
        while problem.used < problem.budget:
            candidate = optimizer.ask()
            optimizer.tell(candidate, problem.penalised(candidate.value))
        return np.array(optimizer.provide_recommendation().value)

    return solve


SOLVERS: dict[str, Callable[[Problem, int], Floats]] = {
    "cma-es": ours("cma-es"),
    "es-csa": ours("es-csa"),
    "des-mr": ours("des-mr"),
    "es": ours("es"),
    "cmaes": cmaes,
    "cmaes-sep": sep_cmaes,
    "pycma": pycma,
    "de": differential_evolution,
    "oneplusone": nevergrad("OnePlusOne"),
    "ngopt": nevergrad("NGOpt"),
}
OURS = ("cma-es", "es-csa", "des-mr", "es")


# --- runs --------------------------------------------------------------------------------------


class Case(NamedTuple):
    """What is computed once."""

    problem: str
    n: int
    solver: str
    start: int


@dataclass(frozen=True)
class Outcome:
    """A row of the file."""

    problem: str
    n: int
    solver: str
    start: int
    evaluations: int
    excess: float
    seconds: float

    @property
    def case(self) -> Case:
        return Case(self.problem, self.n, self.solver, self.start)


def run(case: Case) -> Outcome:
    problem = make_problem(case.problem, case.n, case.start)
    began = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        x = SOLVERS[case.solver](problem, case.start)
    seconds = time.perf_counter() - began
    return Outcome(*case, problem.used, problem.excess(x), round(seconds, 2))


def cases(problems: Iterable[str], sizes: Iterable[int], solvers: Iterable[str]) -> Iterator[Case]:
    """Small problems first."""
    for n in sorted(sizes):
        for problem in problems:
            if problem == "simulator" and n != 6:
                continue
            for solver in solvers:
                for start in range(FEWER.get((solver, n), STARTS_AT.get(n, STARTS))):
                    yield Case(problem, n, solver, start)


def read(path: Path) -> list[Outcome]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Outcome(r["problem"], int(r["n"]), r["solver"], int(r["start"]), int(r["evaluations"]),
                    float(r["excess"]), float(r["seconds"]))
            for r in csv.DictReader(file)
        ]  # fmt: skip


def append(path: Path, outcome: Outcome) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Outcome)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(asdict(outcome) | {"excess": f"{outcome.excess:.6g}"})


def compute(path: Path, wanted: list[Case], jobs: int) -> None:
    done = {outcome.case for outcome in read(path)}
    left = [case for case in wanted if case not in done]
    for library in ("OPENBLAS", "OMP", "MKL"):  # one thread for each of the processes
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with (
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
        Progress(
            "expensive", len(wanted), done=len(wanted) - len(left), unit="runs", show=True
        ) as bar,
    ):
        futures = {pool.submit(run, case): case for case in left}
        for count, future in enumerate(as_completed(futures), len(wanted) - len(left) + 1):
            append(path, future.result())
            case = futures[future]
            bar.update(done=count, note=f"{case.problem} {case.n} {case.solver}")


# --- tables ------------------------------------------------------------------------------------


def short(value: float) -> str:
    """Two or three digits."""
    if value < 1000:
        return f"{value:.3g}"
    if value < 1e6:
        digits = 1 - math.floor(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{value:.1e}".replace("e+0", "e")


def cell(values: list[float]) -> str:
    """Median, quartiles, and the number of starts where it is not the usual one."""
    low, median, high = np.percentile(values, [25, 50, 75])
    few = "" if len(values) == STARTS else f"; {len(values)} start{'s' * (len(values) > 1)}"
    return f"{short(median)} ({short(low)} to {short(high)}{few})"


def table(outcomes: list[Outcome], problem: str) -> Iterator[str]:
    """A row per solver, a column per n; the best median is bold."""
    found: dict[tuple[str, int], list[float]] = {}
    for o in outcomes:
        if o.problem == problem:
            found.setdefault((o.solver, o.n), []).append(o.excess)
    sizes = sorted({n for _, n in found})
    best = {n: min(np.median(v) for (_, m), v in found.items() if m == n) for n in sizes}
    yield f"| {problem} | " + " | ".join(f"n = {n}" for n in sizes) + " |"
    yield "|" + " --- |" * (len(sizes) + 1)
    for solver in SOLVERS:
        cells = []
        for n in sizes:
            values = found.get((solver, n))
            text = cell(values) if values else ""
            cells.append(f"**{text}**" if values and np.median(values) == best[n] else text)
        if any(cells):
            name = f"`{solver}`" if solver in OURS else solver
            yield f"| {name} | " + " | ".join(cells) + " |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    names = ("simulator", *FUNCTIONS)
    add = parser.add_argument
    add("--problem", action="append", choices=names, help="only this one; repeatable")
    add("-n", action="append", type=int, choices=SIZES, help="only this size; repeatable")
    add("--solver", action="append", choices=SOLVERS, help="only this one; repeatable")
    add("--results", type=Path, default=RESULTS, help="the CSV file")
    add("--jobs", type=int, default=2, help="processes")
    add("--table", action="store_true", help="print the tables of the results; compute nothing")
    given = parser.parse_args()
    given.problem, given.n = given.problem or names, given.n or SIZES
    given.solver = given.solver or tuple(SOLVERS)
    return given


def main() -> None:
    given = arguments()
    if not given.table:
        compute(given.results, [*cases(given.problem, given.n, given.solver)], given.jobs)
        return
    outcomes = read(given.results)
    for problem in given.problem:
        if any(o.problem == problem for o in outcomes):
            print("\n".join(table(outcomes, problem)), end="\n\n")


if __name__ == "__main__":
    main()
