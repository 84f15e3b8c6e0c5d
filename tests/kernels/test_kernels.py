"""The compiled kernels against exact arithmetic and against recomputation."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import oracle
from scipy import sparse

import desopt
from desopt.contract import streams
from desopt.contract.payload import Layout
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import IndexArray, Task
from desopt.data import Rows
from desopt.data.twins import dense_twin, sparse_twin
from desopt.kernels import gaussian, losses, mixture, two_point
from desopt.kernels.columns import collect as collect_columns
from desopt.kernels.columns import number_columns
from desopt.kernels.jit import exact
from desopt.kernels.layouts import Csr, Dense
from desopt.methods.searches import Population
from desopt.objectives import LOSSES, LinearModel, WorkerData

KINDS = {name: loss.kind for name, loss in desopt.LOSSES.items()}


@pytest.mark.parametrize("name", KINDS)
def test_losses_are_accurate_over_their_whole_range(name: str) -> None:
    """1e-13 relative wherever the loss is a normal number; below that it may be 0."""
    tiny = np.logspace(-300, 0, 301)
    wide = np.concatenate([np.linspace(-1e4, 1e4, 2001), np.linspace(-40.0, 40.0, 4001)])
    steps = np.log(2.0) * (np.arange(-60, 60) + 0.5)  # where the reduction of exp changes k
    margin = np.concatenate([tiny, -tiny, wide, steps, np.nextafter(steps, 0.0), [0.0, -0.0]])
    got = np.empty(margin.size)
    losses.fill_losses(KINDS[name], margin, got, margin.size)
    for a, value in zip(margin, got, strict=True):
        exact = oracle.exact_loss(name, a)
        if exact > np.finfo(np.float64).tiny:
            assert abs(value - exact) <= 1e-13 * exact, (a, value, exact)
        else:
            assert 0.0 <= value <= np.finfo(np.float64).tiny, (a, value)


@pytest.mark.parametrize("name", KINDS)
def test_losses_keep_nan_and_infinity(name: str) -> None:
    got = np.empty(3)
    losses.fill_losses(KINDS[name], np.array([np.nan, np.inf, -np.inf]), got, 3)
    assert np.isnan(got[0])
    assert got[1] == 0.0
    assert got[2] == oracle.margin_loss(name, -np.inf)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 15, 16, 17, 1000])
@pytest.mark.parametrize("name", KINDS)
def test_sums_are_the_sums_of_the_values(name: str, count: int) -> None:
    margin = np.random.default_rng(count).normal(scale=5.0, size=count)
    each = np.empty(count)
    losses.fill_losses(KINDS[name], margin, each, count)
    total = losses.sum_losses(KINDS[name], margin)
    assert total == pytest.approx(each.sum(), rel=1e-14, abs=1e-300)


def layouts(n: int = 300, rows: int = 400) -> dict[str, tuple[Any, Any, np.ndarray[Any, Any]]]:
    """The same data dense and sparse, for the kernels and for NumPy."""
    X, y = sparse_twin(rows, n, 12.0, seed=3)
    full = X.toarray()
    return {"dense": (Dense(full), full, y), "csr": (Csr(X.indptr, X.indices, X.data), full, y)}


def batch(count: int, rows: int = 400) -> IndexArray:
    return streams.integers(Stream(5, 0, 0, 0, Purpose.BATCH), count, rows)


def value(X: np.ndarray[Any, Any], y: Any, x: Any, name: str, penalty: float) -> float:
    """The objective in NumPy."""
    return oracle.loss_of(name, penalty)(x, X, y)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("search", [mixture.search_touched, mixture.search_all_rows])
def test_cached_margins_do_not_drift(search: Any, name: str, layout: str) -> None:
    """After K = 500 steps the margins that were kept equal those recomputed at v, to 1e-10."""
    data, X, y = layouts()[layout]
    rows, x = batch(200), np.random.default_rng(1).normal(size=300)
    stream = Stream(7, 0, 0, 0, Purpose.COORDINATE)
    scale = 2.0 / np.sqrt(np.arange(1.0, 501.0))
    index, step = streams.mixture_block(stream, scale, 8, 300, gaussian=True)
    slot, columns, table = number_columns(index)
    margin, collected = collect(data, rows, y, x, columns, table)
    if layout == "dense" and search is mixture.search_touched:
        pytest.skip("dense columns touch all rows: there is one search for them")
    np.testing.assert_allclose(margin, y[rows] * (X[rows] @ x), rtol=1e-12, atol=1e-12)
    values, accepted = x[columns], np.zeros(500, np.bool_)
    assert search(collected, margin, values, slot, step, KINDS[name], 1e-6, accepted) == 0
    assert 20 < accepted.sum() < 480
    v = x.copy()
    v[columns] = values
    replayed = x.copy()
    for k in np.flatnonzero(accepted):
        for r, s in zip(index[k], step[k], strict=True):
            replayed[r] += s
    assert v.tobytes() == replayed.tobytes()
    if search is mixture.search_touched:  # the other one swaps its two arrays of margins
        exact = y[rows] * (X[rows] @ v)
        np.testing.assert_allclose(margin, exact, rtol=1e-10, atol=1e-10)


def _collect(data: Any, rows: Any, y: Any, x: Any, columns: Any, table: Any) -> Any:
    """The overloaded function, which only compiled code can call."""
    return collect_columns(data, rows, y, x, columns, table)  # type: ignore[no-untyped-call]


collect: Any = exact(_collect)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", ["mixture", "gaussian"])
def test_decisions_are_those_of_full_evaluation(kind: str, name: str, layout: str) -> None:
    """Step by step against NumPy, unless the change is below 1e-12."""
    data, X, y = layouts()[layout]
    rows, x = batch(150), np.random.default_rng(2).normal(size=300)
    K, penalty = 200, 0.05  # large enough to decide steps by itself
    accepted = np.zeros(K, np.bool_)
    alpha = 0.5 / np.sqrt(np.arange(1.0, K + 1.0))
    if kind == "mixture":
        stream = Stream(9, 1, 2, 0, Purpose.COORDINATE)
        index, step = streams.mixture_block(stream, 4 * alpha, 8, 300, gaussian=False)
        mixture.search_mixture(
            data, rows, rows.size, 0, stream.key(), y, x, 4 * alpha, 8, False, KINDS[name],
            penalty, accepted, stream.key(), 0,
        )  # fmt: skip
    else:
        key = Stream(9, 1, 2, 0, Purpose.NORMAL).key()
        gaussian.search_gaussian(
            data, rows, y, x.copy(), alpha, 0, KINDS[name], penalty, accepted, *key
        )
    v = x.copy()
    for k in range(K):
        w = v.copy()
        if kind == "mixture":
            for r, s in zip(index[k], step[k], strict=True):
                w[r] += s
        else:
            w += alpha[k] * streams.normals(Stream(9, 1, 2, k, Purpose.NORMAL), 300)
        old, new = (value(X[rows], y[rows], p, name, penalty) for p in (v, w))
        assert accepted[k] == (new <= old) or abs(new - old) < 1e-12, k
        if accepted[k]:
            v = w
    assert 10 < accepted.sum() < K - 10


def test_four_lanes_are_the_streams_of_four_iterations() -> None:
    """Bit for bit, also though a caller with other floating-point rules compiles them."""
    for n in (1, 3, 4, 5, 255, 256, 257, 1000):
        u, sums = np.empty((n, 4)), np.empty((2, 4))
        v = np.random.default_rng(n).normal(size=n)
        c1, c2, c3, k0, k1 = Stream(3, 1, 2, 0, Purpose.NORMAL).key()
        lanes = np.empty((4, 256))
        at = c3 | np.uint64(8)
        gaussian.draw_four(u, v, sums[0], sums[1], lanes, c1, c2, at, k0, k1)
        for g in range(4):
            z = streams.normals(Stream(3, 1, 2, 8 + g, Purpose.NORMAL), n)
            assert u[:, g].tobytes() == z.tobytes()
            assert sums[0, g] == pytest.approx(v @ z, rel=1e-12, abs=1e-12)
            assert sums[1, g] == pytest.approx(z @ z, rel=1e-12)


def test_columns_beyond_the_filter_are_told_apart() -> None:
    """n far above the filter's 2^16 bits: columns that share their low bits, and hash chains."""
    low = np.array([5, 5 + (1 << 16), 5 + (1 << 17), 6, 5 + (1 << 20), 7, 5, 6], np.int64)
    index = np.asfortranarray(low.reshape(4, 2))
    slot, columns, _ = number_columns(index)
    assert columns.tolist() == [5, 5 + (1 << 16), 5 + (1 << 17), 6, 5 + (1 << 20), 7]
    assert columns[slot].tolist() == index.tolist()
    n = 1 << 21
    X = sparse.csr_matrix(
        (np.arange(1.0, 7.0), ([0, 0, 1, 1, 2, 3], [5, 5 + (1 << 18), 7, 6, 5 + (1 << 16), 9])),
        shape=(4, n),
    )
    y, x = np.ones(4), np.zeros(n)
    slot, columns, table = number_columns(index)
    _, found = collect(Csr(X.indptr, X.indices, X.data), np.arange(4), y, x, columns, table)
    got = {
        (int(columns[s]), int(found.row[p])): found.value[p]
        for s in range(columns.size)
        for p in range(found.start[s], found.start[s + 1])
    }
    assert got == {(5, 0): 1.0, (7, 1): 3.0, (6, 1): 4.0, (5 + (1 << 16), 2): 5.0}


