"""The engine of a federation: the workers are Flower's nodes.

The loop over rounds, the journal and the stopping rules are ``minimize``'s own. Here are only
the messages: a node has at most one at a time, and gets the next when it has answered, is found
to be gone, or its message has expired. Where the loss is wanted, it is asked for together with
the round's work, because a round trip costs seconds in Flower whatever is in it.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from flwr.app import Error, Message
from flwr.serverapp import Grid

from desopt import arguments as check
from desopt import wire
from desopt.engines import Job
from desopt.federate.records import Order, pack, read_report
from desopt.replica import Replica, describe
from desopt.server import Server
from desopt.types import Answer, EngineError, FloatArray, Task

logger = logging.getLogger("desopt.federate")

#: Flower's codes for "the app could not be loaded", "it raised", "its process died"; and for a
#: node that is gone.
_APP_FAILED, _GONE = (1, 2, 8), 5

#: How often a node may fail in a round before it is left out of it.
_ATTEMPTS = 3

#: Seconds that a message is valid where no deadline is shorter.
_VALID = 3600.0


class Federation:
    """The engine; ``minimize(..., data, engine=Federation(grid))`` where a ServerApp has a grid.

    deadline
        Seconds after which a round closes with the answers that are there (None: never).
    min_answers
        A round closes as soon as so many workers have answered (None: all that are asked).
    min_nodes
        A round begins when so many nodes are connected.
    poll
        Seconds between two looks at what has come.
    last
        The number of rounds, after which no work is asked for along with the loss.
    """

    name = "flower"
    repeated = 0

    def __init__(
        self,
        grid: Grid,
        *,
        deadline: float | None = None,
        min_answers: int | None = None,
        min_nodes: int = 1,
        poll: float = 0.2,
        last: int | None = None,
    ) -> None:
        self._grid = grid
        self.deadline: float | None = check.optional(check.positive, "deadline", deadline)
        self.min_answers: int | None = check.optional(check.whole, "min_answers", min_answers)
        self.min_nodes = check.whole("min_nodes", min_nodes)
        self.poll = check.positive("poll", poll)
        self.last = math.inf if last is None else last
        self.server: Server | None = None
        self._worker: dict[int, int] = {}  # by node: those that have joined this run
        self._pending: dict[str, int] = {}  # node by message
        self._failures: Counter[int] = Counter()  # by node, in this round
        self._opened: float | None = None
        self._merged: list[Answer] = []
        self._limit: int | None = None
        self._counted = 0, 0

    # --- what minimize calls -----------------------------------------------------------------

    def start(self, job: Job) -> None:
        self._job = job

    def follow(self, state: Any, limit: int | None = None) -> None:
        self._limit = limit
        if self.server is None:
            self._begin(state)
        else:
            self.server.advance(state, self._merged)
        self._opened = None
        self._failures.clear()

    def round(self, task: Task) -> list[Answer]:
        server = self._server
        self._exchange(lambda: self._enough(server.answers, server.asked), total=False)
        self._merged = [server.answers[worker] for worker in sorted(server.answers)]
        return self._merged

    def totals(self, x: FloatArray, workers: Sequence[int]) -> list[tuple[float, int]]:
        """Of those who answer in time. x is that of the round which ``follow`` began."""
        totals = self._server.totals
        self._exchange(lambda: self._enough(totals, workers), total=True)
        found = [totals[worker] for worker in workers if worker in totals]
        return [(one.total, one.rows) for one in found] or [(math.nan, 1)]

    def traffic(self) -> tuple[int, int]:
        before, self._counted = self._counted, (self._server.bytes_up, self._server.bytes_down)
        return self._counted[0] - before[0], self._counted[1] - before[1]

    def close(self) -> None:
        self._pending.clear()

    # --- messages ----------------------------------------------------------------------------

    def _begin(self, state: Any) -> None:
        job = self._job
        self.server = Server(job.algorithm, state, job.workers, asked=job.asked)
        self._description = wire.pack_description(self.server.run, describe(job, state.x))
        known = state.x if state.round == 0 and not state.x.any() else None
        newcomer = Replica(job.algorithm, job.n, job.workers, self.server.run, x0=known)
        self._newcomer = newcomer.ask()

    @property
    def _server(self) -> Server:
        if self.server is None:
            raise EngineError("the federation has no state yet: minimize() calls start and follow")
        return self.server

    def _enough(self, found: Collection[int], wanted: Collection[int]) -> bool:
        return len(found) >= min(self.min_answers or len(wanted), len(wanted))

    def _exchange(self, complete: Callable[[], bool], *, total: bool) -> None:
        """Send and receive until it is complete or the round is over."""
        work = self._server.state.round < self.last and self._limit != 0
        while not complete():
            nodes = set(self._grid.get_node_ids())
            self._forget(self._worker.keys() - nodes)
            if self._opened is None and len(nodes) >= self.min_nodes:
                self._opened = time.monotonic()
            if self._left() <= 0:
                return
            if self._opened is not None:
                self._send(nodes, work, total)
            self._receive()
            if not complete():
                time.sleep(self.poll)

    def _left(self) -> float:
        """Seconds until the round closes."""
        if self.deadline is None or self._opened is None:
            return math.inf
        return self._opened + self.deadline - time.monotonic()

    def _send(self, nodes: Iterable[int], work: bool, total: bool) -> None:
        busy = set(self._pending.values())
        free = [n for n in sorted(nodes) if n not in busy and self._wanted(n, work, total)]
        valid = min(self._left(), _VALID)
        messages = [
            Message(pack(self._order(node, work, total)), node, "train", ttl=valid,
                    group_id=str(self._server.state.round))
            for node in free
        ]  # fmt: skip
        if messages:
            ids = self._grid.push_messages(messages)
            self._pending.update(
                {id: node for id, node in zip(ids, free, strict=True) if id is not None}
            )

    def _wanted(self, node: int, work: bool, total: bool) -> bool:
        """Whether the node has something to say that is not known yet."""
        if self._failures[node] >= _ATTEMPTS:
            return False
        if node not in self._worker:
            return True
        worker, server = self._worker[node], self._server
        unanswered = work and worker in server.asked and worker not in server.answers
        return unanswered or (total and worker not in server.totals)

    def _order(self, node: int, work: bool, total: bool) -> Order:
        server = self._server
        if node in self._worker:
            return Order(server.message_for(node), b"", work, total, self._limit or 0)
        server.admit(node, ())  # which worker it is, it says in its answer
        server.receive(node, self._newcomer)  # it will stand where the description puts it
        server.bytes_up -= len(self._newcomer)
        server.bytes_down += len(self._description)
        description, limit = self._description, self._limit or 0
        return Order(server.message_for(node), description, work, total, limit)

    def _receive(self) -> None:
        if not self._pending:
            return
        for reply in self._grid.pull_messages(list(self._pending)):
            node = self._pending.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if reply.has_error():
                self._failed(node, reply.error)
            else:
                self._read(node, reply)

    def _failed(self, node: int, error: Error) -> None:
        """A node that is gone joins anew when it comes back; an app that fails is tried again."""
        logger.warning("node %d: error %d, %s", node, error.code, error.reason)
        if error.code == _GONE:
            self._forget([node])
        if error.code not in _APP_FAILED:
            return
        self._failures[node] += 1
        patient = self.deadline is not None or self.min_answers is not None
        if self._failures[node] == _ATTEMPTS and not patient:
            raise EngineError(
                f"the ClientApp of node {node} failed {_ATTEMPTS} times in round "
                f"{self._server.state.round}, and without deadline or min_answers the round "
                f"cannot close: {error.reason}"
            )

    def _read(self, node: int, reply: Message) -> None:
        try:
            report = read_report(reply.content)
            self._check_worker(node, report.worker)
        except ValueError as error:
            logger.warning("node %d is left out of this round: %s", node, error)
            self._failures[node] = _ATTEMPTS
            return
        if not report.messages:
            self._forget([node])
        elif node not in self._worker:
            self._worker[node] = report.worker
            self._server.admit(node, [report.worker])
        for message in report.messages:
            self._server.receive(node, message)

    def _check_worker(self, node: int, worker: int) -> None:
        """A node is one worker, and a worker's number has one node at a time."""
        if not 0 <= worker < self._server.workers:
            raise ValueError(f"it says that it is worker {worker} of {self._server.workers}")
        if node in self._worker and self._worker[node] != worker:
            raise ValueError(f"it was worker {self._worker[node]} and now says {worker}")
        if any(w == worker and other != node for other, w in self._worker.items()):
            raise ValueError(f"it says that it is worker {worker}, which another node is already")

    def _forget(self, nodes: Iterable[int]) -> None:
        """They are not there, or no longer know the run."""
        for node in list(nodes):
            self._worker.pop(node, None)
