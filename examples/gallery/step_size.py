"""No step size to tune

The same data in three units: as they are, a thousand times smaller, a thousand times larger. With
``step_size="auto"`` the search finds its steps by the accept bits; with a fixed step it works for
one of the three.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "c31c8c7817d3f963"
SCALES = (1e-3, 1.0, 1e3)


def fit(scale: float, step_size: Any, journal: Path | None = None) -> desopt.Result:
    rng = np.random.default_rng(0)
    rows = rng.integers(-8, 9, (2_000, 30)) / 8.0
    labels = np.sign(rows @ rng.integers(-8, 9, 30) + 0.1)
    return desopt.minimize(
        "lr", None, (scale * rows, labels), rounds=30, step_size=step_size, regularization=0.0,
        eval_every=1, engine="serial", journal=journal,
    )  # fmt: skip


def run(journal: Path) -> desopt.Result:
    return fit(1e3, "auto", journal)


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    for axes, step_size in zip(panels, ("auto", 1.0), strict=True):
        for scale in SCALES:
            loss = fit(scale, step_size).history["loss"]
            axes.plot(loss, label=f"data times {scale:g}")
        axes.set(title=f"step_size={step_size!r}", xlabel="rounds", yscale="log")
    panels[0].set_ylabel("training loss")
    panels[1].legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
