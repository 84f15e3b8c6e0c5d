"""``desopt report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desopt.cli.options import Debug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from desopt.report.verdicts import Claim

EXAMPLES = """\b
Examples:
  desopt report desopt-paper-small
  desopt report results --out page --format html,svg
"""


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What desopt suite wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, metavar="DIR", help="Where to; without it, DIR/report."),
    ] = None,
    formats: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAMES", help="Of html, svg, pdf and tex, with commas between."
        ),
    ] = "html,svg,pdf,tex",
    all_: Annotated[
        bool,
        typer.Option("--all", help="Also cases that are no longer in the study, or on old data."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Turn results into an interactive page, the paper's figures and verdicts on its claims.

    The results are only read. The page opens from disk and needs no network.
    """
    from rich.console import Console
    from rich.progress import Progress

    from desopt.report.select import read_study
    from desopt.report.write import FORMATS, write

    chosen = [name.strip() for name in formats.split(",") if name.strip()]
    if not chosen or not set(chosen) <= set(FORMATS):
        raise typer.BadParameter(
            f"{formats!r} is not a list of {', '.join(FORMATS)}", param_hint="--format"
        )
    bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task("reading", total=None)

        def show(name: str, of: int) -> None:
            bar.update(task, description=name, total=of, advance=1)

        study = read_study(folder, all_)
        written = write(study, out or _place(folder), chosen, show)
    _print_claims(written.claims)
    if written.claims and written.departed:
        typer.echo(f"not at the paper's settings: {written.departed}\n")
    if study.left_out:
        typer.echo(
            f"{study.left_out:,} results of the folder are not of the study as it is defined now; "
            "--all shows them too\n"
        )
    for path in written.paths:
        typer.echo(path)


def _place(folder: Path) -> Path:
    """Beside the results, also where their file was given."""
    return (folder.parent if folder.suffix == ".sqlite" else folder) / "report"


def _print_claims(claims: Sequence[Claim]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not claims:
        return
    colours = {"holds": "green", "does not hold": "red", "not enough data": "dim"}
    table = Table("claim of the paper", "verdict", "numbers", box=SIMPLE)
    for claim in claims:
        verdict = Text(claim.verdict, colours[claim.verdict])
        table.add_row(claim.text, verdict, Text(claim.numbers))  # a name may look like markup
    Console().print(table)
