"""The engine of a run: by name, as an object, or with ``"auto"`` the one expected to be fastest."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import cloudpickle

from desopt.data import distinct
from desopt.engines import ENGINES, Engine, Job, base, by_value
from desopt.engines.by_value import SLOW, ByValue
from desopt.engines.matrix import Matrix
from desopt.engines.trials import Log, NoLog, TrialRound, outcome_of
from desopt.kernels.jit import compilation_noticed
from desopt.methods.base import BaseAlgorithm
from desopt.run.code_digest import user_parts
from desopt.run.options import refuse_settings_beside
from desopt.system import support
from desopt.system.parallel import cores

#: The settings of engines that do not take all of jobs, timeouts and attempts.
_TAKES: dict[str, tuple[str, ...]] = {
    "serial": (), "threads": ("jobs",), "flower": (), "executor": (),
}  # fmt: skip

#: Seconds to start the processes, and to take a round to them and back.
_START, _ROUND = 2.0, 0.002

#: Seconds of work that are worth measuring twice.
_QUICK = 0.1


def choose(
    engine: str | Engine, job: Job, state: Any, log: Log, settings: SimpleNamespace
) -> tuple[Engine, str]:
    """The engine, and a phrase that says which one and why."""
    if not isinstance(engine, str):
        if isinstance(engine, type) or not all(map(partial(hasattr, engine), base.MEMBERS)):
            names = ", ".join(["auto", *ENGINES])
            raise TypeError(f"engine must be one of {names} or an engine object, got {engine!r}")
        refuse_settings_beside("engine", engine, settings)
        return _by_value(engine, job, log, settings), f"engine {engine.name}"
    if getattr(job.objective, "vectorized", False):
        _check_matrix(engine, settings)
        why = "engine matrix: a function of the points of all workers"
        return _by_value(Matrix(lockstep=_has_search(job)), job, log, settings), why
    name, why = (engine, "") if engine != "auto" else _pick(job, state, log, settings)
    given = {"jobs": settings.jobs, "timeout": settings.round_timeout,
             "attempts": settings.attempts,
             "evaluation_timeout": settings.evaluation_timeout}  # fmt: skip
    if settings.evaluation_timeout is not None and name in _TAKES:
        raise ValueError(
            f"evaluation_timeout={settings.evaluation_timeout:g} needs a process that can be "
            f"ended, which engine {name!r} does not have; use engine='processes' or 'ray'"
        )
    taken = {key: value for key, value in given.items() if key in _TAKES.get(name, given)}
    return _by_value(ENGINES[name](**taken), job, log, settings), f"engine {name}{why}"


def _check_matrix(engine: str, settings: SimpleNamespace) -> None:
    """Refuse settings of other engines for a function of a matrix."""
    given = {"engine": None if engine in ("auto", "serial") else engine,
             "round_timeout": settings.round_timeout,
             "evaluation_timeout": settings.evaluation_timeout}  # fmt: skip
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} does not go with vectorized: a function of a matrix is called "
                f"in this process, with the points of all workers at once; leave {name} out"
            )


def _by_value(engine: Engine, job: Job, log: Log, settings: SimpleNamespace) -> Engine:
    """The engine for single values, where it can evaluate them and that may pay."""
    able = all(map(partial(hasattr, engine), by_value.MEMBERS))
    timed = getattr(engine, "evaluation_timeout", None) is not None
    if job.objective.compiled or not able or not _has_search(job):
        return engine
    if settings.log_values is False:
        if not timed:
            return engine
        log = NoLog()
    always = timed or settings.log_values is True
    ahead = settings.ahead and not isinstance(engine, Matrix)  # its slots have no end
    return ByValue(engine, log, ahead=ahead, always=always)  # type: ignore[arg-type]


def _has_search(job: Job) -> bool:
    """Whether the algorithm's rounds are local searches, not code of its own."""
    return getattr(type(job.algorithm), "work", None) is BaseAlgorithm.work


