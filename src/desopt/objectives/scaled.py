"""An objective of the user's variables as one of the searched ones, with constraints.

Searches see z; the user's functions see x = decode(z), inside its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from desopt.contract.errors import failure
from desopt.contract.space import Space
from desopt.contract.types import FloatArray, LocalFunction, LocalSearch, Objective
from desopt.data import Batch, Shard
from desopt.objectives.local import drive


class ScaledObjective:
    """f(decode(z)) where ``constraints(x)`` has no positive entry; elsewhere f is never called."""

    compiled = False

    def __init__(
        self, inner: Objective, space: Space, constraints: Callable[..., Any] | None = None
    ) -> None:
        if constraints is not None and not callable(constraints):
            raise TypeError(
                "constraints must be a function of x that returns violations (> 0: violated), "
                f"got {type(constraints).__name__}"
            )
        self.inner, self.space, self.constraints = inner, space, constraints

    def settings(self) -> dict[str, Any]:
        return self.inner.settings()

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        return self.inner.prepare(shards, some=some)

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        """That of z, where the data have as many columns as x; else theirs, to be refused."""
        n = self.inner.dimension(shards)
        return self.space.size if n == self.space.n else n

    def bind(self, batch: Batch, x: FloatArray) -> ScaledFunction:
        return ScaledFunction(self, self.inner.bind(batch, self.space.decode(x)))

    def violation(self, z: FloatArray) -> float:
        """The sum of the positive violations at z; 0.0 where there are none, inf for NaN."""
        if self.constraints is None:
            return 0.0
        return self._violation(_read_only(self.space.decode(z)))

    def _violation(self, x: FloatArray) -> float:
        if self.constraints is None:
            return 0.0
        try:
            given = self.constraints(x)
            total = math.fsum(v for v in np.ravel(np.asarray(given, np.float64)).tolist() if v > 0 or v != v)
        except Exception as error:
            raise failure("constraints", error) from error
        return math.inf if math.isnan(total) else total


class ScaledFunction:
    """f_i of the searched variables; NaN where a constraint is violated."""

    def __init__(self, objective: ScaledObjective, inner: LocalFunction) -> None:
        self.rows = inner.rows
        self._objective, self._inner = objective, inner

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        point = _read_only(self._objective.space.decode(x))
        if self._objective._violation(point) > 0.0:
            return math.nan
        return self._inner.value(point, iteration)

    def judged(self, x: FloatArray, iteration: int = 0) -> tuple[float, float]:
        """(value, violation); the value is NaN where the violation is not 0."""
        point = _read_only(self._objective.space.decode(x))
        over = self._objective._violation(point)
        return (math.nan if over > 0.0 else self._inner.value(point, iteration)), over

    def run(self, search: LocalSearch) -> None:
        if self._objective.constraints is None:
            drive(search, self.value)
