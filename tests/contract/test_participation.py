"""Who is asked, who answers, and what becomes of those who do not."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import desopt
from desopt.contract.participation import participants
from desopt.contract.streams import SERVER, Purpose, Stream, words
from desopt.contract.types import Answer, Task
from desopt.data import Loaders, as_shards
from desopt.engines import Job, base
from desopt.engines.serial import Serial
from desopt.objectives import LinearModel, PythonObjective
from desopt.run import journal as journals

Vector = NDArray[np.float64]

N, WORKERS, ROUNDS = 7, 8, 6
_RNG = np.random.default_rng(3)
_X = _RNG.standard_normal((96, N))
DATA = (_X, np.sign(_X @ _RNG.standard_normal(N)))
SETTINGS: dict[str, Any] = {
    "workers": WORKERS, "rounds": ROUNDS, "iterations": 6, "batch_size": 5, "seed": 3,
    "engine": "serial", "eval_every": 1, "progress": False,
}  # fmt: skip
SEVERAL = [name for name, method in desopt.METHODS.items() if not method.single_worker]


def run(**changes: Any) -> desopt.Result:
    return desopt.minimize(**({"fun": "lr", "x0": None, "data": DATA} | SETTINGS | changes))


def rows(result: desopt.Result) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]


# --- the sample ------------------------------------------------------------------------------


def floyd(seed: int, round: int, workers: int, count: int) -> list[int]:
    """The method as the documentation has it, in whole numbers of any size."""
    stream = words(Stream(seed, round, SERVER, 0, Purpose.PARTICIPATION), count)
    taken: list[int] = []
    for word, j in zip(stream, range(workers - count, workers), strict=True):
        r = int(word) * (j + 1) // 2**64
        taken.append(j if r in taken else r)
    return sorted(taken)


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(0.01, 1))
def test_sample_is_floyds(seed: int, round_: int, workers: int, share: float) -> None:
    chosen = list(participants(seed, round_, workers, share))
    assert chosen == floyd(seed, round_, workers, max(1, round(share * workers)))
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(range(workers))


def test_sample_is_uniform() -> None:
    """20,000 rounds of 3 out of 10: workers and pairs as often as they should, to 5 sigma."""
    rounds, M, c = 20_000, 10, 3
    seen = np.zeros((rounds, M))
    for t in range(rounds):
        seen[t, list(participants(1, t, M, 0.3))] = 1
    together = seen.T @ seen
    for p, counts in (
        (c / M, np.diag(together)),
        (c * (c - 1) / (M * (M - 1)), together[np.triu_indices(M, 1)]),
    ):
        assert np.abs(counts - rounds * p).max() < 5 * np.sqrt(rounds * p * (1 - p))
    assert (seen[1:] != seen[:-1]).any(1).mean() > 0.98, "drawn anew in each round"


def test_sample_for_other_languages() -> None:
    """As in docs/journal.md."""
    assert participants(0, 0, 10, 0.3) == (4, 5, 6)
    chosen = participants(2**64 - 1, 2**32 - 1, 1_000_000, 5e-6)
    assert chosen == (68883, 246925, 409235, 615762, 681074)


def test_sample_costs_nothing_for_those_who_are_not_asked() -> None:
    tracemalloc.start()
    chosen = participants(1, 2, 2**32 - 1, 1000 / 2**32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(chosen)) == 1000
    assert max(chosen) > 2**31
    assert peak < 1e6


@pytest.mark.parametrize(("share", "asked"), [(1.0, 8), (0.5, 4), (0.3, 2), (1e-9, 1)])
def test_all_engines_ask_the_same_workers(share: float, asked: int) -> None:
    result = run(participation=share)
    assert result.history["answers"].tolist() == [asked] * ROUNDS
    threads = run(participation=share, engine="threads", jobs=3)
    assert threads.x.tobytes() == result.x.tobytes()
    assert rows(threads) == rows(result)
    assert result.nfev == ROUNDS * asked * 7, "the others did not work"


def test_processes_ask_the_same_workers() -> None:
    result = run(participation=0.4, engine="processes", jobs=2)
    assert rows(result) == rows(run(participation=0.4))


@pytest.mark.parametrize("method", SEVERAL)
def test_journal_says_who_answered_and_resumes(tmp_path: Path, method: str) -> None:
    options = {"method": method, "participation": 0.4}
    points: list[Vector] = []
    whole = run(**options, callbacks=[lambda row: points.append(row.x.copy())])
    run(**options, journal=tmp_path / "j", rounds=2)
    resumed = run(**options, journal=tmp_path / "j")
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert rows(resumed) == rows(whole)
    answers = journals.read(tmp_path / "j").answers
    for t, x in enumerate(points):
        assert [a.worker for a in answers[t]] == floyd(3, t, WORKERS, 3)
        assert desopt.replay(tmp_path / "j", t + 1).tobytes() == x.tobytes()
    run(method=method, journal=tmp_path / "all", rounds=1)
    (everyone,) = journals.read(tmp_path / "all").answers
    assert answers[0] == [everyone[a.worker] for a in answers[0]], "they work as always"


@pytest.mark.parametrize("share", [0, -0.1, 1.0001, float("nan"), "half", None, True])
def test_shares_that_make_no_sense_are_refused(share: object) -> None:
    with pytest.raises((ValueError, TypeError), match="participation must be"):
        run(participation=share)


# --- missing answers -------------------------------------------------------------------------


class Lossy(Serial):
    """Loses answers: some in most rounds, all of them in round 2."""

    name = "lossy"

    def round(self, task: Task) -> Iterator[Answer]:
        answers = list(super().round(task))
        kept = np.random.default_rng(task.round).random(len(answers)) < 0.6
        return (a for a, ok in zip(answers, kept, strict=True) if ok and task.round != 2)


@pytest.mark.parametrize("method", desopt.METHODS)
def test_rounds_with_missing_answers_are_replayed(tmp_path: Path, method: str) -> None:
    points = [np.zeros(N)]
    options = {"method": method, "engine": Lossy(), "eval_every": 0}
    whole = run(**options, callbacks=[lambda row: points.append(row.x.copy())])
    run(**options, journal=tmp_path / "j", rounds=3, snapshot_every=2)
    resumed = run(**options, journal=tmp_path / "j")
    assert resumed.x.tobytes() == whole.x.tobytes()
    counts = whole.history["answers"]
    assert counts[2] == 0
    assert min(counts) < max(counts)
    assert points[3].tobytes() == points[2].tobytes(), "nobody answered: x stays"
    assert points[4].tobytes() != points[3].tobytes() or desopt.METHODS[method].single_worker
    for t, x in enumerate(points):
        assert desopt.replay(tmp_path / "j", t).tobytes() == x.tobytes()


def answered(method: str) -> tuple[Any, Any, list[Answer]]:
    """An algorithm, its state after a round, and all workers' answers to the next."""
    options = {"iterations": 6, "seed": 3, "mixture": 8, "population": 9}
    algorithm: Any = desopt.METHODS[method].make(method, options)
    model = LinearModel("lr")
    job = Job(algorithm, model, model.prepare(as_shards(DATA, WORKERS, 3)), 5, 3, N)
    state = algorithm.init(np.zeros(N))
    for t in range(2):
        answers = [job.work(algorithm.plan(state), worker) for worker in range(WORKERS)]
        state = algorithm.merge(state, answers) if t == 0 else state
    return algorithm, state, answers


