"""A slow, noisy simulator in plain Python that threads must not share.

A shop sells six goods. x holds the stock levels to which it restocks every evening; demand is
random. Surplus costs storage, shortage costs more. The cost is only known from simulations.
"""

import numpy as np
from numpy.typing import NDArray

import desopt

GOODS, DAYS = 6, 10
FloatArray = NDArray[np.float64]


class Shop:
    """It keeps the stock between the steps of a simulation, so it cannot run two at once."""

    def __init__(self) -> None:
        self.storage = np.linspace(0.5, 1.0, GOODS)
        self.missed = np.linspace(4.0, 9.0, GOODS)
        self.stock = np.zeros(GOODS)

    def run(self, levels: FloatArray, future: FloatArray) -> float:
        cost = 0.0
        for demand in future:
            self.stock[:] = levels
            self.stock -= demand
            cost += float(self.storage @ np.maximum(self.stock, 0.0))
            cost -= float(self.missed @ np.minimum(self.stock, 0.0))
        return cost / DAYS


def draw(rng: np.random.Generator, size: int) -> FloatArray:
    """``size`` possible futures. There is no data set: the workers draw what they need."""
    return rng.gamma(2.0, 5.0, (size, DAYS, GOODS)) * np.linspace(0.5, 1.5, GOODS)


def cost(x: FloatArray, futures: FloatArray, shop: Shop) -> float:
    """Mean cost per day; ``shop`` is what ``setup`` made in this process."""
    return sum(shop.run(x, future) for future in futures) / len(futures)


def main() -> None:
    result = desopt.minimize(
        cost,
        np.full(GOODS, 10.0),
        draw,
        engine="processes",
        setup=Shop,  # called once in every worker process
        workers=4,
        rounds=12,
        iterations=30,
        batch_size=20,
        step_size=3.0,
    )
    print(f"cost per day  {result.initial_fun:.2f} -> {result.fun:.2f}")
    print("fill up to   ", np.round(result.x, 1))
    print(f"{result.nfev:,} calls of cost, engine {result.engine}")


if __name__ == "__main__":
    main()
