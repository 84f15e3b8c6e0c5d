"""Compiled searches of linear models against searches driven by plain values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from helpers import oracle
from helpers.searching import BITS, Floats, bits, by_hand, make, one_plus_one
from numpy.typing import NDArray
from scipy import sparse

from desopt import METHODS
from desopt.contract import streams
from desopt.contract.payload import Layout
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Answer, Batches, Step, Task
from desopt.data import Draw, Rows
from desopt.kernels.steps import replay_gaussian
from desopt.methods.samplers import Gaussian, Key, MixtureGaussian, MixtureRademacher, Sampler
from desopt.methods.searches import OnePlusOne, Population, TwoPoint
from desopt.objectives import LinearModel, PythonObjective, WorkerData

LOSSES = sorted(oracle.LOSSES)

# n and the part of the entries that are not 0. A step in the wide one touches few rows.
LAYOUTS = {"dense": (15, 1.0), "csr": (15, 0.1), "wide": (200, 0.02), "duplicates": (15, 0.1)}


def made(layout: str, random: np.random.Generator) -> tuple[Any, Floats]:
    """60 rows and their labels."""
    n, density = LAYOUTS[layout]
    X: Any = random.standard_normal((60, n)) * (random.random((60, n)) < density)
    y = np.where(random.random(60) < 0.5, 1.0, -1.0)
    if layout != "dense":
        X = sparse.csr_array(X)
    if layout == "duplicates":  # every entry as two halves, which add up
        halves = np.repeat(X.data / 2, 2), np.repeat(X.indices, 2)
        X = sparse.csr_array((*halves, 2 * X.indptr), shape=X.shape)
    return X, y


class Pair:
    """One worker's 47 of 60 rows, in compiled code and as a Python function, and a point x."""

    def __init__(self, loss: str, layout: str, seed: int, penalty: float, b: int = 25) -> None:
        random = np.random.default_rng(seed)
        X, y = made(layout, random)
        self.x = 0.5 * random.standard_normal(X.shape[1])
        self.value = oracle.loss_of(loss, penalty)
        model = LinearModel(loss, penalty)
        python = PythonObjective(lambda x, batch: self.value(x, *batch))
        rows = Rows((X, y), np.arange(3, 50))
        (prepared,) = model.prepare([rows])
        self.compiled = WorkerData(model, cast(Rows, prepared), 7, 2, b)
        self.python = WorkerData(python, rows, 7, 2, b)

    def run(self, make_search: Any) -> tuple[Any, Any, Answer, Answer]:
        """The same search both ways, and the answers."""
        searches = make_search(self.x), make_search(self.x)
        answers = self.compiled.run(searches[0]), self.python.run(searches[1])
        for name in ("worker", "evaluations", "samples", "nans"):
            assert getattr(answers[0], name) == getattr(answers[1], name)
        return *searches, *answers

    def f(self, x: Floats) -> float:
        """On the minibatch of round 3."""
        return self.python.function(x, 3).value(x)


def accepted_of(answer: Answer, count: int) -> NDArray[np.bool_]:
    return Layout(bits=count).decode(answer).bits


def check_decisions(
    found: NDArray[np.bool_], expected: NDArray[np.bool_], pair: Pair, steps: Sequence[Step]
) -> int:
    """Equal up to the first step whose change of f is lost in rounding; how many that are."""
    different = np.flatnonzero(found != expected)
    if not different.size:
        return len(steps)
    first = int(different[0])
    v = pair.x.copy()
    for k in np.flatnonzero(expected[:first]).tolist():
        _add(v, steps[k])
    w = v.copy()
    _add(w, steps[first])
    assert abs(pair.f(w) - pair.f(v)) < 1e-12
    return first


def _add(v: Floats, step: Step) -> None:
    index, change = step
    np.add.at(v, np.arange(v.size) if index is None else index, change)


