"""Who is who in a federation: Flower's nodes, and the workers that they say they are."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

logger = logging.getLogger("desopt.federate")

#: Failures in a round after which a node is left out of it.
ATTEMPTS = 3


class Nodes:
    """The nodes of a run: present, joined as a worker, failed in this round.

    ``assigned`` gives the worker of each node by Flower's number of it (None: as they say).
    Nothing shows which of several nodes that claim to be one worker is right. They take turns, a
    round each, so that none locks another out.
    """

    def __init__(self, workers: int, assigned: Mapping[int, int] | None) -> None:
        self._workers, self._assigned = workers, assigned
        self.present: set[int] = set()
        self.worker: dict[int, int] = {}  # by node, of those that have joined
        self._claims: dict[int, list[int]] = {}  # by worker: the nodes that say they are it
        self._failures: Counter[int] = Counter()  # by node, in this round
        self.sites: dict[int, str] = {}  # by worker: the name in its node's configuration
        self._called: dict[int, str] = {}  # the same by node

    def call(self, node: int, worker: int, site: str) -> None:
        """Take note of a site's own name; the second of two that are alike has its number too."""
        if site:
            if any(site == other for w, other in self.sites.items() if w != worker):
                site = f"{site} (worker {worker})"
            self.sites[worker] = self._called[node] = site

    def name(self, node: int) -> str:
        """The site of a node; Flower's number where it has not said."""
        return self._called.get(node, f"node {node}")

    def site(self, worker: int) -> str:
        """The site of a worker."""
        return self.sites.get(worker, f"worker {worker}")

    def begin_round(self) -> None:
        """Forgive all failures."""
        self._failures.clear()

    def update(self, present: Iterable[int]) -> None:
        """Take note of who is connected; nodes that left have to join again."""
        self.present = set(present)
        self.forget(self.worker.keys() - self.present)

    def check(self, node: int, worker: int) -> None:
        """Refuse a node that cannot be this worker: it is one worker, and stays it."""
        if not 0 <= worker < self._workers:
            raise ValueError(f"it says that it is worker {worker} of {self._workers}")
        if self.worker.get(node, worker) != worker:
            raise ValueError(f"it was worker {self.worker[node]} and now says {worker}")
        if self._assigned is not None and self._assigned.get(node) != worker:
            raise ValueError(f"it says that it is worker {worker}, but nodes= has not said so")

    def join(self, node: int, worker: int) -> None:
        """Let a node that was checked be this worker."""
        nodes = self._claims.setdefault(worker, [])
        self.worker[node] = worker
        nodes.append(node)
        if len(nodes) > 1:
            logger.warning(
                "nodes %s say that they are worker %d and take turns: give each a partition-id of "
                "its own, or say with nodes= who is who",
                [self._called.get(each, each) for each in nodes],
                worker,
            )

    def forget(self, nodes: Iterable[int]) -> None:
        """Remove nodes that are gone, or no longer know the run."""
        for node in list(nodes):
            if node in self.worker:
                self._claims[self.worker.pop(node)].remove(node)

    def speaker(self, worker: int, round: int) -> int:
        """The node that speaks for the worker in this round."""
        nodes = self._claims[worker]
        able = [node for node in nodes if not self.left_out(node)] or nodes
        return able[round % len(able)]

    def left_out(self, node: int) -> bool:
        """Whether the node has failed too often in this round."""
        return self._failures[node] >= ATTEMPTS

    def count_failure(self, node: int, failures: int = 1) -> bool:
        """Whether the node is left out from now on, or was already."""
        self._failures[node] += failures
        return self.left_out(node)

    def can_all_answer(self) -> bool:
        """Whether the nodes that are not left out can be all workers."""
        able = [node for node in self.present if not self.left_out(node)]
        # a node that has not joined may be any worker: counted by its own number
        return len({self.worker.get(node, -1 - node) for node in able}) >= self._workers
