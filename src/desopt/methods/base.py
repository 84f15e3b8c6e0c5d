"""Common to all methods: hyper-parameters with their checks, and the default verbs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from desopt.contract.payload import Cost, Layout
from desopt.contract.space import Box
from desopt.contract.streams import MAX_ITERATIONS, Purpose, Stream
from desopt.contract.types import Answer, FloatArray, IndexArray, Local, LocalSearch, Task
from desopt.methods.samplers import Sampler
from desopt.methods.searches import ranking

#: What rules of step_size="auto" say of values with noise of their own, or with many small jumps.
NOISE = (
    "step_size='auto' may fail: between close points, values of the objective differ by chance or "
    "by jumps; give a number"
)
#: Fields that ``settings()`` has only where they are given.
UNLESS_GIVEN = ("box", "constrained", "float32")


@dataclass(frozen=True)
class PointState:
    """x after ``round`` rounds."""

    round: int
    x: FloatArray


@dataclass(frozen=True, kw_only=True)
class BaseAlgorithm:
    """Hyper-parameters of every method: alpha, K and the seed of all random streams.

    A method declares ``state_type``, ``layout`` and ``cost``, and defines ``search`` and ``merge``.
    """

    state_type: ClassVar[type[Any]] = PointState
    #: What of "bounds", "constraints" and "float32" the method's searches and merges observe.
    observes: ClassVar[tuple[str, ...]] = ()

    #: Whether ``step_size="auto"`` is possible (``methods.step_size``).
    adapts: ClassVar[bool] = False

    name: str
    step_size: float = 1.0
    iterations: int = 100
    seed: int = 0
    #: What x and all points are kept in; None: nothing is bounded.
    box: Box | None = None
    #: Whether points are ordered by (violation, value).
    constrained: bool = False
    #: Whether all numbers of the state are those of float32: half the bytes for whoever needs it.
    float32: bool = False

    def __post_init__(self) -> None:
        self._check_step_size()
        if not 1 <= self.iterations <= MAX_ITERATIONS:
            raise ValueError(f"iterations must be 1 to {MAX_ITERATIONS}, got {self.iterations!r}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be 0 to 2**64 - 1, got {self.seed!r}")
        if self.float32 and self.box is not None:
            raise ValueError("float32 does not keep bounds: leave one of them out")
        given = {
            "bounds": self.box is not None, "constraints": self.constrained,
            "float32": self.float32,
        }  # fmt: skip
        for name in given:
            if given[name] and name not in self.observes:
                raise ValueError(f"{self.name} does not take {name}")

    def _check_step_size(self) -> None:
        given: Any = self.step_size
        if given == "auto":
            if not self.adapts:
                raise ValueError(f"{self.name} has no rule for step_size='auto'; give a number > 0")
        elif isinstance(given, str) or not (math.isfinite(given) and given > 0):
            auto = " or 'auto'" if self.adapts else ""
            raise ValueError(f"step_size must be a finite number > 0{auto}, got {given!r}")

    def init(self, x0: FloatArray) -> Any:
        return self.state_type(0, x0)

    def plan(self, state: Any) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        return local.run(self.search(task, worker))

    def search(self, task: Task, worker: int) -> LocalSearch:
        """The worker's round; only methods with a ``work`` of their own have none."""
        raise NotImplementedError(f"{type(self).__name__} must define search or work")

    def doubt(self, task: Task, answers: Sequence[Answer]) -> str:
        """What speaks against the method in the answers to this task; mostly nothing, ""."""
        return ""

    def settings(self) -> dict[str, Any]:
        """All hyper-parameters as plain JSON values; box and constraints only if there are any."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in UNLESS_GIVEN:
            if not values[name]:
                del values[name]
        return {k: v.settings() if isinstance(v, Sampler | Box) else v for k, v in values.items()}

    def kept(self, new: FloatArray, old: FloatArray) -> FloatArray:
        """``new``, projected onto the box, and ``old`` where it is not finite: the next x."""
        if self.box is not None:
            self.box.project(new)
        return finite_or(new, old)


def in_float32(values: FloatArray) -> FloatArray:
    """The nearest numbers that float32 has, as float64; none of them is infinite."""
    largest = float(np.finfo(np.float32).max)
    return np.clip(values, -largest, largest).astype(np.float32).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class TwoPointAlgorithm(BaseAlgorithm):
    """A method on central differences, with two values each: K' = K/2 of them."""

    observes: ClassVar[tuple[str, ...]] = ("bounds",)

    radius: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations % 2:
            raise ValueError(
                f"iterations must be even for {self.name} (K/2 two-point estimates), "
                f"got {self.iterations}; use {self.iterations + 1}"
            )
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"radius must be a finite number > 0, got {self.radius!r}")

    @property
    def estimates(self) -> int:
        """K'."""
        return self.iterations // 2

    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations)


@dataclass(frozen=True, kw_only=True)
class PopulationAlgorithm(BaseAlgorithm):
    """A method that ranks lambda members by the sums of their values over all workers."""

    observes: ClassVar[tuple[str, ...]] = ("bounds", "constraints")

    population: int

    def ranked(self, answers: Iterable[Answer]) -> IndexArray:
        """The members that have a value, best first; none without answers."""
        sums, count = np.zeros(self.layout.float64), 0
        for answer in answers:
            count += 1
            with np.errstate(over="ignore", invalid="ignore"):
                sums += self.layout.decode(answer).float64
        return ranking(sums, self.population) if count else np.empty(0, np.int64)

    @property
    def layout(self) -> Layout:
        return Layout(float64=(1 + self.constrained) * self.population, missing=True)

    @property
    def cost(self) -> Cost:
        # with fewer there is nothing to select
        return Cost(self.population // 2 + 1, self.population, whole=True)


@dataclass(frozen=True, kw_only=True)
class ProblemSize:
    """The sizes that defaults may depend on: n, N (None: no rows), M, K and b.

    ``shares`` are the rows of each worker, empty where not all are known.
    """

    n: int
    rows: int | None
    workers: int
    iterations: int
    batch_size: int
    shares: tuple[int, ...] = ()


StateT = TypeVar("StateT", bound=Any)


def unmoved(state: StateT) -> StateT:
    """The state after a round without answers: the round counts, nothing else changes."""
    return replace(state, round=state.round + 1)


def finite_or(new: FloatArray, old: FloatArray) -> FloatArray:
    """``new``, and ``old`` where that is not finite: merged states stay finite."""
    finite = np.isfinite(new)
    return new if finite.all() else np.where(finite, new, old)


def by_chance(secants: Iterable[tuple[float, float]]) -> bool:
    """Whether most secants of f are noise: to a point near x, and to one further on the same line.

    Of a function without noise both are about its slope. Noise makes the first one steeper, as
    many times as its point is nearer. Without a change of f there is nothing to tell.
    """
    noise = [abs(near) / 4.0 > abs(far) for near, far in secants if near != 0.0 != far]
    return 2 * sum(noise) > len(noise)


def directions(seed: int, round: int, worker: int) -> Stream:
    """The stream of a worker's normal vectors u_k."""
    return Stream(seed, round, worker, 0, Purpose.NORMAL)
