"""The random streams: Philox, streams that are never alike, and the three kinds of numbers.

Statistical tests have fixed seeds and fail where a right generator fails once in 10,000 times
or less. The formulas below are written again from the documentation of the streams; nothing
but the functions under test is taken from there.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from numba import jit, njit
from numpy.typing import NDArray
from scipy import stats

from desopt.contract import streams
from desopt.contract.streams import SERVER, Purpose, Stream
from desopt.kernels import (
    columns,
    gaussian,
    layouts,
    linear,
    losses,
    mixture,
    philox,
    portable,
    steps,
)

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

LIMIT = 1e-4  # p-values below this fail
EXTREMES = [
    Stream(0, 0, 0, 0, Purpose.BATCH),
    Stream(2**64 - 1, 2**32 - 1, SERVER, 2**28 - 1, Purpose.USER),
    Stream(2**32, 5, SERVER, 2**28 - 1, Purpose.NORMAL),
    Stream(2**63 + 7, 2**31, 12, 345, Purpose.COORDINATE),
]


def _philox(counter: Any, key: Any, out: Any) -> None:
    """One block per row: four counter words and two key words in, four words out."""
    for i in range(len(counter)):
        c, k = counter[i], key[i]
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = philox.philox(
            c[0], c[1], c[2], c[3], k[0], k[1]
        )


def _normal_pairs(a: Any, b: Any, out: Any) -> None:
    for i in range(a.size):
        out[i, 0], out[i, 1] = philox._normal_pair(a[i], b[i])


philox_blocks: Any = njit(error_model="numpy")(_philox)
normal_pairs: Any = njit(error_model="numpy")(_normal_pairs)


def stream(*fields: int) -> Stream:
    seed, t, i, k, purpose = fields
    return Stream(seed, t, i, k, Purpose(purpose))


def blocks(counter: Any, key: Any) -> Words:
    out = np.empty((len(counter), 4), np.uint64)
    philox_blocks(np.asarray(counter, np.uint64), np.asarray(key, np.uint64), out)
    return out


def philox_by_hand(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    """Salmon et al. (2011), figure 2, in Python's integers."""
    (x0, x1, x2, x3), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * x0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * x2, 2**32)
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [x0, x1, x2, x3]


def words_by_hand(s: Stream, count: int) -> list[int]:
    key = s.seed % 2**32, s.seed // 2**32
    last = s.purpose * 2**28 + s.iteration
    out: list[int] = []
    for block in range((count + 1) // 2):
        a, b, c, d = philox_by_hand((block, s.round, s.worker, last), key)
        out += [a + 2**32 * b, c + 2**32 * d]
    return out[:count]


def halves(words: Words) -> tuple[Words, Words]:
    """The 32-bit words that make up the 64-bit ones: low, high."""
    return words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)


# --- Philox ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_known_answers(counter: str, key: str, expected: str) -> None:
    """The vectors published with Random123 (philox4x32, 10 rounds)."""
    c, k, e = ([int(word, 16) for word in text.split()] for text in (counter, key, expected))
    assert blocks([c], [k])[0].tolist() == e
    assert philox_by_hand(tuple(c), (k[0], k[1])) == e


@pytest.mark.parametrize("s", EXTREMES)
def test_words_follow_the_documented_layout(s: Stream) -> None:
    assert streams.words(s, 9).tolist() == words_by_hand(s, 9)


# --- streams ---------------------------------------------------------------------------------


def grid(*axes: list[int]) -> NDArray[np.uint64]:
    """All (seed, round, worker, iteration, purpose), one per row."""
    columns = np.meshgrid(*(np.array(axis, np.uint64) for axis in axes), indexing="ij")
    return np.stack([column.ravel() for column in columns], axis=1)


def first_blocks(keys: NDArray[np.uint64]) -> Words:
    """The first 128 bits of each stream, as the kernels are given the key."""
    seed, t, i, k, purpose = keys.T
    counter = np.stack([np.zeros_like(t), t, i, (purpose << np.uint64(28)) | k], axis=1)
    low, high = halves(seed)
    a, b, c, d = blocks(counter, np.stack([low, high], axis=1)).T
    return np.stack([a | (b << np.uint64(32)), c | (d << np.uint64(32))], axis=1)


