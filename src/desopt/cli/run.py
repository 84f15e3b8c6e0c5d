"""``desopt run``. Its options are those of ``desopt.run.options``."""

from __future__ import annotations

import sys
from inspect import Parameter, Signature
from pathlib import Path
from shlex import quote
from typing import Any

import typer

from desopt.cli import options
from desopt.cli.options import Debug
from desopt.run.options import options_of

EXAMPLES = """\b
Examples:
  desopt run --data ijcnn1 --loss lr --method des-mr --workers 10 --rounds 40
  desopt run --data my.libsvm --loss nsvm --step-size 10 --out my-run
  desopt run --resume --out my-run --rounds 200
  desopt run --python simulator:cost --n 30 --rounds 50 --engine processes
"""


def run(context: typer.Context, out: Path, resume: bool, **settings: Any) -> None:
    """Minimise a loss on a data set, or a function of your own.

    All results go to one folder. Stop at any time (Ctrl-C): --resume continues the run and ends at
    the same x, bit for bit.
    """
    from desopt.report.drawing import run_curve
    from desopt.run import folder
    from desopt.run.history import Interrupted

    asked = {name: settings[name] for name in options_of("run")}
    if resume:
        given = {name: value for name, value in asked.items() if options.was_given(context, name)}
        chosen = folder.resume(out, given)
    else:
        chosen = folder.begin(out, asked)
    try:
        summary = folder.execute(out, chosen)
    except Interrupted as stop:
        run_curve(out)
        reached = f"stopped after round {stop.result.nit}"
        typer.echo(
            f"desopt: {reached}; go on with: desopt run --resume --out {quote(str(out))}", err=True
        )
        sys.exit(130)
    run_curve(out)
    for name, text in lines(summary):
        typer.echo(f"{name:<14}{text}")
    typer.echo(f"{'folder':<14}{out}")


def _signature() -> Signature:
    """The signature from which typer makes the command's options."""
    new = options.parameter
    return Signature([
        Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *map(options.declared, options_of("run").values()),
        new("out", Path("desopt-run"), Path, help="Folder of the run.", metavar="DIR",
            file_okay=False, rich_help_panel="Folder"),
        new("resume", False, bool, help="Continue the run in --out with its settings.",
            rich_help_panel="Folder"),
        Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug),
    ])  # fmt: skip


run.__signature__ = _signature()  # type: ignore[attr-defined]


def lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary that a terminal shows, as (name, text)."""
    names = ("initial_loss", "loss", "train_error", "test_loss", "test_error")
    known = [name for name in names if summary.get(name) is not None]
    return [
        ("ended", summary["message"]),
        *((name.replace("_", " "), f"{summary[name]:.6g}") for name in known),
        ("evaluations", f"{summary['evaluations']:,}"),
        ("bytes", f"{summary['bytes_up']:,} up, {summary['bytes_down']:,} down"),
        ("seconds", f"{summary['seconds']:.3g}"),
        ("digest", summary["digest"]),
    ]
