"""Answers and states as bytes: nothing is lost, and nothing malformed is believed.

The bytes themselves are fixed by test vectors: tests/protocol/test_wire.py for messages,
tests/run/test_journal.py for journals.
"""

import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from desopt.contract import codec
from desopt.contract.codec import Malformed
from desopt.contract.payload import Layout
from desopt.contract.types import Answer

WORKERS, LAYOUT = 300, Layout(bits=11, float32=1)
Floats = NDArray[np.float64]

payloads = st.builds(
    lambda bits, number: LAYOUT.encode([bool(bits >> k & 1) for k in range(11)], [number]),
    st.integers(0, 2**11 - 1),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
answers = st.builds(
    Answer,
    worker=st.integers(0, WORKERS - 1),
    payload=payloads,
    evaluations=st.integers(0, 2**32 - 1),
    samples=st.integers(0, 2**64 - 1),
    nans=st.integers(0, 2**32 - 1),
)
rounds = st.lists(answers, max_size=8, unique_by=lambda answer: answer.worker).map(
    lambda given_: sorted(given_, key=lambda answer: answer.worker)
)
check = settings(deadline=None, derandomize=True)


def bare(given_: list[Answer]) -> list[Answer]:
    """A round's answers have no counts."""
    return [Answer(answer.worker, answer.payload) for answer in given_]


@check
@given(answers)
def test_an_answer_comes_back(answer: Answer) -> None:
    data = codec.pack_answer(answer)
    assert len(data) == codec.ANSWER_BYTES + LAYOUT.size
    assert codec.unpack_answer(data, WORKERS, LAYOUT) == answer
    for wrong, what in (
        (data[: codec.ANSWER_BYTES - 1], "length"),
        (data[:-1], "payload"),
        (data + b"\0", "payload"),
        (struct.pack("<I", WORKERS) + data[4:], "worker"),
    ):
        with pytest.raises(Malformed) as error:
            codec.unpack_answer(wrong, WORKERS, LAYOUT)
        assert error.value.what == what


@check
@given(st.lists(rounds, max_size=4))
def test_rounds_of_a_message_come_back(several: list[list[Answer]]) -> None:
    packed = [codec.pack_round(each) for each in several]
    assert [*map(len, packed)] == [codec.round_bytes(len(each), LAYOUT.size) for each in several]
    data = b"".join(packed)
    assert codec.split_rounds(data, LAYOUT.size, 4) == packed
    assert [codec.unpack_round(each, WORKERS) for each in packed] == [*map(bare, several)]
    if data:
        for wrong in (data[:-1], data + b"\1"):
            with pytest.raises(Malformed, match="answers claimed"):
                codec.split_rounds(wrong, LAYOUT.size, 4)
        with pytest.raises(Malformed, match="more than"):
            codec.split_rounds(data, LAYOUT.size, len(several) - 1)


@check
@given(rounds)
def test_rounds_of_a_journal_come_back(given_: list[Answer]) -> None:
    data = codec.pack_entries(given_)
    assert codec.unpack_entries(data, len(given_), WORKERS) == bare(given_)
    for cut in range(len(data)):
        with pytest.raises(Malformed):
            codec.unpack_entries(data[:cut], len(given_), WORKERS)
    with pytest.raises(Malformed, match="1 bytes follow"):
        codec.unpack_entries(data + b"\0", len(given_), WORKERS)
    if given_:
        with pytest.raises(Malformed, match="worker"):
            codec.unpack_entries(data, len(given_), given_[-1].worker)


def test_journal_lengths_may_differ_and_message_lengths_may_not() -> None:
    given_ = [Answer(0, b"a"), Answer(200, b"bc")]
    data = codec.pack_entries(given_)
    assert data == b"\0\1a" + b"\xc7\1\2bc"  # gaps 0 and 199
    assert codec.unpack_entries(data, 2, 201) == given_
    with pytest.raises(ValueError, match="equally long"):
        codec.pack_round(given_)


@pytest.mark.parametrize("workers", [[1, 1], [2, 1], [1, WORKERS]])
def test_workers_of_a_round_must_rise(workers: list[int]) -> None:
    data = codec.pack_round([Answer(worker, b"ab") for worker in workers])
    with pytest.raises(Malformed, match="workers must rise"):
        codec.unpack_round(data, WORKERS)


def test_a_number_of_a_journal_has_64_bits() -> None:
    with pytest.raises(Malformed, match="64 bits"):
        codec.unpack_entries(b"\x80" * 11 + b"\1", 1, WORKERS)


# --- states ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    round: int
    x: Floats
    sigma: float
    path: Floats
    note: str = ""


LIKE: Any = State(0, np.zeros(3), 1, np.zeros(2))


@check
@given(
    st.integers(0, 2**40),
    st.lists(st.floats(), min_size=5, max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=9),
)
def test_a_state_comes_back(round: int, numbers: list[float], sigma: float, note: str) -> None:
    state = State(round, np.array(numbers[:3]), sigma, np.array(numbers[3:]), note)
    found = codec.unpack_state(codec.pack_state(state), LIKE)
    assert isinstance(found, State)
    assert (found.round, found.sigma, found.note) == (round, sigma, note)
    assert found.x.tobytes() + found.path.tobytes() == np.array(numbers).tobytes()
    assert codec.state_bytes(found) == 40


WRONG: dict[str, Any] = {
    "size": replace(LIKE, x=np.zeros(4), path=np.zeros(1)),
    "scalar for array": replace(LIKE, x=1.0),
    "text for number": replace(LIKE, sigma="1"),
    "number for text": replace(LIKE, note=1),
    "bool for number": replace(LIKE, round=True),
    "number beyond measure": replace(LIKE, sigma=2**63),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_state_of_another_kind_is_refused(wrong: State) -> None:
    with pytest.raises(ValueError, match=r"not those of State|cannot have"):
        codec.unpack_state(codec.pack_state(wrong), LIKE)


def test_a_state_is_not_unpacked_beyond_its_sizes() -> None:
    data = codec.pack_state(LIKE)
    (length,) = struct.unpack_from("<I", data)
    long = codec.pack_state(replace(LIKE, x=np.zeros(10**6)))
    (other,) = struct.unpack_from("<I", long)
    with pytest.raises(ValueError, match="do not have the 40 bytes"):
        codec.unpack_state(data[: 4 + length] + long[4 + other :], LIKE)


def test_a_state_of_float32_is_stored_in_less_than_half_the_bytes() -> None:
    rng = np.random.default_rng(0)
    x, m = rng.standard_normal((2, 10_000)).astype(np.float32).astype(np.float64)
    state = replace(LIKE, x=x, path=m)
    long, short = codec.pack_state(state), codec.pack_state(state, float32=True)
    assert len(short) < 0.5 * 8 * 20_000 < codec.state_bytes(state)
    assert len(short) < len(long)
    for data in (long, short):
        found = codec.unpack_state(data, state)
        assert found.x.tobytes() == x.tobytes()
        assert found.path.tobytes() == m.tobytes()
    with pytest.raises(ValueError, match="numbers of the type 'float16'"):
        codec.unpack_state(short.replace(b"float32", b"float16"), state)
