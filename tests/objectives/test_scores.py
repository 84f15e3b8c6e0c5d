"""Losses of labels, scores and weights: the kernels against NumPy, and searches against values."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import desopt
from desopt.kernels import scores as kernels
from desopt.objectives.scores import SCORE_LOSSES, ScoreLoss, ScoreModel, linear_scores

RNG = np.random.default_rng(5)
# With few columns, the coordinates of a step may cancel: then rounding decides.
X = RNG.standard_normal((90, 30)) * (RNG.random((90, 30)) < 0.7)
SIGNS = np.where(X[:, 0] + 0.3 * RNG.standard_normal(90) > 0, 1.0, -1.0)
WEIGHTS = RNG.integers(1, 5, 90).astype(float)
DATA = {"dense": X, "csr": sparse.csr_array(X)}


@pytest.mark.parametrize(("name", "loss"), SCORE_LOSSES.items())
@pytest.mark.parametrize("rows", [2, 13, 16, 333])
def test_kernel_and_reference_agree(name: str, loss: ScoreLoss, rows: int) -> None:
    rows = min(rows, 13) if name == "auc" else rows  # of more rows, it takes a part of the pairs
    rng = np.random.default_rng(rows)
    y = rng.standard_normal(rows) if loss.real else np.where(np.arange(rows) % 3 == 1, 1.0, -1.0)
    s, w = rng.standard_normal(rows).round(1), rng.random(rows)
    found = kernels.sum_scored(loss.kind, 0.3, y, w, s) / rows
    assert found == pytest.approx(loss.reference(y, s, w, 0.3), rel=1e-13)


def test_pairs_of_an_auc_are_a_fair_part_of_all() -> None:
    """Also where rows are sorted by score: neighbours are not compared with neighbours."""
    y, w = np.where(np.arange(999) % 3 == 1, 1.0, -1.0), np.ones(999)
    s = np.sort(np.random.default_rng(0).standard_normal(999)) + 0.1 * y
    # pairs with their own noise: a standard error of 0.3 / sqrt(4 * 666)
    expected = SCORE_LOSSES["auc"].reference(y, s, w, 0.0)
    assert kernels.one_minus_auc(y, w, s) == pytest.approx(expected, abs=0.015)


def test_values_that_are_no_number() -> None:
    y, w, s = np.array([1.0, -1.0]), np.ones(2), np.array([0.5, np.nan])
    for loss in SCORE_LOSSES.values():
        assert math.isnan(kernels.sum_scored(loss.kind, 0.3, y, w, s))
    assert math.isnan(kernels.sum_scored(-1, 0.3, y, w, np.zeros(2)))
    assert kernels.one_minus_auc(np.ones(2), w, np.zeros(2)) == 0.5


@pytest.mark.parametrize("layout", DATA)
@pytest.mark.parametrize("name", ["tanh", "huber", "f1"])
def test_the_compiled_search_takes_the_steps_that_values_decide(name: str, layout: str) -> None:
    """Accept bits and the steps decide x: equal bits of x are equal decisions."""
    loss = SCORE_LOSSES[name]

    def value(y: Any, s: Any, w: Any) -> float:
        return loss.reference(y, s, w, 0.5)

    one, other = (
        desopt.minimize(
            ScoreModel(each, 0.0, 0.5), None, (DATA[layout], SIGNS, WEIGHTS), workers=2, rounds=4,
            iterations=40, batch_size=30, step_size="auto", engine="serial", progress=False,
        )
        for each in (name, value)
    )  # fmt: skip
    assert one.x.tobytes() == other.x.tobytes()
    assert one.fun == pytest.approx(other.fun, rel=1e-12)
    assert one.fun < one.initial_fun


def test_without_weights_a_loss_of_margins_is_the_linear_model() -> None:
    settings: dict[str, Any] = {
        "workers": 2, "rounds": 4, "batch_size": 30, "engine": "serial", "progress": False,
    }  # fmt: skip
    ours = desopt.minimize(ScoreModel("logistic"), None, (X, SIGNS), **settings)
    assert ours.x.tobytes() == desopt.minimize("lr", None, (X, SIGNS), **settings).x.tobytes()


def test_a_batch_as_large_as_the_data_is_the_data() -> None:
    """Weights then count as repeated rows do."""
    settings: dict[str, Any] = {
        "rounds": 5, "iterations": 30, "batch_size": 1000, "engine": "serial", "progress": False,
    }  # fmt: skip
    mean = WEIGHTS * (90 / WEIGHTS.sum())
    weighted = desopt.minimize(ScoreModel("squared"), None, [(X, SIGNS, mean)] * 2, **settings)
    numbers = np.repeat(np.arange(90), WEIGHTS.astype(int))
    repeated = desopt.minimize(
        ScoreModel("squared"), None, [(X[numbers], SIGNS[numbers])] * 2, **settings
    )
    np.testing.assert_allclose(weighted.x, repeated.x, rtol=1e-12)


def test_scores_are_products() -> None:
    for data in DATA.values():
        np.testing.assert_allclose(linear_scores(data, np.arange(30.0)), X @ np.arange(30.0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, SIGNS, -WEIGHTS), "weights must be >= 0"),
        ((X, SIGNS.astype(str)), "real numbers"),
        ((X, SIGNS, X), "a matrix and one or two vectors"),
        ((X, np.full(90, np.inf)), "finite"),
        (None, "data is missing"),
    ],
)
def test_refusals(data: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        desopt.minimize(ScoreModel("squared"), np.zeros(30), data, rounds=1)


def test_unknown_loss_and_penalty() -> None:
    with pytest.raises(ValueError, match="did you mean 'hinge'"):
        ScoreModel("hinges")
    with pytest.raises(ValueError, match="regularization"):
        ScoreModel("hinge", -1.0)
