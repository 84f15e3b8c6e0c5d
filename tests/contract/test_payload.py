"""Answers: what they hold, what is refused, and that nothing is lost by leaving points out.

``merge`` must give the same bits from the compact answers as from final points handed over in
memory. Bits are compared as bytes, so that 0.0 and -0.0 differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from helpers import oracle
from helpers.searching import SAMPLERS, TWO_POINT, bits, case_name, locals_of, make
from hypothesis import given, settings
from hypothesis import strategies as st

from desopt import METHODS
from desopt.contract.payload import Layout
from desopt.contract.types import Answer, Task
from desopt.methods.samplers import Sampler
from desopt.objectives import WorkerData

CASES: list[tuple[str, Sampler | None]] = [
    *((name, None) for name in METHODS),
    *((name, sampler) for name in ("es", "des") for sampler in SAMPLERS),
]


class Kept:
    """A worker's side that keeps its last search, and with it the final point."""

    def __init__(self, local: WorkerData) -> None:
        self._local = local
        self.search: Any = None

    def run(self, search: Any) -> Answer:
        self.search = search
        return self._local.run(search)


def work(
    algorithm: Any, task: Task, locals_: Sequence[WorkerData]
) -> tuple[list[Answer], list[Answer]]:
    """The answers as an engine in memory gets them, and with final points in place of changes."""
    kept = [*map(Kept, locals_)]
    handed = [algorithm.work(task, local, worker) for worker, local in enumerate(kept)]
    if METHODS[algorithm.name].sampler is None:
        return handed, handed
    points = [local.search.point.copy() for local in kept]
    return handed, [replace(a, point=v, change=None) for a, v in zip(handed, points, strict=True)]


def compact(answers: Sequence[Answer]) -> list[Answer]:
    """What is left of the answers in a journal or on a wire."""
    return [Answer(answer.worker, bytes(answer.payload)) for answer in answers]


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
    locals_ = locals_of(kind, n, 1 if METHODS[name].single_worker else workers, seed)
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
    if name == "des-c":  # whose first round only measures: bits count from the second on
        algorithm = replace(algorithm, correction="bits")
    locals_ = locals_of("dense", 10, 1 if METHODS[name].single_worker else 3, seed=1)
    state = algorithm.init(np.full(10, 0.3))
    answers = compact(work(algorithm, algorithm.plan(state), locals_)[0])
    if algorithm.layout.bits:
        other = [bytes([a.payload[0] ^ 1]) + a.payload[1:] for a in answers]
    else:
        number = "<f4" if algorithm.layout.float32 else "<f8"
        other = [(-np.frombuffer(a.payload, number)).tobytes() for a in answers]
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
    three = layout.packed([Answer(0, payload)] * 3)
    assert three.bits.tobytes() == 3 * payload[:packed]
    assert three.float32.tobytes() == 3 * decoded.float32.tobytes()
    assert three.float64.tobytes() == 3 * decoded.float64.tobytes()


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
        with pytest.raises(ValueError, match="answer of worker 7 has"):
            layout.packed([Answer(6, payload), Answer(7, wrong)])


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
    expected = {
        "K bits": -(-iterations // 8),
        "5K bits and 1 float32": -(-5 * iterations // 8) + 4,
        "K/2 numbers": 8 * iterations // 2,
        "K/2 float32": 4 * iterations // 2,
        "λ numbers": 8 * 11,
    }
    assert len(answer.payload) == expected[METHODS[name].answer]


@pytest.mark.parametrize("name", METHODS)
def test_bad_payloads_are_refused(name: str) -> None:
    algorithm = make(name, iterations=10)
    workers = 1 if METHODS[name].single_worker else 3
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
    last = algorithm.layout.bits - 1
    if algorithm.layout.bits:
        at, beyond = (last + 1) // 8, bytes([1 << (last + 1) % 8])
        set_beyond = good[:at] + bytes([good[at] | beyond[0]]) + good[at + 1 :]
        cases[f"worker {bad} has bits set beyond bit {last}"] = set_beyond
    else:
        number = np.float32 if algorithm.layout.float32 else np.float64
        nan, infinite = number("nan").tobytes(), number("-inf").tobytes()
        cases[f"worker {bad} has a NaN scalar"] = nan + good[len(nan) :]
        cases[f"worker {bad} has an infinite scalar"] = infinite + good[len(nan) :]
    for message, payload in cases.items():
        with pytest.raises(ValueError, match=message):
            algorithm.merge(state, [*answers[:-1], Answer(bad, payload)])
