"""Matrices as data sets hold them: dense arrays, or CSR with sorted columns and 32-bit indices.

``as_csr`` takes every sparse format of SciPy. SciPy's own conversions run compiled code that
trusts the indices: one outside the matrix makes it read or write elsewhere in memory. So every
index is checked before SciPy sees it.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desopt.contract.types import FloatArray

Array = NDArray[Any]

Matrix: TypeAlias = Any  # a C-ordered float64 array or a scipy.sparse.csr_matrix

_REAL_OR_COMPLEX = "fiubc"

#: Matrices of at least this density are stored dense, which is faster then. At covtype's density
#: (0.22) CSR takes half the time with most methods: less data comes from memory.
DENSE_FROM = 0.3


def csr(data: FloatArray, indices: NDArray[Any], indptr: NDArray[Any], n: int) -> Matrix:
    """A CSR matrix of arrays known to be well-formed, without SciPy's checks."""
    matrix = sparse.csr_matrix((indptr.size - 1, n))
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def density(X: Matrix) -> float:
    """The share of the entries that are not zero (of CSR: that are stored)."""
    count = X.nnz if sparse.issparse(X) else np.count_nonzero(X)
    return float(count / (X.shape[0] * X.shape[1]))


def in_suitable_layout(X: Matrix, n: int = 0) -> Matrix:
    """The matrix with at least n columns, in the layout that suits its density."""
    n = max(n, X.shape[1])
    if not sparse.issparse(X):
        return np.ascontiguousarray(np.pad(X, ((0, 0), (0, n - X.shape[1]))), np.float64)
    X = csr(X.data, X.indices, X.indptr, n)
    return X.toarray() if density(X) >= DENSE_FROM else X


def unit_rows(X: Matrix) -> Matrix:
    """Rows scaled to length 1; rows of zeros stay."""
    if not sparse.issparse(X):
        lengths = np.sqrt(np.add.reduce(X * X, axis=1))[:, None]
        return X / np.where(lengths > 0, lengths, 1.0)
    squares = np.zeros(X.data.size + 1)
    np.multiply(X.data, X.data, out=squares[:-1])
    counts = np.diff(X.indptr)
    sums = np.where(counts > 0, np.add.reduceat(squares, X.indptr[:-1]), 1.0)
    lengths = np.sqrt(np.where(sums > 0, sums, 1.0))
    return csr(X.data / np.repeat(lengths, counts), X.indices, X.indptr, X.shape[1])


def plain_arrays(array: Any) -> list[Array]:
    """The NumPy arrays that an array or a CSR matrix consists of."""
    return [array.data, array.indices, array.indptr] if sparse.issparse(array) else [array]


# --- any sparse format to CSR ----------------------------------------------------------------


def as_csr(matrix: Any, where: str) -> Any:
    """A well-formed CSR matrix: columns sorted and unique within each row.

    Duplicate entries are added up, as SciPy does. Values share the caller's memory where nothing
    had to change. Indices are copied (to int32 where they fit) unless they are read-only, so that
    nobody can change them after the check.
    """
    if len(matrix.shape) != 2:
        raise ValueError(f"{where} must have 2 dimensions as it is sparse, got {matrix.shape}")
    convert = _TO_CSR.get(matrix.format)
    if convert is None:
        raise TypeError(f"{where} has the unknown sparse format {matrix.format!r}; use CSR")
    try:
        data, indices, indptr, shape = convert(matrix, where)
    except (AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"{where} is not a well-formed sparse matrix: {error}") from None
    index = np.int32 if max(data.size, *shape) < 2**31 else np.int64
    kind = sparse.csr_array if isinstance(matrix, sparse.sparray) else sparse.csr_matrix
    data = np.require(data, data.dtype.newbyteorder("="), ["C", "A"])
    own = kind((data, _unchanging(indices, index), _unchanging(indptr, index)), shape=shape)
    if not own.has_canonical_format:
        own = own.copy()
        own.sum_duplicates()
    return own