@pytest.mark.parametrize("penalty", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["mixture", "gaussian"])
def test_one_plus_one(kind: str, loss: str, layout: str, penalty: float) -> None:
    compared = taken = 0
    count = 60 if kind == "mixture" else 40
    for seed in range(20):
        pair = Pair(loss, layout, seed, penalty)
        sampler: Sampler = Gaussian()
        alpha = 0.3 / np.sqrt(np.arange(1.0, count + 1.0))
        if kind == "mixture":
            sampler = MixtureGaussian(4) if seed % 2 == 0 else MixtureRademacher(4)
            alpha = np.full(count, 0.3 / np.sqrt(pair.x.size / 4))
        key = Key(seed, 3, 2)
        compiled, generic, *answers = pair.run(
            lambda x, s=sampler, a=alpha, k=key: one_plus_one(s, x, a, k)
        )
        found, expected = (accepted_of(answer, count) for answer in answers)
        steps = list(sampler.proposals(alpha, key, pair.x.size).steps())
        same = check_decisions(found, expected, pair, steps)
        compared, taken = compared + same, taken + int(expected[:same].sum())
        replayed = pair.x.copy()
        sampler.replay(replayed, alpha, found, key)
        assert bits(compiled.point) == bits(replayed)
        if same == count:
            assert bits(compiled.point) == bits(generic.point)
        assert answers[0].evaluations == count + 1
        assert answers[0].nans == 0
        if kind == "mixture":
            columns, change = cast(Any, answers[0].change)
            assert bits(change) == bits(replayed[columns] - pair.x[columns])
            assert answers[0].point is None
    assert compared > 0.9 * 20 * count  # ties lost in rounding are rare
    assert 0.02 < taken / compared < 0.98


def two_point(x: Floats, scale: Floats, batches: Batches, moving: bool, radius: float) -> TwoPoint:
    return TwoPoint(
        Task(3, x), 2, Stream(7, 3, 2, 0, Purpose.NORMAL), scale, radius=radius,
        layout=Layout(float64=scale.size), batches=batches, moving=moving,
    )  # fmt: skip


@pytest.mark.parametrize("b", [4, 16])
@pytest.mark.parametrize("moving", [True, False])
@pytest.mark.parametrize("batches", Batches)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_two_point(loss: str, layout: str, batches: Batches, moving: bool, b: int) -> None:
    """Equal slopes but for rounding, and v is bit for bit where these slopes lead.

    Eleven batches of 4 are fewer than the 47 rows, eleven of 16 are more.
    """
    pair = Pair(loss, layout, 5, penalty=0.1, b=b)
    pair.x[3] = -0.0
    scale = -0.2 / np.arange(1.0, 12.0)
    scale[-1] = 0.0  # a step of length zero
    compiled, _, *answers = pair.run(lambda x: two_point(x, scale, batches, moving, 0.3))
    found, expected = (Layout(float64=11).decode(answer).float64 for answer in answers)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    assert np.abs(expected).min() > 1e-6
    v = pair.x.copy() if moving else np.zeros_like(pair.x)
    replay_gaussian(v, scale * found, *Stream(7, 3, 2, 0, Purpose.NORMAL).key())
    assert bits(compiled.point) == bits(answers[0].point) == bits(v)
    assert answers[0].evaluations == 22
    assert answers[0].samples == 22 * (47 if batches is Batches.ALL else b)


@pytest.mark.parametrize("radius", [1e-6, 1e-3, 0.5])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_at_any_radius(loss: str, layout: str, radius: float) -> None:
    """The values have some 40 roundings of 1e-16 each."""
    pair = Pair(loss, layout, 7, penalty=0.1)
    scale = np.full(12, -0.1)
    _, _, *answers = pair.run(lambda x: two_point(x, scale, Batches.ITERATION, False, radius))
    found, expected = (Layout(float64=12).decode(answer).float64 for answer in answers)
    size = 1.0 + abs(pair.f(pair.x))
    assert np.abs(found - expected).max() <= 40 * 1.2e-16 * size / radius
    assert np.abs(expected).min() > 1e-6  # else there would be nothing to compare


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_population(loss: str, layout: str) -> None:
    stream = Stream(9, 1, streams.SERVER, 0, Purpose.NORMAL)
    sums = Layout(float64=11, missing=True)
    for count in (1, 4, 5, 11):
        pair = Pair(loss, layout, 3, penalty=0.1)
        _, _, *answers = pair.run(
            lambda x, count=count: Population(
                Task(1, x), 2, stream, 0.7, members=count, layout=sums
            )
        )
        found, expected = (sums.decode(answer).float64 for answer in answers)
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        assert (found[count:] == np.inf).all()
        assert answers[0].evaluations == count


