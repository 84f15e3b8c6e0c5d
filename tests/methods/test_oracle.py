"""Every method against the oracle: the same accept decisions, and x to 1e-12.

Tolerances are relative to max(1, |x|). 1e-12 is for the order in which numbers are added; it
holds wherever values of f are only compared. Methods on slopes divide differences of
values by 2 mu, which makes rounding of the values visible in x: see ``slope_tolerance``.
"""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import oracle, real_sets
from numpy.typing import NDArray
from scipy import sparse

import desopt
from desopt import LOSSES, METHODS
from desopt.data import partition
from desopt.run import journal

Vector = NDArray[np.float64]

EXACT = 1e-12
T, M, K, B = 4, 3, 20, 30
LAM = 1e-6
WITH_MOMENTUM = [name for name, method in METHODS.items() if "momentum" in method.settings]
SPARSE = [name for name, method in METHODS.items() if method.sampler and not method.sampler.dense]
PAIRS = [name for name, method in METHODS.items() if method.pairs]


class Problem(NamedTuple):
    """What both sides are given. ``shards`` and ``whole`` hold labels -1 and +1."""

    loss: str
    data: Any
    shards: list[oracle.Shard]
    whole: oracle.Shard
    lam: float = LAM
    seed: int = 5
    value: oracle.Loss | None = None

    def loss_in_numpy(self) -> oracle.Loss:
        """The oracle's loss, or the one that the test brings along."""
        return self.value or oracle.loss_of(self.loss, self.lam)


def dealt(loss: str, X: Any, y: Vector, lam: float = LAM, seed: int = 5) -> Problem:
    """One data set in memory, dealt to M workers."""
    shards = [(X[rows], y[rows]) for rows in partition(X.shape[0], M, seed)]
    return Problem(loss, (X, y), shards, (X, y), lam, seed)


def made_up(layout: str, n: int = 12, rows: int = 200, density: float = 1 / 3) -> oracle.Shard:
    """Noisy linear data; as CSR with most of the entries left out."""
    random = np.random.default_rng(3)
    X = random.standard_normal((rows, n))
    y = np.where(X @ random.standard_normal(n) + random.standard_normal(rows) > 0, 1.0, -1.0)
    if layout == "csr":
        X = np.where(random.random(X.shape) < density, X, 0.0)
    return (sparse.csr_array(X) if layout == "csr" else X), y


def fun_of(problem: Problem) -> Callable[[Vector, oracle.Shard], float]:
    """The oracle's own loss as a user's function."""
    loss = problem.loss_in_numpy()
    return lambda x, batch: loss(x, *batch)


def package(method: str, problem: Problem, x0: Vector, *, fun: Any = None, **options: Any) -> Any:
    """Run the package; the objective is the built-in one unless ``fun`` is given."""
    settings: dict[str, Any] = {
        "workers": M, "rounds": T, "iterations": K, "batch_size": B, "momentum": 0.5,
        "step_size": oracle.ORACLE[method].alpha, "regularization": problem.lam,
        "seed": problem.seed, "engine": "serial", "progress": False,
    }  # fmt: skip
    objective = problem.loss if fun is None else fun
    return desopt.minimize(objective, x0, problem.data, method=method, **settings | options)


def settings_of(method: str, problem: Problem) -> oracle.Settings:
    """The oracle's settings, as those of ``package``."""
    return oracle.Settings(K, B, T, oracle.ORACLE[method].alpha, problem.seed)


def reference(
    method: str, problem: Problem, x0: Vector, **change: Any
) -> tuple[Vector, oracle.Decisions | None]:
    """Run the oracle; accept decisions only where the method has them."""
    shards = [problem.whole] if METHODS[method].single_worker else problem.shards
    settings = settings_of(method, problem)._replace(**change)
    return oracle.ORACLE[method].run(problem.loss_in_numpy(), shards, x0, settings)


def decisions(path: Path, workers: int, iterations: int = K) -> list[NDArray[np.bool_]]:
    """The accept decisions a journal holds: one bit per iteration, the first one lowest."""
    rounds = journal.read(path).answers
    return [
        np.array([list(oracle.unpack(answers[i].payload, iterations)) for i in range(workers)])
        for answers in rounds
    ]


