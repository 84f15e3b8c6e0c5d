"""Fourth moments of the mutation vectors, and how a vector is put together from its draws.

Means, covariances and keys are those of every sampler: ``testing.check_sampler`` checks them.

Tolerances: a mean over SIZE independent vectors is compared with its exact value. Its standard
error is the sample's own standard deviation / sqrt(SIZE), and LIMIT of them are allowed. For a
normal error 5.5 are exceeded once in 2.6e7 comparisons; some 1e4 are made here, so a right
sampler passes and seeds need no tuning. A wrong one does not: see
``test_the_check_tells_the_samplers_apart``.
"""

import functools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from desopt.contract import streams
from desopt.methods.samplers import (
    SAMPLERS,
    CustomSampler,
    Gaussian,
    Key,
    MixtureGaussian,
    MixtureRademacher,
    Sampler,
)

Vector = NDArray[np.float64]

SIZE = 20_000
LIMIT = 5.5

# (n, l)
SHAPES = [(1, 3), (5, 1), (5, 8), (12, 3), (40, 8)]
CASES: list[tuple[Sampler, int]] = [
    *((Gaussian(), n) for n in (1, 5, 40)),
    *((MixtureGaussian(size), n) for n, size in SHAPES),
    *((MixtureRademacher(size), n) for n, size in SHAPES),
]


def dense(sampler: Sampler, key: Key, k: int, n: int) -> Vector:
    """The mutation vector as an array; a coordinate drawn twice adds up."""
    index, values = sampler.vector(key, k, n)
    if index is None:
        return values
    u: Vector = np.zeros(n)
    for r, value in zip(index, values, strict=True):
        u[r] += value
    return u


