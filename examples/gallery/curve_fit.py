"""Parameters over many decades

The response of two filters in series, g / ((1 + (ω/a)²)(1 + (ω/b)²)), measured with outliers. The
loss is a median, which has no useful gradient. ``bounds`` and ``scale="log"`` search the logarithms
of the parameters, four decades each.
"""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "d00fad364e990711"
TRUE = (4.0, 30.0, 20_000.0)
FREQUENCIES = [round(10.0 ** (k / 8), 3) for k in range(-8, 49)]


def response(parameters: Any, w: float) -> float:
    g, a, b = (float(value) for value in parameters)
    return g / ((1.0 + (w / a) * (w / a)) * (1.0 + (w / b) * (w / b)))


def measured() -> list[float]:
    rng = np.random.default_rng(0)
    noise = np.round(1.0 + 0.05 * rng.standard_normal(len(FREQUENCIES)), 6)
    noise[::9] = 30.0  # a loose cable
    return [response(TRUE, w) * float(n) for w, n in zip(FREQUENCIES, noise, strict=True)]


def misfit(parameters: Any) -> float:
    ratios = (response(parameters, w) / y for w, y in zip(FREQUENCIES, measured(), strict=True))
    return statistics.median(abs(ratio - 1.0) for ratio in ratios)


def run(journal: Path) -> desopt.Result:
    return desopt.minimize(
        misfit, [1.0, 1.0, 1e3], method="cma-es", bounds=[(1e-2, 1e2), (1e-1, 1e3), (1e2, 1e6)],
        scale="log", step_size=0.5, max_evaluations=600, engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    axes.loglog(FREQUENCIES, measured(), "o", ms=4, label="measured")
    axes.loglog(FREQUENCIES, [response(result.x, w) for w in FREQUENCIES], label="fitted")
    axes.loglog(FREQUENCIES, [response([1.0, 1.0, 1e3], w) for w in FREQUENCIES], ":", label="x0")
    axes.set(xlabel="ω", ylabel="|H|²", title="found: " + ", ".join(f"{v:.3g}" for v in result.x))
    axes.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
