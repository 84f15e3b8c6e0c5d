"""A node's side: a Flower ClientApp with data that only this node can read.

Flower may start a process for every message. What has to outlive it is in the node's own
``Context.state``: the run's description and the replica's state, both replaced by every message,
so their size is bounded. A node that lost them reports it, and is brought back by replay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from desopt.contract import checks as check
from desopt.contract.types import Objective, Task
from desopt.data import as_shards
from desopt.engines.base import Job
from desopt.engines.flower.records import NAME, Order, Report, pack, read_order
from desopt.methods.samplers import Sampler, as_sampler
from desopt.objectives import as_objective
from desopt.protocol.replica import Limits, Replica
from desopt.protocol.wire import Reason, WireError


def client_app(
    objective: Callable[..., float] | str | Objective,
    load_shard: Callable[[Mapping[str, Any]], Any],
    *,
    regularization: float = 1e-6,
    setup: Callable[[], Any] | None = None,
    sampler: Sampler | Callable[..., Any] | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> ClientApp:
    """The ClientApp of a node that is one worker.

    objective, regularization, setup, sampler
        As ``fun`` etc. of ``minimize``, and as the server has them.
    load_shard
        ``load_shard(node_config)`` gives the node's data: an array, a sparse matrix, or a tuple
        of them. ``node_config`` is what the node was started with; its ``partition-id`` is the
        number of the worker, 0 to M - 1.
    limits
        The most that a server may ask of this node; anything beyond is refused.
    """
    fun = as_objective(objective, regularization, setup)
    draws = as_sampler(sampler)

    def train(message: Message, context: Context) -> Message:
        node = _Node(fun, load_shard, draws, limits, context)
        return Message(pack(node.obey(read_order(message.content))), reply_to=message)

    app = ClientApp()
    app.train()(train)
    return app


class _Node:
    """One message's worth of a node."""

    def __init__(
        self,
        objective: Objective,
        load_shard: Callable[[Mapping[str, Any]], Any],
        sampler: Sampler | None,
        limits: Limits,
        context: Context,
    ) -> None:
        self._objective, self._load, self._sampler = objective, load_shard, sampler
        self._limits, self._context = limits, context
        self.worker = _worker_of(context.node_config)

    def obey(self, order: Order) -> Report:
        """Go where the order leads, do what it wants, and keep what the next one needs."""
        kept: Any = self._context.state.get(NAME, {})
        description = order.description or kept.get("description", b"")
        if not description:
            return Report(self.worker)
        replica = Replica.joining(description, sampler=self._sampler, limits=self._limits)
        try:
            if not order.description:
                replica.follow(kept["state"])
            task = replica.follow(order.message)
        except WireError:
            return Report(self.worker, (replica.ask(),))
        self._context.state[NAME] = ConfigRecord(
            {"description": description, "state": replica.save()}
        )
        return Report(self.worker, tuple(self._messages(replica, task, order)))

    def _messages(self, replica: Replica, task: Task, order: Order) -> list[bytes]:
        job = self._job(replica)
        messages = []
        if order.total:
            total, rows = job.total(task.x, self.worker)
            if math.isfinite(total):  # the server goes on without it
                messages.append(replica.total(task, self.worker, total, rows))
        if order.work and self.worker in job.asked(task.round):
            limited = replace(task, limit=order.limit or None)
            messages.append(replica.answer(task, job.work(limited, self.worker)))
        return messages or [replica.ask()]

    def _job(self, replica: Replica) -> Job:
        """The run as the description has it, with this node's data."""
        settings = replica.settings
        if settings.get("objective") != self._objective.settings():
            raise WireError(
                Reason.DESCRIPTION,
                f"the server minimises {settings.get('objective')!s:.500}, this node "
                f"{self._objective.settings()}; make both apps with the same objective",
            )
        if self.worker >= replica.workers:
            raise WireError(
                Reason.DESCRIPTION,
                f"partition-id={self.worker} in the node's configuration, but the run has "
                f"{replica.workers} workers, counted from 0",
            )
        shards = as_shards(lambda worker: self._load(self._context.node_config), replica.workers, 0)
        return Job(
            replica.algorithm,
            self._objective,
            shards,
            settings["batch_size"],
            settings["seed"],
            settings["n"],
            settings.get("participation", 1.0),
        )


def _worker_of(config: Mapping[str, Any]) -> int:
    try:
        return check.whole("partition-id", config.get("partition-id"), 0)
    except TypeError as error:
        raise TypeError(
            f"{error}; start the SuperNode with --node-config 'partition-id=NUMBER'"
        ) from None
