"""Options that every command has."""

from __future__ import annotations

from typing import Annotated

import typer

#: Whether an error shows its traceback.
debug = False


def _set_debug(value: bool) -> None:
    global debug
    debug = debug or value


Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_set_debug, help="Show the traceback of an error."),
]
