"""Columns by name, standardisation from sites' moments, metrics, and the model as a file."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import desopt
from desopt.objectives.inputs import Inputs, Moments, PreparedModel
from desopt.objectives.metrics import METRICS, as_metrics
from desopt.objectives.model import Model, model_of, provenance_of

NAMES = ("age", "chol", "sex")


def table(rows: int, seed: int, offset: float = 0.0) -> Any:
    """Columns of very different sizes, one value in ten missing."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3)) * [10.0, 50.0, 0.5] + [offset + 1e9, 200.0, 0.0]
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def test_moments_of_sites_give_the_mean_and_deviation_of_all_rows() -> None:
    """Against NumPy on the pooled rows; a large offset would ruin a sum of squares."""
    sites = [table(40, 1), table(7, 2, 30.0), table(300, 3, -10.0)]
    inputs = Inputs(NAMES).standardised(map(Moments.of, sites))
    pooled = np.concatenate(sites)
    assert inputs.means == pytest.approx(np.nanmean(pooled, 0), rel=1e-14)
    assert inputs.scales == pytest.approx(np.nanstd(pooled, 0), rel=1e-9)
    swapped = Inputs(NAMES).standardised(map(Moments.of, reversed(sites)))
    assert swapped == inputs, "the order of the sites does not matter"


def test_few_known_values_stay_at_home_and_constants_have_scale_one() -> None:
    X = np.array([[1.0, 5.0, np.nan]] * 4 + [[np.nan, 5.0, np.nan]] * 4)
    moments = Moments.of(X)
    assert moments.counts == (0, 8, 0)
    inputs = Inputs(NAMES).standardised([moments])
    assert (inputs.means, inputs.scales) == ((0.0, 5.0, 0.0), (1.0, 1.0, 1.0))
    assert inputs.apply(X).tolist() == [[1.0, 0.0, 0.0]] * 4 + [[0.0, 0.0, 0.0]] * 4


@pytest.mark.parametrize("means", [(1e308, 1e308), (1e300, -1e300), (1e300, 1e300)])
def test_moments_too_large_to_be_pooled_are_named(means: tuple[float, float]) -> None:
    """Any site may send them: the sum overflows, or has infinities of both signs."""
    sites = [Moments((2**40 if abs(m) < 1e308 else 1,), (m,), (1e308,)) for m in means]
    with pytest.raises(ValueError, match="column 0 is too large to be standardised"):
        Inputs(("age",)).standardised(sites)


def test_a_column_too_large_for_a_mean_is_named() -> None:
    with pytest.raises(ValueError, match=r"my.csv contains a column .* up to 1.5e\+308; remove"):
        Moments.of(np.full((8, 1), 1.5e308), "my.csv")


def test_columns_are_found_by_name_in_frames_dicts_and_records() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = np.arange(12.0).reshape(4, 3)
    inputs = Inputs(NAMES, (1.0, 2.0, 3.0), (2.0, 2.0, 4.0), True)
    expected = np.column_stack([(X - [1, 2, 3]) / [2, 2, 4], np.ones(4)])
    columns = {"sex": X[:, 2], "id": ["a"] * 4, "chol": X[:, 1], "age": X[:, 0]}
    kinds: list[Any] = [("sex", float), ("chol", float), ("age", float)]
    records = np.array([(r[2], r[1], r[0]) for r in X], kinds)
    for given in (columns, pandas.DataFrame(columns), records, X):
        np.testing.assert_array_equal(inputs.apply(given), expected)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({"age": [1.0], "sex": [0.0]}, r"here: without 'chol'; it has 'age', 'sex'"),
        ({name: ["x"] for name in NAMES}, r"here, age must hold numbers"),
        (np.ones((2, 3)), r"the columns have no names to check; return X as a data frame"),
    ],
)
def test_a_site_with_other_columns_is_refused(X: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Inputs(NAMES).apply(X, "here", named=True)


def test_sparse_columns_may_have_an_intercept_and_no_means() -> None:
    X = sparse.csr_array(np.eye(3))
    found = Inputs(intercept=True).apply(X)
    assert found.toarray().tolist() == np.column_stack([np.eye(3), np.ones(3)]).tolist()
    with pytest.raises(TypeError, match="a sparse matrix cannot be standardised"):
        Moments.of(X)


def trained() -> tuple[Any, Any, Model]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) * [10.0, 50.0, 0.5] + [60.0, 200.0, 0.0]
    y = np.where((X - [60, 200, 0]) / [10, 50, 0.5] @ [1.0, -1.0, 0.5] > 0.3, 1.0, -1.0)
    inputs = Inputs(NAMES, intercept=True).standardised([Moments.of(X)])
    fun = PreparedModel("lr", 1e-3, inputs)
    result = desopt.minimize(fun, None, (inputs.apply(X), y), workers=4, rounds=5, engine="serial")
    return X, y, model_of(result.x, "lr", inputs, {"rounds": 5})