def _pick(job: Job, state: Any, log: Log, settings: SimpleNamespace) -> tuple[str, str]:
    """The name of the engine that ``"auto"`` stands for, and the reason."""
    jobs = settings.jobs or cores()
    if settings.evaluation_timeout is not None:
        return "processes", ": evaluation_timeout needs a process that can be ended"
    if _safe_in_threads(job):
        return "threads", ": compiled objective"
    if settings.round_timeout is not None:
        return "processes", ": round_timeout needs a process that can be ended"
    if jobs == 1:
        return "serial", ": one core"
    if support.missing():
        return "serial", ": this system has no processes that can be ended"
    if not sys.executable:
        return "serial", ": processes need sys.executable, which is empty"
    try:
        cloudpickle.dumps(
            (job.objective, job.algorithm, [s for s in distinct(job.shards) if not s.arrays])
        )
    except Exception as error:
        return "serial", f": fun or data cannot be sent to a process ({error})"
    if state.round >= settings.rounds:
        return "serial", ": nothing is left to do"
    return _by_time(job, state, log, settings, jobs)


def _by_time(
    job: Job, state: Any, log: Log, settings: SimpleNamespace, jobs: int
) -> tuple[str, str]:
    """Processes where they save time, by the time of one value or of a worker's round."""
    left, task = settings.rounds - state.round, job.algorithm.plan(state)
    if _has_search(job):
        seconds = _seconds_of_a_value(job, task, log)
        values = job.algorithm.cost.most
        if seconds >= SLOW:
            total = left * len(job.asked(task.round)) * values
            if settings.max_evaluations is not None:
                total = min(total, settings.max_evaluations)
            saved = total * seconds * (1 - 1 / jobs) - _START
            what = f"a value takes {seconds * 1e3:.3g} ms"
            return _worth(what, jobs, saved)
        seconds *= values
    else:
        seconds = _seconds_of_a_round(job, task)
    jobs = min(jobs, job.workers)
    if jobs == 1:
        return "serial", ": one worker, and quick values"
    saved = left * (seconds * job.workers * (1 - 1 / jobs) - _ROUND) - _START
    return _worth(f"a worker takes {seconds * 1e3:.3g} ms a round", jobs, saved)


def _worth(what: str, jobs: int, saved: float) -> tuple[str, str]:
    if saved > 0:
        return "processes", f": {what}, {jobs} processes save about {saved:.3g} s"
    return "serial", f": {what}, too little for processes to pay"


def _safe_in_threads(job: Job) -> bool:
    """Whether no function of the user's would be called by several threads at once.

    An objective that calls itself compiled is trusted.
    """
    own = user_parts(job.objective, job.algorithm, job.shards)
    return job.objective.compiled and not own.keys() - {"fun"}


def _seconds_of_a_value(job: Job, task: Any, log: Log) -> float:
    """Seconds of the first value of the round that is not in the log yet; a slow one is kept.

    It is timed again if it was quick, as the first call may have loaded data.
    """
    trials = TrialRound(job, task, log).ask(1)
    if not trials:  # all in the log, hence slow
        return SLOW
    for _ in range(2):
        outcome = outcome_of(job, trials[0])
        if outcome.seconds >= SLOW:
            log.add(trials[0], outcome)
            return outcome.seconds
    return outcome.seconds


def _seconds_of_a_round(job: Job, task: Any) -> float:
    """Seconds of one worker's part of a round, from as few function values as it can do with.

    Without a declared cost the whole part is timed. It is timed again if it was quick, as the
    first call may have loaded data, and if it has compiled a kernel.
    """
    cost = getattr(job.algorithm, "cost", None)
    if cost is not None:
        task = replace(task, limit=cost.least * len(job.asked(task.round)))
    compiled: list[bool] = []
    seconds, evaluations, worker = math.nan, 0, job.asked(task.round)[0]
    for _ in range(2):
        began = time.perf_counter()
        with compilation_noticed(partial(compiled.append, True)):
            evaluations = job.work(task, worker).evaluations
        seconds = time.perf_counter() - began
        if seconds >= _QUICK and not compiled:
            break
    return seconds if cost is None else seconds * cost.most / max(1, evaluations)
