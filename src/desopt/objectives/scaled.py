"""An objective of the user's variables as one of the searched ones, with constraints.

Searches see z; the user's functions see x = decode(z), inside its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from desopt.contract.errors import Failed, failure
from desopt.contract.space import Space
from desopt.contract.types import FloatArray, LocalFunction, LocalSearch, Objective
from desopt.data import Batch, Shard
from desopt.objectives.local import drive


def violation_at(x: FloatArray, constraints: Callable[..., Any]) -> float:
    """The sum of the positive violations at x; 0.0 where there are none, inf for NaN.

    inf as well where the sum is too large for a float.
    """
    try:
        given = as_violations(constraints(x)).tolist()
    except Exception as error:
        raise failure("constraints", error) from error
    if any(map(math.isnan, given)):
        return math.inf
    try:
        return math.fsum(v for v in given if v > 0.0)
    except OverflowError:
        return math.inf


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

    @property
    def vectorized(self) -> Any:
        """Whether the inner one is a function of a matrix; then this one has ``values`` as well."""
        return getattr(self.inner, "vectorized", False)

    def settings(self) -> dict[str, Any]:
        return {**self.inner.settings(), "space": self.space.settings()}

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        return self.inner.prepare(shards, some=some)

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        """That of z, where the data have as many columns as x; else theirs, to be refused."""
        n = self.inner.dimension(shards)
        return self.space.size if n == self.space.n else n

    def bind(self, batch: Batch, x: FloatArray) -> ScaledFunction:
        return ScaledFunction(self, self.inner.bind(batch, self.space.decode(x)))

    def values(
        self,
        points: Sequence[FloatArray],
        functions: Sequence[Any],
        iterations: Sequence[int],
    ) -> list[float | Failed]:
        """The values of many points at once (see ``objectives.vectorized``)."""
        inner: Any = self.inner
        found: list[float | Failed] = inner.values(
            [*map(self.space.decode, points)], [f.inner for f in functions], iterations
        )
        return found

    def violation(self, z: FloatArray) -> float:
        """That of the user's x."""
        return 0.0 if self.constraints is None else violation_at(self.point(z), self.constraints)

    def point(self, z: FloatArray) -> FloatArray:
        """The user's x, read-only."""
        x = self.space.decode(z)
        x.flags.writeable = False
        return x


def as_violations(given: Any) -> FloatArray:
    """What a constraint has returned, as a vector; NumPy takes the None of a forgotten return
    for NaN, by which no point would ever be allowed."""
    if given is None:
        raise TypeError("a constraint must return numbers, one or several; it returned None")
    return np.ravel(np.asarray(given, np.float64))


class ScaledFunction:
    """f_i of the searched variables; ``violation`` is None where there are no constraints."""

    def __init__(self, objective: ScaledObjective, inner: LocalFunction) -> None:
        self.rows = inner.rows
        self.violation = None if objective.constraints is None else objective.violation
        self._point, self.inner = objective.point, inner

    @property
    def batch(self) -> Batch:
        """The data that the inner function is bound to."""
        found: Batch = self.inner.batch  # type: ignore[attr-defined]
        return found

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        return self.inner.value(self._point(x), iteration)

    def run(self, search: LocalSearch) -> None:
        drive(search, self.value, self.violation)