# --- data that are drawn ---------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_drawn_data(name: str) -> None:
    """A compiled search on batches of a user's draw(rng, b), beside a Python function on them."""

    def draw(rng: np.random.Generator, b: int) -> tuple[Floats, Floats]:
        X = rng.standard_normal((b, 6))
        return X, np.where(X[:, 0] + 0.3 * X[:, 1] > 0.1, 1.0, -1.0)

    loss = oracle.loss_of("lr", 1e-6)
    model, python = LinearModel("lr"), PythonObjective(lambda x, batch: loss(x, *batch))
    algorithm = make(name, iterations=10, radius=0.1)
    task = replace(algorithm.plan(algorithm.init(np.linspace(-1, 1, 6))), round=2)
    found, expected = (
        algorithm.work(task, WorkerData(objective, Draw(draw), 7, 1, 20), 1)
        for objective in (model, python)
    )
    assert (found.evaluations, found.samples) == (expected.evaluations, expected.samples)
    if name in BITS:
        assert found.payload == expected.payload
    else:
        slopes, wanted = (algorithm.layout.decode(a).float64 for a in (found, expected))
        np.testing.assert_allclose(slopes, wanted, rtol=1e-10)


# --- searches that have no compiled code -----------------------------------------------------


class Corner:
    """A search of a user's own: the lowest of x and x + e_j, by its number."""

    round, batches = 0, Batches.ALL

    def __init__(self, x: Floats) -> None:
        self.x, self.basis, self.values = x, 0, list[float]()

    @property
    def iterations(self) -> Sequence[int]:
        return [len(self.values) - 1]

    @property
    def index(self) -> int:
        return len(self.values)

    @property
    def needed(self) -> int:
        return 1 + self.x.size - len(self.values)

    def ask(self, p: int = 1) -> Sequence[Floats]:
        corners = np.vstack([self.x, self.x + np.eye(self.x.size)])
        return list(corners[len(self.values) :][:p])

    def tell(self, values: Sequence[float], violations: Sequence[float] = ()) -> None:
        self.values += values

    def answer(self, rows: int = 1) -> Answer:
        return Answer(0, bytes([int(np.argmin(self.values))]), len(self.values), rows)


def test_any_search_runs_on_a_compiled_objective() -> None:
    pair = Pair("lr", "dense", 1, 0.1)
    found, expected = pair.compiled.run(Corner(pair.x)), pair.python.run(Corner(pair.x))
    assert found == expected
    assert found.evaluations == 16
    assert found.samples == 47


class Twice(OnePlusOne):
    """Not the search that the kernels know, although it has its proposals."""


def test_a_search_with_known_proposals_is_not_the_known_search() -> None:
    pair, alpha, sampler = Pair("lr", "dense", 1, 0.1), np.ones(8), MixtureRademacher(2)
    search = Twice(
        Task(3, pair.x), 2, sampler.proposals(alpha, Key(0, 0, 0), pair.x.size),
        layout=Layout(bits=8), batches=Batches.ROUND, dense=False,
    )  # fmt: skip
    assert pair.compiled.run(search).change is None  # driven by values


def test_x_may_be_read_only_and_not_contiguous() -> None:
    pair = Pair("lr", "dense", 1, 0.1)
    spread = np.zeros(2 * pair.x.size)
    spread[::2] = pair.x
    spread.flags.writeable = False
    for name in METHODS:
        algorithm = make(name)
        task = replace(algorithm.plan(algorithm.init(pair.x)), round=3)
        one = algorithm.work(task, pair.compiled, 2)
        other = algorithm.work(replace(task, x=spread[::2]), pair.compiled, 2)
        assert bits(one) == bits(other)


@pytest.mark.parametrize("name", METHODS)
def test_a_search_that_has_begun_goes_on(name: str) -> None:
    """Three values were told before; the rest is driven by values, not begun again."""
    pair, algorithm = Pair("lr", "csr", 1, 0.1), make(name, iterations=10)
    task = replace(algorithm.plan(algorithm.init(pair.x)), round=3)
    search, whole = algorithm.search(task, 2), algorithm.search(task, 2)
    f = pair.compiled.function(pair.x, 3, search.batches)
    for _ in range(3):
        search.tell([f.value(search.ask()[0], search.iterations[0])])
    assert bits(pair.compiled.run(search)) == bits(by_hand(whole, f.value).answer(f.rows))


@pytest.mark.parametrize("sampler", [Gaussian(), MixtureRademacher(3)])
def test_a_fresh_minibatch_for_each_step(sampler: Sampler) -> None:
    """No method does it; no kernel may do something else instead."""
    pair, alpha = Pair("lr", "dense", 1, 0.1), np.full(30, 0.3)

    def search(x: Floats) -> OnePlusOne:
        return OnePlusOne(
            Task(3, x), 2, sampler.proposals(alpha, Key(0, 0, 0), x.size),
            layout=Layout(bits=30), batches=Batches.ITERATION, dense=True,
        )  # fmt: skip

    _, _, compiled, python = pair.run(search)
    assert compiled.payload == python.payload
    assert 0 < accepted_of(python, 30).sum() < 30