def distance(x: Vector, expected: Vector) -> float:
    return float(np.max(np.abs(x - expected) / np.maximum(1.0, np.abs(expected))))


def slope_tolerance(method: str, problem: Problem, x: Vector) -> float:
    """The distance of two right implementations of a method that divides by 2 mu.

    A mean of b values of F, each of an inner product of z terms, is made with some b + z + 10
    roundings of relative size up to u = 2^-53 (10 for exp, log and tanh). They have random
    signs, so the value is off by about u F_max sqrt(b + z + 10). A slope is the difference of
    two values over 2 mu; the difference of two slopes has four such errors in it, together
    sqrt(4) u F_max sqrt(b + z + 10) / (2 mu), which is 1e-9 for F_max = 1 and mu = 1e-6. Each
    enters x times alpha_k u_k, again with random signs, and |u_kj| < 6.8, where the normal
    numbers end. Five times that is allowed. Steps are short enough for later ones not to
    amplify a difference. Where slopes are sent in single precision, such a difference may change
    the last bit of one, 2^-24 of it: of some hundred slopes, four may.
    """
    X = problem.whole[0]
    z = int(np.diff(X.indptr).max()) if sparse.issparse(X) else X.shape[1]
    margins = np.abs(X @ x)
    largest = 1.0 + float(oracle.margin_loss(problem.loss, -margins).max())
    run, step = settings_of(method, problem), oracle.ORACLE[method].slope_step
    assert step is not None
    slope = 2.0**-53 * largest * math.sqrt(B + z + 10) / run.mu
    steps = [step(run, t, k) for k in range(K // 2) for t in range(T)]
    single = 4 * 2.0**-24 * largest * max(steps) * ("float32" in METHODS[method].answer)
    return 6.8 * (5 * slope * math.hypot(*steps) + single)


def tolerance(method: str, problem: Problem, x: Vector) -> float:
    if oracle.ORACLE[method].slope_step is None:
        return EXACT
    limit = slope_tolerance(method, problem, x)
    assert EXACT < limit < 1e-6  # else the comparison would say little
    return limit


def assert_like_oracle(
    method: str, problem: Problem, x0: Vector, path: Path, *, fun: Any = None, **options: Any
) -> Vector:
    """Run both sides and compare decisions, the final point and its value; the point."""
    file = path / "run.journal"
    result = package(method, problem, x0, fun=fun, journal=file, **options)
    alpha = options.get("step_size", oracle.ORACLE[method].alpha)
    lower, upper = options.get("bounds", (-math.inf, math.inf))
    x, masks = reference(method, problem, x0, alpha=alpha, lower=lower, upper=upper)
    if masks is not None:
        found = decisions(file, len(masks[0]))
        assert len(found) == T
        np.testing.assert_array_equal(found, masks)
        assert 0 < np.mean(masks) < 1
    assert np.linalg.norm(x - x0) > 1e-3  # something happened
    assert distance(result.x, x) <= tolerance(method, problem, x)
    value = problem.loss_in_numpy()(result.x, *problem.whole)
    assert result.fun == pytest.approx(value, rel=1e-12, nan_ok=True)
    assert np.all((result.x >= lower) & (result.x <= upper))
    return x


def test_the_oracle_has_every_method_and_every_loss() -> None:
    assert oracle.ORACLE.keys() == METHODS.keys()
    assert oracle.LOSSES.keys() == LOSSES.keys()


# --- made-up data ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", METHODS)
def test_built_in_losses(method: str, loss: str, layout: str, tmp_path: Path) -> None:
    assert_like_oracle(method, dealt(loss, *made_up(layout)), np.zeros(12), tmp_path)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", METHODS)
def test_python_callable(method: str, loss: str, layout: str, tmp_path: Path) -> None:
    problem = dealt(loss, *made_up(layout))
    assert_like_oracle(method, problem, np.linspace(-1, 1, 12), tmp_path, fun=fun_of(problem))


def with_holes(x: Vector, X: Any, y: Vector) -> float:
    """Logistic regression without a value at 0 and in slices of the space."""
    slices = {1: math.nan, 4: math.inf, 7: -math.inf}
    hole = math.nan if not x.any() else slices.get(int(abs(x[3]) * 200) % 10)
    return oracle.loss_of("lr", LAM)(x, X, y) if hole is None else hole


@pytest.mark.filterwarnings("ignore:fun returned NaN or infinity")
@pytest.mark.parametrize("method", METHODS)
def test_values_that_are_not_finite(method: str, tmp_path: Path) -> None:
    """Also where a round begins at such a point: the first finite value is its parent's."""
    problem = dealt("lr", *made_up("dense"))._replace(value=with_holes)
    assert_like_oracle(method, problem, np.zeros(12), tmp_path, fun=fun_of(problem))


@pytest.mark.parametrize("method", [name for name in METHODS if not METHODS[name].single_worker])
def test_unequal_shards(method: str, tmp_path: Path) -> None:
    """Ready-made shards are used as they are; each worker counts the same in the mean."""
    X, y = made_up("csr")
    cuts = [slice(0, 7), slice(7, 60), slice(60, 200)]
    shards = [(X[cut], y[cut]) for cut in cuts]
    assert_like_oracle(method, Problem("lr", shards, shards, (X, y)), np.zeros(12), tmp_path)


@pytest.mark.parametrize("method", PAIRS)
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
def test_zeroth_order_methods_with_a_wide_radius(method: str, loss: str, layout: str) -> None:
    """With mu = 0.3 rounding is not amplified, and 1e-12 holds for Fed-ZO too."""
    problem, x0 = dealt(loss, *made_up(layout)), np.linspace(-1, 1, 12)
    x, _ = reference(method, problem, x0, mu=0.3)
    for fun in (None, fun_of(problem)):
        result = package(method, problem, x0, fun=fun, radius=0.3)
        assert distance(result.x, x) <= EXACT


@pytest.mark.parametrize("method", WITH_MOMENTUM)
def test_large_penalty(method: str, tmp_path: Path) -> None:
    assert_like_oracle(method, dealt("lsvm", *made_up("csr"), lam=0.1), np.zeros(12), tmp_path)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_corrections_of_bits_only(layout: str) -> None:
    problem, x0 = dealt("lr", *made_up(layout)), np.zeros(12)
    x, _ = reference("des-c", problem, x0, correction="bits")
    other, _ = reference("des-c", problem, x0)
    assert distance(other, x) > 1e-3
    for fun in (None, fun_of(problem)):
        assert distance(package("des-c", problem, x0, fun=fun, correction="bits").x, x) <= EXACT


@pytest.mark.parametrize("method", SPARSE)
@pytest.mark.parametrize("loss", LOSSES)
def test_ties_are_accepted(method: str, loss: str, tmp_path: Path) -> None:
    """Without a penalty, steps in columns that a minibatch does not have leave f as it was."""
    problem, x0 = dealt(loss, *made_up("csr", n=300, density=0.005), lam=0.0), np.zeros(300)
    values = []

    def recorded(x: Vector, X: Any, y: Vector) -> float:
        values.append(oracle.loss_of(loss, 0.0)(x, X, y))
        return values[-1]

    reference(method, problem._replace(value=recorded), x0)
    assert sum(new == old for new, old in zip(values[::2], values[1::2], strict=True)) > 10
    assert_like_oracle(method, problem, x0, tmp_path)


@pytest.mark.parametrize("method", SPARSE)
@pytest.mark.parametrize(("n", "size"), [(1, 3), (2, 8), (12, 1), (12, 20)])
def test_coordinates_drawn_again_add_up(method: str, n: int, size: int) -> None:
    problem, x0 = dealt("lr", *made_up("dense", n=n)), np.full(n, 0.5)
    x, _ = reference(method, problem, x0, l=size)
    for fun in (None, fun_of(problem)):
        assert distance(package(method, problem, x0, fun=fun, mixture=size).x, x) <= EXACT


@pytest.mark.parametrize("method", WITH_MOMENTUM)
@pytest.mark.parametrize("momentum", [0.0, 0.25])
def test_momentum(method: str, momentum: float) -> None:
    problem, x0 = dealt("nsvm", *made_up("csr")), np.zeros(12)
    x, _ = reference(method, problem, x0, beta=momentum)
    other, _ = reference(method, problem, x0, beta=0.5)
    found = package(method, problem, x0, momentum=momentum).x
    assert distance(found, x) <= tolerance(method, problem, x)
    assert distance(other, x) > 1e-3


@pytest.mark.parametrize("seed", [0, 2**32 + 1, 2**64 - 1])
@pytest.mark.parametrize("method", METHODS)
def test_seeds(method: str, seed: int, tmp_path: Path) -> None:
    assert_like_oracle(method, dealt("lr", *made_up("dense"), seed=seed), np.zeros(12), tmp_path)


@pytest.mark.parametrize("labels", [(0, 1), (1, 2), (-3, 8), (False, True)])
def test_labels_are_brought_to_signs(labels: tuple[Any, Any]) -> None:
    """The smaller label becomes -1."""
    X, y = made_up("dense")
    problem = dealt("lr", X, y)
    x, _ = reference("des-mr", problem, np.zeros(12))
    given = np.where(y < 0, *labels)
    result = package("des-mr", problem._replace(data=(X, given)), np.zeros(12))
    assert distance(result.x, x) <= EXACT


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e6])
def test_values_at_large_margins(loss: str, layout: str, scale: float) -> None:
    problem, x0 = dealt(loss, *made_up(layout)), scale * np.linspace(-1, 1, 12)
    result = package("des-mr", problem, x0, rounds=1)
    value = oracle.loss_of(loss, LAM)(x0, *problem.whole)
    assert math.isfinite(value)
    assert result.initial_fun == pytest.approx(value, rel=1e-12)