def test_a_model_survives_its_file_bit_for_bit(tmp_path: Path) -> None:
    X, y, model = trained()
    model.save(tmp_path / "model.json")
    found = desopt.load_model(tmp_path / "model.json")
    assert found == model
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]
    columns = dict(zip(NAMES, X.T, strict=True))
    p = found.predict_proba(columns)
    Z = (X - X.mean(0)) / X.std(0)
    expected = 1.0 / (1.0 + np.exp(-(Z @ model.weights + model.intercept)))
    np.testing.assert_allclose(p[:, 1], expected, rtol=1e-9)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert found.predict(X).tolist() == np.where(p[:, 1] > 0.5, 1.0, -1.0).tolist()
    assert np.mean(found.predict(X) == y) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "must be an object with the format"),
        ({"version": 2}, "its version is 2, this desopt reads 1"),
        ({"loss": "no"}, "unknown loss 'no'"),
        ({"weights": [1.0]}, "1 weights for 3 columns"),
        ({"weights": [1.0, "2", 3.0]}, "must be finite numbers"),
        ({"weights": [1.0, 10**400, 3.0]}, "must be finite numbers"),
        ({"means": [1.0, 10**400, 3.0]}, "must be finite numbers"),
        ({"scales": [1.0, 0.0, 1.0]}, "scales must be > 0"),
        ({"columns": ["a", "a", "b"]}, "more than one column is called 'a'"),
        ({"intercept": math.nan}, "NaN is not a number of JSON"),
    ],
)
def test_what_is_no_model_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    values = json.loads(trained()[2].to_json()) | change
    (tmp_path / "model.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=f"is not a model of desopt: .*{message}"):
        desopt.load_model(tmp_path / "model.json")


def test_bytes_that_are_no_text_are_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes(trained()[2].to_json().encode("utf-16"))
    with pytest.raises(ValueError, match=r"model\.json is not a model of desopt"):
        desopt.load_model(tmp_path / "model.json")


def test_a_margin_is_no_probability() -> None:
    model = Model("lsvm", (1.0, 2.0))
    assert model.decision_function([[1.0, 1.0]]).tolist() == [3.0]
    with pytest.raises(ValueError, match="a model of loss 'lsvm' has no probabilities"):
        model.predict_proba([[1.0, 1.0]])


def test_provenance_tells_models_apart() -> None:
    config = {"method": {"name": "des"}, "objective": {"name": "lr", "inputs": {}}, "workers": 3,
              "participation": 1.0, "batch_size": 9, "data": "not for sites"}  # fmt: skip
    one, other = (provenance_of(config, rounds, np.ones(2)) for rounds in (1, 2))
    assert one["digest"] != other["digest"]
    assert one["objective"] == {"name": "lr"}
    assert "data" not in one


def test_metrics_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    y, score = np.where(rng.random(80) > 0.6, 1.0, -1.0), rng.standard_normal(80).round(1)
    assert METRICS["auc"](y, score) == pytest.approx(metrics.roc_auc_score(y, score))
    assert METRICS["accuracy"](y, score) == np.mean((score > 0) == (y > 0))
    p = 1.0 / (1.0 + np.exp(-score))
    assert METRICS["log_loss"](y, score) == pytest.approx(metrics.log_loss(y, p))
    assert math.isnan(METRICS["auc"](np.ones(3), np.arange(3.0)))
    assert as_metrics(["auc"]) == {"auc": METRICS["auc"]}
    assert as_metrics({"own": max}) == {"own": max}
    with pytest.raises(ValueError, match="metrics"):
        as_metrics("area")


def test_a_row_without_a_score_has_no_class() -> None:
    rows = np.array([[2.0, 1.0], [np.nan, 1.0]])
    model = Model("lr", (1.0, -1.0))
    for answer in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="row 1 has no score: a value is missing"):
            answer(rows)
    assert model.predict(rows[:1]).tolist() == [1.0]
