r"""The convergence theory of DES: the right-hand sides of Theorems 1 to 5 of the paper.

Each function bounds a mean gradient norm, (1/T) sum_{t<T} E||grad f(x_t)||, in terms of the
paper's symbols:

======== ==========================================================================
symbol   meaning
======== ==========================================================================
delta_f  f(x_0) - f_*, with a lower bound f_* of f
alpha    initial step-size (alpha_0 in Theorem 1)
beta     momentum, 0 <= beta < MAX_MOMENTUM
L        Lipschitz constant of grad F(.; xi), for every xi
sigma    square root of a bound of E||grad F(x; xi) - grad f(x)||^2
n, K, T  dimension, local iterations per round, rounds
s        Theorem 3: at most s coordinates of grad f(x) are not zero
l        Theorems 4 and 5: coordinates drawn per mutation
s_tilde  Theorems 4 and 5: ||grad f||_2^4 / ||grad f||_4^4 >= s_tilde, within [1, n]
======== ==========================================================================

L and sigma refer to the l2 norm, except in Theorem 3: there gradients are measured in the l1
norm and points in the l-infinity norm. Theorems 2 to 5 need minibatches of at least
``min_batch_size(T)`` samples. The formulas are those of the theorems as printed; docstrings note
where the paper's proof arrives at another constant.

>>> from desopt import theory
>>> round(theory.MAX_MOMENTUM, 3)
0.595
"""

import math
from typing import Literal

__all__ = [
    "MAX_MOMENTUM",
    "U",
    "min_batch_size",
    "psi",
    "psi_hat",
    "theorem_1",
    "theorem_2",
    "theorem_3",
    "theorem_4",
    "theorem_5",
]

MAX_MOMENTUM = math.sqrt(1.0 / (2.0 * math.sqrt(2.0)))
"""The theory covers momentum in [0, MAX_MOMENTUM), about 0.595 (eq:assumption-on-beta)."""


def min_batch_size(T: int) -> int:
    """Return the smallest minibatch size b with b >= sqrt(T), as Theorems 2 to 5 need.

    >>> theory.min_batch_size(101)
    11
    """
    return math.isqrt(_count("T", T) - 1) + 1


def U(n: int, norm: Literal["l2", "linf"] = "l2") -> float:
    r"""Return a constant U >= E||u||^2 for a mutation vector u (lemma:bound-on-variance).

    U = n for the l2 norm and any sampler, because the covariance of u is I;
    U = 4 log(sqrt(2) n) for the l-infinity norm and Gaussian u.

    >>> theory.U(10)
    10.0
    >>> theory.U(10, "linf") > theory.U(9, "linf")
    True
    """
    _count("n", n)
    if norm == "l2":
        return float(n)
    if norm == "linf":
        return 4.0 * math.log(math.sqrt(2.0) * n)
    raise ValueError(f"norm must be 'l2' or 'linf', got {norm!r}")


def psi(*, K: int, beta: float = 0.0) -> float:
    r"""Return Psi of Theorems 2 and 3 (eq:psi-definition).

    .. math:: \left(\left(\frac{2}{1-2\sqrt 2\beta^2} + \frac{1}{2}\right)\sqrt K
              + \frac{1}{2\sqrt K}\right)(1+\log K) + \sqrt K

    >>> round(theory.psi(K=100, beta=0.5), 1)
    421.1
    """
    root = math.sqrt(_count("K", K))
    drift = 2.0 / (1.0 - 2.0 * math.sqrt(2.0) * _momentum(beta) ** 2)
    return ((drift + 0.5) * root + 0.5 / root) * (1.0 + math.log(K)) + root


def psi_hat(*, K: int) -> float:
    r"""Return Psi-hat of Theorems 4 and 5 (defined in Theorem 4).

    .. math:: \left(\frac{1}{2\sqrt K} + \frac{5}{2}\sqrt K\right)(1+\log K) + \frac{1}{\sqrt K}

    The proof chooses omega_1 = L alpha / sqrt(K) but its next line needs L alpha sqrt(K);
    with the latter the last term is sqrt(K), which makes Psi-hat equal to Psi at beta = 0.

    >>> round(theory.psi_hat(K=100), 1)
    140.5
    """
    root = math.sqrt(_count("K", K))
    return (0.5 / root + 2.5 * root) * (1.0 + math.log(K)) + 1.0 / root


