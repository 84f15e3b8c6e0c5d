"""A custom mutation distribution.

A sampler is a function ``draw(rng, n)``. It returns n numbers or, if only a few coordinates
change, (coordinates, values), at a cost independent of n. It should have mean 0 and covariance I,
and ``rng`` as its only source of randomness: the server calls it again to rebuild the worker's
point from the accept bits.
"""

import numpy as np
from numpy.typing import NDArray

import desopt

BLOCK = 4


def one_block(rng: np.random.Generator, n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Change one block of neighbouring coordinates, for problems where these are related."""
    blocks = n // BLOCK
    start = BLOCK * int(rng.integers(blocks))
    coordinates = np.arange(start, start + BLOCK)
    # A block is chosen with probability 1 / blocks, so the factor sqrt(blocks) gives covariance I.
    return coordinates, np.sqrt(blocks) * rng.standard_normal(BLOCK)


def distance(x: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
    """Mean squared distance to the targets in the batch."""
    return float(np.mean((targets - x) ** 2))


def main() -> None:
    rng = np.random.default_rng(3)
    centre = np.repeat(rng.standard_normal(10), BLOCK)
    data = centre + 0.1 * rng.standard_normal((500, centre.size))

    for name, sampler in (("mixture Rademacher", None), ("one block", one_block)):
        result = desopt.minimize(
            distance,
            np.zeros(centre.size),
            data,
            sampler=sampler,
            workers=5,
            rounds=40,
            iterations=40,
            batch_size=50,
            engine="serial",
        )
        error = np.abs(result.x - centre).max()
        print(f"{name:<20} loss {result.fun:.4f}, largest error of x {error:.3f}")


if __name__ == "__main__":
    main()
