"""What is done to a table before a linear model sees it: columns, standardisation, intercept.

Sites that train one model must mean the same by every number of x. The columns are therefore
chosen by name, and standardised by the mean and the deviation over all sites, which follow from
each site's ``Moments`` alone. All sums are exact (``math.fsum``), so neither their order nor the
machine matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from desopt.contract.types import FloatArray
from desopt.objectives.linear import LinearModel

#: A column with fewer known values at a site counts as unknown there: their mean would show them.
LEAST_KNOWN = 5

_SPARSE = "a sparse matrix cannot be standardised; leave that out, or make it dense"


@dataclass(frozen=True)
class Inputs:
    """The columns of a model, in order, and how they are scaled.

    ``columns`` None: columns without names, as many as ``means``. ``means`` and ``scales`` None:
    values as they are. A missing value (NaN) becomes the mean, where there is one. ``intercept``:
    a last column of ones.
    """

    columns: tuple[str, ...] | None = None
    means: tuple[float, ...] | None = None
    scales: tuple[float, ...] | None = None
    intercept: bool = False

    def __post_init__(self) -> None:
        if self.columns is not None:
            _check_names(self.columns, "columns")
        if (self.means is None) != (self.scales is None):
            raise ValueError("give means and scales, or neither")
        for name in ("means", "scales"):
            values = getattr(self, name)
            if values is None:
                continue
            as_numbers(name, values)
            if self.columns is not None and len(values) != len(self.columns):
                raise ValueError(f"{len(values)} {name} for {len(self.columns)} columns")
        if self.scales is not None and not all(scale > 0.0 for scale in self.scales):
            raise ValueError(f"scales must be > 0, got {min(self.scales)}")

    @classmethod
    def restore(cls, settings: Any) -> Inputs:
        """The inputs of these ``settings()``; ValueError or TypeError for anything else."""
        if not isinstance(settings, Mapping) or settings.keys() != _FIELDS:
            raise ValueError(f"inputs must be an object with {', '.join(sorted(_FIELDS))}")
        if type(settings["intercept"]) is not bool:
            raise TypeError(f"intercept must be true or false, got {settings['intercept']!r:.40}")
        lists = {name: settings[name] for name in _FIELDS - {"intercept"}}
        if not all(value is None or isinstance(value, list) for value in lists.values()):
            raise TypeError("columns, means and scales must be lists or null")
        for name in ("means", "scales"):
            if lists[name] is not None:
                lists[name] = as_numbers(name, lists[name])
        plain = {name: None if value is None else tuple(value) for name, value in lists.items()}
        return cls(**plain, intercept=settings["intercept"])

    def settings(self) -> dict[str, Any]:
        """As plain JSON values; floats survive JSON bit for bit."""
        plain = {name: getattr(self, name) for name in _FIELDS}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}

    def standardised(self, moments: Iterable[Moments]) -> Inputs:
        """The same columns with the mean and the deviation over all sites."""
        means, scales = combined(list(moments))
        return Inputs(self.columns, means, scales, self.intercept)

    def table(self, X: Any, where: str = "data", *, named: bool = False) -> Any:
        """The columns of X in order, not yet scaled; float64, or CSR as it is.

        X is a data frame, a mapping of names to columns, or an array. ``named``: an array, which
        says nothing of the names, is refused where the columns have names.
        """
        names = _names_of(X)
        if names is None:
            if named and self.columns is not None:
                raise TypeError(
                    f"{where}: the columns have no names to check; return X as a data frame, or as "
                    f"a dict of the columns {_listed(self.columns)}"
                )
            table = X if sparse.issparse(X) else _as_float(X, where)
            wanted = self.columns or self.means
            if table.ndim != 2 or (wanted is not None and table.shape[1] != len(wanted)):
                columns = f"{len(wanted)} columns" if wanted is not None else "columns"
                raise ValueError(f"{where}: X must have rows and {columns}, got {table.shape}")
            return table
        _check_names(names, where)
        chosen = names if self.columns is None else self.columns
        missing = [name for name in chosen if name not in names]
        if missing:
            raise ValueError(f"{where}: without {_listed(missing)}; it has {_listed(names)}")
        keys = dict(zip(names, _keys_of(X), strict=True))
        return np.column_stack([_as_float(X[keys[name]], f"{where}, {name}") for name in chosen])

    def apply(self, X: Any, where: str = "data", *, named: bool = False) -> Any:
        """X as the model sees it: a float64 matrix, or CSR where X is sparse."""
        Z = self.table(X, where, named=named)
        if self.means is not None:
            if sparse.issparse(Z):
                raise TypeError(f"{where}: {_SPARSE}")
            with np.errstate(over="ignore"):  # infinite, and refused with the other data
                Z = (Z - np.array(self.means)) / np.array(self.scales)
            Z[np.isnan(Z)] = 0.0
        if self.intercept:
            ones = np.ones((Z.shape[0], 1))
            Z = sparse.hstack([Z, ones], "csr") if sparse.issparse(Z) else np.hstack([Z, ones])
        return Z


_FIELDS = {"columns", "means", "scales", "intercept"}


@dataclass(frozen=True)
class PreparedModel(LinearModel):
    """A linear model of prepared columns: it knows what was done to them, others do it.

    The inputs are part of its settings, so that sites, journals and resumed runs agree on them.
    """

    inputs: Inputs = field(default_factory=Inputs)

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"inputs": self.inputs.settings()}


# --- what a site tells of its columns --------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """Of every column of a site: known values, their mean, and the sum of squared deviations."""

    counts: tuple[int, ...]
    means: tuple[float, ...]
    squares: tuple[float, ...]

    @classmethod
    def of(cls, table: FloatArray, where: str = "data") -> Moments:
        """Those of the columns of a table; NaN is a missing value."""
        if sparse.issparse(table):
            raise TypeError(f"{where}: {_SPARSE}")
        columns = [_moments(column, where) for column in table.T]
        counts, means, squares = zip(*columns, strict=True)
        return cls(counts, means, squares)

    @classmethod
    def restore(cls, values: Any, columns: int) -> Moments:
        """Of ``columns`` columns, from JSON values; ValueError for anything else."""
        if not isinstance(values, Mapping) or values.keys() != {"counts", "means", "squares"}:
            raise ValueError("not the moments of columns")
        counts, means, squares = (values[name] for name in ("counts", "means", "squares"))
        for each in (counts, means, squares):
            if not isinstance(each, list) or len(each) != columns:
                raise ValueError(f"not the moments of {columns} columns")
        if not all(type(count) is int and 0 <= count < 2**53 for count in counts):
            raise ValueError(f"counts must be whole numbers, got {counts!r:.80}")
        means, squares = as_numbers("means", means), as_numbers("squares", squares)
        if any(square < 0.0 for square in squares):
            raise ValueError(f"sums of squares cannot be {min(squares)}")
        return cls(tuple(counts), tuple(means), tuple(squares))

    def settings(self) -> dict[str, Any]:
        return {name: list(value) for name, value in vars(self).items()}


def _moments(column: FloatArray, where: str) -> tuple[int, float, float]:
    known = column[~np.isnan(column)]
    if not np.isfinite(known).all():
        raise ValueError(f"{where} contains infinity; remove or replace these entries first")
    if known.size < LEAST_KNOWN:
        return 0, 0.0, 0.0
    try:
        mean = math.fsum(known.tolist()) / known.size
    except OverflowError:
        raise ValueError(
            f"{where} contains a column whose sum is beyond all floats, up to "
            f"{np.abs(known).max():g}; remove or divide these entries first"
        ) from None
    return known.size, mean, math.fsum(((known - mean) ** 2).tolist())


def combined(sites: Sequence[Moments]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of every column over the known values of all sites.

    A column that nobody knows has mean 0, and one without deviation scale 1.
    """
    means, scales = [], []
    for j in range(len(sites[0].counts)):
        parts = [(site.counts[j], site.means[j], site.squares[j]) for site in sites]
        try:
            mean, scale = _pooled(parts)
        except (OverflowError, ValueError):  # of fsum: beyond all floats, or infinity of both signs
            mean = scale = math.inf
        if not (math.isfinite(mean) and math.isfinite(scale)):
            raise ValueError(f"column {j} is too large to be standardised: mean {mean}")
        means.append(mean)
        scales.append(scale)
    return tuple(means), tuple(scales)


