"""What passes between the server and Flower's nodes in a round.

A node has at most one message at a time, and gets the next when it has answered, has left, or its
message has expired. A reply without what was requested is a failure, whatever is wrong with it. A
node that failed three times is left out of the round, so that none can keep the server busy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from desopt.contract import checks as check
from desopt.contract.errors import EngineError
from desopt.engines.flower.asking import PATIENCE, VALID
from desopt.engines.flower.nodes import ATTEMPTS, Nodes, logger
from desopt.engines.flower.records import Order, Report, pack, printable, read_report
from desopt.protocol.server import Server

#: Flower's code for a node that is gone.
_GONE = 5

#: Characters of a node's own words in our log, and in an error.
_LOGGED, _SHOWN = 300, 2000

#: Lines about failures that are kept of a round, and names in a line.
TROUBLES = 20


class _Sent(NamedTuple):
    """A message that is not answered yet."""

    node: int
    round: int
    work: bool
    total: bool


class Exchange:
    """The messages of a run, round by round; its settings are those of ``Federation``."""

    #: What a node that joins is told of the run, and how it asks for the state then.
    _description: bytes
    _newcomer: bytes

    def __init__(
        self,
        grid: Grid,
        deadline: float | None,
        min_answers: int | None,
        min_nodes: int,
        nodes: Mapping[int, int] | None,
        poll: float,
        last: int | None,
        say: Callable[[str], Any] | None,
    ) -> None:
        self._grid = grid
        self.deadline: float | None = check.optional(check.positive, "deadline", deadline)
        self.min_answers: int | None = check.optional(check.whole, "min_answers", min_answers)
        self.min_nodes = check.whole("min_nodes", min_nodes)
        self.nodes: dict[int, int] | None = None
        if nodes is not None:
            self.nodes = {n: check.whole("a worker in nodes", w, 0) for n, w in nodes.items()}
        self.poll = check.positive("poll", poll)
        self.last = math.inf if last is None else last
        self.say = say or logger.info
        self.server: Server | None = None

    def _start(self, workers: int, sites: Mapping[int, str]) -> None:
        """Before the first round."""
        self.server = None
        self._nodes = Nodes(workers, self.nodes)
        self._nodes.sites |= sites
        self._heard: dict[int, float] = {}  # when a worker's message was last accepted
        self._pending: dict[str, _Sent] = {}  # by message
        self._limit: int | None = None
        self._clear()

    def _clear(self) -> None:
        """Before every round."""
        self._opened: float | None = None
        self._answered: dict[int, float] = {}  # seconds until a worker's answer came
        self._without: set[int] = set()  # workers that have no total to give
        self._troubles: list[str] = []

    @property
    def _server(self) -> Server:
        if self.server is None:
            raise EngineError("the federation has no state yet: call start and begin first")
        return self.server

    @property
    def _work_follows(self) -> bool:
        """Whether the workers have a round to compute, not only the loss."""
        return self._server.state.round < self.last and self._limit != 0

    def _enough(self, found: Collection[int], wanted: Collection[int]) -> bool:
        return len(found) >= min(self.min_answers or len(wanted), len(wanted))

    # --- messages to nodes -------------------------------------------------------------------

    def _exchange(self, complete: Callable[[], bool], *, total: bool) -> None:
        """Send and receive until it is complete or the round is over."""
        work = self._work_follows
        began = said = time.monotonic()
        while not complete():
            if time.monotonic() - said > PATIENCE:
                said = time.monotonic()
                self.say(self._waiting(said - began, total))
            self._nodes.update(self._grid.get_node_ids())
            if self._opened is None and len(self._nodes.present) >= self.min_nodes:
                self._opened = time.monotonic()
            if self._left() <= 0:
                return
            if self._opened is not None:
                self._send(self._nodes.present, work, total)
            self._receive()
            if not complete():
                time.sleep(self.poll)

    def _waiting(self, seconds: float, total: bool) -> str:
        """For whom the server waits, and for how long."""
        server, present = self._server, len(self._nodes.present)
        if self._opened is None:
            return f"waiting for nodes: {present} connected, min_nodes is {self.min_nodes}"
        done = server.totals.keys() | self._without if total else server.answers.keys()
        wanted = range(server.workers) if total else server.asked
        late = [self._nodes.site(worker) for worker in sorted(wanted) if worker not in done]
        what = f"round {server.state.round + 1}"
        if not self._work_follows:
            what = f"loss after round {server.state.round}"
        return (
            f"{what}: {seconds:.0f} s, waiting for {', '.join(late[:TROUBLES])}; "
            f"{present} nodes connected"
        )

    def _left(self) -> float:
        """Seconds until the round closes."""
        if self.deadline is None or self._opened is None:
            return math.inf
        return self._opened + self.deadline - time.monotonic()

    def _send(self, nodes: Iterable[int], work: bool, total: bool) -> None:
        busy = {sent.node for sent in self._pending.values()}
        free = [n for n in sorted(nodes) if n not in busy and self._wanted(n, work, total)]
        valid, round = min(self._left(), VALID), self._server.state.round
        messages = [
            Message(pack(self._order(node, work, total)), node, "train", ttl=valid,
                    group_id=str(round))
            for node in free
        ]  # fmt: skip
        if messages:
            ids = self._grid.push_messages(messages)
            sent = {id: _Sent(node, round, work, total) for id, node in zip(ids, free, strict=True)}
            self._pending.update({id: one for id, one in sent.items() if id is not None})

    def _wanted(self, node: int, work: bool, total: bool) -> bool:
        """Whether the node has something to say that is not known yet."""
        if self._nodes.left_out(node):
            return False
        if node not in self._nodes.worker:
            return True
        worker = self._nodes.worker[node]
        return self._speaks(node, worker) and self._owed(worker, work, total)

    def _speaks(self, node: int, worker: int) -> bool:
        return self._nodes.speaker(worker, self._server.state.round) == node

    def _owed(self, worker: int, work: bool, total: bool) -> bool:
        """Whether something requested of the worker has not come."""
        server = self._server
        if work and worker in server.asked and worker not in server.answers:
            return True
        return total and worker not in server.totals and worker not in self._without

    def _order(self, node: int, work: bool, total: bool) -> Order:
        server, limit = self._server, self._limit or 0
        if node in self._nodes.worker:
            return Order(server.message_for(node), b"", work, total, limit)
        server.admit(node, ())  # its answer says which worker it is
        server.receive(node, self._newcomer)  # it will stand where the description puts it
        server.bytes_up -= len(self._newcomer)
        server.bytes_down += len(self._description)
        return Order(server.message_for(node), self._description, work, total, limit)

    # --- their replies -----------------------------------------------------------------------

    def _receive(self) -> None:
        if not self._pending:
            return
        for reply in self._grid.pull_messages(list(self._pending)):
            sent = self._pending.pop(reply.metadata.reply_to_message_id, None)
            if sent is None:
                continue
            if reply.has_error():
                self._failed(sent.node, reply.error)
            else:
                self._read(sent, reply)

    def _failed(self, node: int, error: Error) -> None:
        """A node that is gone joins anew when it returns; an app that fails is tried again."""
        said = printable(error.reason or "")
        logger.warning("%s: error %d, %s", self._nodes.name(node), error.code, line(said))
        if error.code == _GONE:
            self._nodes.forget([node])
        self._strike(node, said[-_SHOWN:])

    def _strike(self, node: int, why: str, failures: int = 1) -> None:
        """Count a failure; after the last one the round goes on without the node, if it can."""
        name = self._nodes.name(node)
        trouble = f"{name}: {line(why.strip().partition(chr(10))[0])}"  # without a traceback
        if trouble not in self._troubles[:TROUBLES]:
            self._troubles.append(trouble)
        if not self._nodes.count_failure(node, failures):
            return
        round, worker = self._server.state.round, self._nodes.worker.get(node)
        logger.warning("%s is left out of round %d: %s", name, round, line(why))
        if worker is not None and self._speaks(node, worker):
            self._without.add(worker)
            if not self._owed(worker, self._work_follows, total=False):
                return
        patient = self.deadline is not None or self.min_answers is not None
        if not patient and not self._nodes.can_all_answer():
            raise EngineError(
                f"the ClientApp of {name} failed {ATTEMPTS} times in round {round}, and "
                f"without deadline or min_answers the round cannot close: {why}"
            )

    def _read(self, sent: _Sent, reply: Message) -> None:
        node = sent.node
        try:
            report = self._report(node, reply.content)
        except ValueError as error:
            self._strike(node, str(error), ATTEMPTS)
            return
        if report.error:
            logger.warning("%s: %s", self._nodes.name(node), line(report.error))
            self._strike(node, report.error[-_SHOWN:])
            return
        if not report.messages:
            self._nodes.forget([node])
            self._strike(node, f"worker {report.worker} says that it knows of no run")
            return
        self._admit(node, report.worker)
        if self._speaks(node, report.worker):
            self._take(sent, report.worker, report.messages)

    def _report(self, node: int, content: RecordDict) -> Report:
        """A node's report, if it can be the worker that it says."""
        report = read_report(content)
        self._nodes.check(node, report.worker)
        self._nodes.call(node, report.worker, report.site)
        return report

    def _admit(self, node: int, worker: int) -> None:
        if node not in self._nodes.worker:
            self._nodes.join(node, worker)
            self._server.admit(node, [worker])

    def _take(self, sent: _Sent, worker: int, messages: Iterable[bytes]) -> None:
        """Hand the messages of a worker's speaker to the server; what is missing is a failure."""
        server = self._server
        refusals = server.refused.total()
        for message in messages:
            if server.receive(sent.node, message) is not None:
                self._heard[worker] = time.monotonic()
        if worker in server.answers and self._opened is not None:
            self._answered.setdefault(worker, time.monotonic() - self._opened)
        if sent.round != server.state.round:
            return  # too late for a round that is over; the next message comes in time
        if sent.total and worker not in server.totals and server.in_step(sent.node):
            self._without.add(worker)  # it has this state, and no finite sum
        if self._owed(worker, sent.work, sent.total):
            refused = f": {server.refusal}" if server.refused.total() > refusals else ""
            self._strike(sent.node, f"worker {worker} did not say what it was asked for{refused}")


def line(text: str) -> str:
    """Words of a node as one line of ours."""
    return " ".join(text.split())[:_LOGGED]
