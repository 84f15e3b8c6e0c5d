"""``desopt replay``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desopt.cli.options import Debug, Plugin

if TYPE_CHECKING:
    from desopt.contract.types import FloatArray
    from desopt.run.journal import Contents

EXAMPLES = """\b
Examples:
  desopt replay run.journal
  desopt replay run.journal --round 50 --out x50.npy
  desopt replay run.journal --digest      the same four lines on every machine
"""


def replay(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL")],
    round: Annotated[
        int | None,
        typer.Option(
            "--round", metavar="T", help="Rebuild x after T rounds; default: after the last."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write x to this file (.npy).")
    ] = None,
    digest: Annotated[
        bool,
        typer.Option(
            "--digest",
            help="Print digests of x, of all answers and of all losses: equal on any machine for "
            "runs that are equal bit for bit.",
        ),
    ] = False,
    plugin: Plugin = None,
    debug: Debug = False,
) -> None:
    """Summarise a journal and rebuild x after any of its rounds.

    JOURNAL is a file written by minimize(journal=...) or desopt run.
    """
    import warnings

    import numpy as np

    from desopt.run import journal as journals
    from desopt.run.replay import replayed

    warnings.simplefilter("ignore", RuntimeWarning)  # of a torn end: the summary mentions it
    if journal.is_dir():
        raise typer.BadParameter(
            f"{str(journal)!r} is a folder; give its journal, such as {journal / 'run.journal'}",
            param_hint="JOURNAL",
        )
    if not journal.is_file():
        raise typer.BadParameter(
            f"there is no file {str(journal)!r}; give one written by minimize(journal=...)",
            param_hint="JOURNAL",
        )
    content = journals.read(journal)
    last = len(content.rows)
    if round is not None and not 0 <= round <= last:
        raise typer.BadParameter(
            f"{round} is not in the journal; give a number from 0 to {last}", param_hint="--round"
        )
    chosen = last if round is None else round
    x = replayed(journal, content, chosen)
    found = journals.digests(content, x, chosen)
    lines = [("round", f"{chosen}"), *found.items()]
    for name, text in lines if digest else [*_summary(content, chosen, x), ("digest", found["x"])]:
        typer.echo(f"{name:<14}{text}")
    if out is not None:
        with out.open("wb") as file:  # np.save would add .npy to the name
            np.save(file, x)
        typer.echo(f"{'written':<14}{out}")


def _summary(content: Contents, chosen: int, x: FloatArray) -> list[tuple[str, str]]:
    """The summary as lines of (name, text)."""
    import numpy as np

    config = content.header["config"]
    losses = [row["loss"] for row in content.rows if not np.isnan(row["loss"])]
    first = ", ".join(f"{value:.6g}" for value in x[:5])
    more = ", ..." if x.size > 5 else ""
    torn = " (the file ends in the middle of another, which is ignored)" if content.torn else ""
    return [
        ("method", config["method"]["name"]),
        ("n", f"{x.size}"),
        ("workers", f"{config['workers']}"),
        ("participation", f"{config['participation']:g}"),
        ("rounds", f"{len(content.rows)}{torn}"),
        ("initial loss", _loss(content.header["initial_fun"])),
        ("last loss", _loss(losses[-1] if losses else None)),
        ("x after round", f"{chosen}"),
        ("norm of x", f"{np.linalg.norm(x):.8g}"),
        ("x", f"[{first}{more}]"),
    ]


def _loss(value: float | None) -> str:
    return "not evaluated" if value is None else f"{value:.8g}"
