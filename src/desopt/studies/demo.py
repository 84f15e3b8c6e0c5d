"""``desopt demo``: distributed evolution strategies and their rivals on a real data set.

The data are scikit-learn's handwritten digits; the model is logistic regression that tells
the digits 5-9 from 0-4. Every method gets the same rounds, workers and minibatches and the
best of three step sizes. scikit-learn, which may use gradients, gives the optimum.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from desopt.contract.types import FloatArray
from desopt.methods import METHODS
from desopt.run.minimize import Result, minimize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEEDS = "the demo needs {}: pip install 'desopt[sklearn,report]'"
TITLE = "DES, distributed evolution strategies, and others that see function values only"
PROBLEM = "handwritten digits, 5-9 or 0-4; logistic regression, 64 variables, 10 workers"

STEP_SIZES = (0.1, 1.0, 10.0)
#: The step size that suits each method best here.
BEST_STEP = {
    "des-mr": 0.1,
    "des-mg": 0.1,
    "des": 0.1,
    "fed-zo-gd": 1.0,
    "fed-zo-sgd": 1.0,
    "zo-signsgd": 0.1,
    "es-csa": 0.1,
}
REGULARIZATION = 1e-3
WORKERS, ROUNDS, ITERATIONS, BATCH = 10, 120, 100, 100


@dataclass(frozen=True)
class Problem:
    """Training and test rows, labels -1 and +1, and the least training loss there is."""

    rows: FloatArray
    labels: FloatArray
    test_rows: FloatArray
    test_labels: FloatArray
    optimum: float
    optimum_error: float

    def test_error(self, x: FloatArray) -> float:
        """Share of the test rows on the wrong side."""
        return _error(self.test_rows, self.test_labels, x)


@dataclass(frozen=True)
class Outcome:
    """One method's run with one step size."""

    method: str
    step_size: float
    test_error: float
    result: Result

    def curve(self, name: str) -> FloatArray:
        return self.result.history[name]

    def rank(self) -> float:
        """The training loss, for sorting."""
        return self.result.fun if np.isfinite(self.result.fun) else np.inf


def run(out: Path, quick: bool) -> Path:
    """Compare the methods, print a table, draw the plot; gives the path of the PNG.

    ``quick`` leaves the search for the best step size out.
    """
    began = time.perf_counter()
    problem = load()
    _require_matplotlib()
    out.mkdir(parents=True, exist_ok=True)
    # print, not console.print: text and paths stay whole however narrow the terminal is.
    print(TITLE, PROBLEM, sep="\n", flush=True)
    outcomes = compare(problem, quick)
    Console().print(table(problem, outcomes))
    save_numbers(outcomes, out / "demo.csv")
    picture = draw(problem, outcomes, out / "demo.png")
    print(f"plot:    {picture}\n         {picture.with_suffix('.svg')}")
    print(f"numbers: {out / 'demo.csv'}   ({time.perf_counter() - began:.0f} s in all)")
    return picture