def theorem_1(*, delta_f: float, alpha_0: float, L: float, n: int, K: int) -> float:
    r"""Bound (1/K) sum_k E||grad f(x_k)||_2 of the deterministic ES (Algorithm 1).

    .. math:: \sqrt{\frac{2\pi}{K}}
              \left(\frac{f(x_0)-f_*}{\alpha_0} + \alpha_0 L n (1+\log K)\right)

    eq:convergene-rate-simple-ES-l2-norm.

    >>> round(theory.theorem_1(delta_f=1.0, alpha_0=0.1, L=1.0, n=10, K=1000), 2)
    1.42
    """
    _not_negative("delta_f", delta_f)
    _positive("alpha_0", alpha_0)
    _not_negative("L", L)
    _count("K", K)
    growth = alpha_0 * L * U(n) * (1.0 + math.log(K))
    return math.sqrt(2.0 * math.pi / K) * (delta_f / alpha_0 + growth)


def theorem_2(
    *,
    delta_f: float,
    alpha: float,
    L: float,
    sigma: float,
    n: int,
    K: int,
    T: int,
    beta: float = 0.0,
) -> float:
    r"""Bound (1/T) sum_t E||grad f(x_t)||_2 of DES with Gaussian mutation (Algorithm 2).

    .. math:: \frac{\sqrt{2\pi}}{T^{3/4}}\frac{f(x_0)-f_*}{\alpha\sqrt K}
              + \frac{\sqrt n}{T^{1/4}}\left(2\alpha L\left(\sqrt{2\pi n}\,\Psi
              + \frac{80\beta\sqrt K}{3}\right) + \frac{8\sqrt{2\pi}\sigma}{3}\right)

    eq:convergene-rate-DES-l2-norm.

    >>> problem = {"delta_f": 1.0, "alpha": 0.1, "L": 1.0, "sigma": 1.0, "n": 10}
    >>> round(theory.theorem_2(**problem, K=10, T=1000), 1)
    30.4
    """
    _check_problem(delta_f, alpha, L, sigma, n, K, T)
    start = math.sqrt(2.0 * math.pi) / math.pow(T, 0.75) * delta_f / (alpha * math.sqrt(K))
    drift = math.sqrt(2.0 * math.pi * n) * psi(K=K, beta=beta)
    momentum = 80.0 * beta * math.sqrt(K) / 3.0
    noise = 8.0 * math.sqrt(2.0 * math.pi) * sigma / 3.0
    return start + math.sqrt(n) / math.pow(T, 0.25) * (2.0 * alpha * L * (drift + momentum) + noise)


def theorem_3(
    *,
    delta_f: float,
    alpha: float,
    L: float,
    sigma: float,
    n: int,
    K: int,
    T: int,
    s: int,
    beta: float = 0.0,
) -> float:
    r"""Bound (1/T) sum_t E||grad f(x_t)||_1 of DES on problems with sparse gradients.

    .. math:: \frac{\sqrt{2\pi s}}{T^{3/4}}\frac{f(x_0)-f_*}{\alpha\sqrt K}
              + \frac{8\sqrt{\log(\sqrt 2 n)}}{T^{1/4}}\left\{\alpha L\left(
              \sqrt{2\pi s\log(\sqrt 2 n)}\,\Psi + \frac{10\beta\sqrt K}{3}\right)
              + \frac{2\sqrt{2\pi s}\,\sigma}{3}\right\}

    eq:convergene-rate-DES-l1-norm. Putting U = 4 log(sqrt(2) n) into the line before it in
    the proof gives 40 beta sqrt(K) / 3 for the momentum's term; at beta = 0 both agree.

    >>> problem = {"delta_f": 1.0, "alpha": 0.1, "L": 1.0, "sigma": 1.0, "n": 10}
    >>> round(theory.theorem_3(**problem, K=10, T=1000, s=2), 1)
    45.3
    """
    _check_problem(delta_f, alpha, L, sigma, n, K, T)
    _within("s", s, n)
    log_n = math.log(math.sqrt(2.0) * n)
    start = math.sqrt(2.0 * math.pi * s) / math.pow(T, 0.75) * delta_f / (alpha * math.sqrt(K))
    drift = math.sqrt(2.0 * math.pi * s * log_n) * psi(K=K, beta=beta)
    momentum = 10.0 * beta * math.sqrt(K) / 3.0
    noise = 2.0 * math.sqrt(2.0 * math.pi * s) * sigma / 3.0
    return start + 8.0 * math.sqrt(log_n) / math.pow(T, 0.25) * (
        alpha * L * (drift + momentum) + noise
    )


