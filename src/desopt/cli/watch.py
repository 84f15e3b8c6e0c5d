"""``desopt watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from desopt.cli.options import Debug, Plugin

EXAMPLES = """\b
Examples:
  desopt watch .                          runs and studies of this folder, on this machine
  desopt watch desopt-run --port 0        on any free port
  desopt watch /srv/runs --host 0.0.0.0   for others, who need the address with its token
"""


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with journals, run folders or studies.")
    ] = Path("."),
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to serve on; others than this machine's "
                     "own need the token in the address that is printed."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to serve on; 0: any that is free.")
    ] = 8340,
    plugin: Plugin = None,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Watch runs and studies on a live page.

    They may be going on or have ended. DIR holds journals, folders of desopt run and desopt ask, or
    studies, at any depth. Nothing in it is changed, and nothing outside of it is read. Ctrl-C ends
    the command.
    """
    import errno

    from desopt.watch.server import Server

    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {str(folder)!r}", param_hint="DIR")
    try:
        server = Server(folder, host, port)
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        what = "--port 0 takes one that is free" if taken else "--host must be this machine's"
        raise OSError(
            f"cannot serve on {host}, port {port}: {error.strerror or error}; {what}"
        ) from error
    with server:
        typer.echo(f"watching {folder} at {server.url} (Ctrl-C ends it)")
        if server.token is not None:
            typer.echo(
                "whoever has this address can read the runs; the connection is not encrypted"
            )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
