"""The engine of a federation: the workers are Flower's nodes.

The loop over rounds, the journal and the stopping rules are ``minimize``'s own. Here are only
the messages. A node has at most one at a time, and gets the next when it has answered, has left,
or its message has expired. If the loss is due, it is requested together with the round's work,
because a round trip takes seconds in Flower whatever is in it.

A reply without what was requested is a failure, whatever is wrong with it. A node that failed
three times is left out of the round, so that none can keep the server busy.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from desopt.contract import checks as check
from desopt.contract.errors import EngineError, check_name
from desopt.contract.types import Answer, Task
from desopt.data import as_shards
from desopt.engines.base import Job, describe
from desopt.engines.flower.asking import PATIENCE, VALID, Asking
from desopt.engines.flower.nodes import ATTEMPTS, Nodes, logger
from desopt.engines.flower.records import (
    Order,
    Report,
    pack,
    printable,
    question,
    read_report,
    site_name,
)
from desopt.objectives.inputs import Moments
from desopt.protocol import wire
from desopt.protocol.replica import Replica
from desopt.protocol.server import Server
from desopt.protocol.wire import Total
from desopt.system.files import write_whole

#: Flower's code for a node that is gone.
_GONE = 5

#: Characters of a node's own words in our log, and in an error.
_LOGGED, _SHOWN = 300, 2000

#: Lines about failures that are kept of a round, and metrics of a site.
_TROUBLES = 20

#: Seconds for the nodes to take leave.
_FAREWELL = 300.0

#: How the nodes' values of the objective become one.
_LOSS_RULES = ("mean", "median")


class _Sent(NamedTuple):
    """A message that is not answered yet."""

    node: int
    round: int
    work: bool
    total: bool


class Federation:
    """The engine; in a ServerApp, ``minimize(..., engine=Federation(grid))``.

    deadline
        Seconds after which a round closes with the answers that have come (None: never).
    min_answers
        The number of answers with which a round closes (None: all that are asked).
    min_nodes
        The number of connected nodes with which a round begins.
    nodes
        The worker of each node, by Flower's number of the node (None: as they say themselves;
        those that say the same take turns).
    loss
        "mean" of all rows of those who answered, or "median" of the nodes' own means, which a
        minority cannot move: for runs that end by target or patience. A median of no more than
        half of the workers is NaN.
    evaluation
        Data of the server's own, as ``minimize`` takes them: the loss is over these, and no node
        is asked for it.
    poll
        Seconds between two polls for replies.
    last
        The number of rounds, after which no work is requested along with the loss.
    snapshot
        A file that gets the state in every round. Nodes that need it, and whose configuration has
        a ``snapshot``, fetch it from there; all others are sent it, as without this.
    say
        Called with a line for the operator where a round waits for more than a minute.
    sites
        The names of workers' sites, as far as they are known from an earlier start.

    >>> from desopt.federate import Federation
    >>> Federation(grid=None, deadline=60.0).name  # in a ServerApp, the grid that Flower gives it
    'flower'
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
        nodes: Mapping[int, int] | None = None,
        loss: str = "mean",
        evaluation: Any = None,
        poll: float = 0.2,
        snapshot: str | os.PathLike[str] | None = None,
        last: int | None = None,
        say: Callable[[str], Any] | None = None,
        sites: Mapping[int, str] | None = None,
    ) -> None:
        self._grid = grid
        self.deadline: float | None = check.optional(check.positive, "deadline", deadline)
        self.min_answers: int | None = check.optional(check.whole, "min_answers", min_answers)
        self.min_nodes = check.whole("min_nodes", min_nodes)
        self.nodes: dict[int, int] | None = None
        if nodes is not None:
            self.nodes = {n: check.whole("a worker in nodes", w, 0) for n, w in nodes.items()}
        check_name("loss", loss, _LOSS_RULES)
        self.loss = loss
        self.evaluation = evaluation
        self.poll = check.positive("poll", poll)
        self.last = math.inf if last is None else last
        self.server: Server | None = None
        self.snapshot = snapshot
        self.say = say or logger.info
        self.sites = dict(sites or {})
        #: The last finished round: who answered after how many seconds, and who did not.
        self.report: dict[str, Any] = {}
        #: The run's settings, as the nodes have them.
        self.description: dict[str, Any] = {}
        #: What the nodes have found on rows of their own at the end, by site.
        self.metrics: dict[str, dict[str, float]] = {}

    # --- what a run calls --------------------------------------------------------------------

    def start(self, job: Job) -> None:
        self._job = job
        self.server = None
        self._nodes = Nodes(job.workers, self.nodes)
        self._nodes.sites |= self.sites
        self._heard: dict[int, float] = {}  # when a worker's message was last accepted
        self._answered: dict[int, float] = {}  # seconds until its answer came, in this round
        self._troubles: list[str] = []
        self._refused: Counter[str] = Counter()
        self._pending: dict[str, _Sent] = {}  # by message
        self._without: set[int] = set()  # workers that have no total to give, in this round
        self._opened: float | None = None
        self._merged: list[Answer] = []
        self._limit: int | None = None
        self._counted = 0, 0
        if self.evaluation is not None:
            shards = job.objective.prepare(as_shards(self.evaluation, 1, job.seed))
            self._own = replace(job, shards=shards)

    def begin(self, state: Any, limit: int | None = None) -> None:
        self._limit = limit
        if self.server is None:
            self._open(state)
        else:
            self.report = self._closed()
            self.server.advance(state, self._merged)
        if self.snapshot is not None:
            write_whole(self.snapshot, self._server.publish())
        self._opened = None
        self._answered, self._troubles = {}, []
        self._nodes.begin_round()
        self._without.clear()

    def round(self, task: Task) -> list[Answer]:
        server = self._server
        self._exchange(lambda: self._enough(server.answers, server.asked), total=False)
        self._merged = [server.answers[worker] for worker in sorted(server.answers)]
        return self._merged

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        """Of those who answer in time."""
        if self.evaluation is not None:
            return [self._own.total(self._server.state.x, 0)]
        totals = self._server.totals
        self._exchange(lambda: self._enough(totals.keys() | self._without, workers), total=True)
        found = [totals[worker] for worker in workers if worker in totals]
        if self.loss == "median":
            return [(_median(found, len(workers)), 1)]
        return [(one.total, one.rows) for one in found] or [(math.nan, 1)]

    def traffic(self) -> tuple[int, int]:
        before, self._counted = self._counted, (self._server.bytes_up, self._server.bytes_down)
        return self._counted[0] - before[0], self._counted[1] - before[1]

    def close(self) -> None:
        self._pending = {}

    def _closed(self) -> dict[str, Any]:
        """The round as its operator wants to know it."""
        server, now = self._server, time.monotonic()
        missing = [worker for worker in sorted(server.asked) if worker not in server.answers]
        silent = {w: now - self._heard[w] if w in self._heard else None for w in missing}
        new = Counter({str(reason): n for reason, n in server.refused.items()})
        refused, self._refused = new - self._refused, new
        return {
            "round": server.state.round + 1,
            "answered": {w: _rounded(self._answered.get(w, 0.0)) for w in sorted(server.answers)},
            "missing": {w: None if s is None else _rounded(s) for w, s in silent.items()},
            "sites": {w: self._nodes.site(w) for w in sorted({*server.answers, *missing})},
            "refused": dict(refused),
            "troubles": self._troubles[:_TROUBLES],
        }

    def _waiting(self, seconds: float) -> str:
        """For whom a round waits, and for how long."""
        server, present = self._server, len(self._nodes.present)
        if self._opened is None:
            return f"waiting for nodes: {present} connected, min_nodes is {self.min_nodes}"
        wanted = server.asked if self._work_follows else range(server.workers)
        late = [w for w in sorted(wanted) if w not in server.answers]
        names = ", ".join(self._nodes.site(worker) for worker in late[:_TROUBLES])
        return (
            f"round {server.state.round + 1}: {seconds:.0f} s, waiting for {names or 'losses'}; "
            f"{present} nodes connected"
        )

    def _open(self, state: Any) -> None:
        job = self._job
        self.server = Server(
            job.algorithm,
            state,
            job.workers,
            asked=job.asked,
            batch_size=job.batch_size,
            called=self._nodes.name,
        )
        self.description = describe(job, state.x)
        self._description = wire.pack_description(self.server.run, self.description)
        known = state.x if state.round == 0 and not state.x.any() else None
        newcomer = Replica(job.algorithm, job.n, job.workers, self.server.run, x0=known)
        self._newcomer = newcomer.ask()

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
                self.say(self._waiting(said - began))
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
        logger.warning("%s: error %d, %s", self._nodes.name(node), error.code, _line(said))
        if error.code == _GONE:
            self._nodes.forget([node])
        self._strike(node, said[-_SHOWN:])

    def _strike(self, node: int, why: str, failures: int = 1) -> None:
        """Count a failure; after the last one the round goes on without the node, if it can."""
        name = self._nodes.name(node)
        trouble = f"{name}: {_line(why.strip().partition(chr(10))[0])}"  # without a traceback
        if trouble not in self._troubles[:_TROUBLES]:
            self._troubles.append(trouble)
        if not self._nodes.count_failure(node, failures):
            return
        round, worker = self._server.state.round, self._nodes.worker.get(node)
        logger.warning("%s is left out of round %d: %s", name, round, _line(why))
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
            logger.warning("%s: %s", self._nodes.name(node), _line(report.error))
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

    # --- outside the rounds ------------------------------------------------------------------

    def survey(self, columns: Sequence[str], workers: int) -> dict[int, Moments]:
        """The moments of these columns at the sites, by worker; before ``start``.

        All workers are waited for. After the deadline, or when no connected node is left to ask,
        those who have answered are enough if they are at least ``min_answers``.
        """
        nodes, found = Nodes(workers, self.nodes), dict[int, Moments]()

        def take(node: int, content: RecordDict) -> None:
            report = read_report(content)
            nodes.check(node, report.worker)
            nodes.call(node, report.worker, report.site)
            if report.error:
                raise ValueError(report.error)
            found.setdefault(report.worker, Moments.restore(_json(report.found), len(columns)))
            self.sites |= nodes.sites

        def complete(seconds: float, idle: bool) -> bool:
            late = self.deadline is not None and seconds > self.deadline
            enough = len(found) >= (self.min_answers or (1 if late else workers))
            if idle and not enough and asking.failures:
                node, why = next(iter(asking.failures.items()))
                raise EngineError(f"{nodes.name(node)} has not the columns of this run: {why}")
            return len(found) == workers or (enough and (idle or late))

        def waiting(seconds: float) -> None:
            absent = [nodes.site(worker) for worker in range(workers) if worker not in found]
            self.say(f"statistics of columns: {seconds:.0f} s, waiting for {', '.join(absent)}")

        asking = Asking(self._grid, "query", lambda _: question(columns), take, self.poll)
        asking.until(complete, waiting)
        return found

    def conclude(self) -> list[str]:
        """Bring the nodes to the final x, for them to keep and to judge; sites that were not told.

        For as long as the deadline, and five minutes at most.
        """
        told: set[int] = set()

        def take(node: int, content: RecordDict) -> None:
            report = self._report(node, content)
            if report.error:
                raise ValueError(report.error)
            self._admit(node, report.worker)
            for message in report.messages:
                self._server.receive(node, message)
            if not report.messages:
                self._nodes.forget([node])
            if not report.found:
                raise ValueError("it has not reached the end yet")
            told.add(report.worker)
            if metrics := _metrics(_json(report.found)):
                self.metrics[self._nodes.site(report.worker)] = metrics

        def content(node: int) -> RecordDict:
            return pack(self._order(node, work=False, total=False))

        self._nodes.update(self._grid.get_node_ids())
        asking = Asking(self._grid, "evaluate", content, take, self.poll)
        workers = self._server.workers
        limit = min(self.deadline or _FAREWELL, _FAREWELL)
        asking.until(
            lambda seconds, idle: len(told) == workers or idle or seconds > limit,
            lambda seconds: self.say(f"the final model: {seconds:.0f} s, {len(told)} sites told"),
        )
        for node, why in asking.failures.items():
            logger.warning("%s at the end: %s", self._nodes.name(node), _line(why))
        return [self._nodes.site(worker) for worker in range(workers) if worker not in told]


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"not JSON: {text!r:.80}") from None


def _metrics(found: Any) -> dict[str, float]:
    """A site's own findings, as far as they are numbers."""
    if not isinstance(found, dict) or len(found) > _TROUBLES:
        raise ValueError("not a few metrics by name")
    return {
        site_name(name): value
        for name, value in found.items()
        if type(value) in (int, float) and math.isfinite(value)
    }


def _line(text: str) -> str:
    return " ".join(text.split())[:_LOGGED]


def _median(totals: Sequence[Total], workers: int) -> float:
    """The median of the workers' own means; NaN if half of them or more are missing."""
    means = sorted(one.total / one.rows for one in totals)
    if 2 * len(means) <= workers:
        return math.nan
    return 0.5 * means[(len(means) - 1) // 2] + 0.5 * means[len(means) // 2]
