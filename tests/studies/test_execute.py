"""The length of a case and the numbers of its curve."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import oracle
from helpers.small_studies import CASE, SHORT

from desopt.objectives.scoring import LabelledRows
from desopt.run.minimize import minimize
from desopt.studies.execute import Split, due_rounds, execute, length


def test_a_case_is_as_long_as_the_budget() -> None:
    # E N / (M K b) = 1000 * 39,992 / 1,000,000 = 39.992
    assert length(CASE, 39_992, 22).rounds == 40
    assert length(replace(CASE, budget=0.001), 39_992, 22).rounds == 1
    assert length(replace(CASE, method="es", budget=1), 1_000_000, 22).rounds == 10
    # lambda = 1,000,000 / 39,992 = 25; a generation costs 25 * 39,992 of 39,992,000 samples
    generations = length(replace(CASE, method="es-csa"), 39_992, 22)
    assert (generations.rounds, generations.population) == (40, 25)
    assert generations.paper_rounds_each == pytest.approx(0.9998)
    # covtype: 1,000,000 / 464,810 is 2, so lambda = 4 + floor(3 ln 54) = 15
    generations = length(replace(CASE, method="es-csa"), 464_810, 54)
    assert (generations.rounds, generations.population) == (67, 15)
    same_cost = length(replace(CASE, method="es-csa", budget=None, rounds=465), 464_810, 54)
    assert same_cost.rounds == 67


def test_a_curve_is_evenly_spaced() -> None:
    assert due_rounds(3, 20) == {0, 1, 2, 3}
    assert due_rounds(40, 20) == set(range(0, 41, 2))
    due = sorted(due_rounds(542, 20))
    assert (due[0], due[-1], len(due)) == (0, 542, 21)
    assert set(np.diff(due)) == {27, 28}


def small_split(rows: int = 300, n: int = 6, scale: float = 1.0) -> Split:
    rng = np.random.default_rng(3)
    X = scale * rng.standard_normal((rows, n))
    y = np.where(X @ rng.standard_normal(n) + rng.standard_normal(rows) > 0, 1.0, -1.0)
    facts = {"name": "d", "train_rows": 200, "test_rows": rows - 200, "n": n, "density": 1.0,
             "generated": 1, "origin": "drawn here"}  # fmt: skip
    return Split(LabelledRows(X[:200], y[:200]), LabelledRows(X[200:], y[200:]), facts)


def plain(problem: str, part: LabelledRows, x: Any) -> tuple[float, float]:
    """The regularised loss and the share of wrong signs, in plain NumPy."""
    predicted = np.where(part.X @ x > 0, 1.0, -1.0)
    return oracle.loss_of(problem, 1e-6)(x, part.X, part.y), np.mean(predicted != part.y)


@pytest.mark.parametrize(
    ("problem", "method"), [("lr", "des-mr"), ("nsvm", "des"), ("lsvm", "es-csa")]
)
def test_a_curve_is_that_of_minimize(problem: str, method: str) -> None:
    split, case = small_split(), replace(SHORT, problem=problem, method=method, run=5)
    reply = execute(case, split)
    long = length(case, 200, 6)
    assert [p[0] for p in reply["points"]] == sorted(due_rounds(long.rounds, 3))
    run = minimize(
        problem, None, (split.train.X, split.train.y), method=method, workers=4, iterations=10,
        batch_size=20, rounds=long.rounds, seed=5, engine="threads", progress=False,
    )  # fmt: skip
    last = run.history[-1]
    counts = [last[name] for name in ("round", "evaluations", "samples", "bytes_up", "bytes_down")]
    assert reply["points"][-1][:5] == counts
    for point, x in ((reply["points"][0], np.zeros(6)), (reply["points"][-1], run.x)):
        train, test = plain(problem, split.train, x), plain(problem, split.test, x)
        assert point[6:] == pytest.approx(
            [train[0], 200 * train[1], test[0], 100 * test[1]], rel=1e-12
        )


def test_a_run_that_diverges_is_a_result() -> None:
    case = replace(SHORT, method="fed-zo-sgd", step_size=1e150, problem="lsvm")
    points = execute(case, small_split(scale=1e10))["points"]
    assert not math.isfinite(points[-1][6])
