"""``desopt bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from desopt.cli.options import Debug

EXAMPLES = """\b
Examples:
  desopt bench --quick
  desopt bench --out /tmp/bench
"""


def bench(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for bench.json and bench.png.")
    ] = Path("desopt-bench"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the comparison with NumPy; half a minute.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Compare the speed of the compiled code with plain NumPy.

    The data are generated. The tables show the time per local iteration and how it grows with n,
    threads, memory and start-up.
    """
    import os

    # One thread on both sides. BLAS reads these variables when NumPy is imported.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from desopt.bench import report

    report.run(out, quick)
