"""``desopt suite``."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desopt.cli.options import Debug

if TYPE_CHECKING:
    from desopt.studies.study import Study

EXAMPLES = """\b
Examples:
  desopt suite paper --list                      the cases, and how long they take
  desopt suite paper                             all figures in a quarter of an hour
  desopt suite paper --scale full --only curves:ijcnn1,covtype:lr
  desopt suite paper --scale full --data rcv1-like --rows 100000
  desopt suite my.toml --out results             a study of your own
  desopt suite my.toml --out results --csv       its results as CSV

--only takes names of items (curves, alpha, momentum, batch), data sets, problems and
methods: a comma means or, a colon means and; it may be given several times.
"""


def suite(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="paper, or a TOML file.")] = "paper",
    scale: Annotated[
        str, typer.Option(help="Of paper: smoke (seconds), small (minutes) or full (as printed).")
    ] = "small",
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Run a part; see below.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of paper: this data set or file instead; repeatable."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=10, help="Of paper: use at most this many rows of a set.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, metavar="DIR", help="Folder of the results.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cases at a time; default: one per core.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where files of data sets are.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed cases again.")] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Print the cases and the expected time, and stop.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write what is finished as CSV into DIR, and stop.")
    ] = False,
    all_: Annotated[
        bool,
        typer.Option("--all", help="With --csv: also cases that are no longer in the study."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Run the paper's experiments, or a study of your own.

    Stop it at will: the same command goes on where it was. Several may work on one folder.
    """
    from desopt.studies import study as studies
    from desopt.studies.text import file_name
    from desopt.system.parallel import cores

    if study == "paper":
        where = str(data_dir) if data_dir else None
        chosen = studies.paper(scale, data or (), rows, where)
    else:
        _refuse(scale=scale != "small", data=data, rows=rows)
        where = str(data_dir or Path(study).parent)
        chosen = studies.from_toml(Path(study))
    chosen = chosen.only(only or ())
    folder = out or Path(f"desopt-{file_name(chosen.name)}")
    if all_ and not csv:
        raise typer.BadParameter("is for --csv; desopt report has one too", param_hint="--all")
    if list_:
        _list(chosen, folder, jobs or cores(), where)
    elif csv:
        _csv(chosen, folder, where, all_)
    else:
        _run(chosen, folder, jobs or cores(), where, retry)


def _refuse(**given: object) -> None:
    for name, value in given.items():
        if value:
            raise typer.BadParameter(
                "is for the study paper; say it in the file", param_hint=f"--{name}"
            )


def _list(study: Study, folder: Path, jobs: int, data_dir: str | None) -> None:
    from desopt.studies import listing
    from desopt.studies.store import FILE, Store
    from desopt.studies.study import digest_at_hand

    study = study.on({name: digest_at_hand(name, data_dir) for name in study.data})
    with Store.open(folder) if (folder / FILE).exists() else nullcontext() as store:
        for line in listing.lines(study, store, jobs, data_dir):
            typer.echo(line)


def _csv(study: Study, folder: Path, data_dir: str | None, everything: bool) -> None:
    from desopt.studies import study as studies

    for path in studies.csv(study, folder, data_dir, everything):
        typer.echo(path)


def _run(study: Study, folder: Path, jobs: int, data_dir: str | None, retry: bool) -> None:
    from desopt.studies import study as studies
    from desopt.studies.display import Display
    from desopt.studies.text import printable

    try:
        with Display(jobs) as display:
            status = studies.run(study, folder, jobs, data_dir, retry, display)
    except KeyboardInterrupt:
        typer.echo("desopt: stopped; the same command goes on where it was", err=True)
        sys.exit(130)
    typer.echo(f"{status.done} of {status.total} cases are done: {folder}")
    if status.failed:
        count = f"{status.failed} of {status.total} cases failed"
        raise RuntimeError(f"{count}: {printable(status.why)}; --retry tries them again")
    typer.echo(f"see them with: desopt report {folder}")
