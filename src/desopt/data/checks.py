"""What data must be, looked at once, where they enter: compiled code trusts what comes from here.

Nothing in this file runs compiled code on arrays that have not been looked at. SciPy's own
conversions do: an index outside its matrix makes them read or write somewhere else in memory.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desopt.contract.types import IndexArray

Array = NDArray[Any]

_REAL_OR_COMPLEX = "fiubc"


def as_array(item: Any, where: str) -> Any:
    """An array, or a CSR matrix as ``as_csr`` makes it, without NaN; ``where`` names it."""
    if isinstance(item, str | bytes):
        raise TypeError(f"{where} must be an array, got {type(item).__name__} {item[:40]!r}")
    array: Any = as_csr(item, where) if sparse.issparse(item) else _as_dense(item, where)
    if _has_nan(parts(array)[0]):
        raise ValueError(f"{where} contains NaN; remove or fill these entries first")
    return array


def _as_dense(item: Any, where: str) -> Array:
    if isinstance(item, np.ma.MaskedArray) and np.any(np.ma.flatten_mask(np.ma.getmaskarray(item))):
        raise ValueError(f"{where} has masked entries; remove or fill them first")
    try:
        array = np.asarray(item)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where} must be an array: {error}") from None
    if array.ndim == 0:
        kind = type(item).__name__
        raise ValueError(f"{where} must have at least one dimension, got one {kind}")
    # The same memory order, so the same bits, everywhere.
    return array if array.flags.forc else np.ascontiguousarray(array)


# --- sparse matrices -------------------------------------------------------------------------


def as_csr(matrix: Any, where: str) -> Any:
    """A CSR matrix of its own, known to be well-formed: sorted columns, none twice in a row.

    Entries of one place are added up, as SciPy does. The values are the given ones where
    nothing had to be changed; the indices are copied (int32 where they fit) unless they are
    read-only, so that nobody can change them afterwards.
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
    """The numbers as this type: a copy, unless nobody can write to them as they are."""
    memory: Any = numbers
    while isinstance(memory, np.ndarray) and not memory.flags.writeable:
        memory = memory.base
    if isinstance(memory, np.ndarray):
        return numbers.astype(kind)
    return np.ascontiguousarray(numbers, kind)


def compressed(
    data: Any, indices: Any, indptr: Any, shape: tuple[int, int], where: str,
    line: str = "row", place: str = "column",
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The parts of a CSR matrix of this shape, or an error that says what is wrong with them.

    What lies behind the end that indptr gives is not part of the matrix, and left out.
    """
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
            f"{where}: {line} {first} has an entry in {place} {_some(indices[bad])}, but the "
            f"{place}s are 0 to {n - 1}"
        )
    return data, indices, indptr


def _some(numbers: Array) -> str:
    """The different numbers, or the first few of them."""
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
    return *compressed(matrix.data, matrix.indices, matrix.indptr, shape, where), shape


def _from_csc(matrix: Any, where: str) -> Any:
    rows, n = _shape(matrix, where)
    parts = matrix.data, matrix.indices, matrix.indptr
    parts = compressed(*parts, (n, rows), where, "column", "row")
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
    parts = compressed(np.arange(len(blocks)), matrix.indices, matrix.indptr, whole, where)
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
            "numbers; they must be as many"
        )
    for name, numbers, limit in (("row", row, shape[0]), ("column", column, shape[1])):
        if data.size and (numbers.min() < 0 or numbers.max() >= limit):
            bad = numbers[(numbers < 0) | (numbers >= limit)]
            raise ValueError(
                f"{where} has an entry in {name} {_some(bad)}, but the {name}s are 0 to {limit - 1}"
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
    return *compressed(values, columns, np.cumsum([0, *lengths]), shape, where), shape


def _parts(checked: Any) -> Any:
    """Of a matrix whose indices are known to be inside it, as CSR."""
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


# --- row numbers -----------------------------------------------------------------------------


def as_row_numbers(numbers: Any, rows: int, where: str) -> IndexArray:
    """Numbers of rows as a vector of its own, each from 0 to ``rows`` - 1."""
    given = np.asarray(numbers)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise TypeError(
            f"{where}: row numbers must be a vector of whole numbers, got dtype {given.dtype} and "
            f"shape {given.shape}"
        )
    if given.size == 0:
        raise ValueError(f"{where} has no rows; every worker needs at least one")
    if given.min() < 0 or given.max() >= rows:
        bad = given[(given < 0) | (given >= rows)]
        raise ValueError(f"{where}: there is no row {_some(bad)}; rows are 0 to {rows - 1}")
    return np.array(given, np.int64)


def parts(array: Any) -> list[Array]:
    """The plain arrays that an array or a CSR matrix is made of."""
    return [array.data, array.indices, array.indptr] if sparse.issparse(array) else [array]


# --- entries ---------------------------------------------------------------------------------


def all_finite(array: Any) -> bool:
    """Whether no entry is NaN or infinite."""
    values = parts(array)[0]
    return _sum_is_finite(values) or _everywhere(np.isfinite, values)


def _has_nan(values: Array) -> bool:
    if values.dtype.kind not in "fc" or _sum_is_finite(values):
        return False
    return not _everywhere(lambda part: part == part, values)


def _sum_is_finite(values: Array) -> bool:
    """Then all are finite. One pass and no temporary; otherwise a sum may just be too large."""
    if values.dtype.kind not in "fc":
        return values.dtype.kind in "iub"
    with np.errstate(all="ignore"):
        total = values.sum(dtype=np.float64 if values.dtype.itemsize < 8 else None)
    return bool(np.isfinite(total))


def _everywhere(test: Any, array: Array, length: int = 1 << 20) -> bool:
    """Whether the test holds for all entries, without a temporary as large as the data."""
    if not array.size:
        return True
    step = max(1, length * len(array) // array.size)
    return all(bool(test(array[s : s + step]).all()) for s in range(0, len(array), step))


def refuse_width(who: str, width: int, n: int, names: tuple[str, ...] | None = None) -> NoReturn:
    """The error of data that do not have n columns."""
    having = ""
    if names is not None:
        shown = [repr(name) for name in names]
        having = f" ({', '.join(shown if len(shown) <= 12 else [*shown[:10], '...', shown[-1]])})"
    raise ValueError(
        f"{who}: its data have {width} columns{having}, but x has {n} numbers; every worker's data "
        "need the same columns in the same order"
    )
