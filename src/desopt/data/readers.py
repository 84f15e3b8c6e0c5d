"""Readers of data files: LIBSVM text, .npz with X and y, .csv with a column of labels."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from desopt.contract.types import FloatArray
from desopt.data import libsvm
from desopt.data.checks import all_finite
from desopt.data.matrices import Matrix, as_csr, checked_csr

Reader: TypeAlias = Callable[[Path, str | int | None], tuple[Matrix, FloatArray]]

_LABEL_NAMES = ("y", "label", "labels", "target", "class")


def reader(stem: str) -> Reader:
    """The reader for a file of this name, without its compression suffix."""
    return {".npz": read_npz, ".csv": read_csv}.get(Path(stem).suffix, _read_libsvm)


def _read_libsvm(path: Path, label: str | int | None) -> tuple[Matrix, FloatArray]:
    if label is not None:
        raise ValueError(
            f"label={label!r} is for .csv and .npz files; in {path}, LIBSVM text, the label is the "
            "first number of a line"
        )
    return libsvm.read(path)


_CSR_PARTS = {"data", "indices", "indptr", "shape"}


def read_npz(path: Path, label: str | int | None) -> tuple[Matrix, FloatArray]:
    """Arrays X and y; or y and the arrays of a CSR matrix, as by ``scipy.sparse.save_npz``.

    ``label``: the name of y in the file.
    """
    name = "y" if label is None else str(label)
    here = _arrays_of(path, {"X", "format", name} | _CSR_PARTS)
    if {"X", name} <= here.keys():
        return _checked(path, here["X"], here[name])
    if _CSR_PARTS | {name} <= here.keys():
        return _checked(path, _csr_of(path, here), here[name])
    raise ValueError(
        f"{path} holds {', '.join(sorted(here)) or 'nothing'}; expected X and {name}, or "
        f"data, indices, indptr, shape and {name}"
    )


def _arrays_of(path: Path, wanted: set[str]) -> dict[str, Any]:
    """The arrays of a .npz file by name; None for those not wanted."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] if name in wanted else None for name in arrays.files}
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # zip, zlib and NumPy raise many kinds
        raise ValueError(
            f"{path} cannot be read: {error}; it may be damaged or cut short: get it again"
        ) from error


def _csr_of(path: Path, here: dict[str, Any]) -> Matrix:
    layout = here.get("format", np.array(b"csr")).tobytes().rstrip(b"\0")
    if layout not in (b"csr", "csr".encode("utf-32-le").rstrip(b"\0")):
        raise ValueError(
            f"{path} holds a matrix in the format {layout!r:.20}; save it as CSR, by .tocsr()"
        )
    shape = here["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise ValueError(f"{path}: shape must be two whole numbers, got {shape!r:.60}")
    size = int(shape[0]), int(shape[1])
    parts = checked_csr(here["data"], here["indices"], here["indptr"], size, str(path))
    return sparse.csr_matrix(parts, shape=size)


def _checked(path: Path, X: Matrix, y: FloatArray) -> tuple[Matrix, FloatArray]:
    if X.ndim != 2 or y.shape != (X.shape[0],) or 0 in X.shape:
        raise ValueError(
            f"{path}: expected X with rows and columns and a label for each row, got shapes "
            f"{X.shape} and {y.shape}"
        )
    if X.dtype.kind not in "buif" or y.dtype.kind not in "buif":
        raise ValueError(f"{path}: expected numbers, got types {X.dtype} and {y.dtype}")
    X, y = X.astype(np.float64), y.astype(np.float64)
    if sparse.issparse(X):
        X = as_csr(X, str(path))
    if not (all_finite(X) and all_finite(y)):
        raise ValueError(f"{path} holds NaN or infinity; remove or fill these entries first")
    return X, y


def read_csv(path: Path, label: str | int | None) -> tuple[Matrix, FloatArray]:
    """Comma-separated numbers with one column of labels and an optional header line."""
    names, header = _first_line(path)
    column = _label_column(path, names if header else [], len(names), label)
    encoding = None if header else "utf-8-sig"  # a byte-order mark may precede the numbers
    with libsvm.opened(path) as stream, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "loadtxt: input contained no data")
        try:
            table = np.loadtxt(
                stream, delimiter=",", skiprows=int(header), ndmin=2, quotechar='"',
                encoding=encoding,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if not table.size:
        raise ValueError(f"{path} holds no rows; expected lines of numbers below the names")
    if table.shape[1] != len(names):
        raise ValueError(
            f"{path}: the first line has {len(names)} columns, the rows have {table.shape[1]}; put "
            'names with commas between quotes, as in "weight, kg"'
        )
    return _checked(path, np.delete(table, column, axis=1), table[:, column])


def csv_columns(path: Path, label: str | int | None) -> tuple[str, ...] | None:
    """The names of the columns of X in the header line, if there is one."""
    names, header = _first_line(path)
    if not header:
        return None
    del names[_label_column(path, names, len(names), label)]
    return tuple(names)


def _first_line(path: Path) -> tuple[list[str], bool]:
    """The fields of the first line, and whether they are names."""
    with libsvm.opened(path) as stream:
        first = stream.readline().decode("utf-8-sig", "replace")
    if not first.strip():
        found = "begins with an empty line" if first else "is empty"
        raise ValueError(f"{path} {found}; expected a line of names or numbers")
    try:
        fields = next(csv.reader([first.rstrip("\r\n")], skipinitialspace=True))
    except csv.Error as error:
        raise ValueError(f"{path}, line 1: {error}") from None
    names = [name.strip() for name in fields]
    return names, not all(map(_is_number, names))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _label_column(path: Path, names: list[str], count: int, label: str | int | None) -> int:
    if isinstance(label, int) and -count <= label < count:
        return label % count
    wanted = [
        name for name in names if name == label or (label is None and name.lower() in _LABEL_NAMES)
    ]
    if len(wanted) == 1:
        return names.index(wanted[0])
    have = ", ".join(names[:8]) + ", ..." * (len(names) > 8) if names else f"{count} without names"
    asked = "" if label is None else f", got {label!r}"
    raise ValueError(
        f"{path} has the columns {have}; say which one holds the labels by name or number: "
        f"label='target' or label=0{asked}"
    )
