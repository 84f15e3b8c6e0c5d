"""``desopt data list`` and ``desopt data fetch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from desopt.cli.options import Debug, PlainCommand

EXAMPLES = """\b
Examples:
  desopt data list
  desopt data fetch ijcnn1
  desopt data fetch a9a --data-dir ~/libsvm
"""

app = typer.Typer(help="List and download data sets.", epilog=EXAMPLES, rich_markup_mode=None)

DataDir = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="Folder of data files (default: DESOPT_DATA, then the user's cache folder).",
    ),
]


@app.command("list", cls=PlainCommand)
def show(data_dir: DataDir = None, debug: Debug = False) -> None:
    """List the data sets known by name, with their shapes and locations."""
    from rich.table import Table

    from desopt.data.catalogue import CATALOGUE, folders, lookup
    from desopt.data.twins import TWINS
    from desopt.system.terminal import print_whole

    table = Table(box=None, pad_edge=False)
    for column in ("name", "N", "n", "density", "+1 is", "paper", "where"):
        table.add_column(
            column, justify="right" if column in ("N", "n", "density") else "left", no_wrap=True
        )
    for name, known in CATALOGUE.items():
        place = lookup(name, data_dir)
        table.add_row(
            name, *_shape(known.rows, known.n, known.nonzeros / known.rows),
            f"label > {known.above:g}", "yes" if known.in_paper else "",
            "not found" if place is None else str(place),
        )  # fmt: skip
    for name, twin in TWINS.items():
        table.add_row(name, *_shape(twin.rows, twin.n, twin.nonzeros), "", "", "generated")
    print_whole(table)
    typer.echo("\nsearched: " + ", ".join(map(str, folders(data_dir))))


@app.command(epilog=EXAMPLES, cls=PlainCommand)
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    data_dir: DataDir = None,
    url: Annotated[
        str | None, typer.Option(help="Mirror of the LIBSVM page's folder of data sets.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Refuse a file with a different SHA-256.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(min=1, metavar="BYTES", help="Refuse a larger file (default: 4 GiB)."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Download a data set from the LIBSVM data page.

    NAME is a name from `desopt data list`. Existing files are kept.
    """
    from desopt.data import download

    largest = download.LARGEST if max_bytes is None else max_bytes
    path = download.fetch(name, data_dir=data_dir, url=url, sha256=sha256, largest=largest)
    typer.echo(f"{path}\nsha256 {download.digest(path)}")


def _shape(rows: int, n: int, nonzeros: float) -> tuple[str, str, str]:
    return f"{rows:,}", f"{n:,}", f"{nonzeros / n:.2%}"
