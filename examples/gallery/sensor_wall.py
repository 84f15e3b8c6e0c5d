"""Which sensors to read

Eight of forty sensors on a wall, for a field that is a sum of four waves. First a relaxation with
weights between 0 and 1, whose optimum no selection can beat; then swaps of one sensor for another.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt
from desopt.objectives.sensors import swap

DIGEST = "ca96e4d1659c7cfd"
SENSORS, SELECTED = 40, 8


def wall() -> tuple[Any, Any]:
    """Places, and what the sensors measure of the four waves."""
    places = np.random.default_rng(0).integers(0, 101, (SENSORS, 2)) / 100.0
    waves = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    return places, np.round(np.cos(np.pi * places @ waves.T), 6)[None]


def run(journal: Path) -> desopt.Result:
    _, fields = wall()
    relaxed = desopt.SensorSelection(SELECTED, "D", relaxed=True)
    weights = desopt.minimize(
        relaxed, None, fields, workers=1, rounds=20, step_size=0.3, momentum=0.0, engine="serial"
    )
    return desopt.minimize(
        desopt.SensorSelection(SELECTED, "D"), relaxed.weights(weights.x), fields, method="es",
        sampler=swap, bounds=(0.0, 1.0), rounds=6, engine="serial", journal=journal,
    )  # fmt: skip


def replay(journal: Path) -> Any:
    return desopt.replay(journal, sampler=swap)


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    axes = figure.subplots()
    places, _ = wall()
    chosen = desopt.SensorSelection(SELECTED, "D").selection(result.best_x)
    axes.scatter(*places.T, s=30, color="#cccccc", label="sensors")
    axes.scatter(*places[chosen].T, s=60, label="selected")
    axes.set(aspect="equal", title=f"-log det of the information {result.best_fun:.3f}")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


if __name__ == "__main__":
    show(run, draw)
