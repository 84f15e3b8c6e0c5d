"""Ask and tell: a laboratory

Nobody calls a function here. ``Optimizer`` says which mixtures are wanted, four at a time; somebody
measures them, in any order, and tells the values. The yield depends on temperature and time.
"""

from pathlib import Path
from typing import Any

import numpy as np
from show import show

import desopt

DIGEST = "41dc484b8bc74ea7"


def measure(x: Any) -> float:
    """Minus the yield, by somebody in the laboratory."""
    temperature, hours = float(x[0]), float(x[1])
    hot, long = (temperature - 72.0) / 30.0, (hours - 5.0) / 4.0
    return -90.0 / (1.0 + hot * hot + long * long + hot * long)


def run(journal: Path) -> desopt.Result:
    settings: Any = {
        "method": "cma-es", "bounds": [(20.0, 100.0), (0.5, 12.0)], "step_size": 0.4,
        "max_evaluations": 60,
    }  # fmt: skip
    with desopt.Optimizer([30.0, 2.0], journal=journal, **settings) as optimizer:
        while trials := optimizer.ask(4):
            for trial in reversed(trials):
                optimizer.tell(trial, measure(trial.x))
        return optimizer.result()


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    left, right = figure.subplots(1, 2)
    yields = -np.array([each.value for each in result.evaluations])
    left.plot(yields, "o", ms=3, label="measured")
    left.plot(np.maximum.accumulate(yields), label="best so far")
    left.set(xlabel="measurement", ylabel="yield, %")
    left.legend(loc="lower right")
    points = np.array([each.x for each in result.evaluations])
    shown = right.scatter(*points.T, c=np.arange(len(points)), s=14)
    right.set(xlabel="temperature", ylabel="hours")
    figure.colorbar(shown, label="measurement")


if __name__ == "__main__":
    show(run, draw)
