"""``desopt suite``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from desopt.cli.options import Debug, Plugin
from desopt.studies.builtin import BUILT_IN

if TYPE_CHECKING:
    from desopt.studies.study import Study

EXAMPLES = f"""\b
Studies:
  paper          the paper's experiments
{"".join(f"  {name:<14} {study.about}{chr(10)}" for name, study in BUILT_IN.items())}\
  bbob           COCO's functions: bbob, bbob-noisy and bbob-largescale
\b
Examples:
  desopt suite paper --list                      list the cases and the time left
  desopt suite paper                             all figures at a small scale, in minutes
  desopt suite paper --scale full --only curves:ijcnn1,covtype:lr
  desopt suite paper --scale full --data rcv1-like --rows 100000
  desopt suite my.toml --out results             a study of your own
  desopt suite my.toml --out results --csv       export its results as CSV
  desopt suite bbob --only bbob:es-csa,cma-es    COCO's functions, for cocopp

--only takes names of items (curves, alpha, momentum, batch), data sets, problems, methods
and partitions; for bbob those of suites, solvers, dimensions and instances. A comma means or,
a colon means and. The option can be repeated.
"""


Name = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="paper, another built-in study, or the path of a TOML file."
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        help="For paper: smoke (seconds), small (minutes, the default) or full (as in the "
        "paper). For other built-in studies: smoke or full (the default)."
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAMES", help="Run a part of the study; see below.")
]
Data = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="For paper: use this data set or file; repeatable."),
]
Rows = Annotated[
    int | None, typer.Option(min=10, help="For paper: use at most this many rows per data set.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        file_okay=False, metavar="DIR", help="Folder for the results; default: desopt-NAME."
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of parallel processes; default: one per core.")
]
DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with data files.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run failed cases again.")]
List = Annotated[bool, typer.Option("--list", help="List the cases and the time left, and exit.")]
Csv = Annotated[
    bool, typer.Option("--csv", help="Export finished results as CSV to DIR, and exit.")
]
All = Annotated[
    bool, typer.Option("--all", help="With --csv: include cases that the study no longer has.")
]


def suite(
    study: Name = "paper", scale: Scale = None, only: Only = None, data: Data = None,
    rows: Rows = None, out: Out = None, jobs: Jobs = None, data_dir: DataDir = None,
    retry: Retry = False, list_: List = False, csv: Csv = False, all_: All = False,
    plugin: Plugin = None, debug: Debug = False,
) -> None:  # fmt: skip
    """Run the paper's experiments, or a study of your own.

    Ctrl-C stops it; the same command continues. Several processes can share one folder.
    """
    from desopt.studies.output import file_name
    from desopt.system.parallel import cores

    if all_ and not csv:
        raise typer.BadParameter("needs --csv; see also desopt report --all", param_hint="--all")
    if study == "bbob":
        _refuse(data=data, rows=rows, retry=retry)
        _bbob(scale, only or (), out or Path("desopt-bbob"), jobs or cores(), list_, csv)
        return
    chosen, where = _chosen(study, scale, data, rows, data_dir)
    chosen = chosen.only(only or ())
    folder = out or Path(f"desopt-{file_name(chosen.name)}")
    if list_:
        _list(chosen, folder, jobs or cores(), where)
    elif csv:
        _csv(chosen, folder, where, all_)
    else:
        _run(chosen, folder, jobs or cores(), where, retry)


def _chosen(
    name: str, scale: str | None, data: list[str] | None, rows: int | None, data_dir: Path | None
) -> tuple[Study, str | None]:
    """The study of this name, and the folder with its data files."""
    from desopt.studies import study as studies

    where = None if data_dir is None else str(data_dir)
    if name == "paper":
        return studies.paper(scale or "small", data or (), rows, where), where
    if name in BUILT_IN:
        _refuse(data=data, rows=rows)
        return studies.built_in(name, scale, where), where
    _refuse(scale=scale, data=data, rows=rows)
    return studies.from_toml(Path(name)), where or str(Path(name).parent)


def _refuse(**given: object) -> None:
    for name, value in given.items():
        if value:
            raise typer.BadParameter(
                "does not apply to this study; a study of your own sets it in its TOML file",
                param_hint=f"--{name}",
            )


def _bbob(
    scale: str | None, only: Sequence[str], folder: Path, jobs: int, list_: bool, csv: bool
) -> None:  # fmt: skip
    """COCO has runs, results and reports of its own: ours are the solvers."""
    from desopt.studies import bbob
    from desopt.system.progress import Progress

    parts = bbob.parts(scale, only)
    left = bbob.left(parts, folder)
    done = len(parts) - len(left)
    if list_:
        for part in parts:
            typer.echo(f"{'to do' if part in left else 'done ':<5}  {part.folder}")
        typer.echo(f"{done} of {len(parts)} parts done")
        return
    if csv:
        if not done:
            raise typer.BadParameter(f"no part is done in {folder}", param_hint="--csv")
        typer.echo(bbob.export_csv(parts, folder))
        return
    values = [sum(p.problems * p.values for p in some) for some in (parts, left)]
    try:
        with Progress("bbob", values[0], done=values[0] - values[1], show=True) as progress:

            def watch(part: bbob.Part) -> None:
                progress.advance(part.values)
                progress.update(note=str(part.folder))

            bbob.run(parts, folder, jobs, watch)
    except KeyboardInterrupt:
        typer.echo("desopt: stopped; the same command continues", err=True)
        sys.exit(130)
    typer.echo(f"{len(parts)} parts done: {folder}")
    folders = dict.fromkeys(str(folder / part.folder.parent) for part in parts)
    typer.echo(f"next: python -m cocopp {' '.join(folders)}")


def _list(study: Study, folder: Path, jobs: int, data_dir: str | None) -> None:
    from desopt.studies.console import case_list
    from desopt.studies.database import FILE
    from desopt.studies.datasets import digest_if_available
    from desopt.studies.store import Store
    from desopt.studies.study import check_rows

    check_rows(study, data_dir)
    study = study.with_digests({d: digest_if_available(d, data_dir) for d in study.data})
    with Store.open(folder) if (folder / FILE).exists() else nullcontext() as store:
        for line in case_list(study, store, jobs, data_dir):
            typer.echo(line)


def _csv(study: Study, folder: Path, data_dir: str | None, all_: bool) -> None:
    from desopt.studies.study import export_csv

    for path in export_csv(study, folder, data_dir, include_former=all_):
        typer.echo(path)


def _run(study: Study, folder: Path, jobs: int, data_dir: str | None, retry: bool) -> None:
    from desopt.contract.errors import headline
    from desopt.studies import study as studies
    from desopt.studies.console import RunProgress
    from desopt.studies.output import printable

    try:
        with RunProgress(study.name, jobs) as progress:
            status = studies.run(study, folder, jobs, data_dir, retry, progress)
    except KeyboardInterrupt:
        typer.echo("desopt: stopped; the same command continues", err=True)
        sys.exit(130)
    typer.echo(f"{status.done} of {status.total} cases done: {folder}")
    if status.failed:
        count = f"{status.failed} of {status.total} cases failed"
        why = printable(headline(status.error))
        raise RuntimeError(f"{count}: {why}; --retry runs them again")
    typer.echo(f"next: desopt report {quote(str(folder))}")
