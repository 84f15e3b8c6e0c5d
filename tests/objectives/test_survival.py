"""Cox regression against a plain NumPy likelihood, SciPy's optimum of it, and lifelines."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse, special

import desopt
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Batches
from desopt.data import Batch, as_shards
from desopt.objectives.survival import Cox, concordance

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "survival"
RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((80, 5))
SLOPE = np.array([1.0, -0.5, 0.0, 0.0, 0.0])
#: Whole numbers, so that many are tied.
TIME = np.ceil(6.0 * RANDOM.exponential(np.exp(-X @ SLOPE)))
EVENT = (RANDOM.random(80) < 0.7).astype(float)
DATA = X, TIME, EVENT
POINT = np.linspace(-0.8, 0.9, 5)


def reference(x: Any, data: Any = DATA, ties: str = "efron") -> float:
    """The negative log partial likelihood per row, event by event, from the definition."""
    Z, time, event = data
    eta, total = Z @ x, 0.0
    for t in np.unique(time[event == 1]):
        at_risk, tied = eta[time >= t], eta[(time == t) & (event == 1)]
        for e in range(tied.size):
            gone = e / tied.size if ties == "efron" else 0.0
            weights = np.concatenate([np.ones(at_risk.size), np.full(tied.size, -gone)])
            total += special.logsumexp(np.concatenate([at_risk, tied]), b=weights) - tied[e]
    return float(total / time.size)


def value(objective: Cox, x: Any, data: Any = DATA) -> float:
    (shard,) = objective.prepare(as_shards(data, 1, 0))
    batch = Batch(shard, 1, Stream(0, 0, 0, 0, Purpose.BATCH), Batches.ALL)  # type: ignore[arg-type]
    return objective.bind(batch, x).value(np.asarray(x, float))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("scale", [1.0, 300.0, 1e4])  # beyond 700, hazards have no common scale
def test_value(ties: Any, scale: float) -> None:
    expected = reference(scale * POINT, ties=ties)
    assert value(Cox(ties=ties), scale * POINT) == pytest.approx(expected, rel=1e-12)


def test_penalties_and_sparse_rows() -> None:
    penalty = 0.5 * 0.3 * np.sum(POINT**2) + 0.2 * np.sum(np.abs(POINT))
    found = value(Cox(ridge=0.3, lasso=0.2), POINT, (sparse.csr_array(X), TIME, EVENT))
    assert found == pytest.approx(reference(POINT) + penalty, rel=1e-12)


def test_thousands_of_events() -> None:
    """Their product of sums is beyond all numbers: at x = 0 it is N!."""
    N = 5000
    found = value(Cox(), np.zeros(1), (np.ones((N, 1)), np.arange(1.0, N + 1), np.ones(N)))
    assert found == pytest.approx(special.gammaln(N + 1) / N, rel=1e-12)


def test_no_ties_no_difference() -> None:
    data = X, TIME + np.linspace(0.0, 0.5, 80), EVENT
    assert value(Cox(), POINT, data) == value(Cox(ties="breslow"), POINT, data)


def test_the_optimum_is_that_of_scipy() -> None:
    result = desopt.minimize(
        Cox(ridge=0.01), None, DATA, workers=1, rounds=100, step_size="auto", momentum=0.0
    )
    best = optimize.minimize(lambda x: reference(x) + 0.005 * x @ x, np.zeros(5), tol=1e-9)
    assert result.fun == pytest.approx(best.fun, abs=1e-9)
    np.testing.assert_allclose(result.x, best.x, atol=1e-4)


def test_steps_without_a_value_are_counted_and_undone() -> None:
    """In the compiled search: every step makes predictors infinite."""
    with pytest.warns(RuntimeWarning, match="NaN or infinity 30 times"):
        found = desopt.minimize(
            Cox(), None, (1e200 * X, TIME, EVENT), workers=1, rounds=1, iterations=30,
            step_size=1e200, eval_every=0,
        )  # fmt: skip
    assert found.nan_count == 30
    assert not found.x.any()


def test_lasso_meets_the_conditions_of_its_optimum() -> None:
    """With steps of one coordinate: a step of several can fall in none of them."""
    lasso = 0.1
    x = desopt.minimize(
        Cox(lasso=lasso), None, DATA, workers=1, rounds=100, step_size="auto", momentum=0.0,
        mixture=1,
    ).x  # fmt: skip
    slope = optimize.approx_fprime(x, reference, 1e-6)
    there = np.abs(x) > 1e-4
    assert 1 <= there.sum() <= 3
    np.testing.assert_allclose(slope[there], -lasso * np.sign(x[there]), atol=1e-4)
    assert (np.abs(slope[~there]) < lasso).all()


def test_workers_are_strata() -> None:
    shards = [tuple(array[rows] for array in DATA) for rows in (slice(0, 30), slice(30, 80))]
    result = desopt.minimize(Cox(), POINT, shards, rounds=1)
    expected = (30 * reference(POINT, shards[0]) + 50 * reference(POINT, shards[1])) / 80
    assert result.initial_fun == pytest.approx(expected, rel=1e-12)


def test_a_batch_of_all_rows_has_each_of_them_once() -> None:
    (shard,) = Cox().prepare(as_shards(DATA, 1, 0))
    stream = Stream(0, 0, 0, 0, Purpose.BATCH)
    whole, part = (
        Cox().bind(Batch(shard, size, stream), POINT)  # type: ignore[arg-type]
        for size in (80, 79)
    )
    assert whole.value(POINT) == value(Cox(), POINT) != part.value(POINT)
    assert (whole.rows, part.rows) == (80, 79)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "needs data="),
        ((X, TIME), "must be \\(X, time, event\\)"),
        ((X, TIME, EVENT + 1), "events must be 1"),
        ((X, TIME + np.inf, EVENT), "times must be finite"),
        ((X, TIME, 0.0 * EVENT), "worker 0 has no event"),
        ([DATA, (X[:3], TIME[:3], np.zeros(3))], r"data\[1\] has no event"),
    ],
)
def test_refused_data(data: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        desopt.minimize(Cox(), POINT, data, rounds=1)


@pytest.mark.parametrize("given", [{"ridge": -1.0}, {"lasso": np.nan}, {"ties": "exact"}])
def test_refused_settings(given: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        Cox(**given)


def test_concordance_counts_pairs() -> None:
    # Pairs of known order: (0, 1), (0, 2), (0, 3), (2, 3); the first is equal, the third is wrong.
    risk, time, event = [2.0, 2.0, 1.0, 3.0], [1.0, 1.0, 2.0, 3.0], [1, 0, 1, 0]
    assert concordance(risk, time, event) == (0.5 + 1.0 + 0.0 + 0.0) / 4
    assert np.isnan(concordance([1.0], [1.0], [1]))
    with pytest.raises(ValueError, match=r"vectors of one length.*\(3,\), \(2,\), \(2,\)"):
        concordance(np.ones(3), np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="risk contains NaN"):  # as the scores of a diverged fit
        concordance([np.nan, 1.0], [1.0, 2.0], [1, 1])


@pytest.mark.parametrize("given", ["0.1", None, np.ones(2), True])
def test_penalties_are_numbers(given: Any) -> None:
    for name in ("ridge", "lasso"):
        with pytest.raises(TypeError, match=f"{name} must be a number, got"):
            Cox(**{name: given})


@pytest.mark.skipif(not REAL.is_dir(), reason="no folder ../shared/data/survival")
def test_patients_against_lifelines() -> None:
    """nki70: coefficients, and the concordance of patients held out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lifelines = pytest.importorskip("lifelines")
        pandas = pytest.importorskip("pandas")
        table = pandas.read_csv(REAL / "nki70.csv.xz")
    Z = table.filter(like="num_").to_numpy()
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0, ddof=1)
    time, event = table["time"].to_numpy(), table["event"].to_numpy()
    train, test = np.arange(0, 96), np.arange(96, 144)
    scale = Z[train].std(axis=0, ddof=1)  # lifelines penalises coefficients of unit columns
    Z = (Z - Z[train].mean(axis=0)) / scale
    result = desopt.minimize(
        Cox(ridge=0.1), None, (Z[train], time[train], event[train]), workers=1, rounds=60,
        iterations=400, step_size="auto", momentum=0.0,
    )  # fmt: skip
    frame = pandas.DataFrame(Z[train]).assign(time=time[train], event=event[train])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitter = lifelines.CoxPHFitter(penalizer=0.1).fit(frame, "time", "event")
        index = lifelines.utils.concordance_index(
            time[test], -Z[test] @ fitter.params_.to_numpy(), event[test]
        )
    assert result.fun == pytest.approx(-fitter.log_likelihood_ / 96, abs=1e-6)
    np.testing.assert_allclose(result.x, fitter.params_, atol=1e-2)
    assert concordance(Z[test] @ result.x, time[test], event[test]) == pytest.approx(
        index, abs=0.01
    )
