"""``desopt suite bbob``: COCO's benchmarks, recorded by its own observer for ``cocopp``.

Hansen et al., "COCO: a platform for comparing continuous optimizers in a black-box setting"
(2021). A *part* is one solver on all functions of a suite, in one dimension, on a few instances.
It runs in a process of its own, in a folder that gets its name when it is complete; so a part
that was interrupted begins anew, and all others are kept. ``cocopp`` joins the parts of a solver.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray
from desopt.engines.processes.python import python
from desopt.run.journal_file import lock
from desopt.run.minimize import minimize
from desopt.studies.selectors import selected
from desopt.system.parallel import THREAD_VARIABLES
from desopt.system.support import require_processes
from desopt.system.watched import Watched

NEEDS = "desopt suite bbob needs COCO: pip install 'desopt[bbob]'"
_MAIN = "from desopt.studies.bbob import main; main(*sys.argv[1:])"

#: Values of a function per dimension, for all runs on it together.
BUDGET = 1000
#: A run without an improvement of PRECISION in this many values per dimension is given up, and
#: another one begins at a random point. COCO's last target is 1e-8 above the optimum.
PATIENCE, PRECISION = 100, 1e-9
#: Where COCO's optima are, and where restarts begin.
REGION = 4.0

#: Half of the region, as is usual for CMA-ES on these suites.
_POPULATION = {"step_size": 2.0}
#: Two short searches a round: the functions are cheap, and budgets of 2,000 values are small.
_SEARCHES = {"workers": 2, "iterations": 50}
SOLVERS: dict[str, dict[str, Any]] = {
    "es-csa": {"method": "es-csa", **_POPULATION},
    "cma-es": {"method": "cma-es", **_POPULATION},
    **{
        f"{method}-auto": {"method": method, "step_size": "auto", **_SEARCHES}
        for method in ("des-mr", "des", "es")
    },
    **{method: {"method": method, **_SEARCHES} for method in ("des-mr", "des", "es")},
}

SUITES = {
    "bbob": (2, 3, 5, 10, 20, 40),
    "bbob-noisy": (2, 3, 5, 10, 20, 40),
    "bbob-largescale": (20, 40, 80, 160, 320, 640),
}
FUNCTIONS = {"bbob": 24, "bbob-noisy": 30, "bbob-largescale": 24}
#: In groups, as they are run; a function of 640 variables takes a minute for 640,000 values.
INSTANCES = {
    "bbob": ("1-5", "6-10", "11-15"),
    "bbob-noisy": ("1-5", "6-10", "11-15"),
    "bbob-largescale": ("1", "2-5", "6-10", "11-15"),
}
SCALES = ("full", "smoke")


@dataclass(frozen=True)
class Part:
    """One solver on all functions of a suite in one dimension, on these instances."""

    suite: str
    solver: str
    dimension: int
    instances: str
    budget: int = BUDGET

    @property
    def names(self) -> tuple[str, ...]:
        """What ``--only`` knows it by."""
        return self.suite, self.solver, str(self.dimension), self.instances

    @property
    def folder(self) -> Path:
        """Where its results are, within the folder of all."""
        name = f"{self.suite}-d{self.dimension:03}-i{self.instances}"
        return Path(self.suite, self.solver, name)

    @property
    def values(self) -> int:
        """At most so many of each problem."""
        return self.budget * self.dimension

    @property
    def problems(self) -> int:
        first, _, last = self.instances.partition("-")
        return FUNCTIONS[self.suite] * (int(last or first) - int(first) + 1)


def parts(scale: str | None = None, only: Sequence[str] = ()) -> list[Part]:
    """Those that the selectors of ``--only`` ask for; the first instances of all come first."""
    chosen = SCALES[0] if scale is None else scale
    check_name("scale", chosen, SCALES)
    if chosen == "smoke":
        every = [
            Part(suite, solver, sizes[0], "1", 10)
            for suite, sizes in SUITES.items()
            for solver in SOLVERS
        ]
    else:
        every = [
            Part(suite, solver, n, instances)
            for group in zip_longest(*INSTANCES.values())
            for (suite, sizes), instances in zip(SUITES.items(), group, strict=True)
            if instances is not None
            for solver in SOLVERS
            for n in sizes
        ]
    return selected(only, "part", ((part, part.names) for part in every))


def left(chosen: Sequence[Part], folder: Path) -> list[Part]:
    """Those without results in the folder."""
    return [part for part in chosen if not (folder / part.folder).exists()]


#: A function of a part, and its instances: what the observer writes into its ``.info`` files.
_FUNCTION = re.compile(r"funcId = (\d+)")
_INSTANCE = re.compile(r"\b(\d+):(\d+)\|([-+.\de]+)")


def export_csv(chosen: Sequence[Part], folder: Path) -> Path:
    """One line for every problem of the parts that are done: values taken, precision reached."""
    rows = []
    for part in chosen:
        for info in (folder / part.folder).glob("*.info"):
            text = info.read_text(encoding="utf-8")
            function = _FUNCTION.search(text)
            if function is None:
                raise ValueError(f"{info} is not a file of COCO's observer: it names no funcId")
            for instance, values, precision in _INSTANCE.findall(text):
                rows.append(
                    (part.suite, part.solver, part.dimension, int(function[1]), int(instance),
                     int(values), precision)
                )  # fmt: skip
    path = folder / "precision.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("suite", "solver", "n", "function", "instance", "values", "precision"))
        writer.writerows(sorted(rows))
    return path


def run(chosen: Sequence[Part], folder: Path, jobs: int, watch: Callable[[Part], None]) -> None:
    """Run the parts that have no results yet, ``jobs`` at a time.

    ``watch`` is told the part of every problem that is done. Ctrl-C ends all processes and keeps
    the results of whole parts.
    """
    if find_spec("cocoex") is None:
        raise ImportError(NEEDS)
    require_processes("desopt suite", "desopt.minimize takes cocoex's problems anywhere")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as file:
        lock(file, folder)
        _run(left(chosen, folder), folder, jobs, watch)


def _run(chosen: Sequence[Part], folder: Path, jobs: int, watch: Callable[[Part], None]) -> None:
    waiting, stopped = iter(chosen), threading.Event()
    turn, running = threading.Lock(), list[Watched]()
    news: SimpleQueue[Part | Exception | None] = SimpleQueue()  # None: a thread has ended

    def work() -> None:
        try:
            while True:
                with turn:
                    part = None if stopped.is_set() else next(waiting, None)
                    if part is None:
                        return
                    running.append(process := _start(part, folder))
                for _ in _problems(part, process, folder):
                    news.put(part)
        except Exception as error:
            news.put(error)
        finally:
            news.put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    try:
        for thread in threads:
            thread.start()
        alive = len(threads)
        while alive:
            found = news.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                alive -= 1
            else:
                watch(found)
    finally:
        stopped.set()
        with turn:
            for process in running:
                process.stop()
        for thread in threads:
            if thread.is_alive():  # else it has ended, or could not be started
                thread.join()


def _start(part: Part, folder: Path) -> Watched:
    """The process of a part, in the folder where its results go."""
    place = folder / part.folder
    place.parent.mkdir(parents=True, exist_ok=True)
    for unfinished in place.parent.glob(f"{place.name}.part*"):
        shutil.rmtree(unfinished)
    return Watched(
        [*python(_MAIN), json.dumps(asdict(part))],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=place.parent,
        env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")},
    )  # fmt: skip


def _problems(part: Part, process: Watched, folder: Path) -> Iterator[str]:
    """The problems as they are done; at the end, the part's folder gets its name."""
    assert process.popen.stdout is not None
    with process.popen.stdout as lines:
        yield from lines
    code = process.wait()
    if code:
        raise RuntimeError(f"the process of {part.folder} ended with code {code}")
    place = folder / part.folder
    place.with_name(f"{place.name}.part").rename(place)


