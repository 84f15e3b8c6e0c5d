"""Answers: what they hold, what is refused, and that nothing is lost by leaving points out.

``merge`` must give the same bits from the compact answers as from final points handed over in
memory. Bits are compared as bytes, so that 0.0 and -0.0 differ.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import pytest
from helpers import oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from desopt import METHODS
from desopt.contract import streams
from desopt.contract.payload import Layout
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Answer, Step, Task
from desopt.data import Rows, as_shards
from desopt.kernels.steps import replay_gaussian
from desopt.methods.samplers import (
    CustomSampler,
    Gaussian,
    Key,
    MixtureGaussian,
    MixtureRademacher,
    Sampler,
)
from desopt.objectives import LinearModel, PythonObjective, WorkerData
from desopt.objectives.base import PointFunction, gaussian_steps
from desopt.objectives.functions import PythonFunction

Floats = NDArray[np.float64]


def draw_dense(random: np.random.Generator, n: int) -> Floats:
    return random.uniform(-(3**0.5), 3**0.5, n)


def draw_sparse(random: np.random.Generator, n: int) -> tuple[Any, Any]:
    """A varying number of coordinates, some of them twice."""
    size = int(random.integers(0, 5))
    return random.integers(0, n, size), random.standard_normal(size)


SAMPLERS: list[Sampler] = [
    Gaussian(),
    *(mixture(l) for mixture in (MixtureGaussian, MixtureRademacher) for l in (1, 3, 8, 50)),
    CustomSampler(draw_dense),
    CustomSampler(draw_sparse),
]
CASES: list[tuple[str, Sampler | None]] = [
    *((name, None) for name in METHODS),
    *((name, sampler) for name in ("es", "des") for sampler in SAMPLERS),
]
TWO_POINT = ("fed-zo-gd", "fed-zo-sgd", "zo-signsgd")
BITS = ("es", "des", "des-mg", "des-mr")


def case_name(value: Any) -> str:
    if isinstance(value, CustomSampler):
        return value.draw.__name__
    return str(value or "own")


def make(name: str, sampler: Sampler | None = None, **changes: Any) -> Any:
    values = {"step_size": 0.5, "iterations": 6, "momentum": 0.5, "seed": 3, "radius": 1e-6,
              "mixture": 8, "population": 5, "sampler": sampler}  # fmt: skip
    return METHODS[name].make(name, values | changes)


def mean_of_squares(x: Floats, batch: Any) -> float:
    X, y = batch
    return float(np.mean((X @ x - y) ** 2))


def locals_of(kind: str, n: int, workers: int, seed: int, b: int = 4) -> list["Kept"]:
    """The workers' sides for a compiled objective, dense or CSR, or for a callable."""
    random = np.random.default_rng(seed % 1000)
    X = random.standard_normal((3 * workers + 2, n)) * (random.random(n) < 0.7)
    y = np.where(random.random(len(X)) < 0.5, 1.0, -1.0)
    data = (sparse.csr_array(X) if kind == "csr" else X), y
    objective: Any = PythonObjective(mean_of_squares) if kind == "callable" else LinearModel("lr")
    shards: Any = objective.prepare(as_shards(data, workers, seed))
    return [Kept(WorkerData(objective, shard, seed, i, b)) for i, shard in enumerate(shards)]


class Kept:
    """A worker's side that keeps the function it gave out last, and with it the final point."""

    def __init__(self, local: WorkerData) -> None:
        self._local = local
        self.walk = local.walk
        self.f: Any = None

    def minibatch(self, x: Floats, round: int, iteration: int = 0) -> Any:
        self.f = self._local.minibatch(x, round, iteration)
        return self.f

    def everything(self, x: Floats, round: int) -> Any:
        self.f = self._local.everything(x, round)
        return self.f


def work(algorithm: Any, task: Task, locals_: Sequence[Kept]) -> tuple[list[Answer], list[Answer]]:
    """The answers as an engine in memory gets them, and with final points in place of changes."""
    handed = [algorithm.work(task, local, worker) for worker, local in enumerate(locals_)]
    if algorithm.name not in BITS:
        return handed, handed
    points = [local.f.point.copy() for local in locals_]
    return handed, [replace(a, point=v, change=None) for a, v in zip(handed, points, strict=True)]


