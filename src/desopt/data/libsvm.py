"""LIBSVM text, plain or compressed, read in pieces: the text is never in memory as a whole."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from desopt.contract.types import FloatArray
from desopt.data.matrices import Matrix, csr
from desopt.kernels import text as kernel
from desopt.system.progress import Progress

PIECE = 1 << 20
LONGEST_LINE = 1 << 26

#: Functions that open compressed files, by suffix.
COMPRESSIONS: dict[str, Callable[..., Any]] = {
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".gz": gzip.open,
}

_EXPECTED = {
    kernel.LABEL: "expected a label, a number such as -1 or 2.5",
    kernel.SPACE: "expected a space, a comment or the end of the line after the number",
    kernel.INDEX: "expected index:value, the index a whole number",
    kernel.COLON: "expected a colon after the index",
    kernel.VALUE: "expected a number such as 1 or -2.5e-3 after the colon",
    kernel.ZERO: "expected an index of at least 1; if yours start at 0, add 1 to all of them",
    kernel.LARGE: f"expected an index of at most {kernel.MAX_INDEX}",
    kernel.REPEATED: "expected an index above the one before, got the same again",
    kernel.UNSORTED: "expected an index above the one before; sort the entries of each line",
    kernel.QUERY: "expected qid: and a whole number, or index:value",
}
_TOO_LARGE = "expected a number that float64 can hold"


@dataclass(frozen=True)
class Piece:
    """Some rows: labels, where the entries of each row end, and the entries."""

    labels: FloatArray
    ends: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: FloatArray


def read(path: Path) -> tuple[Matrix, FloatArray]:
    """The matrix and the labels of a file, unchanged."""
    with opened(path) as stream:
        pieces = [piece for piece in parse(stream, str(path)) if piece.labels.size]
    if not pieces:
        raise ValueError(f"{path} holds no rows; expected lines such as '+1 3:0.5 7:1'")
    return _joined(pieces)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The text of a file, with a display of how much of the file has been read."""
    opener = COMPRESSIONS.get(path.suffix)
    with (
        path.open("rb") as raw,
        Progress(f"reading {path.name}", os.fstat(raw.fileno()).st_size) as progress,
    ):
        counted: Any = _Counted(raw, progress)
        try:
            yield counted if opener is None else opener(counted)
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            raise ValueError(
                f"{path} cannot be read: {error}; it may be damaged or cut short: get it again"
            ) from error


class _Counted(io.RawIOBase):
    """A file that reports how much of it has been read."""

    def __init__(self, raw: BinaryIO, progress: Progress) -> None:
        self._raw, self._progress = raw, progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._raw.readinto(buffer)  # type: ignore[attr-defined]
        self._progress.advance(count)
        return count


def parse(stream: BinaryIO, name: str, piece: int = PIECE) -> Iterator[Piece]:
    """Read a stream piece by piece; ``name`` is for the messages."""
    rest, line, room = b"", 1, _Room(2 * piece)
    while True:
        fresh = stream.read(max(piece, len(rest)))
        text = bytearray(rest + fresh)
        if not fresh and text:
            text += b"\n"  # the last line may lack it
        whole = text.rfind(b"\n") + 1
        rest = bytes(text[whole:])
        del text[whole:]
        if len(rest) > LONGEST_LINE:
            line += text.count(b"\n")
            raise ValueError(
                f"{name}, line {line}: expected a line of at most {LONGEST_LINE} bytes"
            )
        if text:
            room = room if len(text) <= room.size else _Room(len(text))
            yield _rows_of(text, room, name, line)
            line += text.count(b"\n")
        if not fresh:
            return


class _Room:
    """Arrays large enough for any piece of text, reused for every piece."""

    def __init__(self, size: int) -> None:
        rows, entries = size // 2 + 1, size // 4 + 1  # "1\n" and " 1:1" are the shortest
        self.size = size
        self.labels, self.ends = np.empty(rows), np.empty(rows, np.int64)
        self.indices, self.values = np.empty(entries, np.int32), np.empty(entries)
        self.slow = np.empty((entries, 3), np.int64)  # "9e99\n" is the shortest


def _rows_of(text: bytearray, room: _Room, name: str, line: int) -> Piece:
    """The rows of a piece of text that starts on this line of the file."""
    labels, values = room.labels, room.values
    rows, count, slows, stop, wrong = kernel.lines(
        np.frombuffer(text, np.uint8), labels, room.ends, room.indices, values, room.slow
    )
    for place, start, end in room.slow[:slows].tolist():
        value = float(text[start:end])
        if math.isinf(value):
            raise _error(text, start, name, line, _TOO_LARGE)
        if place < 0:
            labels[~place] = value
        else:
            values[place] = value
    if wrong != kernel.FINE:
        raise _error(text, stop, name, line, _EXPECTED[wrong])
    return Piece(
        labels[:rows].copy(), room.ends[:rows].copy(), room.indices[:count].copy(),
        values[:count].copy(),
    )  # fmt: skip


def _error(text: bytearray, at: int, name: str, line: int, expected: str) -> ValueError:
    start = text.rfind(b"\n", 0, at) + 1
    line += text.count(b"\n", 0, at)
    found = bytes(text[at : at + 20]).split(b"\n")[0].decode("ascii", "backslashreplace")
    got = f"got {found!r}" if found.strip() else "the line ends"
    return ValueError(f"{name}, line {line}, column {at - start + 1}: {expected}; {got}")


def _joined(pieces: list[Piece]) -> tuple[Matrix, FloatArray]:
    """All pieces as one matrix; each piece is freed once it has been copied."""
    labels = np.concatenate([piece.labels for piece in pieces])
    counts = np.cumsum([0, *(piece.indices.size for piece in pieces)])
    index_type = np.int32 if counts[-1] < 2**31 else np.int64
    indptr = np.zeros(labels.size + 1, index_type)
    indices, values = np.empty(counts[-1], np.int32), np.empty(counts[-1])
    row = 0
    for i, piece in enumerate(pieces):
        begin, end = counts[i], counts[i + 1]
        indptr[row + 1 : row + piece.ends.size + 1] = piece.ends + begin
        indices[begin:end], values[begin:end] = piece.indices, piece.values
        row += piece.ends.size
        pieces[i] = None  # type: ignore[call-overload]
    n = int(indices.max(initial=0)) + 1
    return csr(values, indices, indptr, n), labels
