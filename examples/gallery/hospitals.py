"""Survival times at four hospitals

Cox regression with a lasso. Five of sixty genes matter; patients stay in their hospitals, which
answer with 200 bits per round each.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "8b60584c966d5339"
EFFECT = np.zeros(60)
EFFECT[:5] = 1.0, -1.0, 0.8, -0.8, 0.6


def patients(hospital: int) -> tuple[Any, Any, Any]:
    """Genes, the last time that each patient was seen, and whether she died then (1)."""
    rng = np.random.default_rng(hospital)
    genes = np.round(rng.standard_normal((150, EFFECT.size)), 6)
    death = np.round(rng.exponential(np.exp(-genes @ EFFECT)), 6)
    lost = np.round(rng.exponential(2.0, 150), 6)
    return genes, np.minimum(death, lost), (death <= lost).astype(float)


def run(journal: Path) -> desopt.Result:
    return desopt.minimize(
        desopt.Cox(lasso=0.05), None, [patients(hospital) for hospital in range(4)], rounds=40,
        iterations=200, step_size=0.3, mixture=1, engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    axes.stem(EFFECT, linefmt="#bbbbbb", markerfmt="o", basefmt=" ", label="true effect")
    axes.plot(result.x, "_", color="#D55E00", ms=10, mew=2.5, label="fitted, shrunk by the lasso")
    axes.set(xlabel="gene", ylabel="log hazard ratio")
    axes.legend(frameon=False)


if __name__ == "__main__":
    show(run, draw)
