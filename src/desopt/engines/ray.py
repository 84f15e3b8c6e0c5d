"""Workers spread over a Ray cluster, in actors that keep the state by themselves.

An actor hosts a group of workers. In a round it is sent the last round's answers instead of x,
and says its workers' answers: ``desopt.server`` and ``desopt.replica`` carried by Ray, so no
message grows with n. An actor that is lost, with its node or alone, is replaced by one that is
sent the state and does the work again: same inputs, same bits.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
import warnings
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from desopt.data import Loaders, Nothing
from desopt.engines import messages
from desopt.engines.actor import Group
from desopt.engines.base import Job
from desopt.engines.memory import Array, separate
from desopt.server import Server
from desopt.types import Answer, EngineError, FloatArray, Task

try:
    import ray
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise ImportError("engine 'ray' needs Ray: pip install 'desopt[ray]'") from error

#: Seconds for an actor to start, import the package and fetch its data.
_START_LIMIT = 300.0

#: Seconds before an actor that cannot be reached is called again.
_PAUSE = 0.5


@dataclass
class _Call:
    again: Callable[[], Any]
    ref: Any


class Ray:
    """``jobs`` actors (default: one per CPU of the cluster, at most one per worker).

    ``address``: of a cluster, as ``ray.init`` takes it (default: ``RAY_ADDRESS``, else Ray is
    started on this machine for the run). Where Ray is initialised already, that is used.
    ``timeout``: seconds that one worker's part of a round may take before its actor counts as
    hung. ``attempts``: how often a part is tried before the run stops. ``options`` are for
    ``ray.init``.
    """

    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        *,
        jobs: int | None = None,
        timeout: float | None = None,
        attempts: int = 3,
        **options: Any,
    ) -> None:
        self.address = address
        self.jobs = jobs
        self.timeout = timeout
        self.attempts = attempts
        self.repeated = 0
        self._options = options
        self._connected = False
        self._actors: list[Any] = []

    def start(self, job: Job) -> None:
        self._job = job
        self._run = secrets.token_bytes(8)
        self._server: Server | None = None
        self._stored: dict[int, tuple[Array, Any]] = {}
        self._counted = 0, 0
        self.repeated = 0
        self._connect()
        nodes = _node_of_each_cpu()
        groups = min(self.jobs or len(nodes), job.workers)
        self._members = [range(group, job.workers, groups) for group in range(groups)]
        self._nodes = [nodes[group % len(nodes)] for group in range(groups)]
        self._packed = self._pack()
        self._loading: dict[int, _Call] = {}
        self._actors = [None] * groups
        for group in range(groups):
            self._spawn(group)

    def follow(self, state: Any) -> None:
        if self._server is not None:
            self._server.advance(state, self._answers)
            return
        job = self._job
        self._server = Server(job.algorithm, state, job.workers, asked=job.asked, run=self._run)
        for group, members in enumerate(self._members):
            self._server.admit(group, members)

    def round(self, task: Task) -> list[Answer]:
        assert self._server is not None
        asked = self._job.asked(task.round)
        self.repeated += self._gather("work", asked, self._server.answers)
        self._answers = [self._server.answers[worker] for worker in asked]
        return self._answers

    def totals(self, x: FloatArray, workers: Sequence[int]) -> list[tuple[float, int]]:
        assert self._server is not None
        if not np.array_equal(x, self._server.state.x, equal_nan=True):
            raise ValueError("engine ray evaluates at the x of the current round only")
        self._gather("totals", workers, self._server.totals)
        totals = [self._server.totals[worker] for worker in workers]
        return [(total.total, total.rows) for total in totals]

    def traffic(self) -> tuple[int, int]:
        assert self._server is not None
        before = self._counted
        self._counted = self._server.bytes_up, self._server.bytes_down
        return self._counted[0] - before[0], self._counted[1] - before[1]

    def close(self) -> None:
        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor)
        self._actors = []
        self._stored = {}
        if self._connected:
            ray.shutdown()
            self._connected = False

    # --- the cluster -------------------------------------------------------------------------

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        address = self.address or os.environ.get("RAY_ADDRESS", "local")
        usual: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            usual["include_dashboard"] = False
            os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
            _keep_token_in_memory()
        ray.init(address=address, **(usual | self._options))
        self._connected = True

    def _pack(self) -> list[tuple[Any, ...]]:
        """What ``Group.load`` is given in each group: its own workers' shards, and all the rest.

        Every array is stored once, however many workers and groups have it.
        """
        job, nothing = self._job, Nothing()
        try:
            code, arrays = separate(replace(job, shards=[]))
            code_refs = [self._store(array) for array in arrays]
            packed = []
            for members in self._members:
                own: Any = job.shards
                if not isinstance(own, Loaders):
                    own = [s if w in members else nothing for w, s in enumerate(job.shards)]
                shards, arrays = separate(own)
                refs = [*code_refs, *map(self._store, arrays)]
                packed.append((self._run, code, shards, len(code_refs), *refs))
        except Exception as error:
            raise TypeError(
                f"fun, setup, sampler or a loader cannot be sent to a cluster: {error}. Make what "
                "cannot be sent in setup(), or use engine='threads' or 'serial'"
            ) from error
        return packed

    def _store(self, array: Array) -> Any:
        if id(array) not in self._stored:
            self._stored[id(array)] = array, ray.put(array)
        return self._stored[id(array)][1]

    def _spawn(self, group: int) -> None:
        """A new actor for the group, on its node while that lives.

        As Ray's actors do unless told otherwise, it takes a free CPU to start and gives it back:
        what is left of a cluster can host all groups.
        """
        node = NodeAffinitySchedulingStrategy(self._nodes[group], soft=True)
        actor = ray.remote(Group).options(scheduling_strategy=node).remote()
        self._actors[group] = actor
        self._loading[group] = self._call(group, "load", *self._packed[group])

    # --- a round -----------------------------------------------------------------------------

    def _gather(self, verb: str, workers: Sequence[int], known: Container[int]) -> int:
        """Ask the groups until something is known of all workers; how many were asked again."""
        assert self._server is not None
        again = 0
        for attempt in count():
            missing = [worker for worker in workers if worker not in known]
            if not missing:
                return again
            if attempt == self.attempts:
                raise EngineError(
                    f"worker {missing[0]}: its actor {self._reason} in {attempt} attempts of "
                    f"{self.attempts}; the run stops here and can be resumed from its journal"
                )
            again += len(missing) if attempt else 0
            groups: dict[int, list[int]] = {}
            for worker in missing:
                groups.setdefault(worker % len(self._actors), []).append(worker)
            self._await_loaded(groups)
            self._ask(verb, groups)
        raise AssertionError

    def _ask(self, verb: str, groups: dict[int, list[int]]) -> None:
        """One call to each group; what comes back goes to the server."""
        assert self._server is not None
        self._reason = "gave answers that were refused"
        began = time.monotonic()
        calls = {
            group: self._call(group, verb, self._server.message_for(group), workers)
            for group, workers in groups.items()
        }
        for group, call in calls.items():
            limit = None
            if self.timeout is not None:
                limit = began + self.timeout * len(groups[group])
            for reply in self._reply(group, call, limit) or ():
                if reply[:1] == messages.ERROR:
                    raise messages.unpack_error(reply)
                self._server.receive(group, reply)

    def _await_loaded(self, groups: Iterable[int]) -> None:
        """Wait for those of the groups whose actors are still starting."""
        for group in groups:
            for _ in range(self.attempts):
                if group not in self._loading:
                    break
                limit = time.monotonic() + _START_LIMIT
                reply = self._reply(group, self._loading[group], limit)
                if reply is not None and reply[:1] == messages.ERROR:
                    raise messages.unpack_error(reply)
                if reply is not None:
                    del self._loading[group]
            else:
                raise EngineError(
                    f"an actor {self._reason} before it was ready, in {self.attempts} attempts"
                )

    def _call(self, group: int, verb: str, *arguments: Any) -> _Call:
        method = getattr(self._actors[group], verb)
        return _Call(partial(method.remote, *arguments), method.remote(*arguments))

    def _reply(self, group: int, call: _Call, limit: float | None) -> Any:
        """What the call returns; None where its actor was lost or hangs, and was replaced."""
        while True:
            left = None if limit is None else max(0.0, limit - time.monotonic())
            try:
                return ray.get(call.ref, timeout=left)
            except ActorUnavailableError:  # until it is back, or Ray knows that it is lost
                time.sleep(_PAUSE)
                call.ref = call.again()
            except GetTimeoutError:
                return self._replace(group, "gave no answer in time")
            except RayError as error:
                return self._replace(group, f"died ({type(error).__name__})")

    def _replace(self, group: int, reason: str) -> None:
        """Put a new actor in the place of one that is lost or hangs; its work is done again."""
        assert self._server is not None
        members = self._members[group]
        names = ", ".join([*map(str, members[:5]), *["..."][: len(members) > 5]])
        warnings.warn(
            f"the actor of worker{'s' * (len(members) > 1)} {names} {reason}; it was replaced and "
            "what it was doing is done again",
            RuntimeWarning,
            stacklevel=2,
        )
        self._reason = reason
        ray.kill(self._actors[group])
        self._spawn(group)
        self._server.admit(group, members)  # whatever it knew is gone


def _keep_token_in_memory() -> None:
    """Give a Ray of our own a token by the environment, where there is none.

    Ray would write one into the home folder, and demand it of every cluster started later.
    """
    known = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
    if not any(map(os.environ.get, known)) and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _node_of_each_cpu() -> list[str]:
    """A node's id for every CPU of the cluster, in turn, so that the first few are spread out."""
    nodes = [
        [node["NodeID"]] * int(node["Resources"].get("CPU", 0))
        for node in ray.nodes()
        if node["Alive"]
    ]
    spread = [node for node in chain(*zip_longest(*nodes)) if node is not None]
    return spread or [ray.get_runtime_context().get_node_id()]