def _unchanging(numbers: Array, kind: Any) -> Array:
    """The numbers as this type: a copy, unless their memory is read-only."""
    memory: Any = numbers
    while isinstance(memory, np.ndarray) and not memory.flags.writeable:
        memory = memory.base
    if isinstance(memory, np.ndarray):
        return numbers.astype(kind)
    return np.ascontiguousarray(numbers, kind)


def checked_csr(
    data: Any, indices: Any, indptr: Any, shape: tuple[int, int], where: str,
    line: str = "row", place: str = "column",
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The three arrays of a CSR matrix of this shape, checked and cut to the end of indptr."""
    _vectors(where, data=data, indices=indices, indptr=indptr)
    _whole(where, indices=indices, indptr=indptr)
    lines, n = shape
    if indptr.size != lines + 1:
        raise ValueError(
            f"{where}: indptr has {indptr.size} numbers; a matrix of {lines} {line}s needs "
            f"{lines + 1}"
        )
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if indptr[0] != 0 or falls.size:
        at = f"falls at {line} {falls[0]}" if falls.size else f"starts with {indptr[0]}"
        raise ValueError(f"{where}: indptr must start with 0 and never fall; it {at}")
    end = int(indptr[-1])
    if indices.size != data.size or end > data.size:
        raise ValueError(
            f"{where}: indptr ends with {end}, but there are {indices.size} indices and "
            f"{data.size} values"
        )
    data, indices = data[:end], indices[:end]
    if end and (indices.min() < 0 or indices.max() >= n):
        bad = np.flatnonzero((indices < 0) | (indices >= n))
        first = int(np.searchsorted(indptr, bad[0], "right")) - 1
        raise ValueError(
            f"{where}: {line} {first} has an entry in {place} {some(indices[bad])}, but the "
            f"{place}s are 0 to {n - 1}"
        )
    return data, indices, indptr


def some(numbers: Array) -> str:
    """The first few distinct numbers, for a message."""
    different = np.unique(numbers[:1000])
    return ", ".join(map(str, different[:4])) + ", ..." * (different.size > 4)


def _vectors(where: str, **parts: Any) -> None:
    for name, part in parts.items():
        if not isinstance(part, np.ndarray) or part.ndim != 1:
            shape = f" of shape {part.shape}" if isinstance(part, np.ndarray) else ""
            raise ValueError(f"{where}: {name} must be a vector, got {type(part).__name__}{shape}")
    values = parts["data"]
    if values.dtype.kind not in _REAL_OR_COMPLEX:
        raise TypeError(f"{where}: a sparse matrix must hold numbers, got dtype {values.dtype}")


def _whole(where: str, **parts: Array) -> None:
    for name, part in parts.items():
        if part.dtype.kind not in "iu":
            raise TypeError(f"{where}: {name} must be whole numbers, got dtype {part.dtype}")


def _shape(matrix: Any, where: str) -> tuple[int, int]:
    rows, n = (int(size) for size in matrix.shape)
    if rows < 0 or n < 0:
        raise ValueError(f"{where} has the impossible shape {matrix.shape}")
    return rows, n


def _from_csr(matrix: Any, where: str) -> Any:
    shape = _shape(matrix, where)
    return *checked_csr(matrix.data, matrix.indices, matrix.indptr, shape, where), shape


def _from_csc(matrix: Any, where: str) -> Any:
    rows, n = _shape(matrix, where)
    parts = matrix.data, matrix.indices, matrix.indptr
    parts = checked_csr(*parts, (n, rows), where, "column", "row")
    return _parts(sparse.csc_matrix(parts, shape=(rows, n)))


def _from_bsr(matrix: Any, where: str) -> Any:
    rows, n = _shape(matrix, where)
    blocks = matrix.data
    if not isinstance(blocks, np.ndarray) or blocks.ndim != 3 or 0 in blocks.shape[1:]:
        raise ValueError(f"{where}: the blocks of a BSR matrix must be an array of matrices")
    height, width = blocks.shape[1:]
    if rows % height or n % width:
        raise ValueError(f"{where}: blocks of {height} x {width} do not fill {rows} x {n}")
    if blocks.dtype.kind not in _REAL_OR_COMPLEX:
        raise TypeError(f"{where}: a sparse matrix must hold numbers, got dtype {blocks.dtype}")
    whole = rows // height, n // width
    parts = checked_csr(np.arange(len(blocks)), matrix.indices, matrix.indptr, whole, where)
    end = parts[0].size
    return _parts(sparse.bsr_matrix((blocks[:end], *parts[1:]), shape=(rows, n)))


def _from_coo(matrix: Any, where: str) -> Any:
    return _from_entries(matrix.data, matrix.row, matrix.col, _shape(matrix, where), where)


def _from_entries(data: Any, row: Any, column: Any, shape: tuple[int, int], where: str) -> Any:
    _vectors(where, data=data, row=row, col=column)
    _whole(where, row=row, col=column)
    if not data.size == row.size == column.size:
        raise ValueError(
            f"{where}: there are {data.size} values, {row.size} row and {column.size} column "
            "numbers; they must be equally many"
        )
    for name, numbers, limit in (("row", row, shape[0]), ("column", column, shape[1])):
        if data.size and (numbers.min() < 0 or numbers.max() >= limit):
            bad = numbers[(numbers < 0) | (numbers >= limit)]
            raise ValueError(
                f"{where} has an entry in {name} {some(bad)}, but the {name}s are 0 to {limit - 1}"
            )
    return _parts(sparse.coo_matrix((data, (row, column)), shape=shape))


def _from_dok(matrix: Any, where: str) -> Any:
    keys = np.array(list(matrix.keys()), np.int64).reshape(-1, 2)
    data = np.array(list(matrix.values()), matrix.dtype)
    return _from_entries(data, keys[:, 0], keys[:, 1], _shape(matrix, where), where)


def _from_dia(matrix: Any, where: str) -> Any:
    shape, diagonals, offsets = _shape(matrix, where), matrix.data, matrix.offsets
    _vectors(where, data=np.empty(0), offsets=offsets)
    _whole(where, offsets=offsets)
    if not isinstance(diagonals, np.ndarray) or diagonals.ndim != 2:
        raise ValueError(f"{where}: the diagonals of a DIA matrix must be a matrix")
    if len(diagonals) != offsets.size:
        raise ValueError(f"{where}: there are {len(diagonals)} diagonals, {offsets.size} offsets")
    columns = np.broadcast_to(np.arange(diagonals.shape[1]), diagonals.shape)
    rows = columns - offsets.astype(np.int64)[:, None]
    inside = (rows >= 0) & (rows < shape[0]) & (columns < shape[1]) & (diagonals != 0)
    return _from_entries(diagonals[inside], rows[inside], columns[inside], shape, where)


def _from_lil(matrix: Any, where: str) -> Any:
    shape = _shape(matrix, where)
    try:
        lengths = [len(row) for row in matrix.rows]
        columns = np.array([*chain.from_iterable(matrix.rows)], np.int64)
        values = np.array([*chain.from_iterable(matrix.data)], matrix.dtype)
        fits = lengths == [len(row) for row in matrix.data]
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{where} is not a well-formed LIL matrix: {error}") from None
    if not fits:
        raise ValueError(f"{where}: rows of a LIL matrix need as many values as columns")
    return *checked_csr(values, columns, np.cumsum([0, *lengths]), shape, where), shape


def _parts(checked: Any) -> Any:
    """The CSR arrays and the shape of a matrix whose indices have been checked."""
    csr = checked.tocsr()
    return csr.data, csr.indices, csr.indptr, csr.shape


_TO_CSR = {
    "csr": _from_csr,
    "csc": _from_csc,
    "bsr": _from_bsr,
    "coo": _from_coo,
    "dok": _from_dok,
    "dia": _from_dia,
    "lil": _from_lil,
}
