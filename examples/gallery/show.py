"""Run an example of the gallery and show its picture, as ``make docs`` does for the site."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import desopt


def show(run: Callable[[Path], desopt.Result], draw: Callable[..., None]) -> None:
    from matplotlib import pyplot

    name = Path(sys.argv[0]).stem
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / f"{name}.journal"
        result = run(journal)
        print(result.message)
        print("digest of x:", result.digest)
        figure: Any = pyplot.figure(figsize=(6.4, 4.0), layout="constrained")
        draw(figure, result, journal)
    figure.savefig(f"{name}.png", dpi=150)
    print(f"{name}.png")