def _pooled(parts: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """Mean and deviation of one column, from every site's count, mean and sum of squares."""
    count = max(sum(c for c, _, _ in parts), 1)
    mean = math.fsum(c * m for c, m, _ in parts) / count
    within = math.fsum(s for _, _, s in parts)
    between = math.fsum(c * ((m - mean) * (m - mean)) for c, m, _ in parts)
    return mean, math.sqrt((within + between) / count) or 1.0


def as_numbers(name: str, values: Sequence[Any]) -> list[float]:
    """Values from JSON as finite floats."""
    try:
        numbers = [float(v) if type(v) in (float, int) else math.nan for v in values]
    except OverflowError:  # a whole number that no float can hold
        numbers = [math.inf]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{name} must be finite numbers, got {values!r:.80}")
    return numbers


# --- names -----------------------------------------------------------------------------------


def _keys_of(X: Any) -> list[Any]:
    """What the columns of a table are called by, as it has them."""
    names = getattr(getattr(X, "dtype", None), "names", None)
    if names is not None:  # a structured array
        return list(names)
    return list(X.keys() if isinstance(X, Mapping) else X.columns)


def _names_of(X: Any) -> tuple[str, ...] | None:
    structured = getattr(getattr(X, "dtype", None), "names", None) is not None
    if structured or isinstance(X, Mapping) or hasattr(X, "columns"):
        return tuple(map(str, _keys_of(X)))
    return None


def _check_names(names: Sequence[Any], where: str) -> None:
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{where}: names of columns must be texts, at least one; got {names!r:.80}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{where}: more than one column is called {twice[0]!r}")


def _listed(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown if len(shown) <= 20 else [*shown[:18], "...", shown[-1]])


def _as_float(values: Any, where: str) -> FloatArray:
    try:
        return np.ascontiguousarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{where} must hold numbers: {error}") from None
