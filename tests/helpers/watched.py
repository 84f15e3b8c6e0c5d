"""A small run with a journal, for tests of the live page."""

from pathlib import Path
from typing import Any

import numpy as np

import desopt

ROUNDS = 12


def sphere(x: Any) -> float:
    return float(np.sum((x - 1.0) ** 2))


def search(journal: Path, rounds: int = ROUNDS, **more: Any) -> Any:
    usual: dict[str, Any] = {"method": "des-mr", "workers": 3, "iterations": 6, "step_size": 0.3}
    settings = {**usual, "eval_every": 1, "progress": False, **more}
    return desopt.minimize(sphere, np.zeros(5), rounds=rounds, journal=journal, **settings)