def compact(answers: Sequence[Answer]) -> list[Answer]:
    """What is left of the answers in a journal or on a wire."""
    return [Answer(answer.worker, bytes(answer.payload)) for answer in answers]


def bits(value: Any) -> Any:
    """Something that is equal only where every bit is."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return [bits(item) for item in value]
    if is_dataclass(value):
        return type(value), [bits(getattr(value, field.name)) for field in fields(value)]
    return np.float64(value).tobytes() if isinstance(value, float) else value


def freeze(value: Any) -> None:
    """Let whoever writes into one of the arrays fail."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, tuple):
        for item in value:
            freeze(item)
    elif is_dataclass(value):
        for field in fields(value):
            freeze(getattr(value, field.name))


# --- compact answers are as good as points ---------------------------------------------------


@pytest.mark.parametrize(("name", "sampler"), CASES, ids=case_name)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**64 - 1),
    n=st.integers(1, 30),
    iterations=st.integers(1, 20),
    workers=st.integers(1, 4),
    step_size=st.floats(1e-6, 30.0),
    kind=st.sampled_from(["dense", "csr", "callable"]),
)
def test_points_are_rebuilt_bit_for_bit(
    name: str, sampler: Sampler | None, seed: int, n: int, iterations: int, workers: int,
    step_size: float, kind: str,
) -> None:  # fmt: skip
    iterations *= 2 if name in TWO_POINT else 1
    algorithm = make(name, sampler, seed=seed, step_size=step_size, iterations=iterations)
    locals_ = locals_of(kind, n, 1 if name == "es" else workers, seed)
    state = algorithm.init(np.linspace(-1.0, 1.0, n))
    for _ in range(3):
        freeze(state)
        handed, pointed = work(algorithm, algorithm.plan(state), locals_)
        for answer in (*handed, *pointed):
            freeze(answer)
        before = bits(state), [bits(answer) for answer in (*handed, *pointed)]
        merged = algorithm.merge(state, compact(handed))
        assert bits(merged) == bits(algorithm.merge(state, pointed))
        assert bits(merged) == bits(algorithm.merge(state, handed))
        assert bits(merged) == bits(algorithm.merge(state, [*pointed[:1], *compact(handed)[1:]]))
        # pure: what it was given is as it was, and not part of what it gives
        assert (bits(state), [bits(answer) for answer in (*handed, *pointed)]) == before
        from_points = algorithm.merge(state, pointed).x
        assert not any(
            np.shares_memory(from_points, a.point) for a in pointed if a.point is not None
        )
        assert merged.round == state.round + 1
        state = merged


@pytest.mark.parametrize("name", METHODS)
def test_merge_looks_at_the_payloads(name: str) -> None:
    """Other answers, another point: the test above would pass for a merge that ignores them."""
    algorithm = make(name, iterations=20)
    locals_ = locals_of("dense", 10, 1 if name == "es" else 3, seed=1)
    state = algorithm.init(np.full(10, 0.3))
    answers = compact(work(algorithm, algorithm.plan(state), locals_)[0])
    if name in BITS:
        other = [bytes([a.payload[0] ^ 1]) + a.payload[1:] for a in answers]
    else:
        other = [(-np.frombuffer(a.payload, "<f8")).tobytes() for a in answers]
    changed = [replace(a, payload=payload) for a, payload in zip(answers, other, strict=True)]
    assert bits(algorithm.merge(state, answers)) != bits(algorithm.merge(state, changed))


# --- packing ---------------------------------------------------------------------------------


layouts = st.builds(
    Layout,
    bits=st.integers(0, 40),
    float32=st.integers(0, 5),
    float64=st.integers(0, 5),
    missing=st.booleans(),
)


def contents(data: st.DataObject, layout: Layout) -> dict[str, Any]:
    """Values that an answer of this layout may hold, as many as it has."""
    infinite = st.just(np.inf) if layout.missing else st.nothing()

    def numbers(width: Literal[32, 64], count: int) -> list[float]:
        finite = st.floats(width=width, allow_nan=False, allow_infinity=False)
        return data.draw(st.lists(finite | infinite, min_size=count, max_size=count))

    return {
        "bits": data.draw(st.lists(st.booleans(), min_size=layout.bits, max_size=layout.bits)),
        "float32": numbers(32, layout.float32),
        "float64": numbers(64, layout.float64),
    }


