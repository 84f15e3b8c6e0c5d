"""A slow, noisy simulator in plain Python that must not be shared between threads.

A shop keeps six goods. x holds the stock levels it fills up to every evening; demand is
random. What is left over costs storage, what is missing costs more. All that can be done
with the shop is to run it.
"""

import numpy as np
from numpy.typing import NDArray

import desopt

GOODS, DAYS = 6, 10
FloatArray = NDArray[np.float64]


class Shop:
    """Keeps the stock between the steps of a run, so no two runs may use it at once."""

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
