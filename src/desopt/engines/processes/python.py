"""Commands that run code in another process of this Python, with the same modules to import."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType

from desopt.contract.errors import EngineError


def python(code: str) -> list[str]:
    """A command that runs the code in this Python, with the same modules to import.

    Flags such as -O, -W and -I are passed on. Nothing is imported before sys.path is set: a
    file in the current folder may have the name of a standard module.
    """
    if not sys.executable:
        raise EngineError(
            "processes need a Python program, and sys.executable is empty: set it to the path of "
            "one with the same packages, or use engine='serial' or 'threads'"
        )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", f"import sys; sys.path[:] = {import_path()!a}; {code}"]


def import_path() -> list[str]:
    """sys.path as imports use it here, and other folders that modules were imported from.

    These are no longer in sys.path if the program has changed it or its folder since.
    """
    path = [_resolved(entry) for entry in sys.path if isinstance(entry, str)]
    others = {folder for name in list(sys.modules) if (folder := _folder(name)) is not None}
    return path + sorted(others.difference(path))


def _resolved(entry: str) -> str:
    """The folder that imports use for an entry: where a relative one was at its first use."""
    finder = sys.path_importer_cache.get(entry)
    path = getattr(finder, "path", entry)
    with suppress(OSError):  # the current folder is gone
        return os.path.abspath(path) if entry and isinstance(path, str) else entry
    return entry


def _folder(name: str) -> str | None:
    """The folder in which a top-level module was found."""
    module = sys.modules.get(name)
    if "." in name or not isinstance(module, ModuleType):
        return None
    spec = vars(module).get("__spec__")  # getattr might run code
    if not isinstance(spec, ModuleSpec) or spec.name != name or not spec.has_location:
        return None
    folder = os.path.dirname(spec.origin or "")
    folder = os.path.dirname(folder) if spec.submodule_search_locations is not None else folder
    return folder if os.path.isabs(folder) else None
