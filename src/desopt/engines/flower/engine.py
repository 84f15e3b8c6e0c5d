"""The engine of a federation: the workers are Flower's nodes.

The loop over rounds, the journal and the stopping rules are ``minimize``'s own; the messages are
in ``exchange``. If the loss is due, it is requested together with the round's work, because a round
trip takes seconds in Flower whatever is in it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import RecordDict
from flwr.serverapp import Grid

from desopt.contract import checks as check
from desopt.contract.errors import EngineError, check_name
from desopt.contract.types import Answer, Task
from desopt.data import as_shards
from desopt.engines.base import Job, describe
from desopt.engines.flower.asking import Asking
from desopt.engines.flower.exchange import TROUBLES, Exchange, line
from desopt.engines.flower.nodes import Nodes, logger
from desopt.engines.flower.records import pack, question, read_report, site_name
from desopt.objectives.inputs import Moments
from desopt.protocol import wire
from desopt.protocol.replica import Replica
from desopt.protocol.server import Server
from desopt.protocol.wire import Total
from desopt.system.files import write_whole

#: Seconds for the nodes to take leave.
_FAREWELL = 300.0

#: How the nodes' values of the objective become one.
_LOSS_RULES = ("mean", "median")


class Federation(Exchange):
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
        super().__init__(grid, deadline, min_answers, min_nodes, nodes, poll, last, say)
        check_name("loss", loss, _LOSS_RULES)
        self.loss = loss
        self.evaluation = evaluation
        self.snapshot = snapshot
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
        self._start(job.workers, self.sites)
        self._refused: Counter[str] = Counter()
        self._merged: list[Answer] = []
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
        self._nodes.begin_round()
        self._clear()

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
            "troubles": self._troubles[:TROUBLES],
        }

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
            logger.warning("%s at the end: %s", self._nodes.name(node), line(why))
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
    if not isinstance(found, dict) or len(found) > TROUBLES:
        raise ValueError("not a few metrics by name")
    return {
        site_name(name): value
        for name, value in found.items()
        if type(value) in (int, float) and math.isfinite(check.as_float(value))
    }


def _median(totals: Sequence[Total], workers: int) -> float:
    """The median of the workers' own means; NaN if half of them or more are missing."""
    means = sorted(one.total / one.rows for one in totals)
    if 2 * len(means) <= workers:
        return math.nan
    return 0.5 * means[(len(means) - 1) // 2] + 0.5 * means[len(means) // 2]
