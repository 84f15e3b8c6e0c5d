"""Mean, median and trimmed mean; what one worker can do, and what three liars of ten can."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import trim_mean

import desopt
from desopt.contract.types import Answer
from desopt.data import as_shards
from desopt.engines import Job
from desopt.methods import aggregation as module
from desopt.methods.aggregation import AGGREGATES, combine
from desopt.methods.samplers import Key
from desopt.objectives import LinearModel

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import liars

Vector = NDArray[np.float64]

N, WORKERS = 6, 10
_RNG = np.random.default_rng(4)
_X = _RNG.standard_normal((120, N))
DATA = (_X, np.sign(_X @ _RNG.standard_normal(N)))
SETTINGS: dict[str, Any] = {
    "workers": WORKERS, "rounds": 4, "iterations": 20, "batch_size": 8, "seed": 3,
    "engine": "serial", "progress": False,
}  # fmt: skip
AVERAGING = [name for name, method in desopt.METHODS.items() if method.aggregates]
ROBUST = ("median", "trimmed-mean")


def run(**changes: Any) -> desopt.Result:
    return desopt.minimize("lr", None, **({"data": DATA} | SETTINGS | changes))


# --- what is computed ------------------------------------------------------------------------


def add_point(total: Vector, answer: Answer) -> bool:
    total += np.asarray(answer.point)
    return True


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10, 11, 20, 33])
def test_against_numpy_and_scipy(count: int) -> None:
    points = np.random.default_rng(count).standard_normal((count, 50)).round(1)  # with ties
    answers = [Answer(i, b"", point=point) for i, point in enumerate(points)]
    expected = {
        "mean": points.mean(0),
        "median": np.median(points, axis=0),
        "trimmed-mean": trim_mean(points, 0.3 + 1e-9, axis=0),
    }
    assert set(expected) == set(AGGREGATES)
    for how, step in expected.items():
        total, number = combine(how, iter(answers), add_point, 50)
        np.testing.assert_allclose(total / number, step, atol=1e-14)


@pytest.mark.parametrize("how", AGGREGATES)
def test_blocks_and_memory(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(1).standard_normal((5, 101))
    answers = [Answer(i, b"", point=point) for i, point in enumerate(points)]
    whole, _ = combine(how, answers, add_point, 101)
    monkeypatch.setattr(module, "BLOCK_BYTES", 8 * 5 * 7)
    parts, _ = combine(how, answers, add_point, 101)
    assert parts.tobytes() == whole.tobytes()


def answered(method: str, aggregate: str) -> tuple[Any, Any, list[Answer]]:
    """An algorithm, its state after a round, and the answers to the next, as left in memory."""
    settings = {"iterations": 20, "seed": 3, "mixture": 8, "aggregate": aggregate,
                "population": 7}  # fmt: skip
    algorithm: Any = desopt.METHODS[method].make(method, settings)
    model = LinearModel("lr")
    job = Job(algorithm, model, model.prepare(as_shards(DATA, WORKERS, 3)), 8, 3, N)
    state = algorithm.init(np.zeros(N))
    state = algorithm.merge(state, [job.work(algorithm.plan(state), w) for w in range(WORKERS)])
    return algorithm, state, [job.work(algorithm.plan(state), w) for w in range(WORKERS)]


@pytest.mark.parametrize("aggregate", ROBUST)
@pytest.mark.parametrize("method", AVERAGING)
def test_payloads_points_engines_and_replay_agree(
    tmp_path: Path, method: str, aggregate: str
) -> None:
    algorithm, state, answers = answered(method, aggregate)
    bare = [Answer(a.worker, a.payload) for a in answers]
    merged = algorithm.merge(state, iter(bare))
    assert merged.x.tobytes() == algorithm.merge(state, answers).x.tobytes()
    mean = replace(algorithm, aggregate="mean").merge(state, answers)
    assert not np.allclose(merged.x, mean.x)
    options = {"method": method, "aggregate": aggregate, "participation": 0.7}
    result = run(**options, journal=tmp_path / "j")
    assert result.x.tobytes() == run(**options, engine="threads", jobs=3).x.tobytes()
    assert result.x.tobytes() == desopt.replay(tmp_path / "j").tobytes()


@pytest.mark.parametrize("aggregate", ROBUST)
def test_step_is_that_of_the_displacements(aggregate: str) -> None:
    algorithm, state, answers = answered("des", aggregate)
    moves = np.array([a.point - state.x for a in answers])
    d = np.median(moves, axis=0) if aggregate == "median" else trim_mean(moves, 0.3, axis=0)
    expected = state.x + 0.5 * state.m + 0.5 * d
    np.testing.assert_allclose(algorithm.merge(state, answers).x, expected, rtol=1e-12)


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(set(desopt.METHODS) - set(AVERAGING)))
def test_methods_that_average_no_points_refuse(method: str) -> None:
    said = rf"aggregate='median' is for .*\({', '.join(AVERAGING)}\), got "
    with pytest.raises(ValueError, match=said + method):
        run(method=method, aggregate="median")
    run(method=method, aggregate="mean", rounds=1)


def test_names_and_objects_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"unknown aggregate 'meadian'.*did you mean 'median'"):
        run(aggregate="meadian")
    with pytest.raises(TypeError, match=r"aggregate must be one of mean, median"):
        run(aggregate=0.3)
    algorithm, _, _ = answered("des", "mean")
    with pytest.raises(ValueError, match="set it in the algorithm object"):
        run(method=algorithm, aggregate="median")


def test_steps_that_few_workers_share_are_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match=r"'median' with 8 draws of 6 coord.*step is 0"):
        run(aggregate="median", iterations=4, mixture=2)
    run(aggregate="median", iterations=4, mixture=3)
    run(aggregate="median", iterations=4, method="des")


# --- what a worker can do --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["des", "des-mg", "des-mr"])
def test_one_workers_pull_is_bounded(method: str) -> None:
    """||change of x|| <= (1/M) sum_k alpha_k ||u_k||, whatever bits it sends, momentum and all."""
    algorithm, state, answers = answered(method, "mean")
    t, steps = state.round, np.zeros((20, N))
    for k in range(20):
        index, u = algorithm.sampler.vector(Key(3, t, 4), k, N)
        np.add.at(steps[k], np.arange(N) if index is None else index, u)
        steps[k] *= algorithm.step_size / ((t + 1) ** 0.25 * (k + 1) ** 0.5)
    bound = np.linalg.norm(steps, axis=1).sum() / WORKERS
    masks = np.vstack([np.zeros(20, bool), np.ones(20, bool), _RNG.random((40, 20)) < 0.5])
    ends = []
    for mask in masks:
        liar = Answer(4, algorithm.layout.encode(mask))
        after = algorithm.merge(state, [*answers[:4], liar, *answers[5:]])
        for _ in range(60):  # the others stand still: what the momentum still adds
            after = algorithm.merge(after, [Answer(i, bytes(3)) for i in range(WORKERS)])
        ends.append(after.x)
    pulls = np.linalg.norm(np.array(ends) - ends[0], axis=1)
    assert pulls.max() <= bound
    np.testing.assert_allclose(pulls, np.linalg.norm(masks @ steps, axis=1) / WORKERS, rtol=1e-9)


# --- three liars of ten ----------------------------------------------------------------------

PROBLEM = liars.Problem.make(rows=1000, n=20)
SHORT: dict[str, Any] = {"rounds": 30, "iterations": 60}
START = float(np.log(2))


@pytest.fixture(scope="module")
def honest() -> float:
    return PROBLEM.run("mean", **SHORT).fun


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_random_masks_slow_the_training_down_only(aggregate: str, honest: float) -> None:
    losses = PROBLEM.run(aggregate, liars.random_mask, **SHORT).history["loss"]
    assert losses[-1] - honest < 0.1 * (START - honest)
    assert losses.max() < START


def test_worst_masks_do_bounded_damage_and_training_goes_on(honest: float) -> None:
    worst = liars.WorstMask(PROBLEM.gradient)
    curves = {how: PROBLEM.run(how, worst, **SHORT).history["loss"] for how in AGGREGATES}
    for losses in curves.values():
        assert losses.max() < START, "worse than where it began: never"
        assert losses[-10:].mean() < losses[:5].mean()
    for how in ROBUST:
        assert curves[how][-1] - honest < 0.3 * (START - honest)
        assert (curves[how] < curves["mean"])[1:15].all(), "ahead of the mean"


def test_the_worst_mask_is_worse_than_coins_and_than_nobody_lying() -> None:
    """The adversary of these tests is one: its answers go up the gradient the furthest."""
    algorithm, state, _ = answered("des-mr", "mean")
    problem = liars.Problem(*DATA)
    g, task = problem.gradient(state.x), algorithm.plan(state)

    def climbed(mask: Any) -> float:
        v = state.x.copy()
        algorithm.sampler.replay(v, algorithm.step_sizes(1), mask, Key(3, 1, 0))
        return float(g @ (v - state.x))

    worst = climbed(liars.WorstMask(problem.gradient)(algorithm, task, 0))
    assert worst > 0
    others = _RNG.random((200, 20)) < 0.5
    assert worst >= max(climbed(mask) for mask in others)