def test_population_of_es_csa() -> None:
    """lambda = round(M K b / N) where that is the larger one: 3 * 20 * 30 / 100 = 18 > 11."""
    problem = dealt("lr", *made_up("dense", rows=100))
    x, _ = reference("es-csa", problem, np.zeros(12))
    result = package("es-csa", problem, np.zeros(12))
    assert distance(result.x, x) <= EXACT
    assert distance(package("es-csa", problem, np.zeros(12), population=11).x, x) > 1e-3


# --- step_size="auto" ------------------------------------------------------------------------

AUTO = ["es", "des", "des-mg", "des-mr"]


@pytest.mark.parametrize(("iterations", "n"), [(20, 12), (90, 12), (20, 9000)])
@pytest.mark.parametrize("fun", ["built-in", "callable"])
@pytest.mark.parametrize("method", AUTO)
def test_auto(method: str, fun: str, iterations: int, n: int, tmp_path: Path) -> None:
    """With a ramp that takes all of the first round, and one that leaves a part of it.

    With 9000 variables, sparse steps rarely draw the same one twice.

    Rounds are enough for the level to follow acceptance and votes. (In a box, large steps of the
    ramp end in the corner where they began, up to rounding: decisions not worth comparing.)
    """
    problem, x0, rounds = dealt("nsvm", *made_up("csr", n)), np.zeros(n), 8
    own, file = None if fun == "built-in" else fun_of(problem), tmp_path / "run.journal"
    result = package(
        method, problem, x0, fun=own, rounds=rounds, iterations=iterations, journal=file,
        step_size="auto",
    )  # fmt: skip
    x, masks = reference(method, problem, x0, auto=True, K=iterations, T=rounds)
    assert masks is not None
    np.testing.assert_array_equal(decisions(file, len(masks[0]), iterations), masks)
    assert distance(result.x, x) <= EXACT


