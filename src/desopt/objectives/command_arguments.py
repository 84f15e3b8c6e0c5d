"""Checks of what ``Command`` is given: its words, texts by name, and files by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any


def words(command: Any) -> tuple[str, ...]:
    """The program and its arguments."""
    if isinstance(command, str | bytes | os.PathLike):
        raise TypeError(
            f"command must be a list, the program and its arguments, got {command!r:.200}; write "
            "['./simulate', '{a}', '{b}'], or ['sh', '-c', '...'] for a line of the shell"
        )
    listed = isinstance(command, Iterable)
    found = tuple(w if isinstance(w, str) else as_text(w) for w in command) if listed else ()
    if not found or not all(isinstance(word, str) for word in found) or not found[0]:
        raise ValueError(
            f"command must be a list of texts and begin with a program, got {command!r:.200}"
        )
    return found


def texts(argument: str, given: Any) -> dict[str, str]:
    """Templates by name."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"{argument} must be texts by name, as in {{'ALPHA': '{{a}}'}}, got {given!r:.80}"
        )
    table = {} if given is None else dict(given)
    for name, text in table.items():
        if not isinstance(name, str) or not isinstance(text, str) or not name or "=" in name:
            raise TypeError(
                f"{argument} must be texts by name, as in {{'ALPHA': '{{a}}'}}, got "
                f"{name!r:.80}: {text!r:.80}"
            )
    return table


def inputs(given: Any) -> dict[str, str]:
    """Templates by the name of the file that each becomes; a ``Path`` is read."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            "input must be the name of a JSON file, as in 'params.json', or texts by file name, "
            f"got {given!r:.200}"
        )
    given_texts = {
        name: text.read_text(encoding="utf-8") if isinstance(text, Path) else text
        for name, text in (given or {}).items()
    }
    return {inside("input", name): text for name, text in texts("input", given_texts).items()}


def files(given: Any) -> dict[str, str]:
    """Paths by the name that each has in the folder of a trial."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            "files must be paths by name, as in {'mesh.dat': '/data/mesh.dat'}, got "
            f"{given!r:.200}"
        )
    found = {inside("files", name): as_text(path) for name, path in (given or {}).items()}
    for name, path in found.items():
        if not isinstance(path, str):
            raise TypeError(f"files[{name!r}] must be a path, got {path!r:.80}")
    return found


def as_text(given: Any) -> Any:
    """A path as a text; anything else as it is."""
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def inside(argument: str, name: Any) -> str:
    """A file's name within the folder of a trial."""
    path = PurePath(name) if isinstance(name, str) and name else None
    if path is None or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(
            f"{argument} must name a file in the folder where the program runs, as in 'out.json', "
            f"got {name!r}"
        )
    return str(path)
