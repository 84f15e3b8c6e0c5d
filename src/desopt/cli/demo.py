"""``desopt demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from desopt.cli.options import Debug

EXAMPLES = """\b
Examples:
  desopt demo
  desopt demo --quick --out /tmp/demo
"""


def demo(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the plot and the numbers.")
    ] = Path("desopt-demo"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take known step sizes instead of searching for the best."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Compare DES with the other methods on a real data set.

    Logistic regression on scikit-learn's handwritten digits, ten workers, seven methods.
    Prints a table and the path of a plot.
    """
    from desopt.studies import demo as demonstration

    demonstration.run(out, quick)