@pytest.mark.parametrize("twin", ["dense", "csr"])
def test_values_around_are_the_values_there(twin: str) -> None:
    X, y = dense_twin(3000, 20) if twin == "dense" else sparse_twin(3000, 400, 9.0)
    n = 20 if twin == "dense" else 400
    model = LinearModel("lr", 1e-3)
    (shard,) = model.prepare([Rows((X, y))])
    assert isinstance(shard, Rows)
    x = np.random.default_rng(0).normal(size=n)
    stream = Stream(1, 2, 3, 0, Purpose.NORMAL)
    local, sums = WorkerData(model, shard, 0, 0, 1), Layout(float64=7)
    got = sums.decode(
        local.run(Population(Task(0, x), 0, stream, 0.3, members=7, layout=sums))
    ).float64
    for k in range(7):
        z = streams.normals(Stream(1, 2, 3, k, Purpose.NORMAL), n)
        assert got[k] == pytest.approx(local.total(x + 0.3 * z)[0], rel=1e-12)


#: All kernels are imported; two that compile fast are compiled, with those that they call.
_RUN = """
import desopt.objectives
from desopt.contract import streams
from desopt.kernels import losses
z = streams.integers(streams.Stream(1, 2, 3, 4, streams.Purpose.BATCH), 1000, 99) - 49.5
print(z.tobytes().hex(), losses.sum_losses(0, z).hex())
"""


