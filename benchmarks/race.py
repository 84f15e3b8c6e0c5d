"""Seconds to a given loss: desopt's des-mr against packages of evolution strategies.

Logistic regression on real data sets, from x = 0. Each package has three settings, and the best one
counts. All of them get minibatches of the same size, new ones for each generation, and the same
compiled product of rows and points (SciPy's or BLAS's, in float32); desopt has its own kernels.

Time is the processor's, of all threads together, so that a busy machine matters less, and that of
the search alone: imports, compilation and looks at the loss over all rows are left out. A run ends
at the target, or after the limit. Results are appended to a CSV file, so that an interrupted race
continues; packages that are not installed are left out, with a note.

    pip install evosax evotorch cmaes cma nevergrad pypop7
    python benchmarks/race.py [--set news20 --set mnist] [--limit 60]
    python benchmarks/race.py --table
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import desopt
from desopt.data import load, train_test
from desopt.objectives.scoring import LabelledRows
from desopt.system.progress import Progress

Floats = NDArray[Any]

RESULTS = Path(__file__).resolve().parent.parent / "results" / "race" / "results.csv"
COLUMNS = ("set", "package", "setting", "seconds", "loss", "spent")

#: The losses to reach: what the best of the other packages reach in 13 to 40 seconds of a core.
TARGETS = {"news20": 0.217, "rcv1-subset": 0.25, "mnist": 0.3383, "covtype": 0.5152}
REGULARIZATION = 1e-6
BATCH = 1000


class Watch:
    """The clock of a run: ``look`` stops it while the loss of a point is computed."""

    def __init__(self, score: Callable[[Floats], float], target: float, limit: float) -> None:
        self._score, self._target, self._limit = score, target, limit
        self._next = self.paused = 0.0
        self.loss, self.reached = math.inf, math.nan
        self.start()

    def start(self) -> None:
        """From now on; for a solver that has to compile first."""
        self._began = time.process_time()

    @property
    def seconds(self) -> float:
        return time.process_time() - self._began - self.paused

    def look(self, point: Callable[[], Any]) -> bool:
        """Whether the run is over; ``point`` gives x, if a look is due."""
        now = self.seconds
        if now >= self._next or now >= self._limit:
            since = time.process_time()
            self.loss = self._score(np.asarray(point(), np.float64))
            self._next = 1.1 * now + 0.02
            self.paused += time.process_time() - since
            if self.loss <= self._target:
                self.reached = now
        return self.loss <= self._target or now >= self._limit


class Problem:
    """The loss of many points on a new minibatch, for packages that call a function."""

    def __init__(self, rows: LabelledRows, seed: int = 0) -> None:
        X = rows.X
        dense = not sparse.issparse(X) or X.nnz > 0.1 * X.shape[0] * X.shape[1]
        self.rows = rows
        self.X = np.asarray(X.toarray() if sparse.issparse(X) else X) if dense else X
        self.X, self.y = self.X.astype(np.float32), rows.y.astype(np.float32)
        self.n, self._rng = X.shape[1], np.random.default_rng(seed)
        self.draw()

    def draw(self) -> None:
        chosen = self._rng.integers(len(self.y), size=BATCH)
        self._batch, self._labels = self.X[chosen], self.y[chosen]

    def __call__(self, points: Any) -> Floats:
        """A value for each row of ``points``, on the minibatch."""
        P = np.asarray(points, np.float32)
        margins = self._labels[:, np.newaxis] * np.asarray(self._batch @ P.T)
        penalty = 0.5 * REGULARIZATION * np.sum(P * P, axis=1)
        return np.asarray(np.mean(np.logaddexp(0.0, -margins), axis=0) + penalty)

    def score(self, x: Floats) -> float:
        return self.rows.score(x, "lr", REGULARIZATION)[0]


Solver = Callable[[Problem, Watch], None]


def ours(**settings: Any) -> Solver:
    def solve(problem: Problem, watch: Watch) -> None:
        desopt.minimize(
            "lr", None, (problem.rows.X, problem.rows.y), method="des-mr", rounds=10**6,
            eval_every=0, progress=False, regularization=REGULARIZATION, batch_size=BATCH,
            callbacks=lambda row: watch.look(lambda: row.x), **settings,
        )  # fmt: skip

    return solve


def evosax(name: str, population: int, **settings: Any) -> Solver:
    def solve(problem: Problem, watch: Watch) -> None:
        import evosax.algorithms as algorithms
        import jax
        import optax

        own = dict(settings)
        std = own.pop("std")
        if "rate" in own:
            own["optimizer"] = optax.adam(own.pop("rate"))
            own["std_schedule"] = optax.constant_schedule(std)
        start = np.zeros(problem.n, np.float32)
        es = getattr(algorithms, name)(population_size=population, solution=start, **own)
        params = es.default_params
        if "optimizer" not in own:
            params = params.replace(std_init=std)
        key = jax.random.key(0)
        state = es.init(key, start, params)
        ask, tell = jax.jit(es.ask), jax.jit(es.tell)

        def after(key: Any, state: Any) -> tuple[Any, Any]:
            key, one, two = jax.random.split(key, 3)
            points, state = ask(one, state, params)
            problem.draw()
            return key, tell(two, points, jax.numpy.asarray(problem(points)), state, params)[0]

        es.get_mean(after(*after(key, state))[1])  # compiles, for both kinds of state
        watch.start()
        while not watch.look(partial(es.get_mean, state)):
            key, state = after(key, state)

    return solve


def evotorch(name: str, population: int, **settings: Any) -> Solver:
    def solve(problem: Problem, watch: Watch) -> None:
        import torch
        from evotorch import Problem as Task
        from evotorch import algorithms

        def values(points: Any) -> Any:
            problem.draw()
            return torch.from_numpy(problem(points.numpy()))

        task = Task(
            "min", values, solution_length=problem.n, initial_bounds=(0.0, 0.0), vectorized=True,
            dtype=torch.float32,
        )  # fmt: skip
        searcher = getattr(algorithms, name)(task, popsize=population, **settings)
        while not watch.look(lambda: searcher.status["center"].numpy()):
            searcher.step()

    return solve


def separable_cmaes(sigma: float, population: int) -> Solver:
    def solve(problem: Problem, watch: Watch) -> None:
        from cmaes import SepCMA

        search = SepCMA(np.zeros(problem.n), sigma, population_size=population, seed=1)
        while not watch.look(lambda: search.mean):
            points = [search.ask() for _ in range(population)]
            problem.draw()
            search.tell([*zip(points, problem(points).tolist(), strict=True)])

    return solve


def pycma(sigma: float, population: int) -> Solver:
    def solve(problem: Problem, watch: Watch) -> None:
        import cma

        options = {"CMA_diagonal": True, "popsize": population, "verbose": -9, "seed": 1}
        search = cma.CMAEvolutionStrategy(np.zeros(problem.n), sigma, options)
        while not watch.look(lambda: search.mean):
            points = search.ask()
            problem.draw()
            search.tell(points, problem(points).tolist())

    return solve


def nevergrad(name: str, sigma: float) -> Solver:
    def solve(problem: Problem, watch: Watch) -> None:
        import nevergrad as ng

        space = ng.p.Array(init=np.zeros(problem.n)).set_mutation(sigma=sigma)
        search = ng.optimizers.registry[name](space, budget=10**9, num_workers=1)
        while not watch.look(lambda: search.provide_recommendation().value):
            problem.draw()
            for _ in range(16):  # one at a time: its CMA-ES wants every point of a generation back
                point = search.ask()
                search.tell(point, float(problem([point.value])[0]))

    return solve


def pypop7(module: str, name: str, sigma: float) -> Solver:
    def solve(problem: Problem, watch: Watch) -> None:
        from importlib import import_module

        class Over(Exception):
            pass

        best: list[Any] = [math.inf, np.zeros(problem.n)]

        def value(x: Any) -> float:
            if watch.look(lambda: best[1]):
                raise Over
            found = float(problem([x])[0])
            if found < best[0]:
                best[:] = [found, x]
            return found

        task = {
            "fitness_function": value, "ndim_problem": problem.n,
            "lower_boundary": np.full(problem.n, -10.0), "upper_boundary": np.full(problem.n, 10.0),
        }  # fmt: skip
        options = {"max_function_evaluations": math.inf, "mean": np.zeros(problem.n),
                   "sigma": sigma, "seed_rng": 1, "verbose": False}  # fmt: skip
        try:
            getattr(import_module(f"pypop7.optimizers.{module}"), name)(task, options).optimize()
        except Over:
            return

    return solve


#: The settings of each package, by a name for the table. The module says whether it is installed.
PACKAGES: dict[str, tuple[str, dict[str, Solver]]] = {
    "desopt": ("desopt", {
        "auto": ours(step_size="auto"),
        "auto, K = 1000": ours(step_size="auto", iterations=1000),
        "1, K = 1000": ours(step_size=1.0, iterations=1000),
    }),
    "evosax": ("evosax", {
        "Open_ES 256, 0.05": evosax("Open_ES", 256, rate=0.05, std=0.1),
        "Open_ES 256, 0.01": evosax("Open_ES", 256, rate=0.01, std=0.1),
        "SNES 64, 0.1": evosax("SNES", 64, std=0.1),
    }),
    "EvoTorch": ("evotorch", {
        "PGPE 200, 0.1": evotorch(
            "PGPE", 200, center_learning_rate=0.1, stdev_learning_rate=0.1, stdev_init=0.1),
        "PGPE 200, 0.02": evotorch(
            "PGPE", 200, center_learning_rate=0.02, stdev_learning_rate=0.1, stdev_init=0.1),
        "SNES 64, 0.1": evotorch("SNES", 64, stdev_init=0.1),
    }),
    "cmaes": ("cmaes", {
        f"SepCMA {size}, {sigma:g}": separable_cmaes(sigma, size)
        for sigma, size in ((0.1, 32), (0.3, 64), (0.03, 64))
    }),
    "pycma": ("cma", {
        f"diagonal {size}, {sigma:g}": pycma(sigma, size)
        for sigma, size in ((0.1, 32), (0.3, 64), (0.03, 64))
    }),
    "nevergrad": ("nevergrad", {
        f"{name} {sigma:g}": nevergrad(name, sigma)
        for name, sigma in (("OnePlusOne", 0.1), ("TBPSA", 0.1), ("DiagonalCMA", 0.1))
    }),
    "PyPop7": ("pypop7", {
        "SNES 0.1": pypop7("nes.snes", "SNES", 0.1),
        "R1ES 0.1": pypop7("es.r1es", "R1ES", 0.1),
        "LMMAES 0.1": pypop7("es.lmmaes", "LMMAES", 0.1),
    }),
}  # fmt: skip


def cases(sets: list[str], packages: list[str]) -> Iterator[tuple[str, str, str]]:
    for name in sets:
        for package in packages:
            for setting in PACKAGES[package][1]:
                yield name, package, setting


def compute(given: argparse.Namespace) -> None:
    there = [name for name in given.package if find_spec(PACKAGES[name][0])]
    if missing := sorted({*given.package} - {*there}):
        print(f"not installed, left out: {', '.join(missing)}")
    done = {(row["set"], row["package"], row["setting"]) for row in read(given.results)}
    wanted = [*cases(given.set, there)]
    left = [case for case in wanted if case not in done]
    problem, loaded = None, ""
    with Progress("race", len(wanted), done=len(wanted) - len(left), unit="runs", show=True) as bar:
        for name, package, setting in left:
            if problem is None or loaded != name:
                part = train_test(load(name), seed=0)[0]
                problem, loaded = Problem(LabelledRows(part.X, part.y)), name
            bar.update(note=f"{name} {package} {setting}")
            append(given.results, (name, package, setting, *run(problem, name, package, setting,
                                                                given.limit)))  # fmt: skip
            bar.advance()


def run(problem: Problem, name: str, package: str, setting: str, limit: float) -> tuple[float, ...]:
    """Seconds to the target, NaN if it was not reached; the last loss; seconds in all."""
    solve = PACKAGES[package][1][setting]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        solve(problem, Watch(problem.score, TARGETS[name], 0.05))  # imports and compiles
        watch = Watch(problem.score, TARGETS[name], limit)
        solve(problem, watch)
    return watch.reached, watch.loss, watch.seconds


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def append(path: Path, row: tuple[Any, ...]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        writer.writerow([f"{v:.4g}" if isinstance(v, float) else v for v in row])


def table(rows: list[dict[str, str]]) -> Iterator[str]:
    """A row per package: its best setting on each set, by time and then by loss."""
    sets = [name for name in TARGETS if any(row["set"] == name for row in rows)]
    yield "| | " + " | ".join(f"{name}, loss {TARGETS[name]:g}" for name in sets) + " |"
    yield "|" + " --- |" * (len(sets) + 1)
    for package in PACKAGES:
        cells = []
        for name in sets:
            own = [row for row in rows if (row["set"], row["package"]) == (name, package)]
            best = min(own, key=_order, default=None)
            cells.append("not run" if best is None else _cell(best))
        if any(cell != "not run" for cell in cells):
            yield f"| {package} | " + " | ".join(cells) + " |"


def _order(row: dict[str, str]) -> tuple[float, float]:
    seconds, loss = float(row["seconds"]), float(row["loss"])
    return (math.inf if math.isnan(seconds) else seconds, math.inf if math.isnan(loss) else loss)


def _cell(row: dict[str, str]) -> str:
    seconds = float(row["seconds"])
    if math.isnan(seconds):
        return f"{float(row['loss']):.3f} after {float(row['spent']):.0f} s ({row['setting']})"
    return f"{seconds:.2g} s ({row['setting']})"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--set", action="append", choices=TARGETS, help="only this one; repeatable")
    add("--package", action="append", choices=PACKAGES, help="only this one; repeatable")
    add("--limit", type=float, default=60.0, help="seconds of a run")
    add("--results", type=Path, default=RESULTS, help="the CSV file")
    add("--table", action="store_true", help="print the table of the results; compute nothing")
    given = parser.parse_args()
    given.set, given.package = given.set or [*TARGETS], given.package or [*PACKAGES]
    return given


def main() -> None:
    given = arguments()
    if given.table:
        print("\n".join(table(read(given.results))))
    else:
        compute(given)


if __name__ == "__main__":
    main()