def load() -> Problem:
    """The digits, a fifth of them kept for testing, and scikit-learn's optimum."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise ModuleNotFoundError(NEEDS.format("scikit-learn")) from error

    pixels, digits = load_digits(return_X_y=True)
    labels = np.where(digits > 4, 1.0, -1.0)
    rows, test_rows, y, test_y = train_test_split(
        pixels / 16, labels, test_size=0.2, random_state=0, stratify=digits
    )
    # scikit-learn minimises C * sum of losses + |x|^2 / 2; ours is the mean of the losses
    # + REGULARIZATION |x|^2 / 2.
    model = LogisticRegression(
        C=1 / (REGULARIZATION * len(y)), fit_intercept=False, tol=1e-8, max_iter=10_000
    )
    x = model.fit(rows, y).coef_[0]
    optimum = np.logaddexp(0, -y * (rows @ x)).mean() + REGULARIZATION / 2 * (x @ x)
    return Problem(rows, y, test_rows, test_y, float(optimum), _error(test_rows, test_y, x))


def compare(problem: Problem, quick: bool) -> list[Outcome]:
    """Every method with its best step size, the best method first."""
    bar = Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.disable = not bar.console.is_terminal
    grid = {method: (known,) if quick else STEP_SIZES for method, known in BEST_STEP.items()}
    outcomes = []
    with bar:
        total = ROUNDS * sum(map(len, grid.values()))
        task = bar.add_task("compiling (once)", total=total, loss=np.log(2))  # the loss at x = 0
        for method in BEST_STEP:  # so that no method's seconds include the compiler's
            attempt(problem, method, 1.0, rounds=1)

        def show(row: Any) -> None:
            bar.update(task, advance=1, loss=row["loss"])

        for method, step_sizes in grid.items():
            tries = []
            for step_size in step_sizes:
                bar.update(task, description=f"{method}, step {step_size:g}")
                tries.append(attempt(problem, method, step_size, callbacks=[show]))
            outcomes.append(min(tries, key=Outcome.rank))
    return sorted(outcomes, key=Outcome.rank)


def attempt(
    problem: Problem,
    method: str,
    step_size: float,
    rounds: int = ROUNDS,
    callbacks: Sequence[Callable[[Any], None]] = (),
) -> Outcome:
    """One method with one step size."""
    result = minimize(
        "lr",
        None,
        (problem.rows, problem.labels),
        method=method,
        workers=WORKERS,
        rounds=rounds,
        iterations=ITERATIONS,
        batch_size=BATCH,
        step_size=step_size,
        regularization=REGULARIZATION,
        eval_every=1,
        callbacks=callbacks,
        progress=False,
    )
    return Outcome(method, step_size, problem.test_error(result.x), result)


def table(problem: Problem, outcomes: list[Outcome]) -> Table:
    """The numbers for people."""
    result = Table(box=SIMPLE, caption_justify="left")
    result.add_column("method", no_wrap=True)
    for name in ("step", "train loss", "test error", "evaluations", "kB up", "seconds"):
        result.add_column(name, justify="right", no_wrap=True)
    for o in outcomes:
        result.add_row(
            o.method,
            f"{o.step_size:g}",
            f"{o.result.fun:.4f}",
            f"{o.test_error:.1%}",
            f"{o.result.nfev:,}",
            f"{o.curve('bytes_up')[-1] / 1000:,.1f}",
            f"{o.curve('seconds')[-1]:.1f}",
        )
    result.add_section()
    result.add_row(
        "optimum", "", f"{problem.optimum:.4f}", f"{problem.optimum_error:.1%}", "", "", ""
    )
    result.caption = "optimum: scikit-learn's LogisticRegression, which uses gradients"
    return result


def save_numbers(outcomes: list[Outcome], path: Path) -> None:
    """The numbers for programs: one line per method and round."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "step_size", "round", "bytes_up", "loss", "test_error"])
        for o in outcomes:
            for row in o.result.history:
                error = o.test_error if row["round"] == o.result.nit else ""
                numbers = (row[name] for name in ("round", "bytes_up", "loss"))
                writer.writerow([o.method, o.step_size, *numbers, error])


def draw(problem: Problem, outcomes: list[Outcome], path: Path) -> Path:
    """Training loss against rounds and against bytes, as PNG and SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(
        {"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "desopt"}
    ):
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        figure.suptitle(TITLE, fontsize=11.5)
        for axes, name, unit in ((left, "round", 1), (right, "bytes_up", 1000)):
            _panel(axes, problem, [(o, o.curve(name) / unit) for o in outcomes])
        left.set(xlabel="rounds", ylabel="training loss")
        right.set(xlabel="kB sent by the workers")
        figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False)
        figure.supxlabel(PROBLEM, fontsize=8.5, color="#555555")
        figure.savefig(path, dpi=150)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path


def _panel(axes: Axes, problem: Problem, curves: list[tuple[Outcome, FloatArray]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for number, (outcome, where) in enumerate(curves):
        colour, dash, marker = METHODS[outcome.method].look
        # Even distances on the logarithmic axis, but not where the curve before has its own.
        marks = np.unique(np.geomspace(1 + number % 3, len(where), 8).astype(int) - 1)[:-1]
        axes.plot(
            where,
            outcome.curve("loss"),
            color=colour,
            linestyle=dash,
            marker=marker,
            markevery=list(marks),
            markersize=5,
            linewidth=1.6,
            label=outcome.method,
        )
    axes.axhline(
        problem.optimum, color="#777777", linestyle=(0, (6, 4)), linewidth=1, label="optimum"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5, 6, 8)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="both", color="#E5E5E5", linewidth=0.6)


def _error(rows: FloatArray, labels: FloatArray, x: FloatArray) -> float:
    return float(np.mean(labels * (rows @ x) <= 0))


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ModuleNotFoundError(NEEDS.format("matplotlib")) from error
