"""``desopt ask``. Its settings of a run are those of ``desopt.run.options``."""

from __future__ import annotations

from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from desopt.cli import options, trials
from desopt.cli.options import Debug
from desopt.run.options import options_of

if TYPE_CHECKING:
    from desopt.run.laboratory import Laboratory, Start

EXAMPLES = """\b
Examples:
  desopt ask lab --x0 20,1,0.5 --variables temperature,time,dose --max-evaluations 60
                                   begin a run in the folder lab; show what to measure first
  desopt tell lab ID VALUE         one value, or several: ID VALUE ID VALUE ...
  desopt ask lab                   what is open now
  desopt ask lab --csv > plan.csv  the same for a spreadsheet: add a column value, and
  desopt tell lab --csv plan.csv   tell what is in it
"""

_SHOWN = 20


def ask(
    context: typer.Context, folder: Path, n: int | None, x0: str | None, variables: str | None,
    count: int | None, ahead: bool, json: bool, csv: bool, **settings: Any,
) -> None:  # fmt: skip
    """Show the points whose values are needed next.

    The run in FOLDER evaluates nothing itself. You measure or compute the values, and enter them
    with desopt tell. The first call begins the run and takes its settings; later ones need the
    folder only. The same trials are shown until their values are told. Every value told is on
    disk: stop and go on at any time.
    """
    from desopt.run import laboratory

    if json and csv:
        raise typer.BadParameter("give --json or --csv, not both")
    names = options_of("ask")
    given = {name: settings[name] for name in names if options.was_given(context, name)}
    with laboratory.opened(folder, _start(n, x0, variables), given) as lab:
        if ahead:
            lab.ahead(count or _SHOWN)
        _show(lab, _SHOWN if count is None and not (json or csv) else count, json, csv)


def _start(n: int | None, x0: str | None, variables: str | None) -> Start:
    from desopt.run.laboratory import Start, point

    names = None if variables is None else [name.strip() for name in variables.split(",")]
    return Start(n, None if x0 is None else point(x0), names)


def _show(lab: Laboratory, count: int | None, json: bool, csv: bool) -> None:
    shown = lab.trials[:count]
    summary = lab.finish() if lab.optimizer.done else None
    if json:
        typer.echo(trials.as_json(lab, shown, summary))
        return
    if csv:
        typer.echo(trials.as_csv(shown, lab.variables), nl=False)
    elif shown:
        typer.echo(trials.as_text(shown, lab.variables, trials.width()))
    if summary is not None:
        trials.say_end(lab, summary, err=csv)
        return
    left = len(lab.trials) - len(shown)
    more = f", {left} of them not shown (--count)" if left else ""
    typer.echo(f"{lab.status()}{more}", err=csv)


def _signature() -> Signature:
    """The signature from which typer makes the command's options."""
    kind, new = Parameter.POSITIONAL_OR_KEYWORD, options.parameter
    start, output = {"rich_help_panel": "Start of a run"}, {"rich_help_panel": "Output"}
    folder = Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False, **start)]
    return Signature([
        Parameter("context", kind, annotation=typer.Context),
        Parameter("folder", kind, annotation=folder),
        new("x0", None, str | None, help="Starting point.", metavar="1,2,3|FILE.npy", **start),
        new("n", None, int | None, help="Start at n zeros.", min=1, **start),
        new("variables", None, str | None, help="Names of the variables.", metavar="A,B,C",
            **start),
        *map(options.declared, options_of("ask").values()),
        new("count", None, int | None, min=1, metavar="N",
            help=f"Trials to show; default: all, of which a table shows {_SHOWN}.", **output),
        new("ahead", False, bool, **output,
            help="Show also trials that are needed only if steps before them are rejected."),
        new("json", False, bool, help="One JSON object, status included.", **output),
        new("csv", False, bool, help="A table of comma-separated values.", **output),
        Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug),
    ])  # fmt: skip


ask.__signature__ = _signature()  # type: ignore[attr-defined]
