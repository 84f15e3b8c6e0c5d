"""The estimators: scikit-learn's own checks, its tools, and independent answers."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context, datasets
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from desopt.objectives.scores import SCORE_LOSSES, ScoreModel
from desopt.sklearn import DESClassifier, DESRegressor

QUICK: dict[str, Any] = {"rounds": 10, "workers": 2}

X, Y = datasets.make_classification(
    300, 6, n_informative=4, n_redundant=0, weights=[0.8], flip_y=0.1, random_state=1
)
IRIS = datasets.load_iris(return_X_y=True)


@parametrize_with_checks([DESClassifier(**QUICK), DESRegressor(**QUICK)])  # type: ignore[untyped-decorator]
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# --- independent answers -----------------------------------------------------------------------


def test_logistic_is_logistic_regression() -> None:
    ours = DESClassifier(regularization=1e-3, rounds=60).fit(X, Y)
    theirs = LogisticRegression(C=1 / (1e-3 * Y.size), max_iter=1000).fit(X, Y)
    # after 60 rounds the coefficients, around 1, are known to about 1e-2
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.02)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=0.02)
    np.testing.assert_allclose(np.exp(ours.predict_log_proba(X)), ours.predict_proba(X))


def test_squared_is_least_squares_and_weights_count() -> None:
    y, w = X @ np.arange(6.0) + 7.0 + 0.1 * X[:, 0] ** 2, np.linspace(0.0, 2.0, 300)
    ours = DESRegressor(rounds=60, regularization=1e-6).fit(X, y, w)
    theirs = LinearRegression().fit(X, y, w)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.02)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=0.02)


@pytest.mark.parametrize(
    ("settings", "quantile"),
    [({"objective": "absolute"}, 0.5), ({"objective": "pinball", "quantile": 0.9}, 0.9),
     ({"objective": "huber", "delta": 1e-3}, 0.5)],
)  # fmt: skip
def test_the_intercept_alone_is_a_quantile(settings: dict[str, Any], quantile: float) -> None:
    y = np.random.default_rng(0).standard_exponential(501)
    model = DESRegressor(rounds=30, workers=2, regularization=1e-9, **settings)
    found = model.fit(np.zeros((501, 1)), y).intercept_
    assert found == pytest.approx(np.quantile(y, quantile), abs=0.02)


def test_f1_auc_and_costs_are_what_is_optimised() -> None:
    """Each beats the logistic loss by its own measure, on the rows that it was fitted to."""

    def of(objective: Any) -> tuple[float, float, float]:
        score = DESClassifier(objective, rounds=30, workers=4).fit(X, Y).decision_function(X)
        cost = np.mean(np.where(Y == 1, 10.0 * (score <= 0), score > 0))
        return -f1_score(Y, score > 0), -roc_auc_score(Y, score), float(cost)

    plain = of("logistic")
    for k, objective in enumerate(["f1", "auc", [[0, 1], [10, 0]]]):
        assert of(objective)[k] < plain[k]


def test_errors_are_counted_from_a_logistic_start() -> None:
    """A quarter of the rounds are those of a logistic fit."""
    model = DESClassifier("tanh", rounds=8, workers=2).fit(X, Y)
    assert model.n_iter_ == 8
    first = DESClassifier(rounds=2, workers=2).fit(X, Y)
    rest = DESClassifier("tanh", rounds=6, workers=2, warm_start=True)
    rest.classes_, rest.coef_, rest.intercept_ = first.classes_, first.coef_, first.intercept_
    assert rest.fit(X, Y).coef_.tobytes() == model.coef_.tobytes()


def test_what_is_no_mean_has_larger_batches() -> None:
    """A ratio is biased on few rows; that of few pairs of rows is a mean."""
    for objective, rows in (("logistic", 1000), ("auc", 1000), ("f1", 5000), (max, 5000)):
        assert DESClassifier(objective)._rows(ScoreModel(objective)) == rows


def test_a_callable_is_minimised() -> None:
    def error(y: Any, score: Any, sample_weight: Any) -> float:
        assert set(np.unique(y)) <= {0.0, 1.0}
        return float(np.average((score > 0) != (y > 0), weights=sample_weight))

    model = DESClassifier(error, rounds=20, workers=2, iterations=50).fit(X, Y)
    assert model.score(X, Y) >= LogisticRegression().fit(X, Y).score(X, Y)
    y = X @ np.ones(6)
    bound = DESRegressor(lambda y, s, w: float(np.abs(y - s).max()), **QUICK).fit(X, y)
    assert np.abs(bound.predict(X) - y).max() < 0.5 * np.abs(y).max()


# --- weights and costs ------------------------------------------------------------------------


def test_costs_of_rows_a_cost_matrix_and_class_weights_agree() -> None:
    matrix = np.array([[0.0, 1.0], [5.0, 0.0]])
    one = DESClassifier(matrix, **QUICK).fit(X, Y).coef_
    decisions = DESClassifier("tanh", **QUICK).fit(X, Y, costs=matrix[Y]).coef_
    errors = DESClassifier("tanh", **QUICK).fit(X, Y, costs=np.where(Y == 1, 5.0, 1.0)).coef_
    weights = DESClassifier("tanh", class_weight={0: 1, 1: 5}, **QUICK).fit(X, Y).coef_
    for other in (decisions, errors, weights):
        assert one.tobytes() == other.tobytes()


def test_costs_decide_the_class_of_a_row() -> None:
    """A decision that costs less than that for the true class is the one to learn."""
    costs = np.column_stack([np.ones(300), np.where(X[:, 0] > 0, 0.0, 2.0)])
    decided = DESClassifier("logistic", **QUICK).fit(X, Y, costs=costs).predict(X)
    assert np.mean(decided == (X[:, 0] > 0)) > 0.97


def test_costs_are_routed() -> None:
    """GridSearchCV hands each fold the costs of its rows."""
    costs = np.where(Y == 1, 5.0, 1.0)
    with config_context(enable_metadata_routing=True):
        model = DESClassifier("tanh", **QUICK).set_fit_request(costs=True, sample_weight=False)
        search = GridSearchCV(make_pipeline(StandardScaler(), model), {}, cv=2).fit(
            X, Y, costs=costs
        )
    direct = clone(model).fit(StandardScaler().fit_transform(X), Y, costs=costs)
    fitted = search.best_estimator_[-1]
    assert fitted.coef_.tobytes() == direct.coef_.tobytes()


def test_balanced_weights_move_the_threshold() -> None:
    plain, balanced = (DESClassifier(class_weight=w, **QUICK).fit(X, Y) for w in (None, "balanced"))
    assert balanced.predict(X).sum() > 1.2 * plain.predict(X).sum()


# --- rounds, journals, bits --------------------------------------------------------------------


def test_partial_fit_goes_on_where_fit_stopped() -> None:
    whole = DESClassifier(rounds=6, workers=2).fit(X, Y)
    parts = DESClassifier(rounds=2, workers=2)
    for _ in range(3):
        parts.partial_fit(X, Y, classes=[0, 1])
    assert parts.n_iter_ == whole.n_iter_ == 6
    assert parts.coef_.tobytes() == whole.coef_.tobytes()
    few: dict[str, Any] = {"rounds": 2, "workers": 2, "class_weight": {0: 1, 1: 5}}
    weighed = DESClassifier(**few).partial_fit(X, Y, classes=[0, 1])
    assert weighed.coef_.tobytes() == DESClassifier(**few).fit(X, Y).coef_.tobytes()
    y = X @ np.ones(6)
    regressor = DESRegressor(rounds=3, workers=2).fit(X, y).partial_fit(X, y)
    assert regressor.coef_.tobytes() == DESRegressor(rounds=6, workers=2).fit(X, y).coef_.tobytes()
    with pytest.raises(ValueError, match="first call"):
        DESClassifier().partial_fit(X, Y)
    with pytest.raises(ValueError, match="journal"):
        DESClassifier(journal="x").partial_fit(X, Y, classes=[0, 1])


@pytest.mark.parametrize(
    "changed",
    [{"fit_intercept": False}, {"objective": "auc"}, {"step_size": "auto"}, {"method": "es-csa"}],
    ids=str,
)
def test_partial_fit_refuses_a_state_of_other_numbers(changed: dict[str, Any]) -> None:
    model = DESClassifier(step_size=0.3, **QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="set them as they were, or call fit"):
        model.set_params(**changed).partial_fit(X, Y)
    model.set_params(fit_intercept=True, objective="logistic", step_size=0.1, method="des")
    assert model.partial_fit(X, Y).n_iter_ == 20


def test_warm_start_begins_at_the_last_coefficients() -> None:
    model = DESClassifier(rounds=20, workers=2, warm_start=True).fit(X, Y)
    before, intercept = model.coef_.copy(), model.intercept_.copy()
    assert abs(intercept[0]) > 1e-3
    model.set_params(rounds=1, step_size=1e-9).fit(X, Y)
    np.testing.assert_allclose(model.coef_, before, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, intercept, atol=1e-6)
    with pytest.raises(ValueError, match="warm_start=False"):
        model.fit(X[:, :3], Y)


def test_a_journal_resumes_and_threads_change_nothing(tmp_path: Path) -> None:
    """Each of three classes has its file; a fit cut short goes on from them."""
    path = tmp_path / "fit.journal"
    DESClassifier(rounds=2, workers=2, journal=path).fit(*IRIS)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["fit.0.journal", "fit.1.journal", "fit.2.journal"]
    resumed = DESClassifier(rounds=5, workers=2, journal=path, n_jobs=2).fit(*IRIS)
    whole = DESClassifier(rounds=5, workers=2).fit(*IRIS)
    assert resumed.coef_.tobytes() == whole.coef_.tobytes()


def test_sparse_rows_give_the_same_model() -> None:
    dense = DESClassifier("f1", **QUICK).fit(X, Y)
    other = DESClassifier("f1", **QUICK).fit(sparse.csr_array(X), Y)
    np.testing.assert_allclose(dense.coef_, other.coef_, rtol=1e-9)


def test_classes_one_against_the_rest() -> None:
    model = DESClassifier(rounds=30, workers=2).fit(*IRIS)
    assert model.coef_.shape == (3, 4)
    assert model.score(*IRIS) > 0.94
    np.testing.assert_allclose(model.predict_proba(IRIS[0]).sum(axis=1), 1.0)
    binary = DESClassifier(rounds=30, workers=2).fit(IRIS[0], IRIS[1] == 1)
    assert binary.coef_[0].tobytes() == model.coef_[1].tobytes()


def test_an_auc_model_takes_as_many_rows_for_positive_as_there_are() -> None:
    model = DESClassifier("auc", **QUICK).fit(X, Y)
    assert abs(int(model.predict(X).sum()) - int(Y.sum())) <= 1


# --- scikit-learn's tools -----------------------------------------------------------------------


def test_rows_of_weight_zero_are_not_there() -> None:
    some = np.random.default_rng(2).random(300) < 0.3
    for objective in ("auc", "f1", "logistic"):
        model = DESClassifier(objective, **QUICK).fit(X, Y, sample_weight=some.astype(float))
        fewer = DESClassifier(objective, **QUICK).fit(X[some], Y[some])
        assert model.coef_.tobytes() == fewer.coef_.tobytes()
        assert model.intercept_.tobytes() == fewer.intercept_.tobytes()


def test_pipelines_of_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:, :2], columns=["age", "dose"])
    frame["site"] = np.where(X[:, 2] > 0, "north", "south")
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["age", "dose"]),
         ("names", OneHotEncoder(sparse_output=False), ["site"])]
    )  # fmt: skip
    columns.set_output(transform="pandas")
    model = make_pipeline(columns, DESClassifier(**QUICK)).fit(frame, Y)
    named = ["numbers__age", "numbers__dose", "names__site_north", "names__site_south"]
    assert list(model[-1].feature_names_in_) == named
    assert model[-1].n_features_in_ == 4
    assert model.score(frame, Y) > 0.7
    with pytest.raises(ValueError, match="feature names"):
        model[-1].predict(columns.transform(frame)[named[::-1]])


def test_search_validation_and_calibration() -> None:
    model = DESClassifier(rounds=5, workers=2)
    grid = GridSearchCV(model, {"objective": ["hinge", "f1"]}, cv=2, scoring="f1").fit(X, Y)
    assert grid.best_params_["objective"] in ("hinge", "f1")
    assert cross_val_score(DESRegressor(**QUICK), X, X @ np.ones(6), cv=2).min() > 0.9
    calibrated = CalibratedClassifierCV(DESClassifier("hinge", **QUICK), cv=2).fit(X, Y)
    assert np.mean((calibrated.predict_proba(X)[:, 1] - Y) ** 2) < 0.12


def test_probabilities_only_where_they_mean_something() -> None:
    assert not hasattr(DESClassifier("hinge"), "predict_proba")
    with pytest.raises(AttributeError, match="no attribute 'predict_proba'") as raised:
        DESClassifier("f1").predict_proba(X)
    assert "CalibratedClassifierCV" in str(raised.value.__cause__)


def test_clones_and_pickles() -> None:
    model = DESClassifier([[0, 1], [2, 0]], **QUICK).fit(X, Y)
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(X).tobytes() == model.predict(X).tobytes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "squared"}, "unknown objective 'squared'"),
        ({"objective": [[0, 1, 2]]}, "2 x 2"),
        ({"objective": ("f1",)}, "objective as a cost matrix must hold numbers"),
        ({"class_weight": {0: 1, 1: -5}}, "class_weight must hold finite numbers >= 0"),
        ({"class_weight": {0: 1, 1: np.nan}}, "class_weight must hold finite numbers >= 0"),
        ({"rounds": 0}, "rounds"),
        ({"method": "no"}, "unknown method"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DESClassifier(**settings).fit(X, Y)


@pytest.mark.parametrize("estimator", [DESClassifier, DESRegressor])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": None}, "rounds must be a whole number, got None"),
        ({"rounds": "3"}, "rounds must be a whole number, got '3'"),
        ({"workers": None}, "workers must be a whole number, got None"),
        ({"journal": "."}, "journal must be a file, got the folder '.'"),
    ],
)
def test_refusals_of_both(estimator: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        estimator(**settings).fit(X, Y)


def test_refused_costs() -> None:
    with pytest.raises(ValueError, match="not both"):
        DESClassifier([[0, 1], [2, 0]]).fit(X, Y, costs=np.ones(300))
    with pytest.raises(ValueError, match="300 x 2"):
        DESClassifier().fit(X, Y, costs=np.ones(3))
    with pytest.raises(ValueError, match=">= 0"):
        DESClassifier().fit(X, Y, costs=-np.ones(300))
    with pytest.raises(ValueError, match="quantile"):
        DESRegressor("pinball", quantile=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="costs must hold numbers"):
        DESClassifier().fit(X, Y, costs=["a"] * 300)
    wrong: Any = "0.9"
    with pytest.raises(TypeError, match="quantile must be a number"):
        DESRegressor("pinball", quantile=wrong).fit(X, Y)
    with pytest.raises(TypeError, match="delta must be a number"):
        DESRegressor("huber", delta=wrong).fit(X, Y)


def test_every_loss_belongs_to_one_of_the_estimators() -> None:
    for name, loss in SCORE_LOSSES.items():
        estimator: Any = DESRegressor if loss.real else DESClassifier
        assert estimator(name, rounds=1, workers=1).fit(X, Y).n_iter_ == 1
