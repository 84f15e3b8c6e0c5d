"""Checks of the user's data, made once, on entry: compiled code trusts what passed them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from desopt.contract.types import IndexArray
from desopt.data.matrices import Array, as_csr, plain_arrays, some


def as_array(item: Any, where: str) -> Any:
    """The item as an array, or as a CSR matrix by ``as_csr``, without NaN; ``where`` names it."""
    if isinstance(item, str | bytes):
        raise TypeError(f"{where} must be an array, got {type(item).__name__} {item[:40]!r}")
    array: Any = as_csr(item, where) if sparse.issparse(item) else _as_dense(item, where)
    if _has_nan(plain_arrays(array)[0]):
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


# --- row numbers -----------------------------------------------------------------------------


def as_row_numbers(numbers: Any, rows: int, where: str) -> IndexArray:
    """A copy of the row numbers as a vector, each from 0 to ``rows`` - 1."""
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
        raise ValueError(f"{where}: there is no row {some(bad)}; rows are 0 to {rows - 1}")
    return np.array(given, np.int64)


# --- entries ---------------------------------------------------------------------------------


def all_finite(array: Any) -> bool:
    """Whether no entry is NaN or infinite.

    >>> data.all_finite(np.array([1.0, np.inf]))
    False
    """
    values = plain_arrays(array)[0]
    return _sum_is_finite(values) or _everywhere(np.isfinite, values)


def _has_nan(values: Array) -> bool:
    if values.dtype.kind not in "fc" or _sum_is_finite(values):
        return False
    return not _everywhere(lambda part: part == part, values)


def _sum_is_finite(values: Array) -> bool:
    """If so, all values are finite. One pass, no temporary; an infinite sum proves nothing."""
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
    """Raise the error for data that do not have n columns."""
    having = ""
    if names is not None:
        shown = [repr(name) for name in names]
        having = f" ({', '.join(shown if len(shown) <= 12 else [*shown[:10], '...', shown[-1]])})"
    raise ValueError(
        f"{who}: its data have {width} columns{having}, but x has {n} numbers; every worker's data "
        "need the same columns in the same order"
    )
