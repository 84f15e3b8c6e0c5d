"""Open trials, and the end of a run by ask and tell, as text for people and programs."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from desopt.system.terminal import is_terminal

if TYPE_CHECKING:
    from desopt.run.laboratory import Laboratory
    from desopt.run.optimizer import OpenTrial


def width() -> int | None:
    """Columns of the terminal; None where nobody looks at one."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def as_text(trials: Sequence[OpenTrial], names: Sequence[str], columns: int | None) -> str:
    """One line per trial; a paragraph each where lines would be wider than so many columns.

    None: full precision and lines of any length.
    """
    cells = [[_number(value, columns) for value in trial.x.tolist()] for trial in trials]
    rows = [[t.id, str(t.worker), *row] for t, row in zip(trials, cells, strict=True)]
    table = _aligned([["id", "worker", *names], *rows])
    if columns is None or max(map(len, table)) <= columns:
        return "\n".join(table)
    return "\n\n".join(
        "\n".join([f"{trial.id}  worker {trial.worker}", *_paragraph(names, row, columns)])
        for trial, row in zip(trials, cells, strict=True)
    )


def as_csv(trials: Sequence[OpenTrial], names: Sequence[str]) -> str:
    """Rounds and workers count from 0, as in ids."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "round", "worker", *names])
    for trial in trials:
        writer.writerow([trial.id, trial.round, trial.worker, *trial.x.tolist()])
    return text.getvalue()


def as_json(lab: Laboratory, trials: Sequence[OpenTrial], summary: dict[str, Any] | None) -> str:
    """Status, trials, and the result of a run that has ended."""
    listed = [
        {
            "id": trial.id, "round": trial.round, "worker": trial.worker,
            "iteration": trial.iteration,
            "x": dict(zip(lab.variables, trial.x.tolist(), strict=True)),
        }
        for trial in trials
    ]  # fmt: skip
    whole: dict[str, Any] = {"status": asdict(lab.status()), "trials": listed}
    if summary is not None:
        whole["result"] = {
            name: _named(value, lab) if name in ("x", "best_x") else value
            for name, value in summary.items()
        }
    return json.dumps(whole, indent=1)


def say_end(lab: Laboratory, summary: dict[str, Any], err: bool = False) -> None:
    """The result of a run that has ended, as ``desopt run`` shows it."""
    best = summary["best_loss"]
    lines = [
        ("ended", summary["message"]),
        ("values", str(lab.status())),
        ("x", _point(lab.variables, summary["x"])),
        *([("best x", _point(lab.variables, summary["best_x"]))] if best is not None else []),
        ("digest", summary["digest"]),
        ("folder", str(lab.folder)),
    ]
    for name, text in lines:
        typer.echo(f"{name:<14}{text}", err=err)


def _named(values: Sequence[float], lab: Laboratory) -> dict[str, float]:
    return dict(zip(lab.variables, values, strict=True))


def _point(names: Sequence[str], values: Sequence[float]) -> str:
    most = 8
    shown = [f"{name}={value!r}" for name, value in zip(names, values, strict=True)][:most]
    return " ".join(shown) + (" ... (x.npy has all)" if len(values) > most else "")


def _number(value: float, columns: int | None) -> str:
    return repr(value) if columns is None else f"{value:.7g}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([
            row[0].ljust(widths[0]),
            *(cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True)),
        ])
        for row in rows
    ]  # fmt: skip


def _paragraph(names: Sequence[str], cells: Sequence[str], columns: int) -> list[str]:
    """The values by name, as many side by side as fit."""
    longest, widest = max(map(len, names)), max(map(len, cells))
    pairs = [
        f"  {name:<{longest}} {cell:>{widest}}" for name, cell in zip(names, cells, strict=True)
    ]
    beside = max(1, columns // len(pairs[0]))
    return ["".join(pairs[i : i + beside]) for i in range(0, len(pairs), beside)]
