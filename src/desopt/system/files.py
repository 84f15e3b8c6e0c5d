"""Files that are whole whenever somebody reads them, and cells of tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file at once: whoever reads it meanwhile has the old one."""
    path = Path(path)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def cell(value: Any) -> Any:
    """A cell of a CSV file: a text that a spreadsheet would evaluate gets an apostrophe."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    return f"'{value}" if formula else value
