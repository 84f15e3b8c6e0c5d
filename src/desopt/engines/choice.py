"""``engine="auto"``: which engine pays."""

from __future__ import annotations

from functools import partial
from typing import Any

import cloudpickle

from desopt.data import distinct
from desopt.engines import ENGINES, Engine, Job
from desopt.parallel import cores
from desopt.types import FloatArray, check_name

_VERBS = ("start", "round", "repeated", "totals", "close")

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
    if job.objective.compiled:
        return "threads", "compiled objective"
    if timeout is not None:
        return "processes", "round_timeout needs a process that can be ended"
    if jobs == 1:
        return "serial", "one core or one worker"
    try:
        cloudpickle.dumps(
            (job.objective, job.algorithm, [s for s in distinct(job.shards) if not s.arrays])
        )
    except Exception as error:
        return "serial", f"fun or data cannot be sent to a process ({error})"
    seconds = job.time_of_a_value(x0)
    round_seconds = seconds * job.algorithm.iterations * job.workers  # type: ignore[attr-defined]
    saved = rounds * (round_seconds * (1 - 1 / jobs) - _ROUND) - _START
    each = f"fun takes {seconds * 1e3:.3g} ms"
    if saved > 0:
        return "processes", f"{each}, {jobs} processes save about {saved:.3g} s"
    return "serial", f"{each}, too little for processes to pay"
