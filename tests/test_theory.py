"""The bounds of ``desopt.theory``: their values, their checks, and that real runs keep them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt import theory

Vector = NDArray[np.float64]

# Two settings of what Theorems 2 to 5 have in common.
A: dict[str, Any] = {"delta_f": 2, "alpha": 0.5, "L": 3, "sigma": 0.7, "n": 10, "K": 100, "T": 16}
B: dict[str, Any] = {
    "delta_f": 30, "alpha": 0.01, "L": 0.2, "sigma": 4, "n": 1000, "K": 500, "T": 400,
}  # fmt: skip

# 40-digit values of the paper's formulas, computed apart from the package.
VALUES: list[tuple[Callable[..., float], dict[str, Any], float]] = [
    (theory.psi, {"K": 1}, 4.0),
    (theory.psi, {"K": 100}, 150.40951315900168877),
    (theory.psi, {"K": 100, "beta": 0.5}, 421.05107080743716468),
    (theory.psi, {"K": 500, "beta": 0.59}, 21020.990436026853086),
    (theory.psi_hat, {"K": 1}, 4.0),
    (theory.psi_hat, {"K": 100}, 140.50951315900168877),
    (theory.psi_hat, {"K": 500}, 403.51489837825377026),
    (theory.U, {"n": 1000}, 1000.0),
    (theory.U, {"n": 1, "norm": "linf"}, 1.3862943611198906188),
    (theory.U, {"n": 1000, "norm": "linf"}, 29.017315477048438827),
    (
        theory.theorem_1,
        {"delta_f": 2, "alpha_0": 0.5, "L": 3, "n": 10, "K": 100},
        22.077768418327080682,
    ),
    (
        theory.theorem_1,
        {"delta_f": 0.25, "alpha_0": 2, "L": 0.1, "n": 1, "K": 1},
        0.81465418925507516329,
    ),
    (theory.theorem_2, A, 5662.8346192368203064),
    (theory.theorem_2, A | {"beta": 0.5}, 16471.256861646660292),
    (theory.theorem_2, B | {"beta": 0.59}, 47331.759021778682124),
    (theory.theorem_3, A | {"s": 3}, 10393.11479557661665),
    (theory.theorem_3, A | {"s": 3, "beta": 0.5}, 29232.75461769151633),
    (theory.theorem_3, B | {"s": 1000, "beta": 0.59}, 44383.695369590567044),
    (theory.theorem_4, A | {"l": 8}, 10967.228747448419949),
    (theory.theorem_4, B | {"l": 8, "s_tilde": 250}, 1857.5953394546777636),
    (theory.theorem_5, A | {"l": 8}, 8702.4087954845043098),
    (theory.theorem_5, B | {"l": 8, "s_tilde": 250}, 1638.2451015965622993),
]
BOUNDS = [
    (theory.theorem_1, {"delta_f": 2, "alpha_0": 0.5, "L": 3, "n": 10, "K": 100}),
    (theory.theorem_2, A | {"beta": 0.5}),
    (theory.theorem_3, A | {"s": 3, "beta": 0.5}),
    (theory.theorem_4, A | {"l": 8}),
    (theory.theorem_5, A | {"l": 8}),
]


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "arguments", "value"), VALUES)
def test_value(function: Callable[..., float], arguments: dict[str, Any], value: float) -> None:
    # psi divides by 1 - 2 sqrt(2) beta^2, which is 0.0154 at beta = 0.59: 65 roundings more.
    assert function(**arguments) == pytest.approx(value, rel=1e-13)


def test_max_momentum() -> None:
    assert pytest.approx(0.594603557501360533361, rel=1e-15) == theory.MAX_MOMENTUM
    below = math.nextafter(theory.MAX_MOMENTUM, 0.0)
    assert theory.psi(K=10, beta=below) > 1e10


@pytest.mark.parametrize(("T", "b"), [(1, 1), (2, 2), (4, 2), (5, 3), (10**16, 10**8)])
def test_min_batch_size(T: int, b: int) -> None:
    assert theory.min_batch_size(T) == b


@pytest.mark.parametrize(("bound", "arguments"), BOUNDS)
def test_a_harder_problem_has_a_larger_bound(
    bound: Callable[..., float], arguments: dict[str, Any]
) -> None:
    for name in {"delta_f", "L", "sigma", "n", "beta", "s"} & arguments.keys():
        harder = arguments | {name: arguments[name] + (1 if name in ("n", "s") else 0.01)}
        assert bound(**harder) > bound(**arguments)


@pytest.mark.parametrize(("bound", "arguments"), BOUNDS[1:])
def test_the_rate_is_one_over_the_fourth_root_of_T(
    bound: Callable[..., float], arguments: dict[str, Any]
) -> None:
    far, farther = (bound(**arguments | {"T": T}) for T in (10**16, 10**20))
    assert far / farther == pytest.approx(10.0, rel=1e-6)


def test_mixture_bounds_in_l_and_s_tilde() -> None:
    def gaussian(**change: Any) -> float:
        return theory.theorem_4(**{**A, "l": 8, **change})

    def rademacher(**change: Any) -> float:
        return theory.theorem_5(**{**A, "l": 8, **change})

    for bound in (gaussian, rademacher):
        assert bound(l=16) < bound()
        assert bound(s_tilde=2.0) < bound()
        assert bound(l=16) == pytest.approx(bound(s_tilde=2.0))
    assert rademacher() < gaussian()
    assert rademacher(l=10**12) == pytest.approx(gaussian(l=10**12))


def test_theorem_3_against_the_last_but_one_line_of_its_proof() -> None:
    """At beta = 0 that line with U = 4 log(sqrt(2) n) is the theorem; else 10/3 grows to 40/3."""
    s, u, T = 3, theory.U(A["n"], "linf"), A["T"]
    for beta in (0.0, 0.5):
        start = math.sqrt(2 * math.pi * s) / T**0.75 * A["delta_f"] / (A["alpha"] * 10)
        drift = math.sqrt(2 * math.pi * u * s) * theory.psi(K=100, beta=beta)
        noise = 8 * math.sqrt(2 * math.pi * s) * A["sigma"] / 3
        step = 2 * A["alpha"] * A["L"] * (drift + 80 * beta * 10 / 3)
        line = start + math.sqrt(u) / T**0.25 * (step + noise)
        missing = 8 * math.sqrt(u / 4) / T**0.25 * A["alpha"] * A["L"] * 30 * beta * 10 / 3
        assert theory.theorem_3(**A, s=s, beta=beta) == pytest.approx(line - missing, rel=1e-13)


# --- checks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [-0.01, theory.MAX_MOMENTUM, 0.6, 1.0, math.nan])
def test_momentum_outside_the_theory(beta: float) -> None:
    with pytest.raises(ValueError, match=r"beta must be in \[0, 0\.594604\).*outside the theory"):
        theory.theorem_2(**A, beta=beta)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta_f", -1.0), ("delta_f", math.nan), ("alpha", 0.0), ("alpha", math.inf),
        ("L", -1.0), ("sigma", -0.1), ("n", 0), ("K", 0), ("K", 1.5), ("T", 0), ("T", math.inf),
        ("l", 0), ("s_tilde", 0.5), ("s_tilde", 10.5),
    ],
)  # fmt: skip
def test_bad_argument(name: str, value: float) -> None:
    arguments = A | {"l": 8, name: value}
    for bound in (theory.theorem_4, theory.theorem_5):
        with pytest.raises(ValueError, match=rf"^{name} must be .*got {value!r}"):
            bound(**arguments)


def test_bad_arguments_of_the_others() -> None:
    with pytest.raises(ValueError, match=r"^s must be in \[1, n\] = \[1, 10\], got 11"):
        theory.theorem_3(**A, s=11)
    with pytest.raises(ValueError, match=r"^alpha_0 must be"):
        theory.theorem_1(delta_f=1.0, alpha_0=-1.0, L=1.0, n=2, K=2)
    with pytest.raises(ValueError, match="norm must be 'l2' or 'linf', got 'l1'"):
        theory.U(3, "l1")  # type: ignore[arg-type]


# --- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quadratic:
    """F(x; xi) = 1/2 sum_j h_j (x_j - xi_j)^2 with xi ~ N(0, s^2 I), so f_* is at x = 0.

    grad F = h (x - xi), grad f = h x; f(x) - f_* = 1/2 sum_j h_j x_j^2; L = max h and
    sigma^2 = s^2 sum_j h_j^2 in the l2 norm. In the l1 norm of gradients and the l-infinity
    norm of points L = sum h and sigma^2 = E(sum_j h_j |xi_j|)^2, as E|xi_j| = s sqrt(2/pi).
    """

    h: Vector
    s: float

    def __call__(self, x: Vector, xi: Vector) -> float:
        return float(np.mean((x - xi) ** 2 @ self.h) / 2)

    def draw(self, rng: np.random.Generator, b: int) -> Vector:
        return self.s * rng.standard_normal((b, len(self.h)))

    def l2(self, x0: Vector) -> dict[str, Any]:
        sigma = self.s * math.sqrt(np.sum(self.h**2))
        return {"delta_f": self.gap(x0), "L": float(np.max(self.h)), "sigma": sigma}

    def l1(self, x0: Vector) -> dict[str, Any]:
        total, squares = float(np.sum(self.h)), float(np.sum(self.h**2))
        sigma = self.s * math.sqrt(squares + 2 / math.pi * (total**2 - squares))
        return {"delta_f": self.gap(x0), "L": total, "sigma": sigma}

    def gap(self, x0: Vector) -> float:
        return float(self.h @ x0**2 / 2)

    def mean_gradient_norm(self, points: list[Vector], order: int = 2) -> float:
        return float(np.mean([np.linalg.norm(self.h * x, order) for x in points]))


def points_of(problem: Any, x0: Vector, rounds: int, **options: Any) -> list[Vector]:
    """Run and return x_0, ..., x_{T-1}, the points the theorems speak of."""
    points = [x0]
    desopt.minimize(
        problem,
        x0,
        rounds=rounds,
        callbacks=[lambda row: points.append(np.array(row.x))],
        engine="serial",
        progress=False,
        **options,
    )
    assert len(points) == rounds + 1
    return points[:-1]


MILD = Quadratic(h=np.linspace(0.5, 2.0, 6), s=1.0)
MILD_X0 = np.full(6, 3.0)
COVERED = [
    ("des", 0.0, theory.theorem_2),
    ("des", 0.5, theory.theorem_2),
    ("des-mg", 0.0, theory.theorem_4),
    ("des-mr", 0.0, theory.theorem_5),
]


def extra(bound: Callable[..., float], beta: float) -> dict[str, Any]:
    return {"beta": beta} if bound is theory.theorem_2 else {"l": 8}


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
@pytest.mark.parametrize(("method", "beta", "bound"), COVERED)
def test_mean_gradient_norm_is_below_the_bound(
    method: str, beta: float, bound: Callable[..., float], alpha: float
) -> None:
    T, K, M = 49, 10, 3
    measured = np.mean(
        [
            MILD.mean_gradient_norm(
                points_of(
                    MILD, MILD_X0, T, data=MILD.draw, method=method, workers=M, iterations=K,
                    batch_size=theory.min_batch_size(T), step_size=alpha, momentum=beta, seed=seed,
                )
            )
            for seed in range(3)
        ]
    )  # fmt: skip
    known = MILD.l2(MILD_X0)
    shape = {"alpha": alpha, "n": 6, "K": K, "T": T} | extra(bound, beta)
    assert measured < bound(**known, **shape)
    # The comparison can fail: with constants far too small the bound is broken.
    wrong = {name: value * 1e-4 for name, value in known.items()}
    assert measured > bound(**wrong, **shape)


# The bounds are loose for many iterations per round. With one iteration per round, many rounds
# and a start far away in units of alpha they are sharp enough to tell a run from standing still.
FAR = Quadratic(h=np.array([1.0, 0.8]), s=2.0)
FAR_X0 = np.array([60.0, 60.0])
FAR_T = 1600


@pytest.mark.parametrize(("method", "beta", "bound"), COVERED)
def test_standing_still_would_break_the_bound(
    method: str, beta: float, bound: Callable[..., float]
) -> None:
    limit = bound(**FAR.l2(FAR_X0), alpha=1.0, n=2, K=1, T=FAR_T, **extra(bound, beta))
    points = points_of(
        FAR, FAR_X0, FAR_T, data=FAR.draw, method=method, workers=2, iterations=1,
        batch_size=theory.min_batch_size(FAR_T), step_size=1.0, momentum=beta, seed=1,
    )  # fmt: skip
    assert FAR.mean_gradient_norm(points) < limit < FAR.mean_gradient_norm([FAR_X0])


def test_theorem_3_on_a_sparse_gradient() -> None:
    n, s, K, T = 40, 2, 5, 49
    h = np.zeros(n)
    h[[3, 17]] = 1.0, 2.0
    problem, x0 = Quadratic(h=h, s=1.0), np.full(n, 5.0)
    points = points_of(
        problem, x0, T, data=problem.draw, method="des", workers=2, iterations=K,
        batch_size=theory.min_batch_size(T), step_size=0.5, momentum=0.5, seed=2,
    )  # fmt: skip
    known = problem.l1(x0)
    shape: dict[str, Any] = {"alpha": 0.5, "n": n, "K": K, "T": T, "s": s, "beta": 0.5}
    measured = problem.mean_gradient_norm(points, order=1)
    assert measured < theory.theorem_3(**known, **shape)
    wrong = {name: value * 1e-4 for name, value in known.items()}
    assert measured > theory.theorem_3(**wrong, **shape)


@pytest.mark.parametrize("alpha_0", [0.1, 1.0, 10.0])
def test_theorem_1_on_a_deterministic_quadratic(alpha_0: float) -> None:
    h = np.array([1.0, 0.6])
    x0 = np.array([6.0, 8.0])

    def fun(x: Vector) -> float:
        return float(h @ x**2 / 2)

    # One iteration per round, so that the callback sees every x_k of Algorithm 1.
    K = 800
    means = [
        np.mean([
            np.linalg.norm(h * x)
            for x in points_of(
                fun, x0, K, data=None, method="es", iterations=1, step_size=alpha_0, seed=seed
            )
        ])
        for seed in range(3)
    ]  # fmt: skip
    known = {"delta_f": fun(x0), "L": 1.0}
    limit = theory.theorem_1(**known, alpha_0=alpha_0, n=2, K=K)
    assert np.mean(means) < limit
    if alpha_0 == 1.0:  # near the best step-size the bound is below the norm at the start
        assert limit < np.linalg.norm(h * x0)
    wrong = {name: value * 1e-4 for name, value in known.items()}
    assert np.mean(means) > theory.theorem_1(**wrong, alpha_0=alpha_0, n=2, K=K)
