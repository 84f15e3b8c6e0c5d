"""The ``desopt`` command.

What only one command needs is imported inside it, for the sake of ``--help`` and completion.
An error is one line on stderr that says what to do; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from desopt._version import __version__

if TYPE_CHECKING:
    from desopt.journal import Contents
    from desopt.types import FloatArray

# Click's UsageError. Newer versions of typer carry a click of their own under a private
# name, so it is reached through the one subclass that every version exports.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

EXAMPLES = """\b
Examples:
  desopt demo                             compare the methods on a real data set
  desopt demo --quick --out /tmp/demo     the same in a third of the time
  desopt bench --quick                    the kernels beside plain NumPy
  desopt replay run.journal               what is in a journal
  desopt replay run.journal --round 50 --out x50.npy
                                          x after 50 rounds, for numpy.load
"""

DEMO_EXAMPLES = """\b
Examples:
  desopt demo
  desopt demo --quick --out /tmp/demo
"""

BENCH_EXAMPLES = """\b
Examples:
  desopt bench --quick
  desopt bench --out /tmp/bench
"""

REPLAY_EXAMPLES = """\b
Examples:
  desopt replay run.journal
  desopt replay run.journal --round 50 --out x50.npy
"""

app = typer.Typer(
    name="desopt",
    help="Distributed evolution strategies (DES): minimise a function from its values alone.",
    epilog=EXAMPLES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_debug = False


def _set_debug(value: bool) -> None:
    global _debug
    _debug = _debug or value


Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_set_debug, help="Show the traceback of an error."),
]


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


@app.command(epilog=DEMO_EXAMPLES)
def demo(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the plot and the numbers.")
    ] = Path("desopt-demo"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take known step sizes instead of searching for the best."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Compare DES with the other methods on a real data set.

    Logistic regression on scikit-learn's handwritten digits, ten workers, seven methods.
    Prints a table and the path of a plot.
    """
    from desopt import demo as demonstration

    demonstration.run(out, quick)


@app.command(epilog=BENCH_EXAMPLES)
def bench(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for bench.json and bench.png.")
    ] = Path("desopt-bench"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the comparison with NumPy, in half a minute.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Time the kernels beside plain NumPy, in one run, on generated data.

    Prints tables with ratios: per local iteration, against n, threads, memory, start-up.
    """
    import os

    # One thread on both sides: read by NumPy's BLAS when it is loaded, so before that.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from desopt.bench import report

    report.run(out, quick)


@app.command(epilog=REPLAY_EXAMPLES)
def replay(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL")],
    round: Annotated[
        int | None,
        typer.Option(
            "--round", metavar="T", help="Rebuild x after T rounds; without it, after the last."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write x to this file (.npy).")
    ] = None,
    debug: Debug = False,
) -> None:
    """Say what a journal holds and rebuild x after any of its rounds.

    JOURNAL is the file that minimize(journal=...) wrote.
    """
    import warnings

    import numpy as np

    from desopt import journal as journals
    from desopt.loop import replay as rebuild

    warnings.simplefilter("ignore", RuntimeWarning)  # of a torn end, which the summary tells
    if not journal.is_file():
        raise typer.BadParameter(
            f"there is no file {str(journal)!r}; give the one that minimize(journal=...) wrote",
            param_hint="JOURNAL",
        )
    content = journals.read(journal)
    last = len(content.rows)
    if round is not None and not 0 <= round <= last:
        raise typer.BadParameter(
            f"{round} is not in the journal; give a number from 0 to {last}", param_hint="--round"
        )
    chosen = last if round is None else round
    x = rebuild(journal, round=chosen)
    for name, text in _summary(content, chosen, x):
        typer.echo(f"{name:<14}{text}")
    if out is not None:
        with out.open("wb") as file:  # np.save would add .npy to a name that lacks it
            np.save(file, x)
        typer.echo(f"{'written':<14}{out}")


def _summary(content: Contents, chosen: int, x: FloatArray) -> list[tuple[str, str]]:
    """The lines that ``replay`` prints, as (name, text)."""
    import numpy as np

    config = content.header["config"]
    losses = [row["loss"] for row in content.rows if not np.isnan(row["loss"])]
    first = ", ".join(f"{value:.6g}" for value in x[:5])
    more = ", ..." if x.size > 5 else ""
    torn = " (the file ends in the middle of another, which is left out)" if content.torn else ""
    return [
        ("method", config["method"]["name"]),
        ("n", f"{x.size}"),
        ("workers", f"{config['workers']}"),
        ("rounds", f"{len(content.rows)}{torn}"),
        ("initial loss", _loss(content.header["initial_fun"])),
        ("last loss", _loss(losses[-1] if losses else None)),
        ("x after round", f"{chosen}"),
        ("norm of x", f"{np.linalg.norm(x):.8g}"),
        ("x", f"[{first}{more}]"),
    ]


def _loss(value: float | None) -> str:
    return "not evaluated" if value is None else f"{value:.8g}"


def _usage(error: Any) -> str:
    """What click says of a bad command line, and whose --help says more."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "desopt"
    return f"{message} (see {command} --help)"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return text or type(error).__name__


def main() -> None:
    """Run the command: exit code 2 for bad usage, 1 for a failure, 130 for Ctrl-C."""
    try:
        code = typer.main.get_command(app).main(prog_name="desopt", standalone_mode=False)
        if code == 130:  # typer's word for Ctrl-C
            _fail("stopped", code)
    except UsageError as error:
        code = _fail(_usage(error), 2)
    except typer.Abort:  # and click's
        code = _fail("stopped", 130)
    except Exception as error:
        if _debug:
            raise
        code = _fail(f"{_one_line(error)} (--debug shows where)", 1)
    sys.exit(code)


def _fail(message: str, code: int) -> int:
    typer.echo(f"desopt: {message}", err=True)
    return code
