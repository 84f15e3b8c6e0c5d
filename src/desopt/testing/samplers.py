"""The contract of a sampler: ``methods.samplers.Sampler``."""

from __future__ import annotations

import numpy as np

from desopt.contract.types import BoolArray, FloatArray, Step
from desopt.methods.proposals import Proposals, as_step
from desopt.methods.samplers import SAMPLERS, Key, Sampler, restore_sampler
from desopt.testing.claims import Claims, bits

_KEY = Key(20_250_101, 3, 2)

#: Vectors per dimension, and the largest distance of a mean from its exact value, in standard
#: errors of the sample. A normal error exceeds it once in 2.6e7 comparisons, and there are fewer
#: than 2000: a correct sampler passes with any seed.
_SIZE, _LIMIT = 10_000, 5.5
_DIMENSIONS = (1, 5, 40)


def check_sampler(sampler: Sampler) -> None:
    """Raise an AssertionError where a sampler breaks its contract.

    Vectors are a function of seed, round, worker and iteration, inside n coordinates, with mean 0
    and covariance I. Proposals, replays and changes agree with the vectors.

    >>> desopt.testing.check_sampler(desopt.samplers.Gaussian())
    """
    claim = Claims(f"sampler {type(sampler).__name__}")
    claim.has(sampler, "vector", "proposals", "replay", "changes", "settings", "dense")
    with claim.no_global_randomness():
        for n in _DIMENSIONS:
            _check_vectors(claim, sampler, n)
        _check_settings(claim, sampler)
        _check_keys(claim, sampler)
        for n in _DIMENSIONS:
            _check_moments(claim, sampler, n)
            _check_replay(claim, sampler, n)


def _check_settings(claim: Claims, sampler: Sampler) -> None:
    settings = claim.plain_settings(sampler)
    copies = [claim.pickles(sampler)]
    if settings["name"] in SAMPLERS:
        copies.append(restore_sampler(settings))
    for copy in copies:
        same = bits(_dense(copy, _KEY, 0, 9)) == bits(_dense(sampler, _KEY, 0, 9))
        claim(
            copy.settings() == settings and same,
            "settings() and pickle must describe the sampler completely",
            f"A copy has the settings {copy.settings()}, not {settings}, or draws other vectors",
        )


def _check_vectors(claim: Claims, sampler: Sampler, n: int) -> None:
    for k in range(20):
        drawn = sampler.vector(_KEY, k, n)
        try:
            index, u = drawn
            as_step(index, u, n)
        except (TypeError, ValueError) as error:
            claim(False, "vector gives (coordinates or None, values) within n", f"{error}")
        claim(np.isfinite(u).all(), "values are finite", f"vector({_KEY}, {k}, {n}) has {u!r:.60}")
        claim(
            sampler.dense or index is not None,
            "a sampler with dense = False gives coordinates",
            f"vector({_KEY}, {k}, {n}) has the coordinates None",
        )
        again = sampler.vector(_KEY, k, n)
        claim(
            bits(list(again)) == bits([index, u]),
            "vector is a function of key, iteration and n",
            f"A second call of vector({_KEY}, {k}, {n}) gave other bits",
        )


def _check_keys(claim: Claims, sampler: Sampler, n: int = 40, count: int = 32) -> None:
    """Blocks of vectors: single ones of few coordinates may be equal by chance."""

    def block(key: Key, first: int = 0) -> list[bytes]:
        return [_dense(sampler, key, first + k, n).tobytes() for k in range(count)]

    own = block(_KEY)
    others = {
        "seed": block(_KEY._replace(seed=_KEY.seed + 1)),
        "round": block(_KEY._replace(round=_KEY.round + 1)),
        "worker": block(_KEY._replace(worker=_KEY.worker + 1)),
        "iteration": block(_KEY, count),
    }
    for part, other in others.items():
        claim(
            own != other,
            "other seeds, rounds, workers and iterations have other vectors",
            f"{count} vectors are the same for another {part}",
        )