# --- in the process of a part ------------------------------------------------------------------


def main(text: str) -> None:
    """Run a part here; a line for each problem done."""
    import cocoex

    cocoex.log_level("warning")  # stdout is for the problems
    # the ramp of "auto" reaches points where values are infinite, which is no news here
    warnings.filterwarnings("ignore", "fun returned NaN or infinity", RuntimeWarning)
    part = Part(**json.loads(text))
    options = f"dimensions: {part.dimension}"
    suite = cocoex.Suite(part.suite, f"instances: {part.instances}", options)
    observer = cocoex.Observer(
        "bbob" if part.suite == "bbob-largescale" else part.suite,
        f"outer_folder: . result_folder: {part.folder.name}.part "
        f'algorithm_name: desopt-{part.solver} algorithm_info: "{part.budget} n values"',
    )
    for problem in suite:
        problem.observe_with(observer)
        solve(problem, SOLVERS[part.solver], part.values)
        print(problem.id, flush=True)
        problem.free()


def solve(problem: Any, settings: Mapping[str, Any], budget: int) -> int:
    """Minimise until COCO's last target or the budget is reached; the number of runs it took."""
    n, runs = problem.dimension, 0
    rng = np.random.default_rng([problem.id_function, problem.id_instance, n])
    x0 = problem.initial_solution
    spent = -1
    while spent < problem.evaluations < budget and not problem.final_target_hit:
        spent, stall = problem.evaluations, Stall(problem, PATIENCE * n)
        minimize(
            stall.value, x0, **settings, seed=int(rng.integers(2**32)), rounds=2**31,
            max_evaluations=budget - problem.evaluations, callbacks=stall, eval_every=0,
            engine="serial", progress=False, log_values=False,
        )  # fmt: skip
        runs, x0 = runs + 1, rng.uniform(-REGION, REGION, n)
    return runs


class Stall:
    """Ends a run that has reached COCO's last target, or has not improved for a while."""

    def __init__(self, problem: Any, patience: int) -> None:
        self._problem, self._patience = problem, patience
        self._best = self._level = math.inf
        self._since = problem.evaluations

    def value(self, x: FloatArray) -> float:
        value: float = self._problem(x)
        if value < self._best:
            self._best = value
        return value

    def __call__(self, row: Any) -> bool:
        values = self._problem.evaluations
        if self._best < self._level - PRECISION:
            self._level, self._since = self._best, values
        return bool(self._problem.final_target_hit) or values - self._since > self._patience
