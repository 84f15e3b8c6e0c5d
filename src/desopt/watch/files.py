"""The files of a watched folder: found by their first bytes, opened only inside of it.

A request never names a path. It names a run or a study that was found here, and what is found is
a regular file in a folder of the tree: links are not followed, pipes and devices not opened.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from desopt.run import journal as journals
from desopt.run.folder import JOURNAL, SETTINGS
from desopt.run.values import SUFFIX

#: What one look at the tree may cost.
MAX_FILES, MAX_DEPTH, MAX_SECONDS = 20_000, 8, 1.0
#: Runs and studies that are shown, those written last.
MAX_SHOWN = 200

_SQLITE = b"SQLite format 3\0"


class Found(NamedTuple):
    """Paths of journals and of results files, the latest first; ``left_out``: not looked at."""

    journals: list[Path]
    studies: list[Path]
    left_out: int


class Tree:
    """A folder that is looked through again and again."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve(strict=True)
        if not self.root.is_dir():
            raise NotADirectoryError(f"{root} is not a folder; give one with runs or studies in it")
        self._kinds: dict[tuple[int, int, int], str] = {}  # by device, inode and time of change

    def find(self) -> Found:
        """The journals and studies that are there now."""
        found: dict[str, list[tuple[float, Path]]] = {"journal": [], "study": []}
        seen, limit, left = 0, time.monotonic() + MAX_SECONDS, 0
        kinds: dict[tuple[int, int, int], str] = {}
        for entry in self._entries():
            seen += 1
            if seen > MAX_FILES or time.monotonic() > limit:
                left = 1
                break
            try:
                status = entry.stat(follow_symlinks=False)
                key = status.st_dev, status.st_ino, status.st_mtime_ns
                kind = self._kinds.get(key) or self._kind(Path(entry.path))
            except OSError:
                continue
            if kind in found:
                found[kind].append((status.st_mtime, Path(entry.path)))
            elif (
                kind == "settings" and not (beside := Path(entry.path).with_name(JOURNAL)).exists()
            ):
                found["journal"].append((status.st_mtime, beside))  # before its first round
            else:
                kinds[key] = kind
        self._kinds = kinds  # journals are looked at every time: they may have become another
        shown = {
            kind: [path for _, path in sorted(paths, reverse=True)] for kind, paths in found.items()
        }
        left += sum(max(0, len(paths) - MAX_SHOWN) for paths in shown.values())
        return Found(shown["journal"][:MAX_SHOWN], shown["study"][:MAX_SHOWN], left)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Regular files in folders that are no links."""
        folders = [(str(self.root), 0)]
        while folders:
            folder, depth = folders.pop(0)
            try:
                with os.scandir(folder) as found:
                    for entry in found:
                        if entry.is_dir(follow_symlinks=False):
                            if depth < MAX_DEPTH and not entry.name.startswith("."):
                                folders.append((entry.path, depth + 1))
                        elif entry.is_file(follow_symlinks=False):
                            yield entry
            except OSError:
                continue

    def _kind(self, path: Path) -> str:
        """What a file is by its name and its first bytes."""
        if path.name == SETTINGS:
            return "settings"
        if path.name.endswith((SUFFIX, ".new")):
            return "other"
        with self.open(path) as file:
            start = file.read(len(_SQLITE))
        if start[:6] == journals.MAGIC[:6] and start[7:8] == journals.MAGIC[7:8]:
            return "journal"
        return "study" if start == _SQLITE and path.suffix == ".sqlite" else "other"

    def open(self, path: Path) -> BinaryIO:
        """A regular file of the tree, for reading."""
        folder = os.path.realpath(path.parent)
        if folder != str(self.root) and not folder.startswith(f"{self.root}{os.sep}"):
            raise PermissionError(f"{path} is outside of {self.root}")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PermissionError(f"{path} is not a regular file")
            return open(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, path: Path, most: int) -> bytes | None:
        """A small file; None if it is not there, not to be opened, or longer than ``most``."""
        try:
            with self.open(path) as file:
                data = file.read(most + 1)
        except OSError:
            return None
        return data if len(data) <= most else None