def _check_moments(claim: Claims, sampler: Sampler, n: int) -> None:
    keys = [Key(_KEY.seed, t, i) for t in range(20) for i in range(5)]
    u = np.array([_dense(sampler, key, k, n) for key in keys for k in range(_SIZE // len(keys))])
    mean, square = u.mean(axis=0), (u**2).mean(axis=0)
    far = _deviations(mean, square, np.zeros(n))
    j = int(far.argmax())
    claim(
        far[j] < _LIMIT,
        "mutation vectors have mean 0",
        f"For n = {n}, coordinate {j} has mean {mean[j]:.3g}, {far[j]:.1f} standard errors off",
    )
    products, squares = u.T @ u / _SIZE, (u**2).T @ u**2 / _SIZE
    off = _deviations(products, squares, np.eye(n))
    i, j = divmod(int(off.argmax()), n)
    claim(
        off[i, j] < _LIMIT,
        "mutation vectors have covariance I",
        f"For n = {n}, E[u_{i} u_{j}] is {products[i, j]:.3g}, {off[i, j]:.1f} standard errors off",
    )


def _deviations(mean: FloatArray, square: FloatArray, expected: FloatArray) -> FloatArray:
    """|mean - expected| in standard errors; only rounding is left where all values are equal."""
    error: FloatArray = np.sqrt(np.maximum(square - mean**2, 0.0) / _SIZE)
    distance: FloatArray = np.abs(mean - expected) / (error + 1e-12)
    return distance


def _check_replay(claim: Claims, sampler: Sampler, n: int, count: int = 11) -> None:
    """Accept bits give the same point by hand, by ``replay`` and by ``changes``."""
    alpha, x = 1.0 / np.arange(1.0, count + 1.0), np.linspace(-1.0, 2.0, n)
    proposals = sampler.proposals(alpha, _KEY, n)
    steps = list(proposals.steps())
    claim(
        len(steps) == proposals.count == count,
        "proposals have one step per step size",
        f"{count} step sizes, count {proposals.count}, {len(steps)} steps",
    )
    for k, step in enumerate(steps):
        # alpha sqrt(n/l) z may be rounded in another order
        by_hand = alpha[k] * _dense(sampler, _KEY, k, n)
        claim(
            np.allclose(_as_dense(step, n), by_hand, rtol=1e-13, atol=0.0),
            "step k of the proposals is alpha_k times vector(key, k, n)",
            f"For n = {n}, step {k} is {_as_dense(step, n)!r:.80}, not {by_hand!r:.80}",
        )
    numbers = np.arange(count)
    for accepted in (numbers < 0, numbers >= 0, numbers % 3 == 1):
        _check_accepted(claim, proposals, steps, x, accepted)


def _check_accepted(
    claim: Claims, proposals: Proposals, steps: list[Step], x: FloatArray, accepted: BoolArray
) -> None:
    expected = x.copy()
    for (index, step), kept in zip(steps, accepted, strict=True):
        if kept:
            np.add.at(expected, np.arange(x.size) if index is None else index, step)
    which = f"n = {x.size}, accepted steps {np.flatnonzero(accepted).tolist()}"
    v = x.copy()
    proposals.replay(v, accepted)
    claim(
        bits(v) == bits(expected),
        "replay adds the accepted steps in order, in every bit",
        f"{which}: {v!r:.80}, by hand {expected!r:.80}",
    )
    before, masks = bits(x), np.packbits(accepted, bitorder="little")[None]
    (change,) = proposals.changes(x, masks, np.array([_KEY.worker]))
    claim(bits(x) == before, "changes leaves x alone", "It wrote to x")
    claim(
        bits(_as_dense(change, x.size)) == bits(expected - x),
        "changes is v - x in every bit",
        f"{which}: {_as_dense(change, x.size)!r:.80}, by hand {expected - x!r:.80}",
    )


def _as_dense(step: Step, n: int) -> FloatArray:
    """A step as n numbers; a coordinate drawn twice adds up."""
    index, values = step
    if index is None:
        return values
    u = np.zeros(n)
    np.add.at(u, index, values)
    return u


def _dense(sampler: Sampler, key: Key, k: int, n: int) -> FloatArray:
    return _as_dense(sampler.vector(key, k, n), n)
