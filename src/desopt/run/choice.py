"""``engine="auto"``: which engine pays."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import cloudpickle

from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray
from desopt.data import NoData, Partitioned, distinct
from desopt.engines import ENGINES, Engine, Job
from desopt.methods.samplers import CustomSampler
from desopt.system.parallel import cores

_VERBS = ("start", "begin", "round", "repeated", "evaluate", "traffic", "close")

#: Seconds to start the processes, and to take a round to them and back.
_START, _ROUND = 2.0, 0.002


def choose(
    engine: str | Engine, job: Job, x0: FloatArray, rounds: int, *, jobs: int | None,
    timeout: float | None, attempts: int,
) -> tuple[Engine, str]:  # fmt: skip
    """The engine, and a phrase that says which one and why."""
    if not isinstance(engine, str):
        if isinstance(engine, type) or not all(map(partial(hasattr, engine), _VERBS)):
            names = ", ".join(["auto", *ENGINES])
            raise TypeError(f"engine must be one of {names} or an engine object, got {engine!r}")
        return engine, f"engine {engine.name}"
    options: dict[str, dict[str, Any]] = {
        "serial": {},
        "threads": {"jobs": jobs},
        "processes": {"jobs": jobs, "timeout": timeout, "attempts": attempts},
        "ray": {"jobs": jobs, "timeout": timeout, "attempts": attempts},
    }
    if engine != "auto":
        check_name("engine", engine, ["auto", *ENGINES])
        return ENGINES[engine](**options[engine]), f"engine {engine}"
    name, why = _pick(job, x0, rounds, min(jobs or cores(), job.workers), timeout)
    return ENGINES[name](**options[name]), f"engine {name}: {why}"


def _pick(
    job: Job, x0: FloatArray, rounds: int, jobs: int, timeout: float | None
) -> tuple[str, str]:
    if _safe_in_threads(job):
        return "threads", "compiled objective"
    if timeout is not None:
        return "processes", "round_timeout needs a process that can be ended"
    if jobs == 1:
        return "serial", "one core or one worker"
    if not sys.executable:
        return "serial", "processes need sys.executable, which is empty"
    try:
        cloudpickle.dumps(
            (job.objective, job.algorithm, [s for s in distinct(job.shards) if not s.arrays])
        )
    except Exception as error:
        return "serial", f"fun or data cannot be sent to a process ({error})"
    seconds, what = _time_of_a_part(job, x0)
    saved = rounds * (seconds * job.workers * (1 - 1 / jobs) - _ROUND) - _START
    if saved > 0:
        return "processes", f"{what}, {jobs} processes save about {saved:.3g} s"
    return "serial", f"{what}, too little for processes to pay"


def _safe_in_threads(job: Job) -> bool:
    """Whether no function of the user's would be called by several threads at once.

    An objective that says it is compiled is taken at its word.
    """
    if not job.objective.compiled:
        return False
    if not isinstance(job.shards, Partitioned) and not all(
        shard.arrays or isinstance(shard, NoData) for shard in distinct(job.shards)
    ):
        return False
    sampler = getattr(job.algorithm, "sampler", None)
    return _ours(job.algorithm) and (sampler is None or _ours(sampler))


def _ours(part: object) -> bool:
    return type(part).__module__.startswith("desopt.") and not isinstance(part, CustomSampler)


def _time_of_a_part(job: Job, x0: FloatArray) -> tuple[float, str]:
    """Seconds of one worker's part of a round, and how that is known."""
    iterations = getattr(job.algorithm, "iterations", None)
    if iterations is not None:
        seconds = job.time_of_a_value(x0)
        return seconds * iterations, f"fun takes {seconds * 1e3:.3g} ms"
    task = job.algorithm.plan(job.algorithm.init(x0))
    began = time.perf_counter()
    job.work(task, 0)
    seconds = time.perf_counter() - began
    return seconds, f"a worker takes {seconds * 1e3:.3g} ms a round"
