"""The engine of a run: by name, as an object, or with ``"auto"`` the one expected to be fastest."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import cloudpickle

from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray
from desopt.data import distinct
from desopt.engines import ENGINES, Engine, Job
from desopt.engines.matrix import Matrix
from desopt.kernels.jit import compilation_noticed
from desopt.run.code_digest import user_parts
from desopt.run.options import refuse_settings_beside
from desopt.system.parallel import cores

_VERBS = ("start", "begin", "round", "evaluate", "traffic", "repeated", "close")

#: The settings of engines that do not take all of jobs, timeouts and attempts.
_TAKES: dict[str, tuple[str, ...]] = {"serial": (), "threads": ("jobs",), "flower": ()}

#: Seconds to start the processes, and to take a round to them and back.
_START, _ROUND = 2.0, 0.002

#: Seconds of work that are worth measuring twice.
_QUICK = 0.1


def choose(
    engine: str | Engine, job: Job, x0: FloatArray, settings: SimpleNamespace
) -> tuple[Engine, str]:
    """The engine, and a phrase that says which one and why."""
    if not isinstance(engine, str):
        if isinstance(engine, type) or not all(map(partial(hasattr, engine), _VERBS)):
            names = ", ".join(["auto", *ENGINES])
            raise TypeError(f"engine must be one of {names} or an engine object, got {engine!r}")
        refuse_settings_beside("engine", engine, settings)
        return engine, f"engine {engine.name}"
    check_name("engine", engine, ["auto", *ENGINES])
    if getattr(job.objective, "vectorized", False):
        return _matrix(engine, settings)
    name, why = (engine, "") if engine != "auto" else _pick(job, x0, settings)
    given = {"jobs": settings.jobs, "timeout": settings.round_timeout,
             "attempts": settings.attempts,
             "evaluation_timeout": settings.evaluation_timeout}  # fmt: skip
    if settings.evaluation_timeout is not None and name in _TAKES:
        raise ValueError(
            f"evaluation_timeout={settings.evaluation_timeout:g} needs a process that can be "
            f"ended, which engine {name!r} does not have; use engine='processes' or 'ray'"
        )
    taken = {key: value for key, value in given.items() if key in _TAKES.get(name, given)}
    return ENGINES[name](**taken), f"engine {name}{why}"


def _matrix(engine: str, settings: SimpleNamespace) -> tuple[Engine, str]:
    """The engine of functions of a matrix."""
    given = {"engine": None if engine in ("auto", "serial") else engine,
             "round_timeout": settings.round_timeout,
             "evaluation_timeout": settings.evaluation_timeout}  # fmt: skip
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} does not go with vectorized: a function of a matrix is called "
                f"in this process, with the points of all workers at once; leave {name} out"
            )
    return Matrix(), "engine matrix: a function of the points of all workers"


def _pick(job: Job, x0: FloatArray, settings: SimpleNamespace) -> tuple[str, str]:
    """The name of the engine that ``"auto"`` stands for, and the reason."""
    jobs = min(settings.jobs or cores(), job.workers)
    if settings.evaluation_timeout is not None:
        return "processes", ": evaluation_timeout needs a process that can be ended"
    if _safe_in_threads(job):
        return "threads", ": compiled objective"
    if settings.round_timeout is not None:
        return "processes", ": round_timeout needs a process that can be ended"
    if jobs == 1:
        return "serial", ": one core or one worker"
    if not sys.executable:
        return "serial", ": processes need sys.executable, which is empty"
    try:
        cloudpickle.dumps(
            (job.objective, job.algorithm, [s for s in distinct(job.shards) if not s.arrays])
        )
    except Exception as error:
        return "serial", f": fun or data cannot be sent to a process ({error})"
    seconds = _seconds_of_a_round(job, x0)
    what = f"a worker takes {seconds * 1e3:.3g} ms a round"
    saved = settings.rounds * (seconds * job.workers * (1 - 1 / jobs) - _ROUND) - _START
    if saved > 0:
        return "processes", f": {what}, {jobs} processes save about {saved:.3g} s"
    return "serial", f": {what}, too little for processes to pay"


def _safe_in_threads(job: Job) -> bool:
    """Whether no function of the user's would be called by several threads at once.

    An objective that calls itself compiled is trusted.
    """
    own = user_parts(job.objective, job.algorithm, job.shards)
    return job.objective.compiled and not own.keys() - {"fun"}


def _seconds_of_a_round(job: Job, x0: FloatArray) -> float:
    """Seconds of one worker's part of a round, from as few function values as it can do with.

    Without a declared cost the whole part is timed. It is timed again if it was quick, as the
    first call may have loaded data, and if it has compiled a kernel.
    """
    task, cost = job.algorithm.plan(job.algorithm.init(x0)), getattr(job.algorithm, "cost", None)
    if cost is not None:
        task = replace(task, limit=cost.least)
    compiled: list[bool] = []
    for _ in range(2):
        began = time.perf_counter()
        with compilation_noticed(partial(compiled.append, True)):
            evaluations = job.work(task, 0).evaluations
        seconds = time.perf_counter() - began
        if seconds >= _QUICK and not compiled:
            break
    return seconds if cost is None else seconds * cost.most / max(1, evaluations)
