"""Work in chunks on several threads, handed on in order."""

import threading
import time

import numpy as np
import pytest

from desopt.contract.types import Answer
from desopt.methods import DES
from desopt.methods.samplers import Gaussian, Key, MixtureGaussian, MixtureRademacher, Sampler
from desopt.system import parallel


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: 4)


def test_results_come_in_order() -> None:
    def late_first(chunk: list[int]) -> list[int]:
        time.sleep(0.02 if chunk[0] % 20 == 0 else 0.0)
        return [-item for item in chunk]

    assert list(parallel.in_chunks(late_first, range(103), 10)) == [-i for i in range(103)]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20])
def test_any_number_of_items(count: int) -> None:
    assert list(parallel.in_chunks(list, range(count), 10)) == list(range(count))


def test_one_chunk_stays_in_this_thread() -> None:
    def where(chunk: list[int]) -> list[int]:
        return [threading.get_ident()]

    assert list(parallel.in_chunks(where, range(9), 10)) == [threading.get_ident()]
    assert threading.get_ident() not in list(parallel.in_chunks(where, range(30), 10))


def test_only_a_few_chunks_are_taken_ahead() -> None:
    items = iter(range(10_000))
    results = parallel.in_chunks(list, items, 10)
    for expected in range(1000):
        assert next(results) == expected
        left = items.__length_hint__()  # type: ignore[attr-defined]
        assert 10_000 - left <= expected + 10 * (2 * 4 + 1)


def test_an_error_reaches_the_caller() -> None:
    def work(chunk: list[int]) -> list[int]:
        if 57 in chunk:
            raise ValueError("57 is no number")
        return chunk

    results = parallel.in_chunks(work, range(200), 10)
    assert [next(results) for _ in range(50)] == list(range(50))
    with pytest.raises(ValueError, match="57"):
        next(results)


@pytest.mark.parametrize("K", [21, 24])
@pytest.mark.parametrize("sampler", [MixtureRademacher(3), MixtureGaussian(5), Gaussian()])
def test_a_merge_of_many_answers_is_that_of_one_after_the_other(sampler: Sampler, K: int) -> None:
    """Against each v_i by the sampler's replay, added in order; worker 3 hands its point over."""
    n, workers = 40, 150
    algorithm = DES(iterations=K, sampler=sampler, momentum=0.3, seed=5)
    random = np.random.default_rng(1)
    state = algorithm.init(random.standard_normal(n))
    masks = random.random((workers, K)) < 0.3
    masks[7], masks[8] = False, True
    answers, total = [], np.zeros(n)
    for worker, mask in enumerate(masks):
        v = state.x.copy()
        sampler.replay(v, algorithm.step_sizes(0), mask, Key(5, 0, worker))
        point = 2.0 * v if worker == 3 else None
        answers.append(Answer(worker, algorithm.layout.encode(mask), point=point))
        total += (v if point is None else point) - state.x
    merged = algorithm.merge(state, iter(answers))
    assert merged.m.tobytes() == (0.3 * state.m + (1.0 - 0.3) * (total / workers)).tobytes()
    assert merged.x.tobytes() == (state.x + merged.m).tobytes()


@pytest.mark.parametrize(
    "payload", [b"\0\0", b"\0\0\0\0", b"\0\0\x20"], ids=["short", "long", "bit"]
)
def test_a_wrong_answer_among_many_is_refused(payload: bytes) -> None:
    algorithm = DES(iterations=21)
    answers = [Answer(worker, b"\0\0\x10") for worker in range(150)]
    answers[100] = Answer(100, payload)
    with pytest.raises(ValueError, match="answer of worker 100 has"):
        algorithm.merge(algorithm.init(np.zeros(9)), answers)
