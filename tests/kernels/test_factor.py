"""The factor of a correlation matrix against NumPy's linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from desopt.kernels import factor as kernels

Floats = NDArray[np.float64]
SIZES = (1, 2, 7, 8, 9, 33)


def packed(matrix: Any) -> Floats:
    numbers: Floats = matrix[np.tril_indices(len(matrix))]
    return numbers


def unpacked(factor: Floats, n: int) -> Floats:
    matrix = np.zeros((n, n))
    matrix[np.tril_indices(n)] = factor
    return matrix


def correlation(n: int, seed: int = 0) -> Floats:
    rows = np.random.default_rng([n, seed]).standard_normal((n, n + 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


@pytest.mark.parametrize("n", SIZES)
def test_products_and_solutions(n: int) -> None:
    A = np.linalg.cholesky(correlation(n))
    z = np.random.default_rng(n).standard_normal(n)
    y = z.copy()
    kernels.multiply(packed(A), y)
    np.testing.assert_allclose(y, A @ z, rtol=1e-12, atol=1e-14)
    kernels.solve(packed(A), y)
    np.testing.assert_allclose(y, z, rtol=1e-9)
    expected = np.trace(np.linalg.inv(A @ A.T))
    assert kernels.inverse_trace(packed(A), n) == pytest.approx(expected, rel=1e-9)


def updated(C: Floats, keep: float, vectors: Floats, weights: Floats) -> tuple[Any, bool, Floats]:
    scale = np.empty(len(C))
    factor = packed(np.linalg.cholesky(C))
    return *kernels.update(factor, keep, vectors, vectors * weights, scale), scale


@pytest.mark.parametrize("n", SIZES)
def test_updates(n: int) -> None:
    """Positive and negative weights; the diagonal of the result goes to ``scale``."""
    C, rng = correlation(n), np.random.default_rng(n)
    vectors, weights = rng.standard_normal((n, 5)), np.array([0.3, 0.2, 0.1, 0.0, -0.005])
    factor, definite, scale = updated(C, 0.8, vectors, weights)
    expected = 0.8 * C + (vectors * weights) @ vectors.T
    assert definite
    A = unpacked(factor, n)
    np.testing.assert_allclose(np.diag(A @ A.T), 1.0, rtol=1e-13)
    np.testing.assert_allclose(A @ A.T * np.outer(scale, scale), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("bad", [-10.0, np.nan, np.inf])
def test_a_matrix_that_is_not_positive_definite(bad: float) -> None:
    vectors = np.ones((4, 1))
    assert not updated(np.eye(4), 1.0, vectors, np.array([bad]))[1]
    assert updated(np.eye(4), 1.0, vectors, np.array([0.5]))[1]
