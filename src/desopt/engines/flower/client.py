"""A node's side: a Flower ClientApp with data that only this node can read.

Flower may start a process for every message. What has to outlive it is in the node's own
``Context.state``: the run's description and the replica's state, both replaced by every message,
so their size is bounded. A node that lost them reports it, and is brought back by replay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from http.client import HTTPException
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from desopt.contract import checks as check
from desopt.contract.types import Objective, Task
from desopt.data import as_shards
from desopt.data.splits import held_out as split_off
from desopt.engines.base import Job
from desopt.engines.flower.nodes import logger
from desopt.engines.flower.records import (
    NAME,
    Order,
    Report,
    pack,
    read_order,
    read_question,
    site_name,
)
from desopt.methods.samplers import Sampler, as_sampler
from desopt.objectives import LinearModel, as_objective
from desopt.objectives.inputs import Inputs, Moments
from desopt.objectives.metrics import Metric, as_metrics
from desopt.objectives.model import model_of, provenance_of
from desopt.protocol.fetch import fetch
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
    held_out: float = 0.0,
    metrics: Mapping[str, Metric] | Iterable[str] = (),
) -> ClientApp:
    """The ClientApp of a node that is one worker.

    objective, regularization, setup, sampler
        As ``fun`` etc. of ``minimize``, and as the server has them.
    load_shard
        ``load_shard(node_config)`` gives the node's data: an array, a sparse matrix, or a tuple
        of them. ``node_config`` is what the node was started with; its ``partition-id`` is the
        number of the worker, 0 to M - 1. Where the server has given ``columns``, X is a data
        frame, or a dict of columns by name.
    limits
        The most that a server may ask of this node; anything beyond is refused.
    held_out, metrics
        The share of the rows that are never trained on, and what is computed of them at the end
        and sent: functions ``metric(y, score)`` by name, or names of ``objectives.metrics``.

    A node's configuration may have a name for it, ``site``, a file that gets the final model,
    ``model``, and a file or URL where the state is published, ``snapshot``.

    >>> from desopt.federate import client_app
    >>> def load_shard(node_config):
    ...     return np.ones((4, 2)), np.array([-1.0, 1.0, -1.0, 1.0])
    >>> type(client_app("lr", load_shard)).__name__
    'ClientApp'
    """
    parts = _Parts(
        as_objective(objective, regularization, setup), load_shard, as_sampler(sampler), limits,
        check.share("held_out", held_out) if held_out else 0.0, as_metrics(metrics),
    )  # fmt: skip
    if parts.metrics and not parts.held_out:
        raise ValueError("metrics are of rows that are not trained on; give held_out=0.2")

    def reply(do: Callable[[_Node], Report], message: Message, context: Context) -> Message:
        node = _Node(parts, context)
        try:
            return Message(pack(replace(do(node), site=node.site)), reply_to=message)
        except Exception as error:
            if not node.site:  # Flower tells the server which node it was
                raise
            logger.exception("in round %s", message.metadata.group_id)
            failed = Report(node.worker, site=node.site, error=f"{type(error).__name__}: {error}")
            return Message(pack(failed), reply_to=message)

    def train(message: Message, context: Context) -> Message:
        return reply(lambda node: node.obey(read_order(message.content)), message, context)

    def finish(message: Message, context: Context) -> Message:
        return reply(lambda node: node.finish(read_order(message.content)), message, context)

    def describe(message: Message, context: Context) -> Message:
        return reply(lambda node: node.survey(read_question(message.content)), message, context)

    app = ClientApp()
    app.train()(train)
    app.evaluate()(finish)
    app.query()(describe)
    return app


class _Parts(NamedTuple):
    """What a ClientApp was made of."""

    objective: Objective
    load: Callable[[Mapping[str, Any]], Any]
    sampler: Sampler | None
    limits: Limits
    held_out: float
    metrics: dict[str, Metric]


class _Node:
    """One message's worth of a node."""

    def __init__(self, parts: _Parts, context: Context) -> None:
        self._parts, self._context = parts, context
        self.worker = _worker_of(context.node_config)
        self.site = site_name(str(context.node_config.get("site", "")))

    def survey(self, columns: tuple[str, ...]) -> Report:
        """The moments of these columns, over the rows to train on."""
        X, _ = self._parts.load(self._context.node_config)
        table = Inputs(columns).table(X, self._where, named=True)
        moments = Moments.of(table[self._rows(table.shape[0])[0]], self._where)
        return Report(self.worker, found=json.dumps(moments.settings()))

    def finish(self, order: Order) -> Report:
        """Follow to the end; keep the model where it is wanted, and judge it."""
        reached = self._follow(order)
        if reached is None:
            return Report(self.worker)
        replica, task = reached
        if task is None:
            return Report(self.worker, (replica.ask(),))
        inputs = self._inputs(replica)
        if "model" in self._context.node_config:
            self._keep_model(replica, task, inputs or Inputs())
        found: dict[str, float] = {}
        if self._parts.metrics:
            X, y = self._data(inputs)
            rows = self._rows(X.shape[0])[1]
            labels, scores = np.asarray(y)[rows], np.asarray(X[rows] @ task.x).ravel()
            found = {name: float(f(labels, scores)) for name, f in self._parts.metrics.items()}
            found = {name: value for name, value in found.items() if math.isfinite(value)}
            found["rows"] = rows.size
        return Report(self.worker, (replica.ask(),), found=json.dumps(found))

    def obey(self, order: Order) -> Report:
        """Go where the order leads, do what it wants, and keep what the next one needs."""
        reached = self._follow(order)
        if reached is None:
            return Report(self.worker)
        replica, task = reached
        if task is None:
            return Report(self.worker, (replica.ask(),))
        return Report(self.worker, tuple(self._messages(replica, task, order)))

    def _follow(self, order: Order) -> tuple[Replica, Task | None] | None:
        """The replica, and the order's task if it could be reached; None: of no run known here."""
        kept: Any = self._context.state.get(NAME, {})
        description = order.description or kept.get("description", b"")
        if not description:
            return None
        parts = self._parts
        replica = Replica.joining(description, sampler=parts.sampler, limits=parts.limits)
        try:
            if not order.description and kept["state"]:
                replica.follow(kept["state"])
            task = replica.follow(order.message)
        except WireError as error:
            found = self._fetched(replica, order) if error.reason is Reason.GAP else None
            if found is None:
                if replica.state is None:  # the state comes with the next order
                    record = ConfigRecord({"description": description, "state": b""})
                    self._context.state[NAME] = record
                return replica, None
            task = found
        self._context.state[NAME] = ConfigRecord(
            {"description": description, "state": replica.save()}
        )
        return replica, task

    def _fetched(self, replica: Replica, order: Order) -> Task | None:
        """The order's task by way of the published snapshot; None: the server must send it."""
        source = self._context.node_config.get("snapshot")
        if source is None:
            return None
        try:
            replica.follow(fetch(str(source), replica.limit))
            return replica.follow(order.message)
        except (OSError, ValueError, HTTPException) as error:
            logger.warning("snapshot=%s: %s", source, error)
            return None

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
        settings, inputs = replica.settings, self._inputs(replica)
        if self.worker >= replica.workers:
            raise WireError(
                Reason.DESCRIPTION,
                f"partition-id={self.worker} in the node's configuration, but the run has "
                f"{replica.workers} workers, counted from 0",
            )
        shards = as_shards(lambda worker: self._training(inputs), replica.workers, 0)
        return Job(
            replica.algorithm,
            self._parts.objective,
            shards,
            settings["batch_size"],
            settings["seed"],
            settings["n"],
            settings.get("participation", 1.0),
        )

    def _inputs(self, replica: Replica) -> Inputs | None:
        """What is done to the columns, if the run says so; its objective must be this node's."""
        said: Any = replica.settings.get("objective")
        mine = self._parts.objective.settings()
        plain = said
        if isinstance(said, dict) and isinstance(self._parts.objective, LinearModel):
            plain = {name: value for name, value in said.items() if name != "inputs"}
        if plain != mine:
            raise WireError(
                Reason.DESCRIPTION,
                f"the server minimises {said!s:.500}, this node {mine}; make both apps with the "
                "same objective",
            )
        if plain == said:
            return None
        try:
            return Inputs.restore(said["inputs"])
        except (TypeError, ValueError) as error:
            raise WireError(Reason.DESCRIPTION, f"inputs: {error}") from None

    @property
    def _where(self) -> str:
        return f"the data of worker {self.worker}"

    def _data(self, inputs: Inputs | None) -> Any:
        """The node's data; X as the model sees it where the run says how."""
        data = self._parts.load(self._context.node_config)
        if inputs is None and not self._parts.held_out:
            return data
        if not isinstance(data, tuple) or len(data) != 2:
            raise TypeError(f"{self._where} must be (X, y), got {type(data).__name__}")
        X, y = data
        if inputs is not None:
            X = inputs.apply(X, self._where, named=True)
        return X, y

    def _training(self, inputs: Inputs | None) -> Any:
        """The data without the rows that are held out."""
        if not self._parts.held_out:
            return self._data(inputs)
        X, y = (part if hasattr(part, "shape") else np.asarray(part) for part in self._data(inputs))
        X = X.to_numpy() if hasattr(X, "to_numpy") else X
        rows = self._rows(X.shape[0])[0]
        return X[rows], np.asarray(y)[rows]

    def _rows(self, rows: int) -> tuple[Any, Any]:
        """Row numbers to train on, and those held out."""
        share = self._parts.held_out
        return split_off(rows, share) if share else (np.arange(rows), np.arange(0))

    def _keep_model(self, replica: Replica, task: Task, inputs: Inputs) -> None:
        objective = self._parts.objective
        if not isinstance(objective, LinearModel):
            raise TypeError("model in the node's configuration: only a linear model has a file")
        provenance = provenance_of(replica.settings, task.round, task.x)
        model = model_of(task.x, objective.loss, inputs, provenance)
        model.save(str(self._context.node_config["model"]))


def _worker_of(config: Mapping[str, Any]) -> int:
    try:
        return check.whole("partition-id", config.get("partition-id"), 0)
    except TypeError as error:
        raise TypeError(
            f"{error}; start the SuperNode with --node-config 'partition-id=NUMBER'"
        ) from None
