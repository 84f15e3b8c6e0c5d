"""A control policy on a cart-pole: a simulator whose value is a count, so without a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from desopt.contract import checks
from desopt.contract.types import FloatArray, LocalSearch
from desopt.data import Batch, Loaders, NoData, Partitioned, Rows, Shard
from desopt.data.checks import refuse_width
from desopt.kernels.cart_pole import mean_lost, steps_balanced
from desopt.objectives.linear import as_plain
from desopt.objectives.local import drive


@dataclass(frozen=True)
class CartPole:
    """The mean share of ``limit`` steps that a policy x loses: 0 where the pole never falls.

    ``hidden=0``: a linear policy of 4 numbers; else a layer of hidden units, 6 numbers each. Data
    are states at which episodes start (place, speed, angle, its speed); ``episodes`` is a sampler
    of them, between -``spread`` and ``spread`` each.
    """

    hidden: int = 0
    limit: int = 500
    spread: float = 0.05
    compiled = True
    in_box = True

    def __post_init__(self) -> None:
        for name, least in (("hidden", 0), ("limit", 1)):
            object.__setattr__(self, name, checks.whole(name, getattr(self, name), least))
        if not 0.0 < checks.real("spread", self.spread) <= 0.2:
            raise ValueError(
                f"spread must be in (0, 0.2], got {self.spread!r}: poles fall at 0.209"
            )

    def settings(self) -> dict[str, Any]:
        return {
            "name": "cart-pole",
            "hidden": self.hidden,
            "limit": self.limit,
            "spread": self.spread,
        }

    def episodes(self, rng: np.random.Generator, b: int) -> FloatArray:
        """States at which b episodes start: ``data`` for ``minimize``."""
        return self.spread * (2.0 * rng.random((b, 4)) - 1.0)

    def balanced(self, x: ArrayLike, start: ArrayLike) -> int:
        """Steps until the pole falls, or ``limit``."""
        state = np.array(start, np.float64)
        if state.shape != (4,):
            raise ValueError(
                "start must have 4 numbers (place, speed, angle, its speed), got an array of shape "
                f"{state.shape}"
            )
        return int(steps_balanced(self._policy(x), self.hidden, state, self.limit))

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        if isinstance(shards, Loaders):
            return shards
        for shard in [shards] if isinstance(shards, Partitioned) else shards:
            if isinstance(shard, NoData):
                raise TypeError(
                    "data is missing: CartPole needs states at which episodes start; give "
                    "data=pole.episodes, a method that draws them"
                )
            if isinstance(shard, Rows | Partitioned):
                _check_states(*[array.shape for array in shard.arrays])
        return shards

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        return 6 * self.hidden or 4

    def bind(self, batch: Batch, x: FloatArray) -> Episodes:
        return Episodes(self, batch)

    def value(self, x: FloatArray, starts: Any) -> float:
        states = np.array(starts, np.float64, ndmin=2, order="C")
        _check_states(states.shape)
        return float(mean_lost(self._policy(x), self.hidden, states, self.limit))

    def _policy(self, policy: ArrayLike) -> FloatArray:
        x = np.asarray(policy, np.float64)
        if x.size != (6 * self.hidden or 4):
            refuse_width("the policy", 6 * self.hidden or 4, x.size)
        return as_plain(x)


def _check_states(*shapes: tuple[int, ...]) -> None:
    """Refuse data that are not one array with a row for each episode."""
    if len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][1] != 4:
        raise ValueError(
            "episodes start at states of 4 numbers (place, speed, angle, its speed), got data of "
            f"shape {', '.join(map(str, shapes))}; the method episodes draws them"
        )


class Episodes:
    """The policy's loss in one batch of episodes, or in fresh ones for each iteration."""

    def __init__(self, task: CartPole, batch: Batch) -> None:
        self.rows = batch.rows
        self._task, self._batch = task, batch
        self._iteration: int | None = None  # of the episodes in _starts

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        if iteration != self._iteration:
            (self._starts,) = self._batch.at(iteration).arguments()
            self._iteration = iteration
        return self._task.value(x, self._starts)

    def run(self, search: LocalSearch) -> None:
        drive(search, self.value)
