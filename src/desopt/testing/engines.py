"""The contract of an engine: ``engines.base.Engine``."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from desopt.contract.errors import ObjectiveError
from desopt.contract.types import Answer, FloatArray
from desopt.data import as_shards
from desopt.engines import Engine, Job
from desopt.engines.base import MEMBERS
from desopt.engines.serial import Serial
from desopt.methods.des import DES
from desopt.objectives import PythonObjective
from desopt.testing.claims import (
    BATCH,
    SEED,
    WORKERS,
    Claims,
    N,
    bits,
    least_squares,
    sent,
    small_data,
    small_job,
    state_bits,
)  # fmt: skip

_ROUNDS = 3

#: The limit of the last round's task, below the 7 values of a round.
_LIMIT = 4

#: Seconds for threads and processes to end after ``close``, on a loaded machine.
_PATIENCE = 30.0


def check_engine(make: Callable[[], Engine]) -> None:
    """Raise an AssertionError where an engine breaks its contract.

    ``make()`` gives a new engine. It must bring the answers of a serial run, in the order of
    workers, for full and for partial participation, with a limit, and when it is started again.

    >>> desopt.testing.check_engine(desopt.ENGINES["serial"])
    """
    engine = make()
    claim = Claims(f"engine {getattr(engine, 'name', type(engine).__name__)!r}")
    claim.has(engine, *MEMBERS)
    for participation in (1.0, 0.5):
        _check_run(claim, engine, participation)
    before = _open_resources()
    _check_run(claim, engine, 1.0)
    _check_error(claim, make())
    _check_released(claim, before)


def _job(participation: float) -> Job:
    return small_job(DES(iterations=6, step_size=0.3, seed=SEED), participation=participation)


def _check_run(claim: Claims, engine: Engine, participation: float) -> None:
    """A short run, next to the same run on ``serial``."""
    job, reference = _job(participation), Serial()
    algorithm, state = job.algorithm, job.algorithm.init(np.zeros(N))
    reference.start(_job(participation))
    engine.start(job)
    try:
        for round in range(_ROUNDS):
            limit = _LIMIT if round == _ROUNDS - 1 else None
            for each in (engine, reference):
                each.begin(state, limit)
            _check_totals(claim, engine, reference)
            answers = _check_round(claim, engine, reference, state, job, limit)
            state = algorithm.merge(state, answers)
        for each in (engine, reference):
            each.begin(state, 0)
        _check_totals(claim, engine, reference)
        claim(
            engine.repeated == 0,
            "repeated counts work that was done again, after something died",
            f"Nothing died, and it is {engine.repeated}",
        )
    finally:
        engine.close()
        reference.close()
    _check_second_close(claim, engine)


def _check_round(
    claim: Claims, engine: Engine, reference: Engine, state: Any, job: Job, limit: int | None
) -> list[Answer]:
    engine.traffic()
    algorithm: Any = job.algorithm
    task = replace(algorithm.plan(state), limit=limit)
    before = state_bits(state)
    answers, expected = list(engine.round(task)), list(reference.round(task))
    asked, came = list(job.asked(task.round)), [answer.worker for answer in answers]
    claim(
        came == asked,
        "round gives the answers of job.asked(round), ordered by worker",
        f"Round {task.round} asked {asked} and gave {came}",
    )
    for answer, other in zip(answers, expected, strict=True):
        claim(
            sent(answer) == sent(other),
            "answers are those of the serial engine in every bit, and keep to task.limit",
            f"Round {task.round}, limit {limit}: {sent(answer)!r:.120}, serial "
            f"{sent(other)!r:.120}",
        )
    one, other = (algorithm.merge(state, each) for each in (answers, expected))
    claim(
        state_bits(one) == state_bits(other),
        "points handed over in memory are those of the payloads",
        f"Round {task.round}: x is {one.x}, on serial {other.x}",
    )
    claim(state_bits(state) == before, "an engine leaves the state alone", "It changed it")
    _check_traffic(claim, engine, answers)
    return answers


def _check_traffic(claim: Claims, engine: Engine, answers: Sequence[Answer]) -> None:
    up, down = engine.traffic()
    least = sum(len(answer.payload) for answer in answers)
    claim(
        up >= least and down > 0,
        "traffic counts the bytes of the wire's messages, up and down, since the last call",
        f"A round with payloads of {least} bytes had {up} up, {down} down",
    )
    again = engine.traffic()
    claim(
        tuple(again) == (0, 0),
        "traffic starts again at 0 with every call",
        f"Two calls with no round between gave {(up, down)} and {again}",
    )


def _check_totals(claim: Claims, engine: Engine, reference: Engine) -> None:
    for workers in (list(range(WORKERS)), [2, 0], [3]):
        totals, expected = engine.evaluate(workers), reference.evaluate(workers)
        claim(
            bits([tuple(total) for total in totals]) == bits(expected),
            "evaluate gives (sum of F, rows) of these workers, in their order, at the x of the "
            "state last begun",
            f"Workers {workers}: {totals}, on serial {expected}",
        )


def _check_second_close(claim: Claims, engine: Engine) -> None:
    try:
        engine.close()
    except Exception as error:
        claim(False, "close may be called twice", f"That raised {type(error).__name__}: {error}")


def _fails_on_worker_2(x: FloatArray, batch: Any) -> float:
    if batch[1][0] == 2.0:
        raise ZeroDivisionError("this worker always fails")
    return least_squares(x, batch)


def _check_error(claim: Claims, engine: Engine) -> None:
    """An error of the objective in round 1, with which the run begins as if resumed."""
    parts = np.array_split(small_data()[0], WORKERS)
    data = [(Z, np.full(len(Z), float(worker))) for worker, Z in enumerate(parts)]
    algorithm = DES(iterations=6, seed=SEED)
    job = Job(
        algorithm, PythonObjective(_fails_on_worker_2), as_shards(data, WORKERS, SEED), BATCH,
        SEED, N,
    )  # fmt: skip
    state = replace(algorithm.init(np.zeros(N)), round=1)
    engine.start(job)
    contract = "an ObjectiveError of a worker reaches the caller, with worker and round"
    try:
        engine.begin(state)
        list(engine.round(algorithm.plan(state)))
    except ObjectiveError as error:
        claim(
            (error.worker, error.round) == (2, 1),
            contract,
            f"It has worker {error.worker} and round {error.round}, not 2 and 1",
        )
    except Exception as error:
        claim(False, contract, f"A {type(error).__name__} came instead: {error}")
    else:
        claim(False, contract, "No error came")
    finally:
        engine.close()


def _open_resources() -> dict[str, int]:
    """Threads, and on Linux open files and child processes."""
    counts = {"threads": threading.active_count()}
    files, children = Path("/proc/self/fd"), Path(f"/proc/self/task/{os.getpid()}/children")
    if files.is_dir():
        counts["open files"] = len(os.listdir(files))
    if children.is_file():
        counts["child processes"] = len(children.read_text().split())
    return counts


def _left(before: dict[str, int]) -> list[str]:
    """What is open now and was not before."""
    now = _open_resources()
    return [f"{now[what] - count} {what}" for what, count in before.items() if now[what] > count]


def _check_released(claim: Claims, before: dict[str, int]) -> None:
    """No more is open than after the first run; threads and processes may take time to end."""
    deadline = time.monotonic() + _PATIENCE
    while (left := _left(before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    claim(not left, "close releases everything", f"Two more runs left {', '.join(left)}")