def rough(x: Vector, rows: Any, _y: Vector) -> float:
    """A bowl with waves that any step leaves: noise in every value, but the same on both sides."""
    wave = math.sin(1e8 * float(x @ np.linspace(1.0, 2.0, x.size)))
    return 0.5 * float(np.sum((x - 1.0) ** 2)) + 0.02 * float(np.mean(rows)) + 2.0 * wave


@pytest.mark.parametrize("method", AUTO)
def test_auto_with_noise_in_every_value(method: str, tmp_path: Path) -> None:
    """Ramps say nothing, so that workers sweep down again; control steps are fewer."""
    problem = dealt("lr", *made_up("dense", 40))._replace(value=rough)
    file, rounds, iterations = tmp_path / "run.journal", 6, 120
    result = package(
        method, problem, np.zeros(40), fun=fun_of(problem), rounds=rounds, iterations=iterations,
        journal=file, step_size="auto",
    )  # fmt: skip
    x, masks = reference(method, problem, np.zeros(40), auto=True, K=iterations, T=rounds)
    assert masks is not None
    assert any(oracle.sweeps(row[:64], iterations) for row in masks[0])
    np.testing.assert_array_equal(decisions(file, len(masks[0]), iterations), masks)
    assert distance(result.x, x) <= EXACT


