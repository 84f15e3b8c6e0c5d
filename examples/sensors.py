"""Which 8 of 30 sensors tell most about a field: a relaxation for a bound, then swaps.

The field is a sum of waves that nobody knows exactly, so there are eight scenarios of it. The
relaxation gives each sensor a weight between 0 and 1; no selection is better than its optimum.
Neighbouring sensors have correlated noise.
"""

import numpy as np

import desopt
from desopt.objectives.sensors import swap

SENSORS, SELECTED, WAVES, SCENARIOS = 30, 8, 4, 8


def main() -> None:
    rng = np.random.default_rng(0)
    place = np.sort(rng.random(SENSORS))
    length = 1.0 + 0.2 * rng.standard_normal((SCENARIOS, 1, 1))
    fields = np.cos(np.pi * np.arange(WAVES) * place[:, None] * length)  # scenario, sensor, wave
    noise = 0.5 * np.eye(SENSORS) + 0.5 * np.exp(-np.abs(np.subtract.outer(place, place)) / 0.02)

    relaxation = desopt.SensorSelection(SELECTED, "D", relaxed=True, noise=noise)
    bound = desopt.minimize(
        relaxation, None, fields, workers=1, rounds=30, step_size="auto", momentum=0.0
    )
    selection = desopt.SensorSelection(SELECTED, "D", noise=noise)
    swapped = desopt.minimize(
        selection,
        relaxation.weights(bound.x),  # the largest weights are the first selection
        fields,
        method="es",  # one worker: the mean of several selections is none
        sampler=swap,
        bounds=(0.0, 1.0),
        rounds=8,
    )
    print(f"-log det of the information: {swapped.initial_fun:.4f} for the largest weights,")
    print(f"{swapped.best_fun:.4f} after swaps; the relaxation reaches {bound.fun:.4f}")
    print("sensors at", np.round(place[selection.selection(swapped.best_x)], 2))


if __name__ == "__main__":
    main()
