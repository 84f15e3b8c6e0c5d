"""Splits, uneven deals, and generated twins."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse, stats

from desopt import data
from desopt.contract.types import IndexArray
from desopt.data import DataSet, by_label, by_quantity, dirichlet, train_test
from desopt.data.twins import BLOCK, TWINS, sparse_twin

seeds = st.integers(0, 2**64 - 1)


# --- training and test -----------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(3, 300), seeds, st.booleans())
def test_a_split_is_a_split(rows: int, seed: int, is_sparse: bool) -> None:
    numbers = np.arange(1.0, rows + 1)
    X = sparse.csr_matrix(numbers[:, None]) if is_sparse else numbers[:, None]
    whole = DataSet("x", X, numbers, "here")
    train, test = train_test(whole, seed)
    assert train.rows == round(0.8 * rows)
    assert sorted([*train.y, *test.y]) == numbers.tolist()
    for part in (train, test):
        assert np.ravel(part.X.sum(axis=1)).tolist() == part.y.tolist()
    again, _ = train_test(whole, seed)
    assert train.y.tolist() == again.y.tolist()
    assert train.origin == f"here; training share 0.8, seed {seed}"
    assert test.origin == f"here; test share 0.2, seed {seed}"


def test_splits_of_many_seeds_are_uniform() -> None:
    whole = DataSet("x", np.zeros((50, 1)), np.arange(50.0), "here")
    counts = np.zeros(50)
    for seed in range(2000):
        counts[train_test(whole, seed, 0.3)[0].y.astype(int)] += 1
    z = (counts - 600) / np.sqrt(2000 * 0.3 * 0.7)
    assert np.abs(z).max() < 4  # of 50 normal numbers, once in 300 trials more
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, 2.0, 0.01, float("nan")])
def test_a_side_without_rows(share: float) -> None:
    with pytest.raises(ValueError, match="share must leave rows on both sides of the split of 10"):
        train_test(DataSet("x", np.zeros((10, 1)), np.ones(10), ""), 0, share)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan, np.nan, 2.0], "y is NaN in 2 of 4 rows, the first of them 1; remove"),
        ([[1.0], [2.0], [1.0]], r"one label for each row, got an array of shape \(3, 1\)"),
    ],
)
def test_labels_that_are_none(y: list[Any], message: str) -> None:
    """A row of label NaN went to no worker."""
    with pytest.raises(ValueError, match=message):
        by_label(np.array(y), 3, 0)
    with pytest.raises(ValueError, match=message):
        dirichlet(np.array(y), 2, 1.0, 0)


def test_labels_may_be_texts() -> None:
    parts = by_label(np.array(["a", "b", "a"]), 2, 0)
    assert sorted(part.tolist() for part in parts) == [[0, 2], [1]]


# --- deals -----------------------------------------------------------------------------------


def check_deal(parts: list[IndexArray], rows: int, workers: int) -> None:
    assert len(parts) == workers
    assert min(part.size for part in parts) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    assert all((np.diff(part) > 0).all() for part in parts)


@st.composite
def labelled(draw: st.DrawFn) -> NDArray[np.float64]:
    return np.array(draw(st.lists(st.integers(0, 3), min_size=1, max_size=60)), np.float64)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(labelled(), st.integers(1, 20), st.integers(1, 3), st.floats(1e-3, 1e3), seeds)
def test_every_row_goes_to_one_worker(
    y: NDArray[np.float64], workers: int, each: int, concentration: float, seed: int
) -> None:
    workers = min(workers, y.size)
    check_deal(dirichlet(y, workers, concentration, seed), y.size, workers)
    check_deal(by_quantity(y.size, workers, seed, concentration), y.size, workers)
    if np.unique(y).size <= workers * each <= y.size:
        parts = by_label(y, workers, seed, each)
        check_deal(parts, y.size, workers)
        assert max(np.unique(y[part]).size for part in parts) <= each


def test_pieces_of_a_label_are_even() -> None:
    y = np.repeat([-1.0, 1.0], [900, 100])
    sizes = sorted(part.size for part in by_label(y, 10, 3))
    assert sizes == [100] * 10
    assert [p.tolist() for p in by_label(y, 10, 3)] == [p.tolist() for p in by_label(y, 10, 3)]
    assert [p.tolist() for p in by_label(y, 10, 3)] != [p.tolist() for p in by_label(y, 10, 4)]


def test_moments_of_dirichlet_shares() -> None:
    """A share of M has mean 1/M and variance (1/M)(1 - 1/M) / (a M + 1)."""
    y, workers, a = np.zeros(2000), 5, 0.5
    deals = [[part.size / 2000 for part in dirichlet(y, workers, a, seed)] for seed in range(600)]
    quantities = [[p.size / 2000 for p in by_quantity(2000, workers, s, a)] for s in range(600)]
    variance = 0.2 * 0.8 / (a * workers + 1)
    for shares in (np.array(deals), np.array(quantities)):
        tolerance = 4 * np.sqrt(variance / 600)  # four standard errors
        np.testing.assert_allclose(shares.mean(axis=0), 0.2, atol=tolerance)
        np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.25)
    even = [part.size for part in dirichlet(y, workers, 1e6, 0)]
    assert max(even) - min(even) < 20


def test_labels_are_dealt_independently() -> None:
    y = np.repeat([-1.0, 1.0], 1000)
    mine = [y[dirichlet(y, 4, 1.0, seed)[0]] for seed in range(300)]
    counts = np.array([[(labels > 0).sum(), (labels < 0).sum()] for labels in mine])
    assert abs(np.corrcoef(counts.T)[0, 1]) < 4 / np.sqrt(300)  # four standard errors


def test_deals_that_cannot_be() -> None:
    y = np.array([1.0, 2.0, 3.0, 3.0])
    with pytest.raises(ValueError, match="4 rows cannot be split among 5 workers"):
        dirichlet(y, 5, 1.0, 0)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        by_quantity(4, 0, 0)
    with pytest.raises(ValueError, match="4 rows cannot be split among 6 pieces"):
        by_label(y, 3, 0, 2)
    with pytest.raises(TypeError, match=r"workers must be a whole number, got 2\.5"):
        dirichlet(y, 2.5, 1.0, 0)  # type: ignore[arg-type]
    for seed in (-1, 2**64):
        for made in (
            lambda: data.partition(4, 2, seed), lambda: by_quantity(4, 2, seed),  # noqa: B023
            lambda: by_label(y, 3, seed), lambda: data.load("susy-like", rows=9, seed=seed),  # noqa: B023
        ):  # fmt: skip
            with pytest.raises(ValueError, match=f"seed must be 0 to {2**64 - 1}, got {seed}"):
                made()
    with pytest.raises(ValueError, match="3 different labels do not fit 2 workers with 1 each"):
        by_label(y, 2, 0)
    for concentration in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="concentration must be a number above 0"):
            dirichlet(y, 2, concentration, 0)


# --- twins -----------------------------------------------------------------------------------


def test_twins_have_the_papers_shapes() -> None:
    shapes = {name: (twin.rows, twin.n) for name, twin in TWINS.items()}
    assert shapes == {
        "susy-like": (5_000_000, 18), "real-sim-like": (72_309, 20_958),
        "rcv1-like": (677_399, 47_236),
    }  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_the_first_rows_do_not_depend_on_the_size(name: str) -> None:
    small, large = data.load(name, rows=300), data.load(name, rows=BLOCK + 50)
    assert small.generated
    assert small.origin == "generated, seed 0, 300 rows"
    assert (small.rows, small.n, large.rows) == (300, TWINS[name].n, BLOCK + 50)
    assert (large.X[:300] != small.X).sum() == 0
    np.testing.assert_array_equal(small.y, large.y[:300])
    assert abs((large.y > 0).mean() - 0.5) < 0.05
    assert large.density * large.n == pytest.approx(TWINS[name].nonzeros, rel=0.05)
    assert (data.load(name, rows=300, seed=1).X != small.X).sum() > 0
    assert (large.X[BLOCK:] != large.X[:50]).sum() > 0  # blocks differ
    with pytest.raises(ValueError, match=f"rows of {name} must be at least 1, got 0"):
        data.load(name, rows=0)


def test_a_text_like_twin_is_like_text() -> None:
    X, y = sparse_twin(4000, 5000, 40.0, seed=2)
    assert X.indices.dtype == X.indptr.dtype == np.int32
    X.check_format(full_check=True)
    assert X.has_canonical_format
    np.testing.assert_allclose(np.sqrt(X.multiply(X).sum(axis=1)), 1.0, rtol=1e-12)
    popularity = np.sort(np.bincount(X.indices, minlength=5000))[::-1]
    assert popularity[0] > 0.1 * 4000
    assert popularity[:1000].sum() > popularity[1000:].sum()  # a fifth has more than half
    lengths = np.diff(X.indptr)
    assert np.quantile(lengths, 0.95) > 4 * np.quantile(lengths, 0.05)
    assert 0.7 < held_out_accuracy(X, y) < 0.95  # chance is 0.5, flips leave 0.97


def test_a_susy_like_twin_is_skewed_and_not_separable() -> None:
    twin = data.load("susy-like", rows=20_000)
    assert (stats.skew(twin.X) > 1).sum() >= 8
    correlation = np.corrcoef(twin.X.T) - np.eye(18)
    assert 0.3 < np.abs(correlation).max() < 0.95
    assert 0.70 < held_out_accuracy(twin.X, twin.y) < 0.85  # about 0.79 with the real one


def held_out_accuracy(X: object, y: NDArray[np.float64]) -> float:
    linear = pytest.importorskip("sklearn.linear_model")
    train, test = train_test(DataSet("x", X, y, ""))
    model = linear.LogisticRegression(C=10.0, max_iter=500).fit(train.X, train.y)
    return float(model.score(test.X, test.y))
