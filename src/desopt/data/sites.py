"""Data sets that several sites have collected, a file each: UCI's four hospitals.

Columns are standardised by the mean and the deviation of all known values; a missing value becomes
0, that mean. Both are computed from every site's count, sum and sum of squares, all that sites
would have to tell if their rows were not here.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from desopt.contract.types import FloatArray, IndexArray

#: A blood pressure or cholesterol of 0 stands for a missing value; all of Switzerland's do.
_ZERO_IS_MISSING = (3, 4)


def read(folder: Path, files: tuple[str, ...]) -> tuple[FloatArray, FloatArray, IndexArray]:
    """X, the labels in the last column, and the site of each row."""
    tables = [_table(folder / file) for file in files]
    X = np.concatenate(tables)
    sites = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    values = X[:, :-1]
    for column in _ZERO_IS_MISSING:
        values[values[:, column] == 0.0, column] = np.nan
    return _standardised(values, sites), X[:, -1].copy(), sites


def _table(path: Path) -> FloatArray:
    """A file of numbers separated by commas, with ? for a missing one."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        cells = line.split(",")
        try:
            rows.append([math.nan if cell == "?" else float(cell) for cell in cells])
        except ValueError:
            raise ValueError(
                f"{path}, line {number}: expected numbers or ?, got {line!r}"
            ) from None
        if len(cells) != len(rows[0]):
            raise ValueError(f"{path}, line {number}: {len(cells)} numbers, not {len(rows[0])}")
    return np.array(rows)


def _standardised(values: FloatArray, sites: IndexArray) -> FloatArray:
    """Columns of mean 0 and deviation 1 over the known values; 0 where one is missing."""
    done = np.zeros_like(values)
    for column in range(values.shape[1]):
        parts = [values[sites == site, column] for site in np.unique(sites)]
        known = [part[~np.isnan(part)].tolist() for part in parts]
        # fsum rounds once: the order of a site's rows does not matter.
        count = sum(map(len, known))
        mean = math.fsum(map(math.fsum, known)) / count
        square = math.fsum(math.fsum(v * v for v in part) for part in known) / count
        deviation = math.sqrt(max(square - mean * mean, 0.0)) or 1.0
        there = ~np.isnan(values[:, column])
        done[there, column] = (values[there, column] - mean) / deviation
    return done
