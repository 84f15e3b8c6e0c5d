"""The protocols between the parts of desopt.

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

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

    ``memory`` is for methods whose workers need more of the state than x: one flat array of it, of
    the same size in all rounds, which wire peers have in their own copy of the state.

    ``limit`` is the most values that the round may compute, where the run's budget leaves fewer
    than the method would use (else None); that of ``Algorithm.work`` is one worker's share. In the
    answer, unused values look like rejected steps, so that merges and replays need not know of a
    limit.
    """

    round: int
    x: FloatArray
    scalars: tuple[float, ...] = ()
    limit: int | None = None
    memory: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One worker's answer for one round.

    ``payload`` is the whole answer: accept bits or a few scalars, never n numbers.
    ``point`` or ``change`` is what ``merge`` would rebuild from the payload: the final point v,
    or the step v - x. Engines that share memory may leave it in to save that work. It is never
    written or sent.
    """

    worker: int
    payload: bytes
    evaluations: int = 0
    samples: int = 0
    nans: int = 0
    point: FloatArray | None = None
    change: Step | None = None

    def bare(self) -> Answer:
        """As it would be sent."""
        return Answer(self.worker, self.payload, self.evaluations, self.samples, self.nans)


class State(Protocol):
    """The server's state: a frozen dataclass of arrays and scalars with at least these two."""

    @property
    def round(self) -> int: ...

    @property
    def x(self) -> FloatArray: ...


class Batches(Enum):
    """The data that the values of a worker's round are over."""

    ROUND = "one minibatch per round"
    ITERATION = "a new minibatch per iteration"
    ALL = "all of the worker's data"


class LocalSearch(Protocol):
    """A worker's round as an ask-and-tell interface: points out, values in, at last the answer.

    ::

        while points := search.ask():
            search.tell([f(x) for x in points])
        answer = search.answer()

    The bits of the answer do not depend on the number of points per ``ask`` or values per
    ``tell``.
    """

    @property
    def round(self) -> int: ...

    @property
    def x(self) -> FloatArray:
        """x_t, where the search starts."""

    @property
    def batches(self) -> Batches:
        """The data that the values are over."""

    @property
    def iterations(self) -> Sequence[int]:
        """The iteration of each point of the last ``ask``; -1 for x itself.

        With ``Batches.ITERATION`` it names the minibatch of the point's value; x has that of
        iteration 0.
        """

    @property
    def index(self) -> int:
        """Values decided on so far: the number of the first point of ``ask`` in the search."""

    @property
    def basis(self) -> int:
        """Steps accepted so far. Index and basis name a point of the search."""

    @property
    def needed(self) -> int:
        """Points that are evaluated in any case; 0 when the search is done.

        Those of ``ask`` beyond them are *ahead*: useful unless a step before them is accepted.
        """

    def ask(self, p: int = 1) -> Sequence[FloatArray]:
        """Up to p points that can be evaluated now, read-only; none when the search is done.

        They are valid until ``tell``. Asking again before that gives the same points first.
        """

    def tell(self, values: Sequence[float], violations: Sequence[float] = ()) -> None:
        """The values at the first points asked for, in their order; NaN and infinity are allowed.

        Points without a value stay asked for, unless an accepted step discards them.
        ``violations``, if given, are those of the constraints: where one is positive, it alone
        decides, and the point does not count as evaluated.
        """

    def answer(self, rows: int = 1) -> Answer:
        """The answer of a search that is done; ``rows``: the samples that a value is over."""


class LocalFunction(Protocol):
    """f_i: the mean of F over a worker's minibatch, or over all of its data."""

    @property
    def rows(self) -> int:
        """Samples that a value is the mean over; 1 where there is no data."""

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        """f_i(x); on the minibatch of this iteration where each has its own."""

    def run(self, search: LocalSearch) -> None:
        """Bring the search to its end: by ``ask`` and ``tell``, or in compiled code."""


class Objective(Protocol):
    """f = E[F(x; xi)], able to bind F to a worker's data. Shards are those of ``desopt.data``."""

    @property
    def compiled(self) -> bool:
        """Whether searches run in compiled code that releases the GIL."""

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain JSON values: part of the run's identity."""

    def prepare(self, shards: Sequence[Any], *, some: bool = False) -> Sequence[Any]:
        """Check the shards and convert them to what ``bind`` needs.

        ``some``: these are not all shards of the run, but the data of one loader or draw.
        """

    def dimension(self, shards: Sequence[Any]) -> int | None:
        """n, where the data decide it."""

    def bind(self, batch: Any, x: FloatArray) -> LocalFunction:
        """f_i on a ``data.shards.Batch``, for points of the size of x."""


class Local(Protocol):
    """A worker's side: its data bound to the objective. It never leaves the worker."""

    def run(self, search: LocalSearch) -> Answer:
        """The answer of the search, run on the data that it names."""

    def total(self, x: FloatArray) -> tuple[float, int]:
        """Sum of F over the worker's data, and their number."""


class Algorithm(Protocol):
    """Hyper-parameters (a frozen dataclass), three declarations and five verbs.

    ``work`` keeps to ``Task.limit``, so that ``max_evaluations`` is never exceeded.
    """

    @property
    def name(self) -> str: ...

    @property
    def state_type(self) -> type[Any]:
        """The class of the states."""

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

        The answers come in the order of workers. Some may be missing; with none at all, x stays.
        They are consumed one at a time, so that they need not all be in memory.
        """

    def settings(self) -> dict[str, Any]:
        """All hyper-parameters as plain JSON values: the run's identity."""
