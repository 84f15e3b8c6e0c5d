"""Cox regression with many covariates, by patients of several hospitals that stay there.

The partial likelihood compares a patient who died with those still alive *at the same hospital*: no
hospital needs the times of another one. What is fitted is a model with a baseline hazard for each
hospital, and the answers of a round are 100 bits from each.
"""

import numpy as np
from numpy.typing import NDArray

import desopt
from desopt.objectives.survival import concordance

HOSPITALS, PATIENTS, GENES = 4, 150, 200
FloatArray = NDArray[np.float64]
Patients = tuple[FloatArray, FloatArray, FloatArray]


def patients(rng: np.random.Generator, effect: FloatArray, hospital: int) -> Patients:
    """Genes, the last time that each patient was seen, and whether she died then (1)."""
    genes = rng.standard_normal((PATIENTS, GENES))
    death = (1.0 + hospital) * rng.exponential(np.exp(-genes @ effect))
    lost = (1.0 + hospital) * rng.exponential(2.0, PATIENTS)
    return genes, np.minimum(death, lost), (death <= lost).astype(float)


def main() -> None:
    rng = np.random.default_rng(0)
    effect = np.zeros(GENES)
    effect[:5] = 1.0, -1.0, 0.8, -0.8, 0.6
    sites = [patients(rng, effect, hospital) for hospital in range(HOSPITALS)]
    held_out = [patients(rng, effect, hospital) for hospital in range(HOSPITALS)]

    alone, together = (
        desopt.minimize(
            desopt.Cox(lasso=0.05),
            None,
            data,
            rounds=60,
            iterations=400,
            step_size="auto",
            mixture=1,  # one coordinate per step: with a lasso, steps of several get stuck
        )
        for data in (sites[:1], sites)
    )
    for name, result in (("the first hospital alone", alone), ("all hospitals", together)):
        index = np.mean([concordance(genes @ result.x, *seen) for genes, *seen in held_out])
        found = np.flatnonzero(np.abs(result.x) > 0.05)
        print(f"{name}: concordance {index:.3f} on new patients, genes {found.tolist()}")
    print(f"{together.history['bytes_up'][-1]:,.0f} bytes sent by {HOSPITALS} hospitals")


if __name__ == "__main__":
    main()
