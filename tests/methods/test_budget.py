"""``max_evaluations`` is never exceeded, and the last round is the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_oracle import K, M, T, dealt, distance, made_up, package, reference, tolerance

import desopt
from desopt.contract.payload import Layout
from desopt.contract.types import Answer, Task
from desopt.methods import make
from desopt.methods.base import BaseAlgorithm
from desopt.methods.des import DES, DESState
from desopt.run import journal as journals
from desopt.run.history import Status

Floats = NDArray[np.float64]

RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((60, 5))
Y = np.where(X @ RANDOM.standard_normal(5) > 0, 1.0, -1.0)
SMALL: dict[str, Any] = {
    "workers": 3, "rounds": 500, "iterations": 10, "batch_size": 30, "population": 9, "seed": 4,
    "step_size": 0.2, "engine": "serial", "eval_every": 1, "progress": False,
}  # fmt: skip


def squares(x: Floats, batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


def run(budget: int | None, fun: Any = "lr", **options: Any) -> desopt.Result:
    given = SMALL | {"max_evaluations": budget} | options
    return desopt.minimize(fun, np.zeros(5), (X, Y), **given)


def asked(method: str) -> int:
    return 1 if desopt.METHODS[method].single_worker else 3


def cost(method: str) -> tuple[int, int]:
    """(least, most) values of a worker's round: K = 10, lambda = 9, mu = 4."""
    declared = make(method, {"iterations": 10, "population": 9}).cost
    return declared.least, declared.most


