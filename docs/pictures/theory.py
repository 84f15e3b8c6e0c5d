"""The pictures of docs/theory.md: the bounds beside measured runs. python docs/pictures/theory.py

f(x) = L/2 |x|^2 and F(x; xi) = f(x) + xi^T x with E xi = 0, E|xi|^2 = sigma^2: gradients, L, sigma
and f_* = 0 are known exactly, so that the bounds have no free constant.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import desopt
from desopt import theory
from desopt.methods import ES
from desopt.objectives.local import drive
from desopt.system.plot_style import BLUE, COMMON, GREY, ORANGE

STYLE: Any = COMMON | {
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "figure.constrained_layout.use": True,
}
FloatArray = NDArray[np.float64]
L, SIGMA, N, K, M, T, B = 1.0, 1.0, 16, 20, 4, 128, 32
X0 = np.full(N, 1.0)
DELTA = 0.5 * L * float(X0 @ X0)


def draw_xi(rng: np.random.Generator, b: int) -> FloatArray:
    return rng.standard_normal((b, N)) * (SIGMA / math.sqrt(N))


def noisy(x: FloatArray, xi: FloatArray) -> float:
    return float(0.5 * L * (x @ x) + xi.mean(axis=0) @ x)


def gradients(method: str, alpha: float, momentum: float) -> FloatArray:
    """|grad f(x_t)|_2 for t = 0..T-1 of a run."""
    points = [X0]
    desopt.minimize(
        noisy, X0, draw_xi, method=method, workers=M, rounds=T, iterations=K, batch_size=B,
        step_size=alpha, momentum=momentum, eval_every=0, engine="serial",
        callbacks=[lambda row: points.append(row.x.copy())],
    )  # fmt: skip
    return np.asarray(L * np.linalg.norm(points[:T], axis=1))


def means(method: str, alpha: float, momentum: float = 0.0) -> FloatArray:
    """(1/T) sum_{t<T} |grad f(x_t)|_2 for T = 1, 2, ...: of a run and its beginnings."""
    norms = gradients(method, alpha, momentum)
    return np.asarray(np.cumsum(norms) / np.arange(1, T + 1))


def bound(alpha: float, rounds: int, momentum: float = 0.0) -> float:
    return theory.theorem_2(
        delta_f=DELTA, alpha=alpha, L=L, sigma=SIGMA, n=N, K=K, T=rounds, beta=momentum
    )


def mixture_bound(alpha: float, rounds: int, l: int = 8) -> float:
    """Of des-mr, with s_tilde = 1, which holds for every gradient."""
    return theory.theorem_5(
        delta_f=DELTA, alpha=alpha, L=L, sigma=SIGMA, n=N, K=K, T=rounds, l=l, s_tilde=1.0
    )


def deterministic(alpha: float, steps: int) -> FloatArray:
    """(1/K) sum_{k<K} |grad f(x_k)|_2 of Algorithm 1 for K = 1, 2, ..."""
    method = ES(iterations=steps, step_size=alpha, seed=0)
    search = method.search(method.plan(method.init(X0)), 0)
    kept: list[float] = []
    best = math.inf

    def value(x: FloatArray, _: int) -> float:
        nonlocal best
        f = 0.5 * L * float(x @ x)
        best = min(best, f)
        kept.append(math.sqrt(2.0 * L * best))  # |grad f| = sqrt(2 L f) at the point that is kept
        return f

    drive(search, value)
    return np.asarray(np.cumsum(kept[:steps]) / np.arange(1, steps + 1))


def rates() -> Figure:
    figure = Figure(figsize=(6.4, 6.6))
    first, second = figure.subplots(2, 1)
    steps, alpha = 4096, 0.1
    count = np.arange(1, steps + 1)
    limits = [theory.theorem_1(delta_f=DELTA, alpha_0=alpha, L=L, n=N, K=int(k)) for k in count]
    first.loglog(count, limits, "--", color=BLUE, label="Theorem 1")
    first.loglog(count, deterministic(alpha, steps), color=BLUE, label="measured, es")
    first.set(xlabel="iterations K", ylabel="mean gradient norm")
    first.set_title(f"The (1+1) strategy without noise: n = {N}, alpha = {alpha}")
    rounds, alpha = np.arange(1, T + 1), 0.1
    for name, limit, colour, text in (
        ("des", bound, BLUE, "Theorem 2"), ("des-mr", mixture_bound, ORANGE, "Theorem 5"),
    ):  # fmt: skip
        second.loglog(
            rounds, [limit(alpha, int(t)) for t in rounds], "--", color=colour, label=text
        )
        second.loglog(rounds, means(name, alpha), color=colour, label=f"measured, {name}")
    guide = 40.0 * rounds**-0.25
    second.loglog(rounds, guide, ":", color=GREY, label="slope -1/4")
    second.set(xlabel="rounds T", ylabel="mean gradient norm")
    second.set_title(f"DES with noise: M = {M}, K = {K}, b = {B}, alpha = {alpha}")
    for axes in (first, second):
        axes.legend(frameon=False, fontsize=9, loc="lower left")
    first.set_ylim(0.1, None)
    second.set_ylim(0.003, None)
    return figure


def step_sizes() -> Figure:
    figure = Figure(figsize=(6.4, 3.8))
    axes = figure.subplots()
    fine, coarse = np.geomspace(1e-3, 3.0, 60), np.geomspace(3e-3, 3.0, 6)
    for momentum, colour in ((0.0, BLUE), (0.5, ORANGE)):
        limits = [bound(float(alpha), T, momentum) for alpha in fine]
        ends = [means("des", float(alpha), momentum)[-1] for alpha in coarse]
        axes.loglog(fine, limits, "--", color=colour, label=f"Theorem 2, beta = {momentum}")
        axes.loglog(coarse, ends, "o-", color=colour, label=f"measured, beta = {momentum}")
    axes.set(xlabel="step size alpha", ylabel="mean gradient norm")
    axes.set_title(f"{T} rounds of DES, by the step size")
    axes.legend(frameon=False, fontsize=9)
    return figure


PICTURES = {"theory-rates": rates, "theory-step-sizes": step_sizes}


def draw(folder: Path) -> None:
    """Equal code draws equal files."""
    with matplotlib.rc_context(STYLE):
        for name, picture in PICTURES.items():
            text = io.StringIO()
            picture().savefig(text, format="svg", metadata={"Date": None})
            lines = (line.rstrip() for line in text.getvalue().splitlines())
            (folder / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).parent)
