"""What the parts of desopt say to each other.

A run is a loop over rounds::

    state = algorithm.init(x0)
    for t in range(rounds):
        task    = algorithm.plan(state)            # what every worker needs to know
        answers = engine.round(task)               # of those who answered, ordered by worker
        state   = algorithm.merge(state, answers)  # pure: anyone can repeat it

Nothing else passes between a server and its workers, and neither a task nor an
answer holds data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from desopt.contract.payload import Cost, Layout

FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]

#: One mutation: coordinates (``None`` for all of them) and the change of each.
Step: TypeAlias = tuple[IndexArray | None, FloatArray]


@dataclass(frozen=True, slots=True)
class Task:
    """What every worker needs to know of one round: its number, x_t, and a few scalars.

    ``limit`` is the most values that a worker may compute, where a run's budget leaves fewer
    than the method would take (None). What was not spent looks like rejected steps in the
    answer, so merges and replays need not know of it.
    """

    round: int
    x: FloatArray
    scalars: tuple[float, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One worker's answer for one round.

    ``payload`` is the whole answer: accept bits or a few scalars, never n numbers.
    ``point`` or ``change`` is what ``merge`` would rebuild from the payload: the final point
    v, or (coordinates, v - x there) where only these changed. Engines that share memory may
    leave it in to save that work. It is never written or sent.
    """

    worker: int
    payload: bytes
    evaluations: int = 0
    samples: int = 0
    nans: int = 0
    point: FloatArray | None = None
    change: tuple[IndexArray, FloatArray] | None = None

    def bare(self) -> Answer:
        """As it would be sent."""
        return Answer(self.worker, self.payload, self.evaluations, self.samples, self.nans)


class State(Protocol):
    """The server's state: a frozen dataclass of arrays and scalars with at least these two."""

    @property
    def round(self) -> int: ...

    @property
    def x(self) -> FloatArray: ...


class Walked(NamedTuple):
    """The slopes g_k of K' two-point estimates, and what they cost."""

    slopes: FloatArray
    evaluations: int
    samples: int
    nans: int


class Searched(NamedTuple):
    """One worker's search: accept bits, values not finite, and (coordinates, v - x there).

    The memory of the accept bits is used again.
    """

    accepted: BoolArray
    nans: int
    change: tuple[IndexArray, FloatArray]


class LocalFunction(Protocol):
    """f_i: the mean of F over one batch, with a current point v that it can look around.

    ``search_mixture`` and ``search_gaussian`` run a whole (1+1) search of K steps; an
    objective may compile them. All three searches leave the final point in ``point``.
    """

    size: int  # n
    rows: int
    evaluations: int
    nans: int

    @property
    def point(self) -> FloatArray:
        """v."""

    def value(self) -> float:
        """f(v)."""

    def peek(self, step: Step) -> float:
        """f(v + step); v stays."""

    def move(self) -> None:
        """Let v be the point of the last ``peek``."""

    def search(self, steps: Iterable[Step], count: int) -> BoolArray:
        """Try the steps in order, keep v + step where f(v + step) <= f(v); say which were kept.

        A value that is not finite is never kept and counts in ``nans``; where f(v) is not
        finite, the first v + step with a finite value is kept.
        """

    def search_mixture(self, stream: Any, scale: FloatArray, l: int, gaussian: bool) -> BoolArray:
        """``search`` for the steps of ``rng.mixture_block``: l coordinates each."""

    def search_gaussian(self, stream: Any, alpha: FloatArray) -> BoolArray:
        """``search`` for the steps alpha[k] u_k, u_k the normal vector of iteration k."""

    def values_around(self, stream: Any, scale: float, count: int) -> FloatArray:
        """f(v + scale u_k) for k < count, u_k the normal vector of iteration k."""

    @property
    def change(self) -> tuple[IndexArray, FloatArray] | None:
        """(coordinates, v - x there) where v differs from the start x there only, if known."""

    def slope(self, u: FloatArray, radius: float) -> float:
        """(f(v + radius u) - f(v - radius u)) / (2 radius)."""

    def descend(self, stream: Any, scale: FloatArray, radius: float) -> FloatArray:
        """g_k = slope(u_k), then v += scale[k] g_k u_k, for every k; u_k the normal vector of
        iteration k. A slope that is not finite counts as 0. Gives all g_k."""


