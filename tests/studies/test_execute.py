"""The length of a case and the numbers of its curve."""

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import oracle
from helpers.small_studies import CASE, SHORT

from desopt.data import by_label
from desopt.methods import METHODS
from desopt.objectives.scoring import LabelledRows
from desopt.run.minimize import minimize
from desopt.studies.execute import Alone, Split, due_rounds, execute, length, warm_up
from desopt.studies.problems import check, code


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


@pytest.mark.parametrize("method", METHODS)
def test_runs_cost_the_same(method: str) -> None:
    """30 rounds of M K b values of F; of one population for all, 25 of 12 members times N."""
    case = replace(CASE, method=method, budget=None, rounds=30, batch_size=250)
    run, workers = length(case, 25_000, 20), 1 if method == "es" else 10
    assert run.rounds == (25 if method in ("es-csa", "cma-es") else 30)
    assert run.rounds * run.samples == 30 * workers * 100 * 250
    assert run.rounds * run.paper_rounds_each == pytest.approx(30)


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


def test_settings_reach_the_run() -> None:
    """A partition is that of the seed; a participation of a half asks half of the workers."""
    ground = small_split()
    given = SHORT.varied(partition="sorted", participation=0.5, aggregate="median", run=5)
    reply = execute(given, ground)
    y = ground.train.y
    parts = by_label(y, 4, 5)
    run = minimize(
        "lr", None, [(ground.train.X[rows], y[rows]) for rows in parts], method="des-mr", rounds=7,
        iterations=10, batch_size=20, seed=5, participation=0.5, aggregate="median",
        engine="serial", progress=False,
    )  # fmt: skip
    assert reply["points"][-1][1] == run.nfev == 7 * 2 * 11
    assert reply["points"][-1][6] == ground.scores(given, run.x)[0]
    changes: list[dict[str, Any]] = [
        {"partition": "iid"}, {"partition": "dirichlet-0.1"}, {"run": 6},
    ]  # fmt: skip
    others = [execute(given.varied(**change), ground)["points"][-1][6] for change in changes]
    assert len({reply["points"][-1][6], *others}) == 4


def test_sites_are_workers() -> None:
    split = replace(small_split(), sites=np.arange(200) % 3)
    shards = split.data(SHORT.varied(partition="sites", workers=3))
    assert [shard.size for shard in shards] == [67, 67, 66]
    with pytest.raises(ValueError, match="come from 3 sites: workers must be 3"):
        split.data(SHORT.varied(partition="sites"))
    with pytest.raises(ValueError, match="is for data sets with sites"):
        small_split().data(SHORT.varied(partition="sites"))


def squares(x: Any, batch: Any) -> float:
    X, y = batch
    return float(np.mean((X @ x - y) ** 2))


def test_python_objectives() -> None:
    """A function has rows; a test function its own samples, and the value without noise."""
    here = f"{__name__}:squares"
    ground = small_split()
    last = execute(SHORT.varied(problem=here), ground)["points"][-1]
    assert last[6] < squares(np.zeros(6), (ground.train.X, ground.train.y))
    assert last[8] < squares(np.zeros(6), (ground.test.X, ground.test.y))
    alone = SHORT.varied(problem="sphere", data="none", step_size=0.1)
    first, *_, last = execute(alone, Alone("sphere"))["points"]
    assert first[6:] == [50.0, None, None, None]
    assert last[6] < 45.0
    with pytest.raises(ValueError, match="give rounds"):
        execute(alone.varied(rounds=None, budget=1), Alone("sphere"))
    check("sphere", "none")
    for problem, data, error in (
        ("sphere", "heart", "data must be 'none'"),
        ("lr", "none", "needs a data set"),
        (here, "none", "needs a data set"),
        ("svm", "heart", "unknown problem"),
        ("nowhere:fun", "heart", "cannot be imported"),
    ):
        with pytest.raises(ValueError, match=error):
            check(problem, data)
    assert code("lr") is code("sphere") is None
    assert code(here) != code(f"{__name__}:plain")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_warmed_up(method: str) -> None:
    ground = small_split()
    case = SHORT.varied(method=method)
    warm_up(case, ground)
    assert execute(case, ground)["points"][-1][0] > 0


LATE = """
from numba.core.dispatcher import Dispatcher
from desopt.studies.cases import make_case
from desopt.studies.execute import Split, execute, warm_up

names, add = [], Dispatcher.add_overload

def noted(function, compiled):
    names.append(function.py_func.__name__)
    add(function, compiled)

Dispatcher.add_overload = noted
ground = Split.load("susy-like", 200)
case = make_case(data="susy-like", problem="lr", method="des-c", step_size="auto", run=0,
                 iterations=20, batch_size=20, rounds=6)
warm_up(case, ground)
early = len(names)
execute(case, ground)
print(early > 0, names[early:])
"""


def test_what_is_measured_is_not_compilation() -> None:
    """After the warm-up, nothing is left to compile or load, not even what looks back at steps."""
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, timeout=900, check=False
    )
    assert (done.stdout, done.stderr) == ("True []\n", "")


def test_a_run_that_diverges_is_a_result() -> None:
    case = replace(SHORT, method="fed-zo-sgd", step_size=1e150, problem="lsvm")
    points = execute(case, small_split(scale=1e10))["points"]
    assert not math.isfinite(points[-1][6])
