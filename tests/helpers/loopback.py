"""A federation in one thread: Flower's real messages, contexts and apps, without its processes."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict

import desopt
from desopt.engines.flower import asking, engine, exchange
from desopt.federate import client_app, server_app
from desopt.run import journal

N, WORKERS, ROUNDS = 40, 3, 6
SETTINGS: dict[str, Any] = {
    "iterations": 20, "batch_size": 8, "step_size": 0.5, "seed": 5, "mixture": 4,
}  # fmt: skip
_RNG = np.random.default_rng(3)
_TRUTH = _RNG.standard_normal(N)


def shard(worker: int) -> tuple[Any, Any]:
    X = np.random.default_rng(worker).standard_normal((30 + worker, N))
    return X, np.sign(X @ _TRUTH)


def load_shard(config: Mapping[str, Any]) -> tuple[Any, Any]:
    return shard(config["partition-id"])


def serial(workers: int = WORKERS, **more: Any) -> desopt.Result:
    shards = [shard(worker) for worker in range(workers)]
    return desopt.minimize(
        "lr", np.zeros(N), shards, engine="serial", progress=False,
        **({"rounds": ROUNDS, "eval_every": 1} | SETTINGS | more),
    )  # fmt: skip


class Loopback:
    """A grid without processes: the real messages, contexts and ClientApp, in this thread.

    ``mishap(node, round)`` says what happens to a message: "" nothing, "late" it is answered
    when the next one has been pushed, "lost" it is never answered and expires, "gone" the node
    dies with it and comes back without memory.
    """

    clock: Any = time

    def __init__(self, workers: int = WORKERS, app: Any = None) -> None:
        self.app = app or client_app("lr", load_shard)
        self.contexts = {10 + w: context(10 + w, w) for w in range(workers)}
        self.absent: set[int] = set()
        self.mishap: Callable[[int, int], str] = lambda node, round: ""
        self.sent: list[tuple[int, int, Any]] = []  # node, round, what
        self._replies: dict[str, Message] = {}
        self._late: dict[str, Message] = {}
        self._lost: dict[str, tuple[float, Message]] = {}

    def get_node_ids(self) -> list[int]:
        return [node for node in self.contexts if node not in self.absent]

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            id, node = f"m{len(self.sent)}", message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = id
            round = int(message.metadata.group_id)
            self._replies |= self._late
            self._late = {}
            mishap = self.mishap(node, round)
            self.sent.append((node, round, message.content["desopt"]))
            if mishap == "gone":
                self.contexts[node].state = RecordDict()
                self._replies[id] = Message(Error(5, "gone"), reply_to=message)
            elif mishap == "lost":
                self._lost[id] = self.clock.monotonic() + message.metadata.ttl, message
            else:
                box = self._late if mishap == "late" else self._replies
                box[id] = self._work(node, message)
        return [f"m{len(self.sent) - len(messages) + i}" for i in range(len(messages))]

    def _work(self, node: int, message: Message) -> Message:
        try:
            reply: Message = self.app(message, self.contexts[node])
            return reply
        except Exception as error:
            return Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)

    def pull_messages(self, ids: list[str]) -> list[Message]:
        for id, (end, message) in list(self._lost.items()):
            if end < self.clock.monotonic():
                del self._lost[id]
                self._replies[id] = Message(Error(3, "expired"), reply_to=message)
        return [self._replies.pop(id) for id in ids if id in self._replies]


class Clock:
    """Time that passes only while the server sleeps: no machine is too slow for a deadline."""

    def __init__(self) -> None:
        self._now = 0.0

    @classmethod
    def of_a_test(cls, monkeypatch: pytest.MonkeyPatch) -> "Clock":
        """The clock of all that runs in this test."""
        clock = cls()
        own = {"monotonic": clock.monotonic, "sleep": clock.sleep}
        monkeypatch.setattr(Loopback, "clock", clock)
        for module in (asking, engine, exchange):
            monkeypatch.setattr(module, "time", SimpleNamespace(**vars(time) | own))
        return clock

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += max(seconds, 0.01)


def context(node: int, worker: int) -> Context:
    return Context(1, node, {"partition-id": worker}, RecordDict(), {})


def federated(grid: Loopback, workers: int = WORKERS, **more: Any) -> desopt.Result:
    """The result of a run on this grid, through the ServerApp."""
    found: list[desopt.Result] = []
    settings = {"rounds": ROUNDS, "poll": 1e-6, "progress": False} | SETTINGS | more
    app = server_app("lr", n=N, workers=workers, finished=found.append, **settings)
    run(app, grid)
    return found[0]


def run(app: Any, grid: Any, config: Any = None) -> None:
    """What Flower does with a ServerApp."""
    app(grid, Context(1, 0, {}, RecordDict(), config or {}))


def who_answered(path: Path) -> list[list[int]]:
    return [[a.worker for a in answers] for answers in journal.read(path).answers]


def kinds(grid: Loopback) -> list[bytes]:
    return [order["message"][1:2] for _, _, order in grid.sent]