def shares(method: str, left: int) -> int:
    """Values of a shortened round: as equal shares as can be; whole pairs, whole populations."""
    entry, workers = desopt.METHODS[method], asked(method)
    each = [left // workers + (i < left % workers) for i in range(workers)]
    if make(method, {"iterations": 10, "population": 9}).cost.whole:
        each = [left // workers] * workers
    return sum(share // 2 * 2 if entry.pairs else share for share in each)


#: One method for each kind of answer, which is all that a process, slow to start, can tell apart.
ONE_OF_A_KIND = {entry.answer: name for name, entry in desopt.METHODS.items()}.values()


def assert_same(one: desopt.Result, other: desopt.Result) -> None:
    assert one.x.tobytes() == other.x.tobytes()
    for name in ("evaluations", "samples", "loss", "nans"):
        np.testing.assert_array_equal(one.history[name], other.history[name])
    assert (one.nfev, one.nit, one.status) == (other.nfev, other.nit, other.status)


@pytest.mark.parametrize("method", desopt.METHODS)
@given(budget=st.integers(1, 120), fun=st.sampled_from(["lr", squares]))
@settings(max_examples=25, deadline=None)
def test_never_exceeded_and_no_more_left_than_need_be(method: str, budget: int, fun: Any) -> None:
    calls = 0

    def counted(x: Floats, batch: Any) -> float:
        nonlocal calls
        calls += 1
        return squares(x, batch)

    python = fun is squares
    result = run(budget, counted if python else fun, method=method, eval_every=0)
    workers, (least, most) = asked(method), cost(method)
    assert result.status == Status.EVALUATIONS
    assert result.nfev <= budget
    if python:
        assert calls == result.nfev
    full, rest = divmod(budget, workers * most)
    shortened = rest // workers >= least
    assert result.nit == full + shortened
    assert result.nfev == workers * full * most + (shares(method, rest) if shortened else 0)
    assert f"max_evaluations {budget} spent" in result.message
    left = budget - result.nfev
    assert (f" but for {left}, too few for a round of {workers} " in result.message) is (left > 0)
    whole = run(None, fun, method=method, rounds=full + 1, eval_every=0)
    np.testing.assert_array_equal(
        whole.history["evaluations"][:full], result.history["evaluations"][:full]
    )


@pytest.mark.parametrize("fun", ["lr", squares], ids=["compiled", "python"])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_same_bits_on_every_engine(method: str, fun: Any, tmp_path: Path) -> None:
    """The second round is shortened: by 3 values a worker, but two workers have one more."""
    workers, (_, most) = asked(method), cost(method)
    budget = workers * (2 * most - 3) + 2 * (workers > 1)
    options = {"method": method, "seed": 11}
    engines = {"serial": None, "threads": 2}
    if fun is squares and method in ONE_OF_A_KIND:  # compiled or not, it is asked in the same words
        engines["processes"] = 1
    runs = {
        name: run(budget, fun, engine=name, jobs=jobs, journal=tmp_path / name, **options)
        for name, jobs in engines.items()
    }
    serial = runs["serial"]
    assert serial.nit == 2
    assert serial.nfev == workers * most + shares(method, budget - workers * most)
    for rounds in (1, 2):
        assert serial.x.tobytes() != run(None, fun, rounds=rounds, **options).x.tobytes()
    payloads = [
        [answer.payload for answers in journals.read(tmp_path / name).answers for answer in answers]
        for name in runs
    ]
    assert all(each == payloads[0] for each in payloads)
    for name, result in runs.items():
        assert_same(result, serial)
        assert desopt.replay(tmp_path / name).tobytes() == serial.x.tobytes()


@pytest.mark.parametrize("method", desopt.METHODS)
def test_oracle(method: str) -> None:
    """The last of the T rounds has 7 iterations, estimates or members (of more)."""
    problem, x0, last = dealt("lr", *made_up("dense")), np.zeros(12), 7
    entry, algorithm = desopt.METHODS[method], make(method, {"iterations": K, "population": 11})
    with_x = algorithm.layout.bits > 0 and algorithm.cost.most > K  # the value at x comes first
    ended = 2 * last if entry.pairs else last + with_x
    budget = (1 if entry.single_worker else M) * ((T - 1) * algorithm.cost.most + ended)
    x, _ = reference(method, problem, x0, last=last)
    whole, _ = reference(method, problem, x0)
    assert distance(whole, x) > 1e-4
    result = package(method, problem, x0, rounds=99, max_evaluations=budget)
    assert (result.nit, result.nfev) == (T, budget)
    assert distance(result.x, x) <= tolerance(method, problem, x)


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_resume_with_the_same_and_with_a_larger_budget(
    method: str, participation: float, tmp_path: Path
) -> None:
    path, options = tmp_path / "j", {"method": method, "participation": participation}
    workers = 1 if participation < 1 else asked(method)
    most = cost(method)[1]
    budget = workers * (3 * most - 2)
    result = run(budget, journal=path, **options)
    assert result.nit == 3
    assert result.nfev <= budget
    points: list[Floats] = []
    again = run(budget, journal=path, callbacks=[lambda row: points.append(row.x)], **options)
    assert_same(again, result)
    assert not points, "nothing was left to do"
    # As if it had been stopped after the second round: the third is shortened again.
    cut = tmp_path / "cut"
    data = path.read_bytes()
    cut.write_bytes(data[: data.rindex(b"\xd5\x9eR")])
    assert_same(run(budget, journal=cut, **options), result)
    assert cut.read_bytes()[:-8].endswith(data[-20:-8])
    # More: the rounds go on after the short one, and end by the new budget.
    more = run(budget + 2 * workers * most + workers * (most - 1), journal=path, **options)
    spent = np.diff(more.history["evaluations"], prepend=0)
    assert spent.tolist()[:3] == np.diff(result.history["evaluations"], prepend=0).tolist()
    assert spent[3] == spent[4] == workers * most
    assert more.nit == 6
    assert more.nfev <= budget + 2 * workers * most + workers * (most - 1)
    assert desopt.replay(path).tobytes() == more.x.tobytes()
    assert desopt.replay(path, round=3).tobytes() == result.x.tobytes()


@pytest.mark.parametrize("hole", [None, 0.0, 1.0], ids=["defined", "not at x0", "only at x0"])
@pytest.mark.parametrize("every", [None, 1, 2, 3])
@pytest.mark.parametrize("method", ["des-mr", "zo-signsgd", "cma-es"])
@pytest.mark.filterwarnings("ignore:fun returned NaN")
def test_the_history_is_paid_too(
    method: str, every: int | None, hole: float | None, tmp_path: Path
) -> None:
    """Without data, also where f is NaN, which a journal does not tell from not evaluated."""
    calls = 0

    def counted(x: Floats) -> float:
        nonlocal calls
        calls += 1
        return np.nan if hole is not None and x.any() == hole else float(np.sum((x - 1.0) ** 2))

    given = {"method": method, "participation": 0.3, "eval_every": every, "data": None}
    given |= {"iterations": 6, "population": 5}
    for budget in range(12, 44, 3):
        calls, path = 0, tmp_path / f"{budget}"
        options = SMALL | given | {"max_evaluations": budget, "journal": path}
        result = desopt.minimize(counted, np.zeros(5), **options)
        assert result.nfev + result.nfev_objective == calls <= budget
        # As if it had been stopped after the last round but one.
        data = path.read_bytes()
        if data.count(b"\xd5\x9eR") > 1:
            path.write_bytes(data[: data.rindex(b"\xd5\x9eR")])
            assert_same(desopt.minimize(counted, np.zeros(5), **options), result)


def test_too_few_for_any_round(tmp_path: Path) -> None:
    result = run(5, journal=tmp_path / "j")
    assert (result.nit, result.nfev, result.status) == (0, 0, Status.EVALUATIONS)
    assert "max_evaluations 5 spent but for 5, too few for a round of 3 workers" in result.message
    assert result.x.tolist() == [0.0] * 5
    assert not list(tmp_path.iterdir())


def test_rounds_that_end_with_the_budget_are_done() -> None:
    assert run(66, rounds=2).status == Status.EVALUATIONS
    assert run(67, rounds=2).status == Status.ROUNDS


class Own(BaseAlgorithm):
    """A method that says nothing of its cost: as before, the round that spends it is the last."""

    layout = Layout()

    def init(self, x0: Floats) -> DESState:
        return DESState(0, x0, x0)

    def plan(self, state: DESState) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Any, worker: int) -> Answer:
        assert task.limit is None
        return Answer(worker, b"", evaluations=7)

    def merge(self, state: DESState, answers: Any) -> DESState:
        return DESState(state.round + 1, state.x, state.m)


def test_a_method_without_cost() -> None:
    own = Own(name="own", iterations=10, step_size=0.2)
    result = run(50, method=own, population=None)
    assert (result.nit, result.nfev) == (3, 63)


@pytest.mark.parametrize("limit", [-5, 0, 1, 2, 10**6])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_any_limit_is_safe(method: str, limit: int) -> None:
    """A worker may be told anything: it makes one iteration at least and K at most."""
    from desopt.data import as_shards
    from desopt.engines import Job
    from desopt.objectives import LinearModel

    model = LinearModel("lr")
    algorithm: Any = desopt.METHODS[method].make(method, SMALL | {"mixture": 8, "momentum": 0.5,
                                                                  "radius": 1e-6})  # fmt: skip
    job = Job(algorithm, model, model.prepare(as_shards((X, Y), 1, 4)), 5, 4, 5)
    state = algorithm.init(np.zeros(5))
    plan = algorithm.plan(state)
    answer = job.work(replace(plan, limit=limit), 0)
    assert 1 <= answer.evaluations <= algorithm.cost.most
    assert len(answer.payload) == algorithm.layout.size
    bare: Callable[[Answer], Any] = lambda a: algorithm.merge(state, [a]).x.tobytes()  # noqa: E731
    assert bare(answer) == bare(answer.bare())


def test_a_worker_finds_its_share_without_looking_at_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from desopt.data import as_shards
    from desopt.engines import Job
    from desopt.objectives import PythonObjective

    looks = 0

    class Asked(Sequence[int]):
        def __len__(self) -> int:
            return 10_000

        def __getitem__(self, place: Any) -> Any:
            nonlocal looks
            looks += 1
            return range(0, 20_000, 2)[place]

    job = Job(DES(), PythonObjective(squares), as_shards((X, Y), 1, 4), 5, 4, 5)
    monkeypatch.setattr(Job, "asked", lambda *_: Asked())
    task = Task(0, np.zeros(5), limit=70_123)
    assert [job.share(task, worker).limit for worker in (0, 244, 246, 19_998)] == [8, 8, 7, 7]
    assert looks < 100
