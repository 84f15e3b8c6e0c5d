"""Real data for the tests, wherever they run.

scikit-learn brings two sets along; files of the LIBSVM data page are taken where somebody has put
them beside the clone, and else written in their published shape.
"""

import bz2
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desopt.data import catalogue, load

SHARED = Path(__file__).parents[3] / "shared" / "data" / "libsvm"


def there(*names: str) -> list[str]:
    """Those of the files that are beside the clone."""
    return [name for name in names if (SHARED / name).is_file()]


def read(name: str) -> tuple[Any, NDArray[np.float64]]:
    """A CSR matrix and labels -1 and +1: a file beside the clone, or one of these three."""
    from sklearn import datasets  # late: processes that import a test need not load it

    if name == "cancer":  # 569 x 30, dense; values from -1 to 1, as in the files
        X, y = datasets.load_breast_cancer(return_X_y=True)
        X = 2.0 * (X - X.min(0)) / np.ptp(X, 0) - 1.0
    elif name == "digits":  # 1,797 x 64 of ones, a third of them there
        X, y = datasets.load_digits(return_X_y=True)
        X, y = (X > 8.0).astype(float), y > 4
    elif name == "text":  # 500 x 47,236, a few words in each row
        twin = load("rcv1-like", rows=500)
        X, y = twin.X, twin.y > 0
    else:
        X, y = datasets.load_svmlight_file(str(SHARED / name))
        y = y > 0
    return sparse.csr_array(X), np.where(y, 1.0, -1.0)


def write(folder: Path, name: str, positive: int) -> Path:
    """A file such as the page has by this name: as many rows, columns, numbers and labels +1."""
    known = catalogue.CATALOGUE[name]
    random = np.random.default_rng(0)
    low, high = (1, 2) if name == "mushrooms" else (-1, 1)
    labels = random.permutation(np.repeat([low, high], [known.rows - positive, positive]))
    length = np.full(known.rows, known.nonzeros // known.rows)
    length[: known.nonzeros % known.rows] += 1
    one = known.n > 100  # columns that stand for a category have nothing but ones
    lines = []
    for row, (label, count) in enumerate(zip(labels, length, strict=True)):
        # Evenly spread from a column of its own on: none twice, and the last one is among them.
        columns = np.sort((row + np.arange(count) * known.n // count) % known.n) + 1
        values = [1] * count if one else random.uniform(-1.0, 1.0, count).round(6)
        pairs = zip(columns, values, strict=True)
        lines.append(f"{label:+d} " + " ".join(f"{column}:{value}" for column, value in pairs))
    text = "\n".join(lines).encode() + b"\n"
    path = folder / known.file
    path.write_bytes(bz2.compress(text, 1) if path.suffix == ".bz2" else text)
    return path
