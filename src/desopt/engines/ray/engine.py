"""Workers spread over a Ray cluster, in actors that keep the state themselves.

An actor hosts a group of workers. In a round it receives the last round's answers instead of x,
and replies with its workers' answers: ``desopt.protocol`` carried by Ray, so no message grows
with n. An actor that is lost, with its node or alone, is replaced by one that receives the state
and repeats the work: same inputs, same bits.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from desopt.contract import checks
from desopt.contract.errors import EngineError
from desopt.contract.types import Answer, Task
from desopt.data import restricted
from desopt.engines.base import Job
from desopt.engines.processes import messages
from desopt.engines.processes.memory import SHARE_FROM, Array, separate
from desopt.engines.ray.actors import Actors
from desopt.engines.ray.cluster import SharedObjects, connect, node_of_each_cpu
from desopt.engines.ray.values import START_LIMIT, Limits, Values
from desopt.engines.trials import Outcome, Trial
from desopt.protocol.server import Server, Traffic
from desopt.system.terminal import warn


class Ray:
    """``jobs`` actors (default: one per CPU of the cluster, at most one per worker).

    ``address``: of a cluster, as ``ray.init`` takes it (default: ``RAY_ADDRESS``, else Ray is
    started on this machine for the run). If Ray is initialised already, that one is used.
    ``timeout``: seconds for one worker's part of a round, after which its actor counts as hung.
    ``attempts``: how often a part or a value is tried before the run stops, or the value counts
    as failed. ``evaluation_timeout``: seconds for a single value, which fails after that.
    ``options`` are for ``ray.init``. Single values may use more actors than there are workers.

    >>> desopt.engines.Ray("head:6379", jobs=32).name
    'ray'
    """

    name = "ray"
    _server: Server  # from the first ``begin`` on
    _limit: tuple[int, ...] = ()  # of this round's task, if it has one

    def __init__(
        self,
        address: str | None = None,
        *,
        jobs: int | None = None,
        timeout: float | None = None,
        attempts: int = 3,
        evaluation_timeout: float | None = None,
        **options: Any,
    ) -> None:
        self.address = address
        self.jobs: int | None = checks.optional(checks.whole, "jobs", jobs)
        self.timeout = timeout
        self.attempts = checks.whole("attempts", attempts)
        self.evaluation_timeout = evaluation_timeout
        self.slots = jobs or 1  # known after ``start``
        self._options = options
        self._connected = False
        self._actors: Actors | None = None
        self._values: Values | None = None
        self._again = 0  # workers' rounds

    @property
    def repeated(self) -> int:
        return self._again + (self._values.repeated if self._values else 0)

    def start(self, job: Job) -> None:
        self._job = job
        self._run = secrets.token_bytes(8)
        self._sent = SharedObjects()
        self._answers: list[Answer] | None = None
        self._counted = 0, 0
        self._traffic = Traffic(job.algorithm, job.workers, job.asked)  # of single values
        self._again, self._values = 0, None
        self._connected = connect(self.address, self._options)
        nodes = node_of_each_cpu()
        self.slots = self.jobs or len(nodes)
        groups = min(self.slots, job.workers)
        self._members = [range(group, job.workers, groups) for group in range(groups)]
        self._actors = Actors(self._pack(), nodes)

    def begin(self, state: Any, limit: int | None = None) -> None:
        if self._answers is not None:
            self._server.advance(state, self._answers)
            self._sent = SharedObjects()
            return
        job = self._job
        self._server = Server(
            job.algorithm, state, job.workers, asked=job.asked, run=self._run, trusted=True
        )
        for group, members in enumerate(self._members):
            self._server.admit(group, members)

    def round(self, task: Task) -> list[Answer]:
        asked = self._job.asked(task.round)
        self._limit = () if task.limit is None else (task.limit,)
        self._again += self._gather("work", asked, self._server.answers)
        self._answers = [self._server.answers[worker] for worker in asked]
        return self._answers

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        self._gather("totals", workers, self._server.totals)
        totals = [self._server.totals[worker] for worker in workers]
        return [(total.total, total.rows) for total in totals]

    def count_round(self) -> None:
        """Count the messages of a round as they would be sent."""
        self._traffic.count(self._server.state)

    def submit(self, trial: Trial) -> None:
        if self._values is None:
            limits = Limits(self.timeout, self.evaluation_timeout, self.attempts)
            self._values = Values(self._job, self._started, self.slots, limits, self._replace)
        self._values.submit(trial)

    def completed(self) -> list[tuple[Trial, Outcome]]:
        return [] if self._values is None else self._values.completed()

    def traffic(self) -> tuple[int, int]:
        before = self._counted
        self._counted = self._server.bytes_up, self._server.bytes_down
        up, down = self._traffic.take()
        return self._counted[0] - before[0] + up, self._counted[1] - before[1] + down

    def close(self) -> None:
        if ray.is_initialized() and self._actors is not None:
            self._actors.kill()
        self._actors, self._sent = None, SharedObjects()
        if self._connected:
            ray.shutdown()
            self._connected = False

    @property
    def _started(self) -> Actors:
        assert self._actors is not None
        return self._actors

    # --- the cluster -------------------------------------------------------------------------

    def _pack(self) -> list[tuple[Any, ...]]:
        """The arguments of ``Group.load`` for each group: the job, with its own workers' shards.

        Every array is stored once, however many workers and groups have it.
        """
        job, store = self._job, SharedObjects()
        code, arrays = _separated(replace(job, shards=[]))
        code_refs = [*map(store, arrays)]
        packed = []
        for group, members in enumerate(self._members):
            part = group, len(self._members)
            shards, arrays = _separated(restricted(job.shards, members))
            refs = [*code_refs, *map(store, arrays)]
            packed.append((self._run, part, code, shards, len(code_refs), *refs))
        return packed

    # --- a round -----------------------------------------------------------------------------

    def _gather(self, verb: str, workers: Iterable[int], known: Container[int]) -> int:
        """Ask the groups until all workers are known; the number of workers asked again."""
        again = 0
        missing = [worker for worker in workers if worker not in known]
        for attempt in range(self.attempts):
            again += len(missing) if attempt else 0
            self._ask(verb, self._by_group(missing))
            missing = [worker for worker in missing if worker not in known]
            if not missing:
                return again
        raise EngineError(
            f"worker {missing[0]}: its actor {self._reason} in {self.attempts} attempts of "
            f"{self.attempts}; the run stops here and can be resumed from its journal"
        )

    def _by_group(self, workers: Iterable[int]) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        for worker in workers:
            groups.setdefault(worker % len(self._members), []).append(worker)
        return groups

    def _ask(self, verb: str, groups: dict[int, list[int]]) -> None:
        """One call to each group; the replies go to the server."""
        self._await_loaded(groups)
        self._reason = "gave answers that were refused"
        limit = None
        if self.timeout is not None:
            limit = self.timeout * max(map(len, groups.values()), default=0)
        calls = [self._call(verb, group, workers) for group, workers in groups.items()]
        for group, replies in zip(groups, self._replies(groups, calls, limit), strict=True):
            for reply in messages.unpack_list(replies or b""):
                self._server.receive(group, messages.checked(reply))

    def _call(self, verb: str, group: int, workers: list[int]) -> Any:
        actor, message = self._started[group], self._message(group)
        if verb == "work":  # the actor knows which workers are asked
            return actor.work.remote(message, *self._limit)
        return actor.totals.remote(message, workers)

    def _replies(
        self, groups: Iterable[int], calls: list[Any], limit: float | None
    ) -> list[bytes | None]:
        """The results of the calls: in one step, or one by one after an error."""
        end = None if limit is None else time.monotonic() + limit
        try:
            replies: list[bytes | None] = ray.get(calls, timeout=limit)
        except RayError:
            replies = [self._reply(*one, end) for one in zip(groups, calls, strict=True)]
        return replies

    def _message(self, group: int) -> Any:
        """The message that brings the group to this round; a long one through the object store."""
        message = self._server.message_for(group)
        return message if len(message) < SHARE_FROM else self._sent(message)

    def _await_loaded(self, groups: Iterable[int]) -> None:
        """Wait for the actors of these groups that are still starting."""
        for group in groups:
            failures = 0
            while group in self._started.loading:
                end = time.monotonic() + START_LIMIT
                reply = self._reply(group, self._started.loading[group], end)
                if reply is not None:
                    messages.checked(reply)
                    del self._started.loading[group]
                    break
                failures += 1
                if failures == self.attempts:
                    raise EngineError(
                        f"an actor {self._reason} before it was ready, {failures} in a row; Ray's "
                        "logs on its node say why"
                    )

    def _reply(self, group: int, call: Any, end: float | None) -> Any:
        """The call's result; None if its actor was lost or hangs, and was replaced."""
        try:
            return ray.get(call, timeout=None if end is None else max(0.0, end - time.monotonic()))
        except GetTimeoutError:
            self._replace(group, "gave no answer in time")
        except RayError as error:
            self._replace(group, f"died ({type(error).__name__})")
        return None

    def _replace(self, actor: int, reason: str) -> None:
        """Replace an actor that is lost or hangs; its work is done again."""
        group = self._started.hosted[actor]
        members = self._members[group]
        self._reason = reason
        if reason:
            _warn_of(members, reason)
        self._started.replace(actor)
        if actor == group:
            self._server.admit(group, members)  # whatever it knew is gone


def _warn_of(members: Sequence[int], reason: str) -> None:
    names = ", ".join([*map(str, members[:5]), *["..."][: len(members) > 5]])
    warn(
        f"the actor of worker{'s' * (len(members) > 1)} {names} {reason}; it was replaced and "
        "what it was doing is done again",
        RuntimeWarning,
        stacklevel=2,
    )


def _separated(value: Any) -> tuple[bytes, list[Array]]:
    try:
        return separate(value)
    except Exception as error:
        raise TypeError(
            f"fun, setup, sampler or a loader cannot be sent to a cluster: {error}. Make what "
            "cannot be sent in setup(), or use engine='threads' or 'serial'"
        ) from error