@pytest.mark.parametrize("method", ["des", "fed-zo-gd", "fed-zo-sgd"])
def test_points_are_averaged_over_those_who_answered(method: str) -> None:
    algorithm, state, answers = answered(method)
    some = [answers[i] for i in (1, 2, 6)]
    d = np.mean([a.point - state.x for a in some], axis=0)
    if method == "des":
        d = 0.5 * state.m + 0.5 * d
    np.testing.assert_allclose(algorithm.merge(state, some).x, state.x + d, rtol=1e-12)


def test_votes_are_counted_among_those_who_answered() -> None:
    algorithm, state, answers = answered("zo-signsgd")
    some = [answers[i] for i in (1, 2, 6)]
    step = algorithm.step_size / np.sqrt(state.round + 1)
    votes: Any = sum(np.sign(np.asarray(a.point)) for a in some)
    np.testing.assert_allclose(algorithm.merge(state, some).x, state.x - step * np.sign(votes))


def test_es_csa_ranks_by_the_rows_of_those_who_answered() -> None:
    algorithm, state, answers = answered("es-csa")
    some = [answers[i] for i in (1, 2, 6)]
    sums = sum(algorithm.layout.decode(a).float64 for a in some)
    merged = algorithm.merge(state, some)
    one = algorithm.merge(state, [Answer(0, algorithm.layout.encode(float64=sums))])
    assert merged.x.tobytes() == one.x.tobytes()
    assert merged.x.tobytes() != algorithm.merge(state, answers).x.tobytes()


