"""The main program of a process of the processes engine."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from multiprocessing.connection import Connection

from desopt.engines import messages
from desopt.engines.base import Job
from desopt.engines.memory import attach, shared_floats
from desopt.types import FloatArray, Task


def main(connection_fd: int, life_fd: int, arrays_fd: int, buffer_fd: int) -> None:
    """Serve requests until the engine hangs up."""
    threading.Thread(target=_die_with_parent, args=(life_fd,), daemon=True).start()
    connection = Connection(connection_fd)
    try:
        job: Job = attach(connection.recv_bytes(), arrays_fd)
        slots = job.workers if job.handover else 0
        buffer = shared_floats(buffer_fd, (1 + slots, job.n))
    except Exception as error:
        connection.send_bytes(messages.pack_error(error))
        return
    connection.send_bytes(messages.READY)
    x = buffer[0]
    x.flags.writeable = False
    while True:
        try:
            request = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            reply = _serve(job, request, x, buffer[1:])
        except Exception as error:
            reply = messages.pack_error(error)
        connection.send_bytes(reply)


def _serve(job: Job, request: bytes, x: FloatArray, points: FloatArray) -> bytes:
    kind, round, worker, scalars, limit = messages.unpack_request(request)
    if kind == messages.TOTAL:
        return messages.pack_sum(*job.total(x, worker))
    answer = job.work(Task(round, x, scalars, limit), worker)
    if answer.point is not None:
        points[worker] = answer.point
        answer = replace(answer, point=points[worker])
    return messages.pack_answer(answer)


def _die_with_parent(life_fd: int) -> None:
    """Nobody holds the other end any more: the parent is gone, however it went."""
    os.read(life_fd, 1)
    os._exit(1)
