"""Three of ten workers lie: the loss with the mean, the median and the trimmed mean.

Liars either toss coins or send the worst mask: knowing everybody's data, they accept exactly the
steps along which the whole objective rises, by its gradient. That moves x the furthest in the most
harmful direction. The figure is docs/liars.png.

    python benchmarks/liars.py [PNG]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import desopt
from desopt.contract.types import Answer, BoolArray, FloatArray, Local, Task
from desopt.methods import DES
from desopt.methods.samplers import Key
from desopt.report import style

WORKERS, LIARS, ROUNDS, ITERATIONS, BATCH, STEP_SIZE = 10, 3, 200, 200, 100, 1.0
N, ROWS, PENALTY = 40, 4000, 1e-3

Mask = Callable[[Any, Task, int], BoolArray]


@dataclass(frozen=True)
class WithLiars:
    """An algorithm whose first workers invent their accept bits."""

    honest: Any
    liars: int
    mask: Mask

    def __getattr__(self, name: str) -> Any:
        return getattr(self.honest, name)

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        if worker >= self.liars:
            answer: Answer = self.honest.work(task, local, worker)
            return answer
        return Answer(worker, self.honest.layout.encode(self.mask(self.honest, task, worker)))


def random_mask(algorithm: Any, task: Task, worker: int) -> BoolArray:
    """Coin tosses."""
    coins: BoolArray = (
        np.random.default_rng((task.round, worker)).random(algorithm.iterations) < 0.5
    )
    return coins


@dataclass(frozen=True)
class WorstMask:
    """The steps along which the objective rises, by its gradient."""

    gradient: Callable[[FloatArray], FloatArray]

    def __call__(self, algorithm: Any, task: Task, worker: int) -> BoolArray:
        g, key = self.gradient(task.x), Key(algorithm.seed, task.round, worker)
        rises = np.empty(algorithm.iterations, np.bool_)
        for k in range(algorithm.iterations):
            index, u = algorithm.sampler.vector(key, k, g.size)
            rises[k] = g[... if index is None else index] @ u > 0
        return rises


@dataclass(frozen=True)
class Problem:
    """Logistic regression on generated rows."""

    rows: FloatArray
    labels: FloatArray

    @classmethod
    def make(cls, rows: int = ROWS, n: int = N) -> Problem:
        rng = np.random.default_rng(7)
        X = rng.standard_normal((rows, n)) / np.sqrt(n)
        chance = 1 / (1 + np.exp(-X @ rng.standard_normal(n) * 6))
        return cls(X, np.where(rng.random(rows) < chance, 1.0, -1.0))

    def gradient(self, x: FloatArray) -> FloatArray:
        weight = -self.labels / (1 + np.exp(self.labels * (self.rows @ x)))
        slope: FloatArray = self.rows.T @ weight / len(self.labels) + PENALTY * x
        return slope

    def run(
        self,
        aggregate: str,
        mask: Mask | None = None,
        *,
        rounds: int = ROUNDS,
        iterations: int = ITERATIONS,
    ) -> desopt.Result:
        """A run of des-mr; with a mask, the first workers lie."""
        honest = DES(iterations=iterations, step_size=STEP_SIZE, aggregate=aggregate)
        return desopt.minimize(
            "lr",
            None,
            (self.rows, self.labels),
            method=honest if mask is None else WithLiars(honest, LIARS, mask),
            workers=WORKERS,
            rounds=rounds,
            batch_size=BATCH,
            regularization=PENALTY,
            engine="serial",
            eval_every=1,
            progress=False,
        )

    def optimum(self) -> float:
        """The least loss, by Newton's method."""
        x = np.zeros(self.rows.shape[1])
        for _ in range(50):
            p = 1 / (1 + np.exp(-self.rows @ x))
            hessian = (self.rows.T * (p * (1 - p))) @ self.rows / len(p) + PENALTY * np.eye(x.size)
            x -= np.linalg.solve(hessian, self.gradient(x))
        losses = np.logaddexp(0, -self.labels * (self.rows @ x))
        return float(losses.mean() + PENALTY / 2 * (x @ x))


AGGREGATES = ("mean", "median", "trimmed-mean")


def draw(curves: dict[tuple[str, str], FloatArray], optimum: float, path: Path) -> None:
    """One panel per kind of lie; the distance to the optimum against the rounds."""
    from matplotlib.figure import Figure

    with style.for_screen():
        figure = Figure(figsize=style.SCREEN_SIZE, layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for axes, lie in zip(panels, dict.fromkeys(lie for lie, _ in curves), strict=True):
            for place, how in enumerate(AGGREGATES):
                look = style.numbered_look(place)
                axes.plot(np.arange(1, ROUNDS + 1), curves[lie, how] - optimum, look.dash,
                          color=look.colour, marker=look.marker, markevery=(10 * place, 40),
                          label=how)  # fmt: skip
            axes.set(title=lie, xlabel="rounds", yscale="log")
        panels[0].set(ylabel="loss - optimum")
        panels[0].legend(frameon=False)
        figure.supxlabel(
            f"des-mr, logistic regression, n = {N}, {WORKERS} workers, K = {ITERATIONS}",
            fontsize=8.5, color=style.GREY,
        )  # fmt: skip
        figure.savefig(path)


def main(path: Path) -> None:
    problem = Problem.make()
    optimum, start = problem.optimum(), float(np.log(2))
    lies: dict[str, Mask | None] = {
        "nobody lies": None,
        "3 of 10 toss coins": random_mask,
        "3 of 10 send the worst mask": WorstMask(problem.gradient),
    }
    print(f"loss at the start {start:.4f}, optimum {optimum:.4f}; loss after")
    print(f"{'':28} {'':14} {'10':>8} {'50':>8} {'200 rounds':>11} {'largest':>8}")
    curves = {}
    for lie, mask in lies.items():
        for how in AGGREGATES:
            losses = problem.run(how, mask).history["loss"]
            curves[lie, how] = losses
            print(f"{lie:28} {how:14} {losses[9]:8.4f} {losses[49]:8.4f} {losses[-1]:11.4f} "
                  f"{losses.max():8.4f}", flush=True)  # fmt: skip
    draw(curves, optimum, path)
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "liars.png"))