@pytest.mark.parametrize("method", SEVERAL)
def test_nobody_answered_and_nothing_changes_but_the_round(method: str) -> None:
    algorithm, state, _ = answered(method)
    merged = algorithm.merge(state, [])
    assert repr(merged) == repr(replace(state, round=state.round + 1))
    assert merged.x.tobytes() == state.x.tobytes()


class Wrong(Serial):
    """Breaks the contract in the way it is told."""

    name = "wrong"

    def __init__(self, spoil: Callable[[list[Answer]], list[Answer]]) -> None:
        self.spoil = spoil

    def round(self, task: Task) -> Iterator[Answer]:
        return iter(self.spoil(list(super().round(task))))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answers: answers[::-1],
        lambda answers: [*answers, answers[-1]],
        lambda answers: [*answers, Answer(WORKERS, b"\0")],
    ],
    ids=["order", "twice", "stranger"],
)
def test_engines_that_mix_answers_up_are_stopped(spoil: Any) -> None:
    with pytest.raises(desopt.EngineError, match=r"engine wrong .* round 0.*in order"):
        run(engine=Wrong(spoil))


@pytest.mark.parametrize("method", [name for name in SEVERAL if name != "des-c"])
def test_merge_takes_one_answer_at_a_time(method: str) -> None:
    """600 answers with points of 16 kB: 10 MB if they were kept. (des-c remembers every worker.)"""
    n, count = 2000, 600
    options = {"iterations": 4, "mixture": 8, "population": 5}
    algorithm: Any = desopt.METHODS[method].make(method, options)
    state = algorithm.init(np.zeros(n))

    def stream() -> Iterator[Answer]:
        for worker in range(count):
            yield Answer(worker, algorithm.layout.encode(), point=np.full(n, worker * 1e-3))

    algorithm.merge(state, stream())  # compiles
    tracemalloc.start()
    streamed = algorithm.merge(state, stream())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000
    assert streamed.x.tobytes() == algorithm.merge(state, list(stream())).x.tobytes()


# --- a million workers -----------------------------------------------------------------------


def quadratic(x: Vector, batch: Vector) -> float:
    return float(((x - batch) ** 2).mean())


def test_a_million_loaders_are_opened_when_asked_only() -> None:
    loaded: list[int] = []

    def load(worker: int) -> Vector:
        loaded.append(worker)
        return np.full((2, N), worker / 1e6)

    tracemalloc.start()
    result = run(
        fun=quadratic, x0=np.zeros(N), data=load, workers=10**6, participation=4e-6, eval_every=0
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sorted(loaded) == sorted(i for t in range(ROUNDS) for i in floyd(3, t, 10**6, 4))
    assert peak < 3e6, "three bytes a worker are too few for an object"
    assert result.history["answers"].tolist() == [4] * ROUNDS


@pytest.mark.parametrize("objective", [LinearModel("lr"), PythonObjective(quadratic)])
def test_loaders_are_a_sequence_that_takes_no_memory(objective: Any) -> None:
    shards = as_shards(lambda worker: np.full((1, 2), worker), 10**6, 0)
    assert isinstance(shards, Loaders)
    assert objective.prepare(shards) is shards
    assert len(shards) == 10**6
    last = shards[-1].open(PythonObjective(quadratic), 0)
    assert last.take()[0, 0] == 10**6 - 1
    assert [s.load()[0, 0] for s in shards[5:7]] == [5, 6]
    with pytest.raises(IndexError):
        shards[10**6]


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_data_used_longest_ago_are_let_go_and_loaded_again(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    loaded: list[int] = []

    def load(worker: int) -> Vector:
        loaded.append(worker)
        return np.full((2, N), worker, np.float64)

    options = {"fun": quadratic, "x0": np.zeros(N), "data": load, "engine": engine, "jobs": 2}
    expected = run(**options)
    assert sorted(loaded) == list(range(WORKERS)), "kept while there is room"
    loaded.clear()
    monkeypatch.setattr(base, "OPEN_SHARDS", 3)
    assert run(**options).x.tobytes() == expected.x.tobytes()
    assert len(loaded) > 4 * WORKERS
