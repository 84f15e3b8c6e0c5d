"""A small laboratory: ask for points, tell the values in any order, stop and go on.

The reaction here takes four vessels. Their results come in any order, some fail, and after every
day the program ends. The run is in the files beside its journal. By hand it is the same on the
command line: desopt ask, desopt tell.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import desopt

VESSELS = 4
SETTINGS = {
    "method": "cma-es",
    "bounds": [(20.0, 90.0), (0.1, 10.0), (1e-3, 1.0)],  # temperature, hours, catalyst
    "scale": ["linear", "log", "log"],
    "max_evaluations": 100,
    "seed": 2,
}


def waste(x: NDArray[np.float64]) -> float:
    """The share of the material that is lost, measured in a vessel."""
    temperature, hours, catalyst = x
    if temperature > 70.0 and catalyst > 0.1:
        raise desopt.Failed("it boiled over")
    rate = np.array([temperature / 60.0, hours / 2.0, catalyst / 0.05])
    return float(1.0 - np.exp(-0.2 * np.sum(np.log(rate) ** 2)))


def measure(opt: desopt.Optimizer, trial: desopt.OpenTrial) -> None:
    try:
        opt.tell(trial, waste(trial.x))
    except desopt.Failed as failure:
        opt.tell(trial, failed=True, reason=str(failure))


def day(journal: Path, measurements: int, random: np.random.Generator) -> bool:
    """Some measurements, as many at a time as there are vessels; whether the run has ended."""
    with desopt.Optimizer([30.0, 0.5, 0.5], journal=journal, **SETTINGS) as opt:
        running = opt.ask(VESSELS)  # those of the evening before come first
        for _ in range(measurements):
            if not running:
                break
            measure(opt, running.pop(random.integers(len(running))))  # whichever is ready
            running += opt.ask(VESSELS - len(running))
        result = opt.result()
        values = result.evaluations
        print(f"{len(values):3} values, {values.failures} failed, least {result.best_fun:.4f}")
        if opt.done:
            print(result.message)
            print("temperature {:.1f}, hours {:.2f}, catalyst {:.3f}".format(*result.best_x))
        return opt.done


def main() -> None:
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        while not day(Path(folder) / "lab.journal", 25, random):
            pass


if __name__ == "__main__":
    main()