class Objective(Protocol):
    """f = E[F(x; xi)], able to bind F to a worker's data. Shards are those of ``desopt.data``.

    It may also have ``walk``, the compiled form of ``Local.walk`` (see ``LinearModel.walk``).
    """

    @property
    def compiled(self) -> bool:
        """Whether searches run in compiled code that releases the GIL."""

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain JSON values: part of the run's identity."""

    def prepare(self, shards: Sequence[Any], *, some: bool = False) -> Sequence[Any]:
        """Check the shards and bring them into the form that ``on_rows`` wants.

        ``some`` says that these are not all of them: a loader's data, seen by its worker only.
        """

    def dimension(self, shards: Sequence[Any]) -> int | None:
        """n, where the data decide it."""

    def on_rows(self, shard: Any, picked: Any, x: FloatArray) -> LocalFunction:
        """f_i at x on rows of a shard: row numbers, a ``data.shards.Pick``, or None for all."""

    def on_batch(self, batch: Any, size: int, x: FloatArray) -> LocalFunction:
        """f_i on a batch that a sampler drew, standing at x."""

    def on_nothing(self, x: FloatArray) -> LocalFunction:
        """f_i where there is no data, standing at x."""


class Local(Protocol):
    """A worker's side: its data bound to the objective. It never leaves the worker."""

    def minibatch(self, x: FloatArray, round: int, iteration: int = 0) -> LocalFunction:
        """f_i on b rows drawn uniformly with replacement, standing at x."""

    def everything(self, x: FloatArray, round: int) -> LocalFunction:
        """f_i on all of the worker's data, standing at x."""

    def walk(
        self, at: FloatArray, moved: FloatArray, round: int, scale: FloatArray, radius: float
    ) -> Walked:
        """For every k: g_k, the slope of f_i along u_k on a new minibatch, at ``at``; then
        moved += scale[k] g_k u_k. ``at`` and ``moved`` may be one array."""


class Crew(Protocol):
    """All workers' sides, where threads can search for any of them in compiled code."""

    batch_size: int

    def search_mixtures(
        self,
        x: FloatArray,
        workers: Sequence[int],
        stream: Any,
        scale: FloatArray,
        l: int,
        gaussian: bool,
    ) -> Iterator[Searched]:
        """``LocalFunction.search_mixture`` for each of these workers, on its minibatch.

        In their order, and as soon as they are done. The stream says all but whose it is.
        """


class Algorithm(Protocol):
    """Hyper-parameters (a frozen dataclass), two declarations and four verbs.

    ``work`` keeps to ``Task.limit``, so that ``max_evaluations`` is never exceeded.
    """

    @property
    def name(self) -> str: ...

    @property
    def layout(self) -> Layout:
        """What every answer holds."""

    @property
    def cost(self) -> Cost:
        """Function values that a worker's round takes."""

    def init(self, x0: FloatArray) -> Any:
        """The state before round 0."""

    def plan(self, state: Any) -> Task:
        """What the workers need to know of the coming round."""

    def work(self, task: Task, local: Local, worker: int) -> Answer:
        """The worker's side of a round."""

    def merge(self, state: Any, answers: Iterable[Answer]) -> Any:
        """The state after the round. Pure, and equal in every bit for payloads and points.

        The answers come in the order of workers, from any of them: nobody's leaves x where it
        is. They are taken one at a time, so that they need not all be in memory.
        """

    def settings(self) -> dict[str, Any]:
        """All hyper-parameters as plain JSON values: the run's identity."""


@runtime_checkable
class Together(Algorithm, Protocol):
    """An algorithm that can do without a ``Local`` for each worker."""

    @property
    def together(self) -> bool:
        """Whether it can, with its settings."""

    def work_together(self, task: Task, crew: Crew, workers: Sequence[int]) -> Iterator[Answer]:
        """``work`` of these workers, in their order, with the same bits."""
