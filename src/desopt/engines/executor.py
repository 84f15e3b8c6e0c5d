"""Any ``concurrent.futures.Executor``: Dask, MPI, loky, the standard library's pools and others.

A call carries a token and what changes: a task and a worker, or a point. The job, with function and
data, stays in the pool's processes. One that does not know the token says so, and receives the call
again with the job. Threads find the job where it is, without a copy. Work of processes that died is
repeated: same inputs, same bits.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from concurrent.futures import Executor as Pool
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import cloudpickle

from desopt.contract import checks
from desopt.contract.errors import EngineError
from desopt.contract.types import Answer, Task
from desopt.engines.base import Job
from desopt.engines.processes import messages
from desopt.engines.serial import InMemory
from desopt.engines.trials import Outcome, Trial, outcome_of
from desopt.system.parallel import cores
from desopt.system.terminal import warn

#: Calls per slot in a round: one that is computed, and one that waits for it to end.
_AHEAD = 2

#: Jobs that a process of a pool keeps; the least recently used is dropped.
_KEPT = 4

_RESUMES = "the run stops here and can be resumed from its journal"


# --- in the pool -----------------------------------------------------------------------------


class Reply(NamedTuple):
    """What came of a call: a value, an error of the function, or the wish for the job."""

    value: Any = None
    error: bytes = b""
    unknown: bool = False


#: Jobs of engines in this process. A fork must not use its parent's: what setup() has opened
#: belongs to one process.
_here: dict[tuple[int, str], Job] = {}

#: Jobs of engines in other processes.
_received: OrderedDict[str, Job] = OrderedDict()
_receiving = threading.Lock()


def serve(
    token: str, attempt: int, packed: bytes | None, function: Callable[..., Any], *arguments: Any
) -> Reply:
    """``function(job, *arguments)``; ``attempt`` keeps Dask from merging calls that are equal."""
    job = _known(token, packed)
    if job is None:
        return Reply(unknown=True)
    try:
        return Reply(function(job, *arguments))
    except Exception as error:
        return Reply(error=messages.pack_error(error))


def _known(token: str, packed: bytes | None) -> Job | None:
    """The job of this token; None if this process has yet to receive it."""
    here = _here.get((os.getpid(), token))
    if here is not None:
        return here
    with _receiving:  # a process may have several threads
        if packed is not None and token not in _received:
            _received[token] = cloudpickle.loads(packed)
        if token in _received:
            _received.move_to_end(token)
        while len(_received) > _KEPT:
            _received.popitem(last=False)
        return _received.get(token)


# --- the engine ------------------------------------------------------------------------------


@dataclass(eq=False)
class _Call:
    """A call of ``function(job, *arguments)``; ``packed``: whether the job goes with it."""

    what: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    packed: bool = False
    failures: int = 0


_Flying: TypeAlias = dict["Future[Reply]", tuple[_Call, Pool]]


class Executor(InMemory):
    """``pool``: an executor, or a function that makes one.

    A pool that is given is never shut down. One that a function has made is shut down at the end,
    and replaced if it breaks. ``jobs``: calls at the same time (default: the size of the pool).
    ``attempts``: how often a call is tried before the run stops.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     engine = desopt.engines.Executor(pool)
    ...     result = desopt.minimize(lambda x: float(x @ x), np.ones(2), engine=engine)
    >>> result.engine
    'executor'
    """

    name = "executor"

    def __init__(
        self, pool: Pool | Callable[[], Pool], jobs: int | None = None, *, attempts: int = 3
    ) -> None:
        if not isinstance(pool, Pool) and not callable(pool):
            raise TypeError(
                "pool must be a concurrent.futures.Executor (of a Dask client: "
                f"client.get_executor()) or a function that makes one, got {type(pool).__name__}"
            )
        self._given = pool
        self.jobs: int | None = checks.optional(checks.whole, "jobs", jobs)
        self.attempts, self.repeated = checks.whole("attempts", attempts), 0
        self._pool: Pool | None = None
        self._flying: _Flying = {}
        self._token = ""
        self._slots = jobs or 1  # the pool is asked for its size at the start

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, job: Job) -> None:
        super().start(job)
        self.repeated = 0
        self._flying = {}
        self._error: Exception | None = None
        self._packed: bytes | None = None
        self._warm = False  # whether a process of the pool has the job
        self._pool = self._made()
        self._slots = self.jobs or max(1, _size(self._pool))
        self._token = secrets.token_hex(16)
        _here[os.getpid(), self._token] = job

    def round(self, task: Task) -> Iterator[Answer]:
        self.count_round()
        workers = self._job.asked(task.round)
        where = f" in round {task.round}"
        return self._gather(_Call(f"worker {w}{where}", Job.work, (task, w)) for w in workers)

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        x = self._state.x
        calls = (_Call(f"the objective of worker {w}", Job.total, (x, w)) for w in workers)
        return list(self._gather(calls))

    def submit(self, trial: Trial) -> None:
        self._send(_Call(f"the value {trial.id}", outcome_of, (trial,)))

    def completed(self) -> list[tuple[Trial, Outcome]]:
        return [(call.arguments[0], outcome) for call, outcome in self._finished()]

    def close(self) -> None:
        for future in self._flying:
            future.cancel()
        _here.pop((os.getpid(), self._token), None)
        self._flying, self._packed = {}, None
        if self._pool is not None and self._pool is not self._given:
            self._pool.shutdown()
        self._pool = None

    def _gather(self, calls: Iterable[_Call]) -> Iterator[Any]:
        """The values of the calls, in their order."""
        left, order, values = iter(calls), deque[_Call](), dict[_Call, Any]()
        while True:
            room = self._slots * (_AHEAD if self._warm else 1) - len(self._flying)
            for call in islice(left, max(0, room)):
                order.append(call)
                self._send(call)
            if not order:
                return
            if order[0] in values:
                yield values.pop(order.popleft())
            else:
                values.update(self._finished())

    def _finished(self) -> list[tuple[_Call, Any]]:
        """Wait for calls; those with a value.

        After an error, the values that have come with it are returned first: each may have taken
        an hour.
        """
        found: list[tuple[_Call, Any]] = []
        while not found and (self._flying or self._error):
            if self._error is not None:
                raise self._error
            for future in wait(self._flying, return_when=FIRST_COMPLETED).done:
                call, pool = self._flying.pop(future)
                try:
                    found += self._taken(future, call, pool)
                except Exception as error:
                    self._error = self._error or error
        return found

    def _taken(self, future: Future[Reply], call: _Call, pool: Pool) -> list[tuple[_Call, Any]]:
        """The value of a call that is done; a lost one is sent again."""
        try:
            reply = future.result()
        except BrokenExecutor as error:
            if pool is self._pool:
                self._replace(error)
            self._again(call, error)
        except Exception as error:  # of the pool: those of the function are in the reply
            self._again(call, error)
            warn(f"{call.what} was lost ({_text(error)}) and is done again", RuntimeWarning, 2)
        else:
            if reply.error:
                raise messages.unpack_error(reply.error)
            if not reply.unknown:
                self._warm = True
                return [(call, reply.value)]
            call.packed = True
            self._send(call)
        return []

    def _again(self, call: _Call, error: Exception) -> None:
        call.failures += 1
        if call.failures >= self.attempts:
            raise EngineError(
                f"{call.what} was lost in {call.failures} attempts of {self.attempts}, at last by "
                f"{_text(error)}; {_RESUMES}"
            ) from error
        self.repeated += 1
        self._send(call)

    def _send(self, call: _Call) -> None:
        packed = self._job_as_bytes() if call.packed else None
        for _ in range(self.attempts):
            assert self._pool is not None
            try:
                future = self._pool.submit(
                    serve, self._token, call.failures, packed, call.function, *call.arguments
                )
            except Exception as error:  # broken, or shut down by somebody else
                self._replace(error)
            else:
                self._flying[future] = call, self._pool
                return
        raise EngineError(f"{self.attempts} pools in a row broke before any work; {_RESUMES}")

    def _job_as_bytes(self) -> bytes:
        if self._packed is None:
            try:
                self._packed = cloudpickle.dumps(self._job)
            except Exception as error:
                raise TypeError(
                    f"fun, setup, sampler or a loader cannot be sent to a pool: {error}. Make what "
                    "cannot be sent in setup(), or use engine='threads' or 'serial'"
                ) from error
        return self._packed

    def _made(self) -> Pool:
        if isinstance(self._given, Pool):
            return self._given
        pool = self._given()
        if not isinstance(pool, Pool):
            raise TypeError(
                "the function given as pool must return a concurrent.futures.Executor, got "
                f"{type(pool).__name__}"
            )
        return pool

    def _replace(self, error: Exception) -> None:
        """A new pool for one that takes no more work."""
        if self._pool is self._given:
            raise EngineError(
                f"the pool broke ({_text(error)}); {_RESUMES}. With a function that makes the "
                "pool, engine=desopt.engines.Executor(make_pool), a broken one is replaced"
            ) from error
        assert self._pool is not None
        with suppress(Exception):
            self._pool.shutdown(wait=False)
        self._pool = self._made()
        warn(
            f"the pool broke ({_text(error)}); it was replaced and what it was doing is done again",
            RuntimeWarning,
            stacklevel=2,
        )


def _size(pool: Pool) -> int:
    """Calls that the pool computes at the same time, as far as it says so."""
    for name in ("num_workers", "_max_workers"):  # mpi4py; the standard library and loky
        size = getattr(pool, name, None)
        if isinstance(size, int):
            return size
    client: Any = getattr(pool, "_client", None)  # Dask
    return sum(client.nthreads().values()) if hasattr(client, "nthreads") else cores()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
