"""The journal as a file: locks, regular files only, leftovers of killed processes.

What the file holds is in ``desopt.run.journal``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from desopt.contract.errors import JournalError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Exceptions that malformed content leads to.
_MALFORMED = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, AssertionError,
    RecursionError, MemoryError, struct.error, zlib.error,
)  # fmt: skip


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn the exceptions of malformed content into a JournalError that says where it is."""
    try:
        yield
    except JournalError:
        raise
    except _MALFORMED as error:
        text = f"{error}"[:300] or type(error).__name__
        raise JournalError(f"{path}: {what} cannot be used: {text}") from error


def cut(file: BinaryIO, end: int) -> None:
    """Truncate the file and continue writing at its end."""
    file.truncate(end)
    file.seek(end)
    os.fsync(file.fileno())


def write_all(file: BinaryIO, data: bytes) -> None:
    left = memoryview(data)
    while left:  # a full disk may take a part
        left = left[file.write(left) :]


def open_regular(path: str | os.PathLike[str], *, write: bool = False) -> BinaryIO:
    """Open a file unbuffered. Opening never waits for a pipe and never reads a device."""
    _check_regular(path, os.stat(path))
    flags = os.O_RDWR if write else os.O_RDONLY
    fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = open(fd, "r+b", buffering=0) if write else open(fd, "rb", buffering=0)  # noqa: SIM115
    try:
        _check_regular(path, os.fstat(file.fileno()))  # of what was opened
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(path: str | os.PathLike[str], found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise JournalError(
            f"{path} is not a regular file; a journal cannot be a folder, a pipe or a device"
        )


def new_file(path: Path) -> tuple[BinaryIO, Path]:
    """A locked file of this process alone, in the folder of the path.

    Linked to the path, it is a journal that was locked before it had its name. Without locks it
    has its name from the beginning: such a system (Windows) removes no file that is open.
    """
    if fcntl is None:
        return _made(path, path), path
    while True:
        fresh = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
        file = _made(fresh, path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if fresh.exists():  # else another process took it for a leftover
                return file, fresh
        except BaseException:
            file.close()
            os.unlink(fresh)
            raise
        file.close()


def _made(fresh: Path, path: Path) -> BinaryIO:
    try:
        return open(fresh, "x+b", buffering=0)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise PermissionError(
            f"journal: no file can be made in the folder {path.absolute().parent} "
            f"({error.strerror}); make it writable, or give a path in another folder"
        ) from error


def give_name(fresh: Path, path: Path) -> None:
    """Give a new file its name; unlike a rename, never over another run's file."""
    try:
        os.link(fresh, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, such as exFAT: take the name first
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.replace(fresh, path)
        except FileExistsError:
            raise
        except BaseException:
            if path.exists() and path.stat().st_size == 0:
                os.unlink(path)
            raise
    else:
        os.unlink(fresh)


def drop(file: BinaryIO, paths: Iterable[Path]) -> None:
    """Close the file and delete it under those of the names that are its own."""
    mine = os.fstat(file.fileno())
    if fcntl is None:  # Windows deletes no open file; elsewhere the lock is kept until the end
        file.close()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(mine, os.stat(path)):
                os.unlink(path)
    file.close()


def lock(file: BinaryIO, path: Path) -> None:
    """Refuse a file that another process writes."""
    if fcntl is None:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalError(
            f"{path} is in use by another process; wait for it or give another file"
        ) from None


def remove_leftovers(path: Path, magic: bytes) -> None:
    """Delete the new files of killed processes for this path: those that nobody has locked.

    ``magic``: the first bytes of a journal, or fewer where it was killed in the midst of them.
    """
    if fcntl is None:  # Windows
        return
    ours = re.compile(re.escape(path.name) + r"\.\d+(-[0-9a-f]{8})?\.new")
    for name in os.listdir(path.absolute().parent):
        if not ours.fullmatch(name):
            continue
        with contextlib.suppress(OSError, JournalError):
            found = path.with_name(name)
            if found.is_symlink():
                continue
            with open_regular(found) as file:
                lock(file, found)
                if magic.startswith(file.read(len(magic))):
                    os.unlink(found)


@contextlib.contextmanager
def exclusive(file: BinaryIO) -> Iterator[None]:
    """The file for this process alone, for a short time; waits for others."""
    if fcntl is None:  # Windows
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
