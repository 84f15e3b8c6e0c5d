"""``desopt report``."""

from __future__ import annotations

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
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder written by desopt suite.")],
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, metavar="DIR", help="Output folder; default: DIR/report."),
    ] = None,
    formats: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAMES", help="Comma-separated list of html, svg, pdf, tex."
        ),
    ] = "html,svg,pdf,tex",
    all_: Annotated[
        bool,
        typer.Option("--all", help="Include former cases and results on former data."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Turn results into an interactive page, figures and verdicts.

    For the paper's study, these are the paper's figures and verdicts on its claims. The results are
    not changed. The page opens from disk and needs no network.
    """
    from desopt.report.results import read_results
    from desopt.report.write import FORMATS, write
    from desopt.system.progress import Progress

    chosen = [name.strip() for name in formats.split(",") if name.strip()]
    if not chosen or not set(chosen) <= set(FORMATS):
        raise typer.BadParameter(
            f"expected a comma-separated list of {', '.join(FORMATS)}, got {formats!r}",
            param_hint="--format",
        )
    with Progress("reading") as progress:

        def show(name: str, of: int) -> None:
            progress.update(label=name, total=of)
            progress.advance()

        results = read_results(folder, all_)
        written = write(results, out or _place(folder), chosen, show)
    _print_claims(written.claims)
    if written.claims and written.departures:
        typer.echo(f"settings that differ from the paper's: {written.departures}\n")
    if results.former:
        typer.echo(
            f"{results.former:,} results in the folder do not belong to the study as it is defined "
            "now; --all includes them\n"
        )
    for path in written.paths:
        typer.echo(path)


def _place(folder: Path) -> Path:
    """The folder report beside the results file."""
    return (folder.parent if folder.suffix == ".sqlite" else folder) / "report"


def _print_claims(claims: Sequence[Claim]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from desopt.report.verdicts import FAILS, HOLDS, UNKNOWN

    if not claims:
        return
    colours = {HOLDS: "green", FAILS: "red", UNKNOWN: "dim"}
    table = Table("claim", "verdict", "numbers", box=SIMPLE)
    for claim in claims:
        verdict = Text(claim.verdict, colours[claim.verdict])
        further = f"\nfurther data sets: {claim.further}" if claim.further else ""
        # Text: a name may contain markup
        table.add_row(claim.text, verdict, Text(claim.numbers + further))
    Console().print(table)
