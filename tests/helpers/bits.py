"""Small runs of everything that is promised to have the same bits everywhere.

``python tests/helpers/bits.py`` prints their digests as JSON, ``--write`` keeps them as the golden
ones in ``tests/golden/runs.json``; ``--engine``, ``--variant`` and ``--only`` choose. Data and
functions use +, -, * and / alone, on numbers that are exact: nothing but desopt decides a bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import desopt
from desopt.contract import streams
from desopt.contract.streams import Purpose, Stream
from desopt.data import as_shards
from desopt.objectives.control import CartPole
from desopt.objectives.scores import SCORE_LOSSES, ScoreModel

GOLDEN = Path(__file__).parents[1] / "golden" / "runs.json"
ROWS = 211
SETTINGS: dict[str, Any] = {
    "workers": 3, "rounds": 3, "iterations": 22, "batch_size": 53, "step_size": 0.5, "seed": 11,
    "eval_every": 1, "progress": False, "regularization": 0.015625,
}  # fmt: skip


def _numbers(count: int, high: int, which: int) -> NDArray[np.int64]:
    return streams.integers(Stream(99, which, 0, 0, Purpose.DATA), count, high)


def _matrix(n: int, share: int, which: int) -> NDArray[np.float64]:
    """Multiples of 1/64 between -2 and 2; of 64 entries about ``share`` are not 0."""
    values = (_numbers(ROWS * n, 257, which) - 128) / 64.0
    kept = _numbers(ROWS * n, 64, which + 1) < share
    return np.where(kept, values, 0.0).reshape(ROWS, n)


def _labels(X: NDArray[np.float64], which: int) -> NDArray[np.float64]:
    """Mostly the sign of a linear function, exactly computed."""
    weights = _numbers(X.shape[1], 17, which) - 8.0
    scores = [math.fsum(row * weights) for row in X]
    return np.where(np.array(scores) > 0.0, 1.0, -1.0)


def _data(n: int, share: int, which: int, sparse_rows: bool) -> tuple[Any, NDArray[np.float64]]:
    X = _matrix(n, share, which)
    return (sparse.csr_array(X) if sparse_rows else X), _labels(X, which + 2)


#: Odd sizes, so that every loop has a remainder. The columns of ``csr`` are so sparse that steps
#: touch few rows, those of ``csr-full`` so full that they touch many.
LAYOUTS: dict[str, Callable[[], tuple[Any, NDArray[np.float64]]]] = {
    "dense": lambda: _data(37, 64, 0, sparse_rows=False),
    "csr": lambda: _data(301, 1, 10, sparse_rows=True),
    "csr-full": lambda: _data(37, 32, 20, sparse_rows=True),
}


def rational(x: NDArray[np.float64], batch: tuple[Any, Any]) -> float:
    """A loss with + - * / only: a^2 / (1 + a^2), a the residual of a row."""
    X, y = batch
    residuals = [math.fsum(row * x) - label for row, label in zip(X, y, strict=True)]
    return math.fsum(a * a / (1.0 + a * a) for a in residuals) / len(residuals)


def _as_given(X: Any) -> Any:
    return X


def _read_only(X: Any) -> Any:
    parts = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    for part in parts:
        part.flags.writeable = False
    return X


def _mapped(X: Any) -> Any:
    """From files that are only mapped into memory."""

    def mapped(array: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:  # a map outlives its file's name
            np.save(Path(folder) / "array.npy", array)
            return np.load(Path(folder) / "array.npy", mmap_mode="r")

    if not sparse.issparse(X):
        return mapped(X)
    parts = [mapped(part) for part in (X.data, X.indices, X.indptr)]
    return sparse.csr_array(tuple(parts), shape=X.shape, copy=False)


def _long_indices(X: Any) -> Any:
    if sparse.issparse(X):
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def _column_order(X: Any) -> Any:
    return X.tocsc() if sparse.issparse(X) else np.asfortranarray(X)


VARIANTS: dict[str, Callable[[Any], Any]] = {
    "as-given": _as_given,
    "read-only": _read_only,
    "mapped": _mapped,
    "int64": _long_indices,
    "column-order": _column_order,
}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of every run; ``layout`` says which data."""
    for method in desopt.METHODS:
        for layout in LAYOUTS:
            for loss in desopt.LOSSES:
                yield f"{method} {layout} {loss}", {"fun": loss, "layout": layout, "method": method}
        yield f"{method} dense callable", {"fun": rational, "layout": "dense", "method": method}
    for rule in ("median", "trimmed-mean"):
        yield (
            f"des-mr csr-full lr {rule}",
            {
                "fun": "lr",
                "layout": "csr-full",
                "method": "des-mr",
                "aggregate": rule,
                "workers": 5,
            },
        )
    yield (
        "des-mg csr lr participation",
        {"fun": "lr", "layout": "csr", "method": "des-mg", "participation": 0.6, "workers": 5},
    )
    for method in ("es", "des", "des-mg", "des-mr"):  # 86: a ramp, and a part after it
        auto = {"fun": "lr", "layout": "csr-full", "method": method, "step_size": "auto"}
        yield f"{method} csr-full lr auto", auto | {"iterations": 86, "rounds": 6}
    for method, layout in (("des-mr", "dense"), ("des-mg", "csr"), ("des-mr", "csr-full")):
        boxed = {"fun": "lr", "layout": layout, "method": method, "bounds": (-0.5, 0.5625)}
        yield f"{method} {layout} lr bounds", boxed
    for method in ("des-mr", "es-csa", "fed-zo-sgd"):
        scaled = _scales() | {"fun": rational, "layout": "dense", "method": method}
        yield f"{method} dense callable scales", scaled

    for name, (objective, _) in OBJECTIVES.items():  # steps by their searches, losses by values
        yield f"des-mr {name}", {"fun": objective, "layout": name, "method": "des-mr"}
        if name in ("cox efron", "score logistic", "sensors A relaxed", "cart-pole"):
            fresh = {"fun": objective, "layout": name, "method": "fed-zo-sgd"}
            yield f"fed-zo-sgd {name}", fresh  # a minibatch for each iteration