def test_no_two_streams_are_alike() -> None:
    """Neighbours, swapped fields and extremes: the first blocks of 4 million keys all differ."""
    small, top = list(range(8)), 2**64 - 1
    keys = np.concatenate(  # of distinct seeds, so that no key is there twice
        [
            # Any field may hold what another one holds in some other key.
            grid(small, small, small, small, [int(purpose) for purpose in Purpose]),
            grid([top, top - 1, 2**32 + 1, 2**32 + 2, 2**32 - 1], list(range(500)),
                 [*range(98), SERVER - 1, SERVER], [0, 2**28 - 1], [0, 2]),
            grid([11], [0, 7, 2**32 - 1], [0, SERVER], list(range(100_000)), [1, 2]),
            grid([2**i for i in range(3, 64)], [2**i for i in range(32)],
                 [2**i for i in range(32)], [2**i for i in range(28)], [0]),
        ]
    )  # fmt: skip
    assert len(keys) > 3_900_000
    first = first_blocks(keys)
    # Half a block is enough: 4 million random 64-bit words have a collision once in 2 million.
    for half in first.T:
        assert (np.diff(np.sort(half)) > 0).all()
    for row in np.random.default_rng(0).integers(0, len(keys), 2000):  # as the package packs them
        assert streams.words(stream(*keys[row].tolist()), 2).tolist() == first[row].tolist()


@pytest.mark.parametrize("field", range(5))
def test_neighbouring_streams_are_uncorrelated(field: int) -> None:
    """200 neighbours along one field; every pair, and every pair one number apart."""
    size, count = 6 if field == 4 else 200, 2000
    at = [11, 3, 5, 7, 0]
    some = [
        stream(*(value + (j if i == field else 0) for i, value in enumerate(at)))
        for j in range(size)
    ]
    draws: list[Callable[[Stream, int], Any]] = [
        streams.normals,
        lambda s, m: streams.words(s, m).astype(np.float64),
        lambda s, m: (streams.words(s, m) & np.uint64(1)).astype(np.float64),
    ]
    for draw in draws:
        z = np.array([draw(s, count) for s in some])
        z = (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)
        same = (z @ z.T / count)[np.triu_indices(size, 1)]
        shifted = z[:, 1:] @ z[:, :-1].T / count
        # 6 standard errors: exceeded once in 5e8 pairs, of which there are 60,000
        assert np.abs(same).max() < 6 / math.sqrt(count)
        assert np.abs(shifted).max() < 6 / math.sqrt(count)


@pytest.mark.parametrize("s", EXTREMES)
def test_asking_for_fewer_gives_the_beginning(s: Stream) -> None:
    draws: list[Callable[[int], NDArray[Any]]] = [
        lambda count: streams.words(s, count),
        lambda count: streams.normals(s, count),
        lambda count: streams.integers(s, count, 1000),
    ]
    for draw in draws:
        longest = draw(64)
        for count in range(21):
            np.testing.assert_array_equal(draw(count), longest[:count])


def test_a_round_of_mixture_draws_is_made_of_single_streams() -> None:
    for normal in (False, True):
        of_round = Stream(9, 2, 3, 0, Purpose.COORDINATE)
        index, z = streams.mixture_block(of_round, np.ones(5), 7, 1000, normal)
        for k in range(5):
            s = Stream(9, 2, 3, k, Purpose.COORDINATE)
            np.testing.assert_array_equal(index[k], streams.integers(s, 7, 1000))
            signs = np.where(streams.words(s, 7) & np.uint64(1), 1.0, -1.0)
            normals = streams.normals(Stream(9, 2, 3, k, Purpose.NORMAL), 7)
            np.testing.assert_array_equal(z[k], normals if normal else signs)