@settings(deadline=None, derandomize=True)
@given(layouts, st.data())
def test_decode_gives_what_encode_was_given(layout: Layout, data: st.DataObject) -> None:
    given_ = contents(data, layout)
    payload = layout.encode(**given_)
    assert len(payload) == layout.size
    decoded = layout.decode(Answer(0, payload))
    assert bits(decoded.bits) == bits(np.array(given_["bits"], np.bool_))
    assert bits(decoded.float32) == bits(np.array(given_["float32"], np.float32))
    assert bits(decoded.float64) == bits(np.array(given_["float64"], np.float64))
    assert layout.encode(*decoded) == payload
    packed = -(-layout.bits // 8)
    assert list(oracle.unpack(payload[:packed], layout.bits)) == given_["bits"]
    assert layout.packed_bits([Answer(0, payload)] * 3).tobytes() == 3 * payload[:packed]


def malformed(payload: bytes, layout: Layout) -> Iterator[bytes]:
    """Everything that a payload can have wrong, once each and place by place."""
    yield from (payload[:cut] for cut in range(len(payload)))
    yield payload + b"\0"
    start = -(-layout.bits // 8)
    for bit in range(layout.bits, 8 * start):
        byte = payload[bit // 8] | 1 << bit % 8
        yield payload[: bit // 8] + bytes([byte]) + payload[bit // 8 + 1 :]
    floats = start + 4 * layout.float32
    places = [(at, "<f4") for at in range(start, floats, 4)]
    places += [(at, "<f8") for at in range(floats, len(payload), 8)]
    for at, kind in places:
        for odd in (np.nan, -np.inf, *([] if layout.missing else [np.inf])):
            number = np.array(odd, kind).tobytes()
            yield payload[:at] + number + payload[at + len(number) :]


@settings(deadline=None, derandomize=True)
@given(layouts, st.data())
def test_a_malformed_payload_is_refused(layout: Layout, data: st.DataObject) -> None:
    payload = layout.encode(**contents(data, layout))
    for wrong in malformed(payload, layout):
        with pytest.raises(ValueError, match="answer of worker 7 has"):
            layout.decode(Answer(7, wrong))
        if layout.size:
            with pytest.raises(ValueError, match="answer of worker 7 has"):
                layout.packed_bits([Answer(6, payload), Answer(7, wrong)])


def test_values_that_are_not_given_are_zero() -> None:
    layout = Layout(bits=9, float32=1, float64=2)
    short = layout.encode(bits=[True], float64=[2.0])
    assert short == layout.encode([True] + 8 * [False], [0.0], [2.0, 0.0])
    with pytest.raises(ValueError, match=r"shape \(3,\) for a layout with 2"):
        layout.encode(float64=np.ones(3))
    with pytest.raises(ValueError, match="negative"):
        Layout(bits=-1)


@pytest.mark.parametrize("n", [1, 7, 3000])
@pytest.mark.parametrize("iterations", [2, 8, 10, 100])
@pytest.mark.parametrize("name", METHODS)
def test_size_of_an_answer(name: str, iterations: int, n: int) -> None:
    """Whatever n is."""
    algorithm = make(name, iterations=iterations, population=11)
    task = algorithm.plan(algorithm.init(np.zeros(n)))
    answer = algorithm.work(task, locals_of("csr", n, 1, seed=0)[0], 0)
    expected = {"es-csa": 8 * 11} | dict.fromkeys(TWO_POINT, 8 * iterations // 2)
    assert len(answer.payload) == expected.get(name, -(-iterations // 8))


@pytest.mark.parametrize("name", METHODS)
def test_bad_payloads_are_refused(name: str) -> None:
    algorithm = make(name, iterations=10)
    workers = 1 if name == "es" else 3
    state = algorithm.init(np.zeros(4))
    task, locals_ = algorithm.plan(state), locals_of("dense", 4, workers, 0)
    answers = compact(work(algorithm, task, locals_)[0])
    bad, good = answers[-1].worker, answers[-1].payload
    cases = {
        f"worker {bad} has 0 bytes": b"",
        f"worker {bad} has {len(good) - 1} bytes": good[:-1],
        f"worker {bad} has {len(good) + 1} bytes": good + b"\0",
        f"worker {bad} has {2 * len(good)} bytes": good + good,
    }
    if name in BITS:
        cases[f"worker {bad} has bits set beyond bit 9"] = good[:1] + bytes([good[1] | 4])
    else:
        cases[f"worker {bad} has a NaN scalar"] = np.float64("nan").tobytes() + good[8:]
        cases[f"worker {bad} has an infinite scalar"] = np.float64("-inf").tobytes() + good[8:]
    for message, payload in cases.items():
        with pytest.raises(ValueError, match=message):
            algorithm.merge(state, [*answers[:-1], Answer(bad, payload)])


# --- steps taken and taken back --------------------------------------------------------------


def function_of(values: Any, x: Floats) -> PythonFunction:
    return PythonFunction(lambda _: next(values), (), x, 1)


ODD_NUMBERS = np.array([-0.0, 0.0, 5e-324, -1e-300, 0.1, 1 / 3, -1e16, 1e300, np.pi])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=case_name)
def test_rejected_steps_leave_every_bit(sampler: Sampler) -> None:
    """Adding a step and subtracting it again would not."""
    f = function_of(iter(np.arange(100.0).tolist()), ODD_NUMBERS)
    accepted = sampler.search(f, np.geomspace(1e8, 1e-3, 40), Key(1, 2, 3))
    assert not accepted.any()
    assert f.point.tobytes() == ODD_NUMBERS.tobytes()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=case_name)
def test_accepted_steps_add_up(sampler: Sampler) -> None:
    """All accepted: v is the plain sum, one rounding per product and one per addition."""
    alpha, key = np.geomspace(10.0, 1e-3, 40), Key(1, 2, 3)
    f = function_of(iter([0.0] * 100), ODD_NUMBERS)
    assert sampler.search(f, alpha, key).all()
    assert f.point.tobytes() == summed(sampler, alpha, key).tobytes()
    replayed = ODD_NUMBERS.copy()
    sampler.replay(replayed, alpha, np.ones(40, np.bool_), key)
    assert replayed.tobytes() == f.point.tobytes()


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


@pytest.mark.parametrize("sampler", SAMPLERS, ids=case_name)
def test_accepted_and_rejected_steps_in_turn(sampler: Sampler) -> None:
    """Search and replay agree where some steps are taken, and an even one after a rejected one."""
    values = np.random.default_rng(0).standard_normal(41).cumsum()
    f = function_of(iter(values.tolist()), ODD_NUMBERS)
    alpha, key = np.geomspace(10.0, 1e-3, 40), Key(4, 5, 6)
    accepted = sampler.search(f, alpha, key)
    best = np.minimum.accumulate(values)
    assert accepted.tolist() == (values[1:] <= best[:-1]).tolist()
    assert 0 < accepted.sum() < 40
    replayed = ODD_NUMBERS.copy()
    sampler.replay(replayed, alpha, accepted, key)
    assert replayed.tobytes() == f.point.tobytes()


# --- compiled searches against the generic ones ----------------------------------------------


class Generic(PointFunction):
    """The generic searches on a loss in plain NumPy."""

    def __init__(self, loss: str, data: tuple[Any, Floats], penalty: float, x: Floats) -> None:
        super().__init__(x, len(data[1]))
        self.made_of = loss, data, penalty
        self._loss = oracle.loss_of(loss, penalty)

    def at(self, x: Floats) -> float:
        return self._loss(x, *self.made_of[1])


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


def both(loss: str, layout: str, seed: int, penalty: float) -> tuple[Any, Generic, Floats]:
    """The same batch of 25 of 60 rows, some of them twice, compiled and generic."""
    random = np.random.default_rng(seed)
    X, y = made(layout, random)
    rows = random.integers(0, 60, 25)
    x = 0.5 * random.standard_normal(X.shape[1])
    model = LinearModel(loss, penalty)
    (shard,) = model.prepare(as_shards([(X, y)], 1, 0))
    compiled = model.on_rows(cast(Rows, shard), rows, x)
    return compiled, Generic(loss, (X[rows], y[rows]), penalty, x), x


# n and the part of the entries that are not 0. A step in the wide one touches few rows.
LAYOUTS = {"dense": (15, 1.0), "csr": (15, 0.1), "wide": (200, 0.02), "duplicates": (15, 0.1)}


def check_decisions(
    found: NDArray[np.bool_], expected: NDArray[np.bool_], generic: Generic, x: Floats,
    steps: Sequence[Step],
) -> int:  # fmt: skip
    """Equal up to the first step whose change of f is lost in rounding; how many that are."""
    different = np.flatnonzero(found != expected)
    if not different.size:
        return len(steps)
    first = int(different[0])
    f = Generic(*generic.made_of, x)
    for k in range(first):
        if expected[k]:
            f.peek(steps[k])
            f.move()
    assert abs(f.peek(steps[first]) - f.value()) < 1e-12
    return first


LOSSES = sorted(oracle.LOSSES)


@pytest.mark.parametrize("penalty", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_sparse_search(loss: str, layout: str, penalty: float) -> None:
    compared = taken = 0
    for seed in range(20):
        compiled, generic, x = both(loss, layout, seed, penalty)
        stream = streams.Stream(seed, 0, 0, 0, streams.Purpose.COORDINATE)
        scale, normal = np.full(60, 0.3), seed % 2 == 0
        index, step = streams.mixture_block(stream, scale, 4, x.size, normal)
        found, expected = (f.search_mixture(stream, scale, 4, normal) for f in (compiled, generic))
        steps = list(zip(index, step, strict=True))
        same = check_decisions(found, expected, generic, x, steps)
        compared, taken = compared + same, taken + int(expected[:same].sum())
        if same == len(steps):
            assert bits(compiled.point) == bits(generic.point)
        assert compiled.value() == compiled.at(compiled.point)  # it stands where it says
        assert compiled.evaluations == generic.evaluations + 1 == 62
        assert compiled.nans == generic.nans == 0
    assert compared > 0.9 * 20 * 60  # ties lost in rounding are rare
    assert 0.02 < taken / compared < 0.98


@pytest.mark.parametrize("penalty", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_gaussian_search(loss: str, layout: str, penalty: float) -> None:
    compared = taken = 0
    alpha = 0.3 / np.sqrt(np.arange(1.0, 41.0))
    for seed in range(20):
        compiled, generic, x = both(loss, layout, seed, penalty)
        stream = Stream(seed, 3, 2, 0, Purpose.NORMAL)
        found, expected = (f.search_gaussian(stream, alpha) for f in (compiled, generic))
        steps = list(gaussian_steps(stream, alpha, x.size))
        same = check_decisions(found, expected, generic, x, steps)
        compared, taken = compared + same, taken + int(expected[:same].sum())
        if same == len(steps):
            assert bits(compiled.point) == bits(generic.point)
        assert compiled.value() == compiled.at(compiled.point)  # it stands where it says
        assert compiled.evaluations == generic.evaluations + 1 == 42
    assert compared > 0.9 * 20 * 40
    assert 0.02 < taken / compared < 0.98


@pytest.mark.parametrize("radius", [1e-6, 1e-3, 0.5])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_slope(loss: str, layout: str, radius: float) -> None:
    """Slopes at a point that moves; the values have some 40 roundings of 1e-16 each."""
    compiled, generic, x = both(loss, layout, 7, penalty=0.1)
    for k in range(12):
        u = streams.normals(Stream(1, 0, 0, k, Purpose.NORMAL), x.size)
        found, expected = compiled.slope(u, radius), generic.slope(u, radius)
        size = 1.0 + abs(generic.at(generic.point))
        assert abs(found - expected) <= 40 * 1.2e-16 * size / radius
        assert abs(expected) > 1e-6  # else there would be nothing to compare
        for f in (compiled, generic):
            f.shift(u, -0.1 * expected)
        assert bits(compiled.point) == bits(generic.point)
    assert compiled.evaluations == generic.evaluations == 24


@pytest.mark.parametrize("count", [1, 4, 11])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_descent(loss: str, layout: str, count: int) -> None:
    """Equal slopes but for rounding, and v is bit for bit where these slopes lead."""
    compiled, generic, x = both(loss, layout, 5, penalty=0.1)
    stream, scale = Stream(3, 2, 1, 0, Purpose.NORMAL), -0.2 / np.arange(1.0, count + 1.0)
    scale[-1] = 0.0  # a step of length zero
    found, expected = (f.descend(stream, scale, 0.3) for f in (compiled, generic))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    assert np.abs(expected).min() > 1e-6
    v = x.copy()
    replay_gaussian(v, scale * found, *stream.key())
    assert bits(compiled.point) == bits(v)
    assert compiled.evaluations == generic.evaluations == 2 * count


@pytest.mark.parametrize("b", [4, 16])
@pytest.mark.parametrize("moving", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_walk(loss: str, layout: str, moving: bool, b: int) -> None:
    """A minibatch per estimate, at a point that moves or stays, beside the general loop.

    Nine batches of 4 are fewer than the 60 rows, nine of 16 are more than the 47.
    """
    random = np.random.default_rng(5)
    X, y = made(layout, random)
    x = 0.5 * random.standard_normal(X.shape[1])
    x[3] = -0.0
    loss_of_batch = oracle.loss_of(loss, 0.1)
    objectives = LinearModel(loss, 0.1), PythonObjective(lambda x, batch: loss_of_batch(x, *batch))
    scale, results = np.full(9, -0.1), []
    for objective in objectives:
        whole, part = objective.prepare([Rows((X, y)), Rows((X, y), np.arange(3, 50))])
        local = WorkerData(objective, cast(Rows, whole if b == 4 else part), 7, 2, b)
        at = x.copy()
        moved = at if moving else np.zeros_like(x)
        results.append((local.walk(at, moved, 3, scale, 0.3), moved))
    (found, end), (expected, _) = results
    np.testing.assert_allclose(found.slopes, expected.slopes, rtol=1e-11, atol=1e-13)
    assert found[1:] == expected[1:] == (18, 18 * b, 0)
    assert np.abs(expected.slopes).min() > 1e-6
    v = x.copy() if moving else np.zeros_like(x)
    replay_gaussian(v, scale * found.slopes, *Stream(7, 3, 2, 0, Purpose.NORMAL).key())
    assert bits(end) == bits(v)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_values_around(loss: str, layout: str) -> None:
    stream = Stream(9, 1, streams.SERVER, 0, Purpose.NORMAL)
    for count in (1, 4, 5, 11):
        compiled, generic, x = both(loss, layout, 3, penalty=0.1)
        found, expected = (f.values_around(stream, 0.7, count) for f in (compiled, generic))
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        assert compiled.evaluations == generic.evaluations == count
        assert bits(compiled.point) == bits(generic.point) == bits(x)


@pytest.mark.parametrize("size", [1, 4, 40])
def test_the_loop_for_sparse_steps_is_the_general_one(size: int) -> None:
    """PointFunction has two: one without a Python object per step."""
    for seed in range(10):
        _, fast, _ = both("nsvm", "dense", seed, 0.1)
        _, general, x = both("nsvm", "dense", seed, 0.1)
        stream = streams.Stream(seed, 0, 0, 0, streams.Purpose.COORDINATE)
        index, step = streams.mixture_block(stream, np.full(50, 0.1), size, x.size, gaussian=True)
        found = fast.search_mixture(stream, np.full(50, 0.1), size, gaussian=True)
        assert found.tolist() == general.search(zip(index, step, strict=True), 50).tolist()
        assert bits(fast.point) == bits(general.point)
        assert 0 < found.sum() < 50


def test_peek_and_move() -> None:
    """Peeking leaves v, for sparse and dense steps, until the last one is moved to."""
    _, f, x = both("lr", "dense", 0, 0.1)
    dense: Step = None, np.full(x.size, 0.25)
    twice: Step = np.array([2, 2]), np.array([0.5, 0.25])
    there, elsewhere = x + 0.25, x.copy()
    elsewhere[2] = (x[2] + 0.5) + 0.25
    for step, point in ((dense, there), (twice, elsewhere), (dense, there), (twice, elsewhere)):
        assert f.peek(step) == f.at(point)
        assert bits(f.point) == bits(x)
    f.peek(dense)
    f.peek(twice)
    f.move()
    assert bits(f.point) == bits(elsewhere)
    assert f.value() == f.at(elsewhere)
    f.peek(dense)
    f.move()
    assert bits(f.point) == bits(elsewhere + 0.25)