def _patients() -> tuple[Any, ...]:
    """Covariates, times with ties, and events."""
    times = 1.0 + _numbers(ROWS, 90, 40) / 4.0
    return _matrix(13, 64, 30), times, (_numbers(ROWS, 3, 41) > 0).astype(float)


def _weighted(real: bool) -> tuple[Any, ...]:
    """Rows with labels, or real numbers, and weights."""
    X = _matrix(37, 64, 50)
    y = _numbers(ROWS, 65, 53) / 16.0 - 2.0 if real else _labels(X, 52)
    return X, y, (1.0 + _numbers(ROWS, 8, 54)) / 4.0


def _sensors() -> Any:
    """19 sensors of 3 parameters, in seven scenarios."""
    return _matrix(57, 64, 60)[:7].reshape(7, 19, 3)


def _noise() -> Any:
    """A covariance of exact numbers."""
    M = (_numbers(19 * 5, 9, 63) - 4.0).reshape(19, 5) / 8.0
    return np.eye(19) + M @ M.T


def _episodes() -> Any:
    return (_numbers(4 * ROWS, 129, 70) - 64.0).reshape(ROWS, 4) / 2048.0


#: Objectives with kernels of their own, and their data.
OBJECTIVES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "cox efron": (desopt.Cox(ridge=0.015625), _patients),
    "cox breslow lasso": (desopt.Cox(lasso=0.03125, ties="breslow"), _patients),
    **{
        f"score {loss}": (ScoreModel(loss, 0.015625, 0.75), partial(_weighted, real))
        for real in (False, True)
        for loss, of in SCORE_LOSSES.items()
        if of.real == real
    },
    "sensors D": (desopt.SensorSelection(6), _sensors),
    "sensors A relaxed": (
        desopt.SensorSelection(6, "A", relaxed=True, noise=_noise(), prior=0.125), _sensors
    ),
    "cart-pole": (CartPole(hidden=2), _episodes),
}  # fmt: skip


def _start(n: int) -> NDArray[np.float64]:
    return _numbers(n, 65, 90) / 64.0 - 0.5


def _scales() -> dict[str, Any]:
    """Log scales where x0 is positive, linear ones elsewhere, and a variable that is fixed."""
    x0 = _start(37).tolist()
    bounds = [(v / 8.0, 4.0) if v > 0.0 else (-1.0, 0.25) for v in x0]
    bounds[5] = x0[5], x0[5]
    return {"bounds": bounds, "scale": ["log" if v > 0.0 else "linear" for v in x0]}


def run(variant: str = "as-given", **arguments: Any) -> desopt.Result:
    """One run of ``cases``."""
    layout, fun = arguments.pop("layout"), arguments.pop("fun")
    if layout in OBJECTIVES:
        n = fun.dimension(as_shards(data := OBJECTIVES[layout][1](), 1, 0))
        own = {name: value for name, value in SETTINGS.items() if name != "regularization"}
        return desopt.minimize(fun, _start(n), data, **(own | arguments))
    X, y = LAYOUTS[layout]()
    return desopt.minimize(
        fun, _start(X.shape[1]), (VARIANTS[variant](X), y), **(SETTINGS | arguments)
    )


def digest(result: desopt.Result) -> str:
    """Of x, and of every loss in the history."""
    losses = [result.initial_fun, *(row["loss"] for row in result.history)]
    return " ".join(
        hashlib.blake2b(np.asarray(values, "<f8").tobytes(), digest_size=8).hexdigest()
        for values in (result.x, losses)
    )


def kept() -> dict[str, str]:
    """The digests that every machine must reproduce.

    A method or loss that is new has none at first: ``--write`` adds them.
    """
    found: dict[str, str] = json.loads(GOLDEN.read_text())
    return found


def digests(engine: str, variant: str, names: Collection[str]) -> dict[str, str]:
    """Of the runs of these names."""
    return {
        name: digest(run(variant, engine=engine, **arguments))
        for name, arguments in cases()
        if name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="serial")
    parser.add_argument("--variant", default="as-given", choices=VARIANTS)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true", help="keep them as the golden ones")
    given = parser.parse_args()
    known = dict(cases()) if given.write else kept()
    names = [name for name in known if given.only in name]
    text = json.dumps(digests(given.engine, given.variant, names), indent=0)
    if given.write:
        GOLDEN.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