@functools.cache
def sample(sampler: Sampler, n: int) -> Vector:
    """SIZE vectors: 40 rounds x 5 workers x 100 iterations of one seed."""
    keys = [Key(20_250_101, t, i) for t in range(40) for i in range(5)]
    return np.array([dense(sampler, key, k, n) for key in keys for k in range(SIZE // len(keys))])


def deviations(mean: Vector, square: Vector, expected: Vector | float) -> Vector:
    """|mean - expected| in standard errors, from the means of the values and their squares."""
    error = np.sqrt(np.maximum(square - mean**2, 0.0) / SIZE)
    # An event that never happened has mean 0 and error 0. Where all values are equal (|z| = 1
    # and one coordinate) only rounding is left.
    return np.abs(mean - expected) / (error + 1e-12)


def deviation(values: Vector, expected: float) -> float:
    """The same for SIZE plain numbers."""
    return float(deviations(values.mean(), (values**2).mean(), expected))


def projections(n: int) -> dict[str, Vector]:
    one_hot = np.zeros(n)
    one_hot[n // 2] = 1.0
    mixed = 2.0 ** -np.arange(n) * (-1.0) ** np.arange(n)
    return {"ones": np.ones(n), "one-hot": one_hot, "mixed": mixed, "ramp": np.linspace(-1, 2, n)}


def fourth_moment(sampler: Sampler, y: Vector) -> float:
    """E|y'u|^4: 3 ||y||_2^4 for a Gaussian u, else the paper's two propositions."""
    n, norm4, norm2 = len(y), float(np.sum(y**4)), float(np.sum(y**2) ** 2)
    if isinstance(sampler, MixtureGaussian):
        return 3 * (n / sampler.l * norm4 + (sampler.l - 1) / sampler.l * norm2)
    if isinstance(sampler, MixtureRademacher):
        return n / sampler.l * norm4 + 3 * (sampler.l - 1) / sampler.l * norm2
    return 3 * norm2


def test_every_sampler_has_cases() -> None:
    assert {type(sampler) for sampler, _ in CASES} == {type(make()) for make in SAMPLERS.values()}


@pytest.mark.parametrize("name", projections(1))
@pytest.mark.parametrize(("sampler", "n"), CASES)
def test_fourth_moment(sampler: Sampler, n: int, name: str) -> None:
    y = projections(n)[name]
    assert deviation((sample(sampler, n) @ y) ** 4, fourth_moment(sampler, y)) < LIMIT


def test_the_check_tells_the_samplers_apart() -> None:
    """Each sample fails the test with the formula of either of the other two."""
    n, y = 40, projections(40)["one-hot"]
    samplers: list[Sampler] = [Gaussian(), MixtureGaussian(l=8), MixtureRademacher(l=8)]
    for sampler in samplers:
        for other in samplers:
            far = deviation((sample(sampler, n) @ y) ** 4, fourth_moment(other, y))
            assert (far > LIMIT) == (sampler is not other)
    # A wrong scale is seen as well: l + 1 for l.
    u = math.sqrt(8 / 9) * sample(MixtureRademacher(l=8), n)
    assert deviation((u @ np.ones(n)) ** 2, n) > LIMIT


# --- how a vector is made --------------------------------------------------------------------


def test_a_coordinate_drawn_again_adds_up() -> None:
    """n = 1, l = 3: u = (z_1 + z_2 + z_3) / sqrt(3), which is +-1/sqrt(3) or +-sqrt(3)."""
    sampler = MixtureRademacher(l=3)
    index, values = sampler.vector(Key(0, 0, 0), 0, 1)
    assert index is not None
    assert index.tolist() == [0, 0, 0]
    np.testing.assert_allclose(np.abs(values), math.sqrt(1 / 3), rtol=1e-15)
    size = np.abs(sample(sampler, 1)[:, 0]) * math.sqrt(3)
    assert set(np.round(size, 12)) == {1.0, 3.0}
    assert deviation((size > 2).astype(float), 0.25) < LIMIT  # three equal signs: 2 / 8


@pytest.mark.parametrize("l", [1, 3, 8])
@pytest.mark.parametrize(
    ("mixture", "normal"), [(MixtureGaussian, True), (MixtureRademacher, False)]
)
def test_a_round_drawn_at_once_is_the_same(mixture: type, normal: bool, l: int) -> None:
    n, key = 17, Key(2**63 + 5, 3, 2)
    stream = streams.Stream(*key, 0, streams.Purpose.COORDINATE)
    index, z = streams.mixture_block(stream, np.ones(6), l, n, normal)
    for k in range(6):
        coordinates, values = mixture(l=l).vector(key, k, n)
        assert coordinates.tolist() == index[k].tolist()
        np.testing.assert_array_equal(values, math.sqrt(n / l) * z[k])


@pytest.mark.parametrize("sampler", [MixtureGaussian(l=8), MixtureRademacher(l=8)])
def test_a_mixture_draws_l_numbers_whatever_n(sampler: Sampler) -> None:
    for n in (1, 8, 100_000):
        index, values = sampler.vector(Key(0, 0, 0), 0, n)
        assert index is not None
        assert len(index) == len(values) == 8
        assert index.min() >= 0
        assert index.max() < n


@pytest.mark.parametrize("l", [0, -1, 2.5])
def test_bad_mixture(l: float) -> None:
    for mixture in (MixtureGaussian, MixtureRademacher):
        with pytest.raises(ValueError, match=f"mixture must be .* >= 1, got {l}"):
            mixture(l=l)  # type: ignore[arg-type]


# --- a user's own ----------------------------------------------------------------------------


def test_custom_sampler_with_coordinates() -> None:
    sampler = CustomSampler(lambda rng, n: ([2, 2], [1.0, 0.5]))
    assert dense(sampler, Key(0, 0, 0), 0, 4).tolist() == [0.0, 0.0, 1.5, 0.0]


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (np.ones(3), r"must return 4 numbers .* got shape \(3,\)"),
        (([0, 1], [1.0]), "of one length"),
        (([0, 4], [1.0, 1.0]), "outside 0..3"),
        (([-1], [1.0]), "outside 0..3"),
    ],
)
def test_custom_sampler_returns_nonsense(drawn: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CustomSampler(lambda rng, n: drawn).vector(Key(0, 0, 0), 0, 4)
