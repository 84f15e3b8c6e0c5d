"""The picture of docs/start.md, by the code of that page: python docs/pictures/start.py."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import desopt
from desopt.system.plot_style import BLUE, COMMON, GREEN, GREY, ORANGE

STYLE: Any = COMMON | {
    "font.size": 11.0,
    "svg.fonttype": "none",  # the reader's fonts: small files, text that can be found
    "font.family": "sans-serif",
    "figure.constrained_layout.use": True,
}


def absolute_error(x: Any, batch: Any) -> float:
    z, y = batch
    return float(np.mean(np.abs(z @ x - y)))


def runs() -> Figure:
    """The page's three runs: the default step size, a wrong one, and none to choose."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5_000, 20))
    data = rows, rows @ np.arange(20.0) + rng.standard_normal(5_000)
    figure = Figure(figsize=(6.4, 3.4))
    axes = figure.subplots()
    looks: Any = (
        (0.1, GREEN, "^-", "step_size=0.1"),
        (1.0, BLUE, "o-", "step_size=1, the default"),
        ("auto", ORANGE, "s-", 'step_size="auto"'),
    )
    for step, colour, look, label in looks:
        run = desopt.minimize(
            absolute_error, np.zeros(20), data, rounds=30, step_size=step, eval_every=1,
            progress=False,
        )  # fmt: skip
        errors = np.append(run.initial_fun, run.history["loss"])
        axes.semilogy(np.arange(31), errors, look, color=colour, ms=3.5, label=label)
    noise = float(np.mean(np.abs(data[1] - data[0] @ np.arange(20.0))))
    axes.axhline(noise, color=GREY, ls="--", lw=1.0, label="the noise in the data")
    axes.set(xlabel="round", ylabel="mean absolute error", xlim=(0, 30))
    axes.legend(frameon=False)
    return figure


def draw(folder: Path) -> None:
    with matplotlib.rc_context(STYLE):
        text = io.StringIO()
        runs().savefig(text, format="svg", metadata={"Date": None})
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    (folder / "start.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).parent)
