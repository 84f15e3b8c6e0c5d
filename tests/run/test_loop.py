"""The loop and its observers: who is told what, in which order, and when it ends."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import desopt
from desopt.contract.types import Answer, Task
from desopt.engines import Job
from desopt.engines.serial import Serial
from desopt.run.history import End, Row, Status
from desopt.run.loop import loop
from desopt.run.observers import Observer, Record
from desopt.run.observers.evaluation import Evaluation
from desopt.run.stopping import Stopping


class Watched(Serial):
    """Keeps the order of calls; every round it says that 3 bytes came up and 5 went down."""

    name = "watched"

    def __init__(self, fails: str | None = None) -> None:
        self.calls: list[Any] = []
        self._fails = fails

    def _note(self, call: str, *more: Any) -> None:
        self.calls.append((call, *more) if more else call)
        if call == self._fails:
            raise RuntimeError(f"{call} fails")

    def start(self, job: Job) -> None:
        super().start(job)
        self._note("start")

    def begin(self, state: Any, limit: int | None = None) -> None:
        super().begin(state, limit)
        self._note("begin", state.round, limit)

    def round(self, task: Task) -> Iterator[Answer]:
        self._note("round", task.round, task.limit)
        return super().round(task)

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        self._note("evaluate", list(workers))
        return super().evaluate(workers)

    def traffic(self) -> tuple[int, int]:
        return 3, 5

    def close(self) -> None:
        self._note("close")


class Told:
    """An observer that keeps what it is told, and ends the run after a round."""

    def __init__(self, calls: list[Any], last: int = 99) -> None:
        self.calls, self.last = calls, last
        self.answers: list[list[int]] = []

    def begin(self, record: Record) -> None:
        self.calls.append(("told", record.state.round, record.initial))

    def round(self, row: Row, state: Any, answers: Sequence[Answer]) -> End | None:
        assert row["round"] == state.round
        self.calls.append(("told", row["round"]))
        self.answers.append([answer.worker for answer in answers])
        return End(Status.CALLBACK, "enough") if row["round"] == self.last else None

    def end(self) -> None:
        self.calls.append("end")


def job() -> Job:
    """The job of a small run of des-mr."""
    jobs: list[Job] = []

    class Keep(Serial):
        def start(self, job: Job) -> None:
            jobs.append(job)
            super().start(job)

    desopt.minimize(
        lambda x: float(x @ x), np.ones(3), method="des-mr", workers=2, rounds=1, iterations=4,
        engine=Keep(), progress=False,
    )  # fmt: skip
    return jobs[0]


def run(engine: Watched, rounds: int = 3, budget: int | None = None, last: int = 99) -> Any:
    work = job()
    record = Record(work.algorithm.init(np.ones(3)))
    evaluation = Evaluation(engine, [0], rounds, 2, by_rounds=False)
    stopping = Stopping(
        work, rounds, evaluation, max_evaluations=budget, max_seconds=None, target=None,
        patience=None,
    )  # fmt: skip
    told = Told(engine.calls, last)
    observers: list[Observer] = [evaluation, stopping, record, told]
    end = loop(work, engine, rounds, record, observers, stopping.limit)
    return record, end, told


def test_the_order_of_calls() -> None:
    engine = Watched()
    record, end, told = run(engine)
    assert engine.calls == [
        "start", ("begin", 0, None), ("evaluate", [0]), ("told", 0, 3.0),
        ("round", 0, None), ("begin", 1, None), ("told", 1),
        ("round", 1, None), ("begin", 2, None), ("evaluate", [0]), ("told", 2),
        ("round", 2, None), ("begin", 3, None), ("evaluate", [0]), ("told", 3),
        "end", "close",
    ]  # fmt: skip
    assert end == (Status.ROUNDS, "3 rounds done")
    assert told.answers == [[0, 1]] * 3
    assert record.history["bytes_up"].tolist() == [3, 6, 9]
    assert record.history["bytes_down"].tolist() == [5, 10, 15]
    assert record.state.round == 3


def test_an_observer_ends_the_run_and_the_last_row_is_evaluated() -> None:
    engine = Watched()
    record, end, _ = run(engine, last=1)
    assert end == (Status.CALLBACK, "enough")
    assert engine.calls[-4:] == [("told", 1), ("evaluate", [0]), "end", "close"]
    assert record.history[-1]["loss"] == float(record.state.x @ record.state.x)


def test_the_limit_reaches_engine_and_task() -> None:
    """18 values, 10 for a round of two workers: 8 in the second one, then too few."""
    engine = Watched()
    record, end, _ = run(engine, budget=18)
    assert ("begin", 1, 8) in engine.calls
    assert ("round", 1, 8) in engine.calls
    assert ("begin", 2, 0) in engine.calls
    assert record.history["evaluations"].tolist() == [10, 18]
    assert end.status == Status.EVALUATIONS


@pytest.mark.parametrize("fails", ["start", "begin", "round", "evaluate"])
def test_the_engine_is_closed_once_after_an_error(fails: str) -> None:
    engine = Watched(fails)
    with pytest.raises(RuntimeError, match=f"{fails} fails"):
        run(engine)
    assert engine.calls.count("close") == 1
    assert engine.calls[-1] == "close"
    assert "end" not in engine.calls


def test_an_engine_that_was_not_started_is_not_closed(tmp_path: Path) -> None:
    def go(engine: Any, seed: int) -> None:
        desopt.minimize(
            lambda x: float(x @ x), np.ones(3), workers=2, rounds=1, iterations=4, seed=seed,
            engine=engine, journal=tmp_path / "j", progress=False,
        )  # fmt: skip

    go("serial", 0)
    engine = Watched()
    with pytest.raises(desopt.JournalError, match="seed is 0 in the journal and 1 here"):
        go(engine, 1)
    assert engine.calls == []


def test_a_kept_row_stays_valid() -> None:
    rows: list[Row] = []
    result = desopt.minimize(
        lambda x: float(x @ x), np.ones(3), workers=2, rounds=3, iterations=4,
        callbacks=rows.append, progress=False,
    )  # fmt: skip
    points = [row.x.copy() for row in rows]
    result.x[:] = result.best_x[:] = 9.0
    assert [row.x.tolist() for row in rows] == [point.tolist() for point in points]
    assert len({row.x.tobytes() for row in rows}) == 3


def test_answers_that_nobody_asked_for_are_refused() -> None:
    class Forger(Watched):
        def round(self, task: Task) -> Iterator[Answer]:
            answers: Iterable[Answer] = super().round(task)
            return iter([*answers][::-1])

    with pytest.raises(desopt.EngineError, match=r"returned answers of workers \[1, 0\] in round"):
        run(Forger())


def test_a_slow_first_evaluation_delays_the_second_one_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one may have compiled: the curve of a run must not stop at its beginning."""
    clock = [0.0]
    monkeypatch.setattr("desopt.run.observers.evaluation.time.perf_counter", lambda: clock[0])

    class Slow(Watched):
        def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
            clock[0] += 0.01 if clock[0] else 10.0
            return super().evaluate(workers)

    engine, work = Slow(), job()
    record = Record(work.algorithm.init(np.ones(3)))
    engine.start(work)
    engine.begin(record.state)
    evaluation = Evaluation(engine, [0], 100, None, by_rounds=False)
    evaluation.begin(record)
    evaluated = []
    for round in range(1, 15):
        row: Any = {"round": round, "seconds": 1.0 * round, "loss": math.nan}
        evaluation.round(row, record.state, ())
        evaluated += [round] * (not math.isnan(row["loss"]))
    assert evaluated == [9, 10, 11, 12, 13, 14]
