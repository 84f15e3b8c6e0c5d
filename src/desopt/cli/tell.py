"""``desopt tell``."""

from __future__ import annotations

import csv as csv_files
import io
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from desopt.cli import trials
from desopt.cli.options import Debug

EXAMPLES = """\b
Examples:
  desopt tell lab 3fa1.0.0.2.0 0.731
  desopt tell lab 3fa1.0.0.2.0 0.731 3fa1.0.0.3.0 -1.2e-3
  desopt tell lab 3fa1.0.0.4.0 --failed --reason "the pump leaked"
  desopt tell lab --csv values.csv       lines id,value or id,value,reason; - reads stdin
"""


class _Told(NamedTuple):
    id: str
    value: float | None
    reason: str = ""


def tell(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False)],
    values: Annotated[list[str] | None, typer.Argument(metavar="ID VALUE")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="There is no value: give IDs only.")
    ] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why the trial failed.")] = "",
    csv: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Take ids and values from a file, - for stdin. Lines without a value stay open.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Enter the values of trials that desopt ask has shown.

    Their order is free. They are on disk when the command ends. A failed trial (--failed, or the
    VALUE failed, nan or inf) is a rejected step, or ranks last. Telling a trial again changes
    nothing.
    """
    from desopt.run import laboratory

    if csv is not None and (values or failed or reason):
        raise typer.BadParameter("give ids and values, or --csv FILE, not both")
    told = _from_csv(csv) if csv is not None else _from_words(values or [], failed, reason)
    if laboratory.is_open_elsewhere(folder):
        for each in told:
            laboratory.leave(folder, *each)
        typer.echo(f"{_count(len(told))} kept for the process that has the run open")
        return
    _tell(folder, told)


def _tell(folder: Path, told: Sequence[_Told]) -> None:
    from desopt.run import laboratory

    refused: list[str] = []
    outcomes: Counter[str] = Counter()
    with laboratory.opened(folder) as lab:
        for each in told:
            try:
                outcomes[lab.tell(*each)] += 1
            except ValueError as error:
                refused.append(str(error))
        status = lab.status()
        if outcomes or not refused:
            what = [f"{_count(number)} {outcome}" for outcome, number in outcomes.items()]
            typer.echo("; ".join([*what, str(status)]))
        if status.done:
            trials.say_end(lab, lab.finish())
    if refused:
        raise ValueError("; ".join(refused))


def _count(number: int) -> str:
    return "value" if number == 1 else f"{number} values"


def _from_words(words: Sequence[str], failed: bool, reason: str) -> list[_Told]:
    """Pairs of id and value, or ids of failed trials."""
    if not words:
        raise typer.BadParameter("give ID VALUE, ID --failed, or --csv FILE")
    if failed:
        return [_Told(id, None, reason) for id in words]
    if reason:
        raise typer.BadParameter("--reason is for failed trials: give --failed, too")
    if len(words) % 2:
        raise typer.BadParameter(
            f"ids and values come in pairs, got {len(words)} words; for a failed trial give "
            "ID --failed"
        )
    return [_Told(id, _number(text)) for id, text in zip(words[::2], words[1::2], strict=True)]


def _number(text: str) -> float | None:
    from desopt.run.laboratory import number

    try:
        return number(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _from_csv(name: str) -> list[_Told]:
    """Lines id,value[,reason]; with a line of titles, any columns among which are these."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
        told = list(_lines(text, name))
    except (UnicodeDecodeError, csv_files.Error) as error:
        raise typer.BadParameter(
            f"{name} is no table: {error}; save it as CSV in UTF-8", param_hint="--csv"
        ) from None
    if not told:
        raise typer.BadParameter(f"{name}: no value in it; give lines id,value", param_hint="--csv")
    return told


def _lines(text: str, name: str) -> Iterator[_Told]:
    titles = ["id", "value", "reason"]
    for line, cells in enumerate(csv_files.reader(io.StringIO(text, newline="")), 1):
        cells = [cell.strip() for cell in cells]
        if line == 1 and len(cells) == 1 and "id" in cells[0].split(";")[:-1]:
            raise typer.BadParameter(
                f"{name}: semicolons between its columns; save it with commas, and with points "
                "in its numbers",
                param_hint="--csv",
            )
        if line == 1 and "id" in cells:
            titles = cells
            if "value" not in titles:
                raise typer.BadParameter(f"{name}: no column value", param_hint="--csv")
            continue
        if not any(cells):
            continue
        found = dict(zip(titles, cells, strict=False))
        value, reason = found.get("value", ""), found.get("reason", "")
        if not value and not reason:
            continue
        try:
            yield _Told(found.get("id", ""), _number(value or "failed"), reason)
        except typer.BadParameter as error:
            raise typer.BadParameter(f"{name}, line {line}: {error}", param_hint="--csv") from None
