"""The actors of a run: each hosts one group of workers, and can be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from desopt.engines.ray.actor import Group


class Actors:
    """``packed`` has the arguments of ``Group.load`` for each group; ``nodes`` are taken in turn.

    There is an actor for each group, and more of them after ``add``.
    """

    def __init__(self, packed: Sequence[tuple[Any, ...]], nodes: Sequence[str]) -> None:
        self._packed, self._nodes = packed, nodes
        self._actors: list[Any] = []
        self.hosted: list[int] = []  # the group of each actor
        self.loading: dict[int, Any] = {}  # the calls of ``load`` that were not waited for
        for group in range(len(packed)):
            self.add(group)

    def __getitem__(self, index: int) -> Any:
        return self._actors[index]

    def __len__(self) -> int:
        return len(self._actors)

    def add(self, group: int) -> int:
        """One more actor for the group; its index."""
        self._actors.append(None)
        self.hosted.append(group)
        self._spawn(len(self) - 1)
        return len(self) - 1

    def replace(self, index: int) -> None:
        """End an actor that is lost or hangs, and start another."""
        ray.kill(self._actors[index])
        self._spawn(index)

    def kill(self) -> None:
        for actor in filter(None, self._actors):
            ray.kill(actor)

    def _spawn(self, index: int) -> None:
        """A new actor, on its node while that lives.

        It needs a free CPU only to start, Ray's default, so the rest of a cluster can host all
        groups. Calls to an actor that cannot be reached wait until it can, or is known to be
        lost.
        """
        node = self._nodes[index % len(self._nodes)]
        strategy = NodeAffinitySchedulingStrategy(node, soft=True)
        actor = ray.remote(Group).options(scheduling_strategy=strategy, max_task_retries=-1)
        self._actors[index] = actor = actor.remote()
        self.loading[index] = actor.load.remote(*self._packed[self.hosted[index]])
