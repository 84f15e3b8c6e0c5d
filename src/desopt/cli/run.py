"""``desopt run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from desopt.cli.options import Debug

EXAMPLES = """\b
Examples:
  desopt run --data ijcnn1 --loss lr --method des-mr --workers 10 --rounds 40
  desopt run --data my.libsvm --loss nsvm --step-size 10 --out my-run
  desopt run --resume --out my-run --rounds 200
  desopt run --python simulator:cost --n 30 --rounds 50 --engine processes
"""


def _option(text: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(help=text, metavar=metavar, **more)


def run(
    context: typer.Context,
    data: Annotated[
        str | None, _option("A data set (see desopt data list) or a file.", "NAME")
    ] = None,
    loss: Annotated[str, _option("lr, nsvm or lsvm.")] = "lr",
    python: Annotated[
        str | None, _option("An objective of your own, fun(x, batch) or fun(x).", "MODULE:FUNC")
    ] = None,
    n: Annotated[int | None, _option("For --python: start at n zeros.", min=1)] = None,
    x0: Annotated[str | None, _option("Start at this point.", "FILE.npy")] = None,
    method: Annotated[
        str,
        _option("es, des, des-mg, des-mr, fed-zo-gd, fed-zo-sgd, zo-signsgd or es-csa."),
    ] = "des-mr",
    workers: Annotated[int, _option("M.")] = 10,
    rounds: Annotated[int, _option("T.")] = 100,
    iterations: Annotated[int, _option("K, per worker and round.")] = 100,
    batch_size: Annotated[int, _option("b, rows per minibatch.")] = 1000,
    step_size: Annotated[float, _option("alpha.")] = 1.0,
    momentum: Annotated[float, _option("beta.")] = 0.5,
    mixture: Annotated[int, _option("l, coordinates per mutation.")] = 8,
    radius: Annotated[float, _option("mu of the two-point estimates.")] = 1e-6,
    population: Annotated[int | None, _option("lambda of es-csa.")] = None,
    regularization: Annotated[float, _option("Weight of the penalty.")] = 1e-6,
    seed: Annotated[int, _option("Of everything random, the split too.")] = 0,
    participation: Annotated[float, _option("Share of the workers in a round.")] = 1.0,
    aggregate: Annotated[str, _option("mean, median or trimmed-mean.")] = "mean",
    engine: Annotated[str, _option("auto, serial, threads, processes or ray.")] = "auto",
    jobs: Annotated[int | None, _option("Threads or processes.")] = None,
    eval_every: Annotated[
        int | None, _option("Rounds between values of the objective; 0: none.")
    ] = None,
    max_evaluations: Annotated[int | None, _option("Compute at most so many values.")] = None,
    max_seconds: Annotated[float | None, _option("Stop after this time.")] = None,
    target: Annotated[float | None, _option("Stop at this objective.")] = None,
    patience: Annotated[
        int | None, _option("Stop after so many evaluations without progress.")
    ] = None,
    data_dir: Annotated[str | None, _option("Where files of data sets are.", "DIR")] = None,
    rows: Annotated[int | None, _option("Use so many rows of the data.", min=2)] = None,
    test_share: Annotated[float, _option("Share of the rows kept for testing.")] = 0.2,
    out: Annotated[Path, _option("Folder of the run.", "DIR", file_okay=False)] = Path(
        "desopt-run"
    ),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, as it was set up.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Minimise on a data set or a function of your own; everything goes to one folder.

    Stop it at will (Ctrl-C): --resume goes on, and ends at the same x, bit for bit.
    """
    from desopt.run import folder
    from desopt.run.minimize import Interrupted

    own = ("out", "resume", "debug")
    asked = {k: v for k, v in context.params.items() if k not in own}
    if resume:
        given = {k: v for k, v in asked.items() if _was_given(context, k)}
        settings = folder.resume(out, given)
    else:
        settings = folder.begin(out, folder.Settings(**asked))
    try:
        summary = folder.execute(out, settings)
    except Interrupted as stop:
        reached = f"stopped after round {stop.result.nit}"
        typer.echo(f"desopt: {reached}; go on with: desopt run --resume --out {out}", err=True)
        sys.exit(130)
    for name, text in _lines(summary):
        typer.echo(f"{name:<14}{text}")
    typer.echo(f"{'folder':<14}{out}")


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """What the terminal is told at the end, as (name, text)."""
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