@pytest.mark.cpus
def test_without_a_cache_folder_and_with_several_processes_at_once(tmp_path: Path) -> None:
    """No folder for compiled code can be written, or three processes fill it together."""
    path = [
        str(Path(streams.__file__).parents[2]),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]

    def start(**env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **env},
        )  # fmt: skip

    blocked = tmp_path / "a file, not a folder"
    blocked.touch()
    together = str(tmp_path / "cache")
    runs = [start(NUMBA_CACHE_DIR=str(blocked / "x"))]
    runs += [start(NUMBA_CACHE_DIR=together) for _ in range(2)]
    said = [run.communicate(timeout=900) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], said
    assert len({out for out, _ in said}) == 1
    assert any(Path(together).rglob("*.nbi"))


@pytest.mark.parametrize("n", [1, 3, 4, 1023, 1024, 1025, 2502])
@pytest.mark.parametrize("c", [0.0, 0.7])
def test_following_and_drawing_in_one_pass(c: float, n: int) -> None:
    """Over the ends of the blocks of normals, and with zeros of either sign."""
    pair = np.random.default_rng(0).standard_normal((n, 2))
    pair[:: max(1, n // 3), 0] = -0.0
    stream = Stream(3, 1, 4, 1, Purpose.NORMAL)
    v = pair[:, 0] + c * pair[:, 1] if c else pair[:, 0].copy()
    u = streams.normals(stream, n)
    vu = two_point.follow_and_draw(pair, c, np.empty((4, 256)), *stream.key())
    assert pair.tobytes() == np.stack([v, u], axis=1).tobytes()
    assert vu == pytest.approx(float(v @ u), rel=1e-12, abs=1e-12)


def hinge_in_numpy(x: Any, batch: Any) -> float:
    X, y = batch
    return float(np.maximum(0.0, 1.0 - y * (X @ x)).mean())


@pytest.mark.filterwarnings("ignore:fun returned NaN or infinity")
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_values_that_are_not_finite_are_counted_as_in_python(
    method: str, sparse_rows: bool
) -> None:
    """All values from x0 on are infinite: no step is kept, and every one of them is counted."""
    X = np.full((30, 5), 1e200)
    y = np.full(30, -1.0)
    y[0] = 1.0
    settings: dict[str, Any] = {
        "method": method, "workers": 2, "rounds": 2, "iterations": 6, "batch_size": 8,
        "regularization": 0.0, "engine": "serial", "progress": False, "eval_every": 0,
    }  # fmt: skip
    x0 = np.full(5, 1e200)
    data = (sparse.csr_array(X) if sparse_rows else X), y
    compiled = desopt.minimize("lsvm", x0, data, **settings)
    expected = desopt.minimize(hinge_in_numpy, x0, (X, y), **settings)
    assert compiled.nan_count == expected.nan_count > 0
    assert np.array_equal(compiled.x, expected.x)
    assert np.array_equal(compiled.x, x0)


@pytest.mark.filterwarnings("ignore:fun returned NaN or infinity")
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("method", ["des", "des-mg", "des-mr"])
def test_the_first_finite_value_takes_the_place_of_an_infinite_one(
    method: str, sparse_rows: bool
) -> None:
    """One coordinate, so far out that the value at x0 is infinite; some step leads back."""
    X, y = np.full((20, 1), 1e200), np.full(20, -1.0)
    X[::2] = 0.0
    y[0] = 1.0
    x0, data = np.array([1e150]), ((sparse.csr_array(X) if sparse_rows else X), y)
    moved = 0
    for seed in range(6):
        settings: dict[str, Any] = {
            "method": method, "workers": 1, "rounds": 1, "iterations": 40, "batch_size": 8,
            "regularization": 0.0, "engine": "serial", "progress": False, "eval_every": 0,
            "momentum": 0.0, "mixture": 1, "step_size": 1e150, "seed": seed,
        }  # fmt: skip
        compiled = desopt.minimize("lsvm", x0, data, **settings)
        together = desopt.minimize("lsvm", x0, data, **settings | {"engine": "threads"})
        expected = desopt.minimize(hinge_in_numpy, x0, (X, y), **settings)
        for found in (compiled, together):
            assert found.x.tobytes() == expected.x.tobytes()
            assert found.nan_count == expected.nan_count
        moved += int(compiled.x[0] != x0[0])
    assert moved > 0


@pytest.mark.parametrize("kind", [-1, len(KINDS), 99])
def test_an_unknown_loss_is_nan(kind: int) -> None:
    """Never that of another loss: whoever adds one to a table but not to the kernels sees it."""
    margin, out = np.linspace(-3.0, 3.0, 21), np.zeros(21)
    losses.fill_losses(kind, margin, out, margin.size)
    assert np.isnan(out).all()
    assert np.isnan(losses.sum_losses(kind, margin))
    for known in KINDS.values():
        losses.fill_losses(known, margin, out, margin.size)
        assert np.isfinite(out).all()
        assert losses.sum_losses(known, margin) == pytest.approx(out.sum(), rel=1e-13)


@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_no_step_is_taken_with_an_unknown_loss(
    method: str, sparse_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever kernel it reaches, all values are NaN."""
    monkeypatch.setitem(LOSSES, "lr", replace(LOSSES["lr"], kind=99))
    X = np.random.default_rng(0).standard_normal((30, 5))
    data = (sparse.csr_array(X) if sparse_rows else X), np.where(X[:, 0] > 0, 1.0, -1.0)
    with pytest.warns(RuntimeWarning, match="NaN or infinity"):
        result = desopt.minimize(
            "lr", np.ones(5), data, method=method, workers=2, rounds=2, iterations=6, batch_size=8,
            engine="serial", progress=False, eval_every=0,
        )  # fmt: skip
    assert result.nan_count == result.nfev > 0
    assert result.x.tolist() == [1.0] * 5
