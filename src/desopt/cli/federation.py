"""``desopt federation status``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from desopt.cli.options import Debug, PlainCommand

EXAMPLES = """\b
Examples:
  desopt federation status /srv/run.journal
  desopt federation status /srv/run.journal --json
"""

app = typer.Typer(help="Look after a federation.", epilog=EXAMPLES, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Look after a federation."""


@app.command(epilog=EXAMPLES, cls=PlainCommand)
def status(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show rounds, loss, bytes and refusals of a run, and which site answered when.

    JOURNAL is the server's file. The run may be going on, on this machine or another.
    """
    import json

    from desopt.run import sites

    if not journal.is_file():
        raise typer.BadParameter(
            f"there is no file {str(journal)!r}; give the journal of server_app(journal=...)",
            param_hint="JOURNAL",
        )
    found = sites.status(journal)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for line in lines(found):
        typer.echo(line)


def lines(found: dict[str, Any]) -> list[str]:
    """The status as a terminal shows it."""
    of = "" if found["of"] is None else f" of {found['of']}"
    restarts = f", started {found['starts']} times" if found["starts"] > 1 else ""
    refused = ", ".join(f"{reason} {count}" for reason, count in found["refused"].items())
    facts = [
        ("method", found["method"]),
        ("rounds", f"{found['rounds']}{of}{restarts}"),
        ("state", found["ended"] or f"not ended; last heard of at {_time(found['last'])}"),
        ("loss", f"{_loss(found['loss'])} (at the start {_loss(found['initial_loss'])})"),
        ("bytes", f"{found['bytes_up']:,} up, {found['bytes_down']:,} down"),
        ("refused", refused or "nothing"),
    ]
    sites = [
        (each["site"], f"{each['worker']}", f"{each['answered']} of {found['rounds']}",
         "-" if each["seconds"] is None else f"{each['seconds']:.1f} s",
         "-" if each["last_round"] is None else f"{each['last_round']}", _time(each["last_time"]))
        for each in found["sites"]
    ]  # fmt: skip
    rounds = [
        (f"{each['round']}", _loss(each["loss"]), f"{each['answered']}",
         ", ".join(each["missing"]) or "-", f"{each['bytes_up']:,}", f"{each['bytes_down']:,}",
         _time(each["time"]))
        for each in found["recent"]
    ]  # fmt: skip
    shown = [f"{name:<14}{text}" for name, text in facts]
    shown += ["", *_table(("site", "worker", "answered", "usually", "last round", "at"), sites)]
    if rounds:
        heads = "round", "loss", "answered", "missing", "bytes up", "down", "at"
        shown += ["", *_table(heads, rounds)]
    for site, metrics in found["metrics"].items():
        told = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        shown.append(f"{site}: {told}")
    return shown + [f"trouble       {line}" for line in found["troubles"]]


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    ]


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _time(value: float | None) -> str:
    from datetime import datetime

    return "-" if value is None else f"{datetime.fromtimestamp(value):%Y-%m-%d %H:%M:%S}"
