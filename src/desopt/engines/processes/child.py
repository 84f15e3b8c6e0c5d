"""The main program of a process of the processes engine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from desopt.contract.types import Task
from desopt.engines.base import Job
from desopt.engines.processes import messages
from desopt.engines.processes.memory import Shared, attach, shared_arrays
from desopt.engines.trials import outcome_of


def main(connection: int, job_fd: int, buffer_fd: int) -> None:
    """Serve requests until the engine hangs up; then, or when fun calls sys.exit, exit at once.

    The connection is a bare number: it stays open until the process is dead, so that the engine
    does not see it closed before the exit code is known.
    """
    code = 0
    try:
        with suppress(EOFError, OSError):  # the engine is gone
            _serve_all(connection, job_fd, buffer_fd)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


def _serve_all(connection: int, job_fd: int, buffer_fd: int) -> None:
    try:
        job: Job = attach(job_fd)
        shared = shared_arrays(buffer_fd, job)
    except Exception as error:
        messages.write(connection, messages.pack_error(error))
        return
    messages.write(connection, messages.READY)
    for given in (shared.x, shared.memory):
        if given is not None:
            given.flags.writeable = False
    prepared: set[int] = set()
    while True:
        request = messages.read(connection)
        try:
            if request[:1] == messages.VALUE:
                reply = _value(job, request, prepared, connection)
            else:
                reply = _serve(job, request, shared)
        except Exception as error:
            reply = messages.pack_error(error)
        messages.write(connection, reply)


def _value(job: Job, request: bytes, prepared: set[int], connection: int) -> bytes:
    """The outcome of a trial; the first of a worker waits for its data and ``setup``."""
    trial = messages.unpack_trial(request)
    if (worker := trial.key.worker) not in prepared:
        job.prepare(trial.x, trial.key.round, worker)
        prepared.add(worker)
    messages.write(connection, messages.BEGUN)  # the time for a value counts from here
    return messages.pack_outcome(outcome_of(job, trial))


def _serve(job: Job, request: bytes, shared: Shared) -> bytes:
    kind, round, worker, scalars, limit = messages.unpack_request(request)
    if kind == messages.TOTAL:
        return messages.pack_sum(*job.total(shared.x, worker))
    answer = job.work(Task(round, shared.x, scalars, limit, shared.memory), worker)
    if answer.point is not None:
        shared.points[worker] = answer.point
    return messages.pack_answer(answer)
