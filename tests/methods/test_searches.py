"""Local searches driven by hand: the same answer for any number of points at a time."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.searching import (
    BITS,
    SAMPLERS,
    TWO_POINT,
    Floats,
    answer_by_hand,
    bits,
    by_hand,
    case_name,
    locals_of,
    make,
    one_plus_one,
)

from desopt import METHODS
from desopt.contract import streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Answer, Task
from desopt.methods.samplers import Key, MixtureGaussian, MixtureRademacher, Sampler
from desopt.methods.searches import OnePlusOne, TwoPoint

#: Points per ``ask``; the last is more than any search has.
AT_A_TIME = [1, 2, 7, 10**6]
N = 12

#: Every method, and two of them with every sampler.
CASES: list[tuple[str, Sampler | None]] = [
    *((name, None) for name in METHODS),
    *((name, sampler) for name in ("es", "des") for sampler in SAMPLERS),
]


def task_of(algorithm: Any, limit: int | None = None) -> Task:
    """Round 3 at some x."""
    first: Task = algorithm.plan(algorithm.init(np.linspace(-1.0, 1.0, N)))
    return replace(first, round=3, limit=limit)


def everything(answer: Answer) -> Any:
    """All of an answer but the change, which only compiled searches know."""
    return bits((answer.worker, answer.payload, answer.evaluations, answer.samples, answer.nans))


# --- whoever drives them ---------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize("p", AT_A_TIME)
@pytest.mark.parametrize("name", METHODS)
def test_by_hand_as_a_python_function(name: str, p: int, limit: int | None) -> None:
    """In every bit, the point that is handed over as well."""
    algorithm = make(name, iterations=20, population=13)
    task = task_of(algorithm, limit)
    local = locals_of("callable", N, 2, seed=1)[1]
    answer, expected = answer_by_hand(algorithm, task, local, p), algorithm.work(task, local, 1)
    assert everything(answer) == everything(expected)
    assert bits(answer.point) == bits(expected.point)
    if limit is not None:
        assert algorithm.cost.least <= answer.evaluations <= limit
    assert len(answer.payload) == algorithm.layout.size


@pytest.mark.parametrize("p", AT_A_TIME)
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("name", METHODS)
def test_by_hand_as_in_compiled_code(name: str, kind: str, p: int) -> None:
    """Accept bits are the same; numbers are, but for rounding."""
    algorithm = make(name, iterations=20, population=13, radius=0.1)
    task, local = task_of(algorithm), locals_of(kind, N, 2, seed=1)[1]
    answer, expected = answer_by_hand(algorithm, task, local, p), algorithm.work(task, local, 1)
    assert everything(answer) == everything(answer_by_hand(algorithm, task, local, 1))
    if name in BITS:
        assert everything(answer) == everything(expected)
        assert 0 < np.unpackbits(np.frombuffer(answer.payload, np.uint8)).sum() < 20
    else:
        found, wanted = (algorithm.layout.decode(a).float64 for a in (answer, expected))
        np.testing.assert_allclose(found, wanted, rtol=1e-11)
        assert (answer.evaluations, answer.samples, answer.nans) == (
            expected.evaluations, expected.samples, expected.nans,
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
@pytest.mark.parametrize(("name", "sampler"), CASES, ids=case_name)
def test_values_of_any_kind(name: str, sampler: Sampler | None) -> None:
    """NaN, infinities and ties, as a function of the point alone; any number at a time."""

    def value(x: Floats, _: int) -> float:
        kind = int(np.abs(x).sum() * 1e6) % 7
        return [1.0, 2.0, math.nan, math.inf, -math.inf, 1.0, -3.0][kind]

    nans = 0
    for seed in range(6):
        algorithm = make(name, sampler, iterations=20, population=13, seed=seed)
        task = task_of(algorithm)
        answers = []
        for p in AT_A_TIME:
            search = by_hand(algorithm.search(task, 5), value, p)
            answers.append(search.answer())
            algorithm.layout.decode(answers[-1])
            assert answers[-1].evaluations == algorithm.cost.most
        assert len({(a.payload, a.nans) for a in answers}) == 1
        nans += answers[0].nans
    assert nans > 0


@pytest.mark.parametrize("p", AT_A_TIME)
def test_the_rule_for_values_that_are_not_finite(p: int) -> None:
    """Kept where it is finite and no worse than the parent, or the parent is not finite."""
    told = [math.nan, math.inf, -math.inf, 1e308, 5.0, math.nan, 5.0, -math.inf, 6.0, 4.0]
    kept = [False, False, True, True, False, True, False, False, True]
    sampler, alpha = MixtureRademacher(3), np.ones(9)
    search = one_plus_one(sampler, np.zeros(N), alpha, Key(0, 0, 0))
    by_hand(search, lambda _x, k: told[k + 1], p)
    answer = search.answer()
    assert answer.payload == np.packbits(kept, bitorder="little").tobytes()
    assert (answer.evaluations, answer.nans) == (10, 5)
    replayed = np.zeros(N)
    sampler.replay(replayed, alpha, np.array(kept), Key(0, 0, 0))
    assert bits(search.point) == bits(replayed)


# --- points ----------------------------------------------------------------------------------


@pytest.mark.parametrize("p", AT_A_TIME)
@pytest.mark.parametrize("name", METHODS)
def test_points_are_read_only_and_stay_until_they_are_told(name: str, p: int) -> None:
    algorithm = make(name, iterations=20, population=13)
    search, x = algorithm.search(task_of(algorithm), 0), task_of(algorithm).x
    values = iter(np.random.default_rng(0).standard_normal(10**5).tolist())
    while points := search.ask(p):
        before = [point.tobytes() for point in points]
        assert not any(point.flags.writeable for point in points)
        assert not any(np.shares_memory(point, search.x) for point in points)
        more = search.ask(p + 1)  # nothing changes before they are told
        assert [point.tobytes() for point in more[: len(points)]] == before
        assert [point.tobytes() for point in points] == before
        assert len(search.iterations) == len(more)
        search.tell([next(values) for _ in points])
    assert search.ask(p) == []
    assert bits(search.x) == bits(x)


def test_a_sparse_step_costs_no_copy() -> None:
    """One buffer for all points; each differs from v in l coordinates at most."""
    search = one_plus_one(MixtureRademacher(2), np.zeros(1000), np.ones(50), Key(0, 0, 0))
    (x,) = search.ask()
    seen = set()
    search.tell([0.0])
    for _ in range(50):
        (point,) = search.ask()
        seen.add(point.__array_interface__["data"][0])
        assert np.count_nonzero(point) <= 2
        search.tell([1.0])
    assert seen == {x.__array_interface__["data"][0]}


def test_steps_are_proposed_again_after_an_accepted_one() -> None:
    sampler, alpha, key = MixtureGaussian(2), np.ones(4), Key(0, 0, 0)
    search = one_plus_one(sampler, np.zeros(N), alpha, key)
    steps: Any = list(sampler.proposals(alpha, key, N).steps())

    def moved(*which: int) -> Floats:
        v = np.zeros(N)
        for k in which:
            np.add.at(v, *steps[k])
        return v

    def asked() -> list[Floats]:
        return [point.copy() for point in search.ask(9)]

    np.testing.assert_array_equal(asked(), [moved(), moved(0), moved(1), moved(2), moved(3)])
    assert list(search.iterations) == [-1, 0, 1, 2, 3]
    search.tell([3.0, 4.0, 2.0, 0.0, 0.0])  # step 1 is kept; those after it were from another v
    assert (search.evaluations, search.nans) == (3, 0)
    np.testing.assert_array_equal(asked(), [moved(1, 2), moved(1, 3)])
    search.tell([math.nan, 2.0])
    assert search.ask() == []
    assert search.answer().payload == bytes([0b1010])
    assert (search.evaluations, search.nans) == (5, 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "sampler"), CASES, ids=case_name)
def test_values_one_by_one_and_points_ahead(name: str, sampler: Sampler | None, seed: int) -> None:
    """Any number asked for, any part of them told: index and basis name the same points."""
    algorithm = make(name, sampler, iterations=20, population=13)
    random = np.random.default_rng(seed)
    seen: dict[tuple[int, int], bytes] = {}

    def value(x: Floats, _: int) -> float:
        return math.sin(1e3 * float(np.abs(x).sum()))

    search = algorithm.search(task_of(algorithm), 5)
    while needed := search.needed:
        assert 1 <= needed <= len(search.ask(needed + 30))
        points = search.ask(int(random.integers(1, 9)))
        for i, point in enumerate(points):
            key = search.index + i, search.basis
            assert seen.setdefault(key, point.tobytes()) == point.tobytes()
        count = int(random.integers(1, len(points) + 1))
        search.tell([value(point, 0) for point in points[:count]])
    assert search.ask() == []
    expected = by_hand(algorithm.search(task_of(algorithm), 5), value)
    assert everything(search.answer()) == everything(expected.answer())
    assert search.basis == expected.basis <= search.index == search.evaluations


@pytest.mark.parametrize("name", TWO_POINT)
def test_points_of_an_estimate(name: str) -> None:
    """A group's where v moves, else all; with the iteration of each one's minibatch."""
    group = 2 if name == "decomfl" else 1
    algorithm = make(name, iterations=6, perturbations=group)
    search = algorithm.search(task_of(algorithm), 0)
    assert isinstance(search, TwoPoint)
    points, iterations = search.ask(99), list(search.iterations)
    expected = [0, 0] * group if search.moving else [0, 0, 1, 1, 2, 2]
    assert iterations == expected
    assert len(points) == len(expected)
    u = streams.normals(search.direction(0), N)
    np.testing.assert_array_equal(points[0], search.x + 1e-6 * u)
    np.testing.assert_array_equal(points[1], search.x - 1e-6 * u)


@pytest.mark.parametrize("name", METHODS)
def test_misuse(name: str) -> None:
    algorithm = make(name)
    search = algorithm.search(task_of(algorithm), 0)
    with pytest.raises(ValueError, match="ask and tell more"):
        search.answer()
    with pytest.raises(ValueError, match="at least one point, got 0"):
        search.ask(0)
    with pytest.raises(ValueError, match="0 points were asked for, got 1 values"):
        search.tell([1.0])
    search.ask()
    with pytest.raises(ValueError, match="1 points were asked for, got 2 values"):
        search.tell([1.0, 2.0])
    search.tell([1.0])
    with pytest.raises(ValueError, match="ask and tell more"):
        search.answer()


# --- steps taken and taken back --------------------------------------------------------------

ODD_NUMBERS = np.array([-0.0, 0.0, 5e-324, -1e-300, 0.1, 1 / 3, -1e16, 1e300, np.pi])


def searched(sampler: Sampler, alpha: Floats, key: Key, values: Any, p: int) -> OnePlusOne:
    """From the odd numbers, with values by the iteration."""
    search = one_plus_one(sampler, ODD_NUMBERS, alpha, key)
    by_hand(search, lambda _x, k: float(values[k + 1]), p)
    return search


def accepted_of(search: OnePlusOne) -> list[bool]:
    count = search.proposals.count
    packed = np.frombuffer(search.answer().payload, np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(bool).tolist()


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=case_name)
def test_rejected_steps_leave_every_bit(sampler: Sampler, p: int) -> None:
    """Adding a step and subtracting it again would not."""
    alpha = np.geomspace(1e8, 1e-3, 40)
    search = searched(sampler, alpha, Key(1, 2, 3), np.arange(41.0), p)
    assert not any(accepted_of(search))
    assert search.point.tobytes() == ODD_NUMBERS.tobytes()


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=case_name)
def test_accepted_steps_add_up(sampler: Sampler, p: int) -> None:
    """All accepted: v is the plain sum, one rounding per product and one per addition."""
    alpha, key = np.geomspace(10.0, 1e-3, 40), Key(1, 2, 3)
    search = searched(sampler, alpha, key, np.zeros(41), p)
    assert all(accepted_of(search))
    assert search.point.tobytes() == summed(sampler, alpha, key).tobytes()
    replayed = ODD_NUMBERS.copy()
    sampler.replay(replayed, alpha, np.ones(40, np.bool_), key)
    assert replayed.tobytes() == search.point.tobytes()


def summed(sampler: Sampler, alpha: Floats, key: Key) -> Floats:
    """v + alpha_0 u_0 + alpha_1 u_1 + ..., number by number."""
    v, n = ODD_NUMBERS.copy(), ODD_NUMBERS.size
    for k in range(alpha.size):
        index, u, scale = None, None, alpha[k]
        if isinstance(sampler, MixtureGaussian | MixtureRademacher):
            coordinates = Stream(*key, k, Purpose.COORDINATE)
            index = streams.integers(coordinates, sampler.l, n)
            u = streams.normals(Stream(*key, k, Purpose.NORMAL), sampler.l)
            if isinstance(sampler, MixtureRademacher):
                u = np.where(streams.words(coordinates, sampler.l) % np.uint64(2), 1.0, -1.0)
            scale = alpha[k] * math.sqrt(n / sampler.l)
        else:
            index, u = sampler.vector(key, k, n)
        for r, value in zip(range(n) if index is None else index, u, strict=True):
            v[r] = v[r] + scale * value
    return v


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=case_name)
def test_accepted_and_rejected_steps_in_turn(sampler: Sampler, p: int) -> None:
    """Search and replay agree where some steps are taken, and an even one after a rejected one."""
    values = np.random.default_rng(0).standard_normal(41).cumsum()
    alpha, key = np.geomspace(10.0, 1e-3, 40), Key(4, 5, 6)
    search = searched(sampler, alpha, key, values, p)
    best = np.minimum.accumulate(values)
    accepted = accepted_of(search)
    assert accepted == (values[1:] <= best[:-1]).tolist()
    assert 0 < sum(accepted) < 40
    replayed = ODD_NUMBERS.copy()
    sampler.replay(replayed, alpha, np.array(accepted), key)
    assert replayed.tobytes() == search.point.tobytes()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=case_name)
def test_changes_of_several_workers_are_their_replays(sampler: Sampler) -> None:
    random, alpha = np.random.default_rng(2), np.geomspace(1.0, 1e-3, 13)
    x = random.standard_normal(9)
    accepted, workers = random.random((4, 13)) < 0.5, np.array([7, 0, 3, 2**31])
    masks = np.packbits(accepted, axis=1, bitorder="little")
    changes = sampler.proposals(alpha, Key(1, 2, 99), x.size).changes(x, masks, workers)
    for worker, mask, (index, change) in zip(workers.tolist(), accepted, changes, strict=True):
        v = x.copy()
        sampler.replay(v, alpha, mask, Key(1, 2, worker))
        expected = v - x
        found = np.zeros(9)
        found[slice(None) if index is None else index] = change
        assert found.tobytes() == np.where(expected == 0, 0.0, expected).tobytes()


def test_a_search_that_compiled_code_has_finished_asks_for_nothing() -> None:
    algorithm = make("des-mr", iterations=4)
    search = algorithm.search(task_of(algorithm), 0)
    nowhere = np.empty(0, np.int64), np.empty(0), np.empty(0)
    search.finish(np.zeros(4, np.bool_), 0, moved=nowhere)
    assert not search.ask()
    assert search.answer().evaluations == 5