def theorem_4(
    *,
    delta_f: float,
    alpha: float,
    L: float,
    sigma: float,
    n: int,
    K: int,
    T: int,
    l: int,
    s_tilde: float = 1.0,
) -> float:
    r"""Bound (1/T) sum_t E||grad f(x_t)||_2 of DES with mixture Gaussian mutation, beta = 0.

    .. math:: \sqrt{3+\frac{3n}{\tilde s l}}\left\{\frac{2}{T^{3/4}}
              \frac{f(x_0)-f_*}{\alpha\sqrt K} + \frac{4\sqrt n}{T^{1/4}}
              \left(\frac{4}{3}\sigma + L\sqrt n\,\hat\Psi\alpha\right)\right\}

    eq:convergene-rate-DES-mixtur-Gaussian-sampling-l2-norm. s_tilde = 1 holds for every
    gradient.

    >>> problem = {"delta_f": 1.0, "alpha": 0.1, "L": 1.0, "sigma": 1.0, "n": 10}
    >>> round(theory.theorem_4(**problem, K=10, T=1000, l=8), 1)
    57.7
    """
    _check_problem(delta_f, alpha, L, sigma, n, K, T)
    kurtosis = 3.0 + 3.0 * n / (_within("s_tilde", s_tilde, n) * _count("l", l))
    return math.sqrt(kurtosis) * _mixture_core(delta_f, alpha, L, sigma, n, K, T)


def theorem_5(
    *,
    delta_f: float,
    alpha: float,
    L: float,
    sigma: float,
    n: int,
    K: int,
    T: int,
    l: int,
    s_tilde: float = 1.0,
) -> float:
    r"""Bound (1/T) sum_t E||grad f(x_t)||_2 of DES with mixture Rademacher mutation, beta = 0.

    As Theorem 4, with sqrt(3 + n / (s_tilde l)) for the first factor:
    eq:convergene-rate-DES-mixtur-Rademacher-sampling-l2-norm.

    >>> problem = {"delta_f": 1.0, "alpha": 0.1, "L": 1.0, "sigma": 1.0, "n": 10}
    >>> round(theory.theorem_5(**problem, K=10, T=1000, l=8), 1)
    45.8
    """
    _check_problem(delta_f, alpha, L, sigma, n, K, T)
    kurtosis = 3.0 + n / (_within("s_tilde", s_tilde, n) * _count("l", l))
    return math.sqrt(kurtosis) * _mixture_core(delta_f, alpha, L, sigma, n, K, T)


def _mixture_core(
    delta_f: float, alpha: float, L: float, sigma: float, n: int, K: int, T: int
) -> float:
    """Return the expression in braces, common to Theorems 4 and 5."""
    start = 2.0 / math.pow(T, 0.75) * delta_f / (alpha * math.sqrt(K))
    drift = L * math.sqrt(n) * psi_hat(K=K) * alpha
    return start + 4.0 * math.sqrt(n) / math.pow(T, 0.25) * (4.0 / 3.0 * sigma + drift)


def _check_problem(
    delta_f: float, alpha: float, L: float, sigma: float, n: int, K: int, T: int
) -> None:
    _not_negative("delta_f", delta_f)
    _positive("alpha", alpha)
    _not_negative("L", L)
    _not_negative("sigma", sigma)
    _count("n", n)
    _count("K", K)
    _count("T", T)


def _momentum(beta: float) -> float:
    # Written so that NaN fails as well; the same holds for the checks below.
    if not 0.0 <= beta < MAX_MOMENTUM:
        raise ValueError(
            f"beta must be in [0, {MAX_MOMENTUM:.6f}) = [0, sqrt(1/(2 sqrt 2))), got {beta!r}: "
            "larger momentum is outside the theory"
        )
    return beta


def _positive(name: str, value: float) -> float:
    if not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return value


def _not_negative(name: str, value: float) -> float:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
    return value


def _count(name: str, value: int) -> int:
    if not 1 <= value < math.inf or value != int(value):
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    return int(value)


def _within(name: str, value: float, n: int) -> float:
    if not 1 <= value <= n:
        raise ValueError(f"{name} must be in [1, n] = [1, {n}], got {value!r}")
    return value