def test_generators_are_private_to_their_key() -> None:
    at = (7, 1, 2, 3, 4)
    keys = [at] + [tuple(v + (i == j) for i, v in enumerate(at)) for j in range(5)]
    keys += [(1, 7, 2, 3, 4), (7, 2, 1, 3, 4), (7, 1, 3, 2, 4), (7, 1, 2, 4, 3)]
    keys += [(seed, *at[1:]) for seed in (7 + 2**32, 2**63 + 7, 2**63 + 8, 2**64 - 1, 2**64 - 2)]
    some = [stream(*key) for key in keys] + EXTREMES
    first = [tuple(streams.generator(s).integers(0, 2**63, 4).tolist()) for s in some]
    again = [tuple(streams.generator(s).integers(0, 2**63, 4).tolist()) for s in some]
    assert first == again
    assert len(set(first)) == len(first)


# --- integers and signs ----------------------------------------------------------------------


@pytest.mark.parametrize("high", [1, 2, 3, 1000, 2**32 - 1])
def test_integers_are_uniform(high: int) -> None:
    s = Stream(4, 1, 2, 3, Purpose.BATCH)
    drawn = streams.integers(s, 1_000_000, high)
    assert drawn.min() >= 0
    assert drawn.max() < high
    assert drawn[:99].tolist() == [int(w) * high >> 64 for w in streams.words(s, 99)]
    if high > 1:
        bins = min(high, 1000)
        counts = np.bincount(drawn * bins // high, minlength=bins)
        # bin j holds the integers from ceil(j high / bins) on
        edges = [-(-j * high // bins) for j in range(bins + 1)]
        assert stats.chisquare(counts, np.diff(edges) / high * drawn.size).pvalue > LIMIT


@pytest.mark.parametrize("n", [2, 3, 16, 1000])
def test_signs_are_independent_of_coordinates(n: int) -> None:
    of_round = Stream(3, 0, 1, 0, Purpose.COORDINATE)
    index, sign = streams.mixture_block(of_round, np.ones(100_000), 8, n, gaussian=False)
    assert set(np.unique(sign)) == {-1.0, 1.0}
    assert stats.binomtest(int((sign > 0).sum()), sign.size).pvalue > LIMIT
    table = np.array([np.bincount(index[sign == z], minlength=n) for z in (-1.0, 1.0)])
    assert stats.chi2_contingency(table).pvalue > LIMIT
    for j in range(1, 8):  # nor do the coordinates of a step depend on each other
        pairs = np.bincount(index[:, 0] % 16 * 16 + index[:, j] % 16, minlength=256)
        pairs = pairs.reshape(16, 16)[: min(n, 16), : min(n, 16)]
        assert stats.chi2_contingency(pairs).pvalue > LIMIT


# --- normal numbers --------------------------------------------------------------------------


def words_of_pairs(s: Stream, pairs: int) -> tuple[Words, Words]:
    """A block (a, b, c, d) gives two pairs: one from a and b, one from c and d."""
    return halves(streams.words(s, pairs))


def exact_pair(a: int, b: int) -> tuple[Any, Any]:
    """Box-Muller with 40 digits. Of b, bit 31 is the sign, bit 30 swaps, 30 bits are the angle."""
    with mpmath.workdps(40):
        r = mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(2 * a + 1) / 2**33)) * (-1) ** (b >> 31)
        phi = mpmath.pi / 2 * (mpmath.mpf(2 * (b % 2**30) + 1) / 2**31 - mpmath.mpf(1) / 2)
        pair = r * mpmath.cos(phi), r * mpmath.sin(phi)
        return pair[::-1] if b >> 30 & 1 else pair


def tolerance(r: Any) -> Any:
    """log is good to 6e-14, so r^2 is; dr = d(r^2) / 2r grows as r -> 0, where only the rounding
    of numbers near 33 ln 2 = 22.9 counts. Below 1e-12 for all but one in 10^5 numbers."""
    return 5e-13 + 4e-15 / r


def test_normals_are_box_muller() -> None:
    """Every word combination at the edges, and random ones, against 40 digits."""
    edges = [0, 1, 2, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 3 * 2**30, 2**32 - 2, 2**32 - 1]
    edges += [int(2**32 * x) + d for x in (2**-0.5, 2**-1.5) for d in (-1, 0, 1)]
    random = np.random.default_rng(0).integers(0, 2**32, (2000, 2))
    near_one = 2**32 - np.random.default_rng(1).integers(1, 2**24, (500, 2))
    words = [*((a, b) for a in edges for b in edges), *random.tolist(), *near_one.tolist()]
    a, b = (np.array(column, np.uint64) for column in zip(*words, strict=True))
    z = np.empty((len(words), 2))
    normal_pairs(a, b, z)
    for (x, y), values in zip(words, z.tolist(), strict=True):
        exact = exact_pair(x, y)
        limit = tolerance(math.hypot(*map(float, exact)))
        assert abs(float(exact[0] - values[0])) <= limit
        assert abs(float(exact[1] - values[1])) <= limit


def test_a_million_normals_are_box_muller() -> None:
    """The same for a stream, against NumPy's log, sin and cos."""
    s, pairs = Stream(1, 2, 3, 4, Purpose.NORMAL), 500_000
    a, b = words_of_pairs(s, pairs)
    r = np.sqrt(-2.0 * np.log((2.0 * a + 1.0) / 2.0**33))
    phi = np.pi / 2 * ((b % np.uint64(2**30) + 0.5) / 2.0**30 - 0.5)
    exact = turned(r, np.cos(phi), np.sin(phi), b)
    error = np.abs(streams.normals(s, 2 * pairs) - exact).reshape(-1, 2).max(axis=1)
    assert (error <= tolerance(r)).all()
    assert np.mean(error <= 1e-12) > 0.99999


def turned(r: Floats, cos: Floats, sin: Floats, b: Words) -> Floats:
    """The pairs one after the other, sign and order taken from b."""
    r = np.where(b >> np.uint64(31), -r, r)
    swap = (b >> np.uint64(30)) % np.uint64(2) == 1
    pair = r * np.where(swap, sin, cos), r * np.where(swap, cos, sin)
    return np.stack(pair, axis=1).ravel()


def separately(a: Words, b: Words) -> Floats:
    """The documented formula, one rounded operation after the other: NumPy never fuses two."""
    x = 2.0 * a + 1.0
    m, e = np.frexp(x)
    low = m < float.fromhex("0x1.6a09e667f3bcdp-1")
    m, e = np.where(low, 2.0 * m, m), np.where(low, e - 1, e)
    s = (m - 1.0) / (m + 1.0)
    p = horner(s * s, 0.09804047819876527, 0.11087124955038745, 0.14286083072937864,
               0.1999999744591619, 0.3333333333978963, 0.9999999999999736)  # fmt: skip
    log2 = math.log(2.0)
    r = np.sqrt((66.0 * log2 - e * (2.0 * log2)) - (4.0 * s) * p)
    phi = ((b & np.uint64(2**30 - 1)) - 536870911.5) * (math.pi / 2 * 2.0**-30)
    sin = phi * horner(phi * phi, -2.475655877198039e-08, 2.7555271893389817e-06,
                       -0.0001984126329839051, 0.00833333332387815, -0.16666666666616686,
                       0.9999999999999957)  # fmt: skip
    cos = horner(phi * phi, -2.717342984102282e-07, 2.4798928755323667e-05, -0.0013888880393776424,
                 0.04166666654391119, -0.49999999999351113, 0.9999999999999444)  # fmt: skip
    return turned(r, cos, sin, b)


def horner(y: Floats, *coefficients: float) -> Floats:
    total = np.full_like(y, coefficients[0])
    for c in coefficients[1:]:
        total = total * y
        total = total + c
    return total


def test_no_fast_math_and_no_fused_operations() -> None:
    s = Stream(5, 6, 7, 8, Purpose.NORMAL)
    expected = separately(*words_of_pairs(s, 200_000))
    np.testing.assert_array_equal(
        streams.normals(s, 400_000).view(np.uint64), expected.view(np.uint64)
    )


def kernels_of(*modules: Any) -> dict[str, Any]:
    """The compiled functions that the modules define."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if hasattr(value, "py_func") and value.py_func.__module__ == module.__name__
    }


def test_no_kernel_inherits_fast_math() -> None:
    """numba hands a caller's fast-math down to a function that it compiles for the first time,
    unless that function says what it wants."""
    exact = kernels_of(philox, steps)
    assert {"fill_normals", "replay_gaussian", "add_scaled"} <= set(exact)
    assert {name: kernel.targetoptions["fastmath"] for name, kernel in exact.items()} == (
        dict.fromkeys(exact, False)
    )
    for name, kernel in kernels_of(columns, gaussian, layouts, linear, losses, mixture).items():
        assert "fastmath" in kernel.targetoptions, name


def test_normals_compiled_for_a_caller_with_fast_math() -> None:
    """A fresh copy of the kernel, compiled because such a caller needs it."""
    fill: Any = jit(**philox.fill_normals.targetoptions)(philox.fill_normals.py_func)

    def caller(out: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> None:
        fill(out, c1, c2, c3, k0, k1)

    s, out = Stream(1, 2, 3, 4, Purpose.NORMAL), np.empty(101)
    njit(fastmath=True)(caller)(out, *s.key())
    np.testing.assert_array_equal(out, streams.normals(s, 101))


def test_normals_of_one_or_four_iterations_side_by_side() -> None:
    for first in (0, 3):
        out = np.empty((4, 4 * 5))
        philox.fill_normal_planes(out, first, 2, *Stream(6, 7, 8, 12, Purpose.NORMAL).key())
        for g in range(4):
            z = streams.normals(Stream(6, 7, 8, 12 + g, Purpose.NORMAL), 4 * (first + 5))
            np.testing.assert_array_equal(out[:, g::4].T.ravel(), z[4 * first :])
        philox.fill_normal_planes(out, first, 0, *Stream(6, 7, 8, 13, Purpose.NORMAL).key())
        z = streams.normals(Stream(6, 7, 8, 13, Purpose.NORMAL), 4 * (first + 20))
        np.testing.assert_array_equal(out.T.ravel(), z[4 * first :])


@pytest.fixture(scope="module")
def ten_million() -> Floats:
    return np.concatenate(
        [streams.normals(Stream(2024, 0, i, 0, Purpose.NORMAL), 1_000_000) for i in range(10)]
    )


def test_moments(ten_million: Floats) -> None:
    """E z^p = 0, 1, 0, 3, 0, 15; the variance of z^p is E z^2p - (E z^p)^2."""
    exact = {0: 1, 1: 0, 2: 1, 3: 0, 4: 3, 5: 0, 6: 15, 8: 105, 10: 945, 12: 10395}
    power = np.ones_like(ten_million)
    for p in range(1, 7):
        power *= ten_million
        error = math.sqrt((exact[2 * p] - exact[p] ** 2) / power.size)
        assert abs(power.mean() - exact[p]) < 4 * error


def test_distribution(ten_million: Floats) -> None:
    z = np.sort(ten_million)
    cdf = stats.norm.cdf(z)
    above = np.arange(1, z.size + 1) / z.size - cdf
    distance = max(above.max(), 1 / z.size - above.min())
    assert stats.kstwobign.sf(distance * math.sqrt(z.size)) > LIMIT  # Kolmogorov-Smirnov
    counts = np.bincount((cdf * 1000).astype(np.int64), minlength=1000)
    assert stats.chisquare(counts).pvalue > LIMIT


def test_tails(ten_million: Floats) -> None:
    for sigma in (3.0, 4.0, 4.5, 5.0):
        for side in (ten_million, -ten_million):
            beyond = int((side > sigma).sum())
            chance = stats.norm.sf(sigma)
            assert stats.binomtest(beyond, side.size, chance).pvalue > LIMIT
    assert np.abs(ten_million).max() < 6.77


def test_first_normals_of_many_streams() -> None:
    """Across iterations, not along one stream."""
    of_round = Stream(1, 0, 0, 0, Purpose.NORMAL)
    _, z = streams.mixture_block(of_round, np.ones(500_000), 3, 10, gaussian=True)
    for column in z.T:
        assert stats.chisquare(
            np.bincount((stats.norm.cdf(column) * 500).astype(np.int64), minlength=500)
        ).pvalue > LIMIT  # fmt: skip
        assert abs(np.mean(column[1:] * column[:-1])) < 4 / math.sqrt(column.size)
    assert np.abs(z.T @ z / len(z) - np.eye(3)).max() < 6 / math.sqrt(len(z))


# --- bits that never change ------------------------------------------------------------------

GOLDEN = {
    Stream(0, 0, 0, 0, Purpose.BATCH): (
        [0xE169C58D6627E8D5, 0x9B00DBD8BC57AC4C, 0x5CB200DBF8E4CCA4],
        [0xBFA81109B0E37C04, 0xBFF5ACC01228AF44, 0xBFE8E203457C6F42, 0x3FB88911D17228A6,
         0xBF93AF9BFEF04EB9],
        [880, 605, 362, 37],
    ),
    Stream(2**64 - 1, 2**32 - 1, SERVER, 2**28 - 1, Purpose.USER): (
        [0x0D9288765DFFAF39, 0xCC3028D36D16FEE6, 0x4E34EF2AD5A55B86],
        [0x3FF45F1F0300788A, 0xBFE3CBC34B9525D5, 0x3FE38849B75AF1A6, 0xBFF279D78C939CF7,
         0xBFD047C645032E81],
        [53, 797, 305, 85],
    ),
    Stream(42, 3, 1, 7, Purpose.NORMAL): (
        [0x58B475A6272F7284, 0xD4B2680C2CB0A075, 0xF02B1DCBA9D5E12A],
        [0xBFD61544A978CD1D, 0x3FFE80F81DA4231D, 0x3FE05FE04B91F3C6, 0xBFFCC04B129BA315,
         0xBFD668A9CDCB5B08],
        [346, 830, 938, 995],
    ),
}  # fmt: skip


@pytest.mark.parametrize("s", GOLDEN)
def test_bits_of_version_1(s: Stream) -> None:
    """Journals rely on them: whoever changes them must change STREAM_VERSION, and this table."""
    words, normals, integers = GOLDEN[s]
    assert streams.STREAM_VERSION == 1
    assert streams.words(s, 3).tolist() == words
    assert streams.normals(s, 5).view(np.uint64).tolist() == normals
    assert streams.integers(s, 4, 1000).tolist() == integers


def test_numbers_of_the_purposes() -> None:
    """They are part of the counter."""
    names = [
        "BATCH",
        "COORDINATE",
        "NORMAL",
        "PARTITION",
        "EVALUATION",
        "USER",
        "DATA",
        "PARTICIPATION",
        "CANDIDATE",
        "SUBSPACE",
    ]
    assert [(p.name, int(p)) for p in Purpose] == [(name, i) for i, name in enumerate(names)]


# --- exp and log -----------------------------------------------------------------------------


def ulps(value: float, exact: Any) -> float:
    """The error in units of the last place, or of the smallest number where that is larger."""
    return abs(float((mpmath.mpf(value) - exact) / max(abs(exact) * 2.0**-52, 2.0**-1074)))


def test_portable_log() -> None:
    random = np.random.default_rng(0)
    near_one = 1.0 + random.uniform(-1, 1, 2000) * 10.0 ** random.uniform(-16, 0, 2000)
    everywhere = 2.0 ** random.uniform(-1074, 1023.9, 2000)
    special = [5e-324, sys.float_info.min, sys.float_info.max, 1.0, 2.0, 0.5, 0.5**0.5, 10.0]
    with mpmath.workdps(40):
        for x in [*near_one[near_one > 0].tolist(), *everywhere.tolist(), *special]:
            assert ulps(portable.log(x), mpmath.log(mpmath.mpf(x))) <= 3.0, x
    assert portable.log(1.0) == 0.0


def test_portable_exp() -> None:
    random = np.random.default_rng(0)
    points = [*random.uniform(-745, 709, 2000), *random.uniform(-2, 2, 1000)]
    points += [*(random.uniform(-1, 1, 1000) * 10.0 ** random.uniform(-20, 0, 1000)), 0.0, 709.0]
    with mpmath.workdps(40):
        for x in map(float, points):
            assert ulps(portable.exp(x), mpmath.exp(mpmath.mpf(x))) <= 3.0, x
    assert portable.exp(0.0) == 1.0
    assert portable.exp(710.0) == portable.exp(math.inf) == math.inf
    assert portable.exp(-746.0) == portable.exp(-math.inf) == 0.0
