"""The ``desopt`` command.

Each command imports what it needs when it runs, to keep ``--help`` and completion quick.
An error is one line on stderr that says what to do; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from desopt._version import __version__
from desopt.cli import (
    ask,
    bench,
    data,
    demo,
    federation,
    options,
    replay,
    report,
    run,
    suite,
    tell,
    watch,
)
from desopt.cli.options import Debug
from desopt.contract.errors import headline

# Click's UsageError. Newer versions of typer carry a click of their own under a private
# name, so it is reached through the one subclass that every version exports.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

EXAMPLES = """\b
Examples:
  desopt demo                             compare the methods on a real data set
  desopt run --data ijcnn1 --rounds 40    train on a data set; stop and --resume at will
  desopt ask lab --x0 20,1,0.5            points to measure yourself; desopt tell lab ID VALUE
  desopt suite paper                      the paper's experiments in a quarter of an hour
  desopt report desopt-paper-small        their figures and verdicts
  desopt data list                        the data sets known by name, and where they are
  desopt replay desopt-run/run.journal --round 50 --out x50.npy
                                          x after 50 rounds, for numpy.load
  desopt watch .                          a live page of the runs and studies in this folder
  desopt federation status run.journal    a federated run: rounds, loss, which site answered when
  desopt bench --quick                    the speed of the kernels against plain NumPy

\b
Exit codes: 0 done, 1 failed, 2 bad usage, 130 stopped by Ctrl-C.
Completion in your shell: desopt --install-completion
"""

app = typer.Typer(
    name="desopt",
    help="Distributed evolution strategies (DES): minimise a function from its values alone.",
    epilog=EXAMPLES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"desopt {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and stop."
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    elif os.environ.get("DESOPT_PLUGINS"):
        from desopt import plugins

        plugins.load()


for command in (run, ask, tell, demo, suite, report, watch, replay, bench):
    name = command.__name__.rpartition(".")[2]
    kind = options.GroupedCommand if command in (run, ask) else options.PlainCommand
    # a negative value is no option
    context = {"ignore_unknown_options": True} if command is tell else None
    app.command(epilog=command.EXAMPLES, cls=kind, context_settings=context)(getattr(command, name))
app.add_typer(data.app, name="data")
app.add_typer(federation.app, name="federation")


def _usage(error: Any) -> str:
    """Click's message about a bad command line, and which --help to read."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "desopt"
    return f"{message} (see {command} --help)"


def _one_line(error: BaseException) -> str:
    text = " ".join(headline(str(error)).split())
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return text or type(error).__name__


def main() -> None:
    """Run the command: exit code 2 for bad usage, 1 for a failure, 130 for Ctrl-C."""
    warnings.showwarning = _warn
    _open_terminal()
    try:
        code = typer.main.get_command(app).main(prog_name="desopt", standalone_mode=False)
        if code == 130:  # Ctrl-C, as newer versions of typer report it
            _fail("stopped", code)
    except UsageError as error:
        code = _fail(_usage(error), 2)
    except typer.Abort as abort:  # Ctrl-C or EOFError, as click reports them
        cause = abort.__cause__
        if isinstance(cause, EOFError):
            if options.debug:
                raise cause from None
            code = _fail(f"EOFError: {_one_line(cause)} (--debug shows where)", 1)
        else:
            code = _fail("stopped", 130)
    except Exception as error:
        if options.debug:
            raise
        code = _fail(f"{_one_line(error)} (--debug shows where)", 1)
    sys.exit(code)


def _open_terminal() -> None:
    """Replace closed streams: Python has None for them, and the next file opened would take
    their descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _warn(message: Warning | str, *_where: Any, **_more: Any) -> None:
    """Show a warning as one line, without its place in the source."""
    typer.echo(f"desopt: {message}", err=True)


def _fail(message: str, code: int) -> int:
    typer.echo(f"desopt: {message}", err=True)
    return code
