"""``desopt demo``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from desopt.cli.options import Debug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from desopt.report.results import Series
    from desopt.report.tables import Table

EXAMPLES = """\b
Examples:
  desopt demo
  desopt demo --quick --out /tmp/demo
  desopt report desopt-demo               the same results as an interactive page
"""
TITLE = "DES and other methods that use function values only"
PROBLEM = "logistic regression on handwritten digits (5-9 or 0-4), 64 variables, 10 workers"


def demo(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the results and the plot.")
    ] = Path("desopt-demo"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Use known step sizes instead of searching for the best."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Compare DES with the other methods on a real data set.

    Logistic regression on scikit-learn's handwritten digits, ten workers, seven methods.
    Prints a table and the path of a plot. The demo is a study: the same command continues an
    interrupted one and shows finished results at once.
    """
    from desopt.report.results import Series, best_steps, read_results
    from desopt.report.tables import summary
    from desopt.studies import demo as study

    began = time.monotonic()
    _require("matplotlib", study.NEEDS)
    study.write_digits(out)
    # print, not rich: no line breaks in narrow terminals.
    print(TITLE, PROBLEM, sep="\n", flush=True)
    _run(out, quick)
    series = sorted(best_steps(read_results(out).item(study.ITEM)), key=Series.final)
    best = study.optimum(out)
    _print(summary(series, (best.train_loss, best.test_error)))
    print("optimum: scikit-learn's LogisticRegression, which uses gradients")
    png, svg = _plot(out, series, best.train_loss)
    print(f"plot:    {png}\n         {svg}")
    print(f"time:    {time.monotonic() - began:.0f} s")
    print(f"For an interactive page: desopt report {quote(str(out))}")


def _require(package: str, needs: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        raise ModuleNotFoundError(needs.format(package)) from error


def _run(out: Path, quick: bool) -> None:
    from desopt.studies.console import RunProgress
    from desopt.studies.demo import demo_study
    from desopt.studies.output import printable
    from desopt.studies.study import run
    from desopt.system.parallel import cores

    try:
        with RunProgress("demo", cores()) as progress:
            status = run(demo_study(quick), out, cores(), str(out), retry=True, watch=progress)
    except KeyboardInterrupt:
        typer.echo("desopt: stopped; the same command continues", err=True)
        sys.exit(130)
    if status.failed:
        count = f"{status.failed} of {status.total} cases failed"
        raise RuntimeError(f"{count}: {printable(status.error)}")


def _plot(out: Path, series: Sequence[Series], optimum: float) -> list[Path]:
    from desopt.report import drawing, style

    with style.for_screen():
        caption = f"{TITLE}\n{PROBLEM}"
        figure = drawing.against_costs(series, ("rounds", "upload"), ("optimum", optimum), caption)
        return drawing.save(figure, out, "demo", TITLE, ("png", "svg"))


def _print(table: Table) -> None:
    from rich.box import SIMPLE
    from rich.table import Table as RichTable

    from desopt.system.terminal import print_whole

    shown = RichTable(box=SIMPLE, caption=table.caption, caption_justify="left")
    for i, name in enumerate(table.header):
        shown.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row, end_section=row is table.rows[-2])
    print_whole(shown)
