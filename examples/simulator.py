"""A slow simulator that crashes and hangs: bounds, a budget, time-outs, and no value lost.

A shop sells six goods. x holds the stock levels to which it restocks every evening. Surplus costs
storage, shortage costs more; the cost is only known from simulations. The simulator keeps its state
between steps, so two threads must not share one: each process makes its own, by ``setup``.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import desopt

GOODS, DAYS = 6, 200
FloatArray = NDArray[np.float64]


class Shop:
    """It keeps the stock between the steps of a simulation, so it cannot run two at once."""

    def __init__(self) -> None:
        self.storage = np.linspace(0.5, 1.0, GOODS)
        self.missed = np.linspace(4.0, 9.0, GOODS)
        random = np.random.default_rng(0)
        self.future = random.gamma(2.0, 5.0, (DAYS, GOODS)) * np.linspace(0.5, 1.5, GOODS)
        self.stock = np.zeros(GOODS)

    def run(self, levels: FloatArray) -> float:
        if levels.sum() > 200.0:
            raise desopt.Failed("no room for so much stock")
        if levels[0] > 40.0:
            time.sleep(1000.0)  # a bug that nobody has found yet
        time.sleep(0.01)  # it is slow
        cost = 0.0
        for demand in self.future:
            self.stock[:] = levels
            self.stock -= demand
            cost += float(self.storage @ np.maximum(self.stock, 0.0))
            cost -= float(self.missed @ np.minimum(self.stock, 0.0))
        return cost / DAYS


def cost(x: FloatArray, shop: Shop) -> float:
    """Mean cost per day; ``shop`` is what ``setup`` made in this process."""
    return shop.run(x)


def minimize(journal: Path, evaluations: int) -> Any:
    return desopt.minimize(
        cost,
        np.full(GOODS, 30.0),
        method="cma-es",  # its population is spread over the processes
        bounds=(1.0, 60.0),  # for all six; the first steps are a share of this range
        step_size=0.5,
        max_evaluations=evaluations,
        engine="processes",
        setup=Shop,
        evaluation_timeout=0.5,  # seconds; then the process is replaced and the value has failed
        journal=journal,  # all values are kept beside it, also after kill -9
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "shop.journal"
        minimize(journal, 40)
        result = minimize(journal, 100)  # more: goes on after the first 40
    values = result.evaluations
    print(f"cost per day  {result.initial_fun:.2f} -> {result.fun:.2f}")
    print("fill up to   ", np.round(result.x, 1))
    print(f"{len(values)} values, {values.failures} failed, engine {result.engine}")
    for reason in sorted({item.reason for item in values if item.failed}):
        print("  failed:", reason)


if __name__ == "__main__":
    main()