# --- bounds ----------------------------------------------------------------------------------

BOUNDS = (-0.05, 0.08)

#: Step sizes that reach the bounds.
IN_BOUNDS = {"fed-zo-sgd": 0.05, "zo-signsgd": 0.02, "feedsign": 0.2, "decomfl": 0.3,
             "fedavg-es": 1.0}  # fmt: skip


@pytest.mark.parametrize("fun", ["built-in", "callable"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("method", METHODS)
def test_bounds(method: str, layout: str, fun: str, tmp_path: Path) -> None:
    """In own units: compiled searches, and those of a callable.

    With most other seeds a step ends in the corner where it began, up to a rounding error of
    coordinates that it draws twice: decisions that are not worth comparing.
    """
    problem = dealt("lr", *made_up(layout), seed=8)
    own = {} if fun == "built-in" else {"fun": fun_of(problem), "scale": "own"}
    alpha = IN_BOUNDS.get(method, 0.1)
    x = assert_like_oracle(
        method, problem, np.zeros(12), tmp_path, bounds=BOUNDS, step_size=alpha, **own
    )
    if method not in ("fed-zo-gd", "es-csa"):  # steps that become short soon, and a mean
        assert np.any((x < 0.9 * BOUNDS[0]) | (x > 0.9 * BOUNDS[1]))


@pytest.mark.parametrize("fun", ["built-in", "callable"])
@pytest.mark.parametrize("method", METHODS)
def test_linear_scale(method: str, fun: str) -> None:
    """z = 4 (x - lower) / (upper - lower) is searched in the box [0, 4]."""
    problem, x0 = dealt("lr", *made_up("dense")), np.linspace(-0.9, 1.9, 12)
    loss = problem.loss_in_numpy()
    in_z = problem._replace(value=lambda z, X, y: loss(-1.0 + 0.75 * z, X, y))
    z, _ = reference(method, in_z, (x0 + 1.0) / 0.75, lower=0.0, upper=4.0, mu=0.3)
    result = package(
        method, problem, x0, fun=None if fun == "built-in" else fun_of(problem), bounds=(-1.0, 2.0),
        scale="linear", radius=0.3,
    )  # fmt: skip
    assert distance(result.x, -1.0 + 0.75 * z) <= EXACT


# --- real data -------------------------------------------------------------------------------


real = functools.cache(real_sets.read)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["cancer", *real_sets.there("heart_scale")])
def test_small_sets(name: str, method: str, loss: str, layout: str, tmp_path: Path) -> None:
    X, y = real(name)
    problem = dealt(loss, X.toarray() if layout == "dense" else X, y)
    assert_like_oracle(method, problem, np.zeros(X.shape[1]), tmp_path)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "name", ["digits", "text", *real_sets.there("a9a", "rcv1_sample.bz2")]
)  # fmt: skip
def test_large_sparse_sets(name: str, method: str, tmp_path: Path) -> None:
    X, y = real(name)
    loss = "lr" if name in ("digits", "a9a") else "nsvm"
    assert_like_oracle(method, dealt(loss, X, y), np.zeros(X.shape[1]), tmp_path)
