"""The local searches of all methods: a worker's round as an object that asks for values.

==============  ==============================  ====================  ==========================
search          points                          answer                methods
==============  ==============================  ====================  ==========================
OnePlusOne      x, then v + alpha_k u_k         K accept bits         es, des, des-mg, des-mr
TwoParts        those of two OnePlusOne         K accept bits         a round of step_size="auto"
Tilted          the same                        bits and changes      des-c
TwoPoint        v + mu u_k and v - mu u_k       K' slopes g_k         fed-zo-*, zo-signsgd,
                                                                      zo-nsgd, feedsign,
                                                                      decomfl, fedkseed
Population      x + sigma z_j                   lambda sums           es-csa, cma-es
==============  ==============================  ====================  ==========================

In a box, points and moves are projected onto it, and members of a population mirrored at its
bounds (projected, it would lose the spread that its adaptation needs). Where there are
constraints, points are ordered by (violation, value); the value of one that violates them is not
needed.

They are driven by ``ask`` and ``tell`` (see ``contract.types.LocalSearch``). An objective with
compiled code for the whole search hands the outcome to ``finish`` instead.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf, isfinite
from typing import NamedTuple, TypeAlias

import numpy as np

from desopt.contract import streams
from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.streams import Stream
from desopt.contract.types import Answer, Batches, BoolArray, FloatArray, IndexArray, Step, Task
from desopt.kernels.correction import tilt_of
from desopt.kernels.steps import add_scaled, apply_step, undo_step
from desopt.methods.proposals import Proposals

#: An array, and the read-only view of it that is given out.
Buffer: TypeAlias = tuple[FloatArray, FloatArray]

_LARGEST = sys.float_info.max
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


def affordable(count: int, limit: int | None, *, each: int = 1, first: int = 0) -> int:
    """The number of iterations, of ``count``, that a task's limit allows; at least one.

    An iteration costs ``each`` values, the start of the search ``first``.
    """
    return count if limit is None else max(1, min(count, (limit - first) // each))


def ranking(sums: FloatArray, members: int) -> IndexArray:
    """The members of a population that have a value or a finite violation, best first.

    ``sums`` are those of the answers of all workers; violations come first, if there are any.
    """
    values, violations = sums[-members:], sums[:-members]
    known = np.isfinite(values)
    order = np.argsort(values, kind="stable")
    if violations.size:
        known = np.isfinite(violations) & ((violations > 0.0) | ((violations == 0.0) & known))
        order = np.lexsort((np.where(violations > 0.0, 0.0, values), violations))
    best: IndexArray = order[known[order]]
    return best


class Search:
    """Common to all searches: the points under evaluation, their memory, and the counts."""

    def __init__(
        self, task: Task, worker: int, layout: Layout, batches: Batches, box: Box | None
    ) -> None:
        self.round, self.x, self.worker, self.batches = task.round, task.x, worker, batches
        self.box = box
        self.evaluations = self.nans = self.basis = 0
        self._layout = layout
        self._asked: list[Buffer] = []
        self._spare: list[Buffer] = []  # memory for points, used again: new pages are slow

    def ask(self, p: int = 1) -> Sequence[FloatArray]:
        if p < 1:
            raise ValueError(f"ask for at least one point, got {p}")
        asked = self._asked
        if len(asked) < p:
            asked += self._propose(p)
        return [asked[0][1]] if p == 1 and asked else [view for _, view in asked[:p]]

    def tell(self, values: Sequence[float], violations: Sequence[float] = ()) -> None:
        count, asked = len(values), self._asked
        if count > len(asked):
            raise ValueError(f"{len(asked)} points were asked for, got {count} values")
        self._asked = asked[count:]
        used = self._decide(asked[:count], values, violations)
        if violations:  # points that violate constraints were not evaluated
            values = [value for value, over in zip(values, violations, strict=True) if not over > 0]
            used -= sum(over > 0.0 for over in violations[:used])
        self.evaluations += used
        for value in values[:used]:
            if not isfinite(value):
                self.nans += 1

    def _propose(self, p: int) -> list[Buffer]:
        """More points, up to p with those asked for before; none when there are no more."""
        raise NotImplementedError

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        """Continue with the values of these points; the number of them that were used."""
        raise NotImplementedError

    def _buffer(self) -> Buffer:
        return self._spare.pop() if self._spare else buffer_of(np.empty_like(self.x))

    def _answer(
        self, payload: bytes, rows: int, point: FloatArray | None, change: Step | None = None
    ) -> Answer:
        samples = self.evaluations * rows
        return Answer(self.worker, payload, self.evaluations, samples, self.nans, point, change)


def buffer_of(array: FloatArray) -> Buffer:
    view = array.view()
    view.flags.writeable = False
    return array, view


class OnePlusOne(Search):
    """K steps of a (1+1) search from x: v + step is kept where f does not rise.

    A value that is not finite is never kept. Where f(x) is not finite, the first step with a
    finite value is.

    Asked for one point, a sparse step is written into v; rejected, it is undone by restoring the
    old values: O(l) whatever n is. Asked for p, it proposes the next p steps on the assumption
    that all of them are rejected. Points after the first accepted one are discarded, and these
    steps proposed again from the new v. ``basis`` counts the accepted steps: together with the
    index it names a point. The first step is number ``first`` of the proposals.
    """

    def __init__(
        self, task: Task, worker: int, proposals: Proposals, *, layout: Layout, batches: Batches,
        dense: bool, box: Box | None = None, first: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(task, worker, layout, batches, box)
        self.proposals, self.first = proposals, first
        self._count, self._dense = proposals.count - first, dense
        self._k = -1  # the step to decide on; -1: the value at x comes first
        self._accepted: BoolArray | None = None
        self._moved: tuple[IndexArray, FloatArray, FloatArray] | None = None
        self._undo: Step | None = None  # old values of v, while a sparse step is in it
        self._best, self._violation = inf, 0.0  # of v

    @property
    def iterations(self) -> Sequence[int]:
        begin = self.first + self._k
        return range(begin, begin + max(1, len(self._asked)))

    @property
    def index(self) -> int:
        return self._k + 1

    @property
    def needed(self) -> int:
        # x and the first step, which starts from x whatever f(x) is; then one step after the other
        return min(1 + (self._k < 0), self._count - self._k)

    @property
    def accepted(self) -> BoolArray:
        """The decisions, when the search is done."""
        if self._k < self._count or self._accepted is None:
            raise ValueError(f"the search is at step {self._k} of {self._count}: ask and tell more")
        return self._accepted

    @property
    def point(self) -> FloatArray:
        """v_K, when the search is done."""
        if self._moved is not None:
            columns, values, _change = self._moved
            v = self.x.copy()
            v[columns] = values
            return v
        return self._v[0]

    def finish(
        self,
        accepted: BoolArray,
        nans: int,
        point: FloatArray | None = None,
        moved: tuple[IndexArray, FloatArray, FloatArray] | None = None,
    ) -> None:
        """The outcome of all steps: v_K, or (coordinates, v_K there, v_K - x there)."""
        self._asked, self._accepted, self._k, self._moved = [], accepted, self._count, moved
        self.evaluations, self.nans = self._count + 1, nans
        if point is not None:
            self._v = buffer_of(point)

    def answer(self, rows: int = 1) -> Answer:
        payload = self._layout.encode(self.accepted)
        point = self.point if self._dense else None
        change = None if self._moved is None else (self._moved[0], self._moved[2])
        return self._answer(payload, rows, point, change)

    def _start(self) -> None:
        self._v = buffer_of(self.x.copy())  # line 3: v_0 = x_t
        self._accepted = np.zeros(self._count, np.bool_)
        self._steps: Iterator[Step] = islice(self.proposals.steps(), self.first, None)
        self._drawn: deque[Step] = deque()  # steps not decided on

    def _propose(self, p: int) -> list[Buffer]:
        if self._accepted is None:
            self._start()
        k = self._k
        if self._undo is not None:  # v is the point under evaluation: nothing starts from it
            return []
        if p == 1 and 0 <= k < self._count:
            return [self._here(self._step(0))]
        first, asked = int(k < 0), len(self._asked)
        trials = [self._v] if first and not asked else []
        begin, end = max(0, asked - first), min(p, self._count - k) - first
        trials += [self._there(self._step(j)) for j in range(begin, end)]
        return trials

    def _step(self, j: int) -> Step:
        """The j-th of the steps not decided on."""
        while len(self._drawn) <= j:
            self._drawn.append(next(self._steps))
        return self._drawn[j]

    def _here(self, step: Step) -> Buffer:
        """v + step, in v itself where the step is sparse."""
        index, change = step
        if index is None:
            return self._there(step)
        old = np.empty(change.size)
        apply_step(self._v[0], index, change, old)
        if self.box is not None:
            self.box.project_at(self._v[0], index)
        self._undo = index, old
        return self._v

    def _there(self, step: Step) -> Buffer:
        """v + step, beside v."""
        index, change = step
        trial = self._buffer()
        if index is None:
            np.add(self._v[0], change, out=trial[0])
        else:
            trial[0][:] = self._v[0]
            apply_step(trial[0], index, change, np.empty(change.size))
        if self.box is not None:
            self.box.project_at(trial[0], index)
        return trial

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        assert self._accepted is not None
        undo, self._undo = self._undo, None
        for used, (trial, value) in enumerate(zip(asked, values, strict=True), 1):
            k, self._k = self._k, self._k + 1
            over = violations[used - 1] if violations else 0.0
            if k < 0:
                self._best = value if isfinite(value) and not over > 0.0 else _LARGEST
                self._violation = min(over, _LARGEST)
                continue
            self._drawn.popleft()
            if over <= self._violation if over > 0.0 else -inf < value <= self._best:
                self._best, self._violation = (_LARGEST, over) if over > 0.0 else (value, 0.0)
                self._accepted[k] = True
                self.basis += 1
                self._move(trial, asked)
                return used
        if undo is not None:
            undo_step(self._v[0], *undo)
        self._spare += [trial for trial in asked if trial is not self._v]
        return len(values)

    def _move(self, trial: Buffer, asked: list[Buffer]) -> None:
        """v = trial; the memory of the others is free, those not told included."""
        if trial is self._v:  # then it was the only one
            return
        others, self._asked = asked + self._asked, []
        self._spare += [self._v, *(b for b in others if b is not trial and b is not self._v)]
        self._v = trial


class TwoParts:
    """A (1+1) search whose second part is decided by the accept bits of the first one.

    ``then`` makes the second part of these bits, or none. ``part`` is the one that is not done:
    compiled code may run each, and calls ``proceed`` after it.
    """

    def __init__(self, first: OnePlusOne, then: Callable[[BoolArray], OnePlusOne | None]) -> None:
        self.round, self.x, self.batches = first.round, first.x, first.batches
        self.part: OnePlusOne | None = first
        self._parts, self._then = [first], then

    @property
    def iterations(self) -> Sequence[int]:
        return self._parts[-1].iterations

    @property
    def index(self) -> int:
        return sum(part.index for part in self._parts)

    @property
    def basis(self) -> int:
        return sum(part.basis for part in self._parts)

    @property
    def needed(self) -> int:
        return self.part.needed if self.part is not None else 0

    @property
    def evaluations(self) -> int:
        return sum(part.evaluations for part in self._parts)

    @property
    def nans(self) -> int:
        return sum(part.nans for part in self._parts)

    def ask(self, p: int = 1) -> Sequence[FloatArray]:
        return self.part.ask(p) if self.part is not None else []

    def tell(self, values: Sequence[float], violations: Sequence[float] = ()) -> None:
        if self.part is None:
            raise ValueError(f"0 points were asked for, got {len(values)} values")
        self.part.tell(values, violations)
        if not self.part.needed:
            self.proceed()

    def proceed(self) -> None:
        """The part is done: go on with the other one, if there is one."""
        assert self.part is not None
        accepted, first = self.part.accepted, self.part is self._parts[0]
        self.part = self._then(accepted) if first else None
        if self.part is not None:
            self._parts.append(self.part)

    def answer(self, rows: int = 1) -> Answer:
        if self.part is not None:
            return self.part.answer(rows)  # it says what is missing
        first, *rest = self._parts
        payload = first._layout.encode(np.concatenate([part.accepted for part in self._parts]))
        point = rest[0].answer().point if rest else None  # else not all that was accepted is kept
        counts = self.evaluations, self.evaluations * rows, self.nans
        return Answer(first.worker, payload, *counts, point)


class Tilt(NamedTuple):
    """What is added to f_i: c^T v + mu/2 ||v - x||^2 with c = gain g - delta.

    ``stays``: v stays at x, and the bits say which steps would have been accepted.
    """

    g: FloatArray
    delta: FloatArray
    gain: float
    mu: float
    stays: bool

    @property
    def c(self) -> FloatArray:
        return self.gain * self.g - self.delta


class Tilted(OnePlusOne):
    """A (1+1) search of f_i plus a tilt; the answer is what ``encode`` makes of bits and changes.

    In a box, the tilt is that of the step as it was drawn.
    ``changes`` are those of f_i alone, by every step; 0 where one of the two values is not finite.
    """

    def __init__(
        self, task: Task, worker: int, proposals: Proposals, tilt: Tilt, *, layout: Layout,
        dense: bool, encode: Callable[[BoolArray, FloatArray], bytes], box: Box | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            task, worker, proposals, layout=layout, batches=Batches.ROUND, dense=dense, box=box
        )
        self.tilt, self._encode_changes = tilt, encode
        self.changes = np.zeros(proposals.count)

    def answer(self, rows: int = 1) -> Answer:
        answer = super().answer(rows)
        assert self._accepted is not None
        with np.errstate(invalid="ignore"):
            changes = np.where(np.isfinite(self.changes), self.changes, 0.0)
        return replace(answer, payload=self._encode_changes(self._accepted, changes))

    def _start(self) -> None:
        super()._start()
        self._c = self.tilt.c

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        assert self._accepted is not None
        undo, self._undo = self._undo, None
        if undo is not None:
            undo_step(self._v[0], *undo)
        for used, (trial, value) in enumerate(zip(asked, values, strict=True), 1):
            k, self._k = self._k, self._k + 1
            if k < 0:
                self._best = value if isfinite(value) else _LARGEST
                continue
            index, step = self._drawn.popleft()
            known = isfinite(value) and self._best < _LARGEST
            self.changes[k] = value - self._best if known else 0.0
            more = tilt_of(self._c, self.x, self.tilt.mu, self._v[0], index, step)
            if isfinite(value) and (not known or self.changes[k] + more <= 0.0):
                self._accepted[k] = True
                if self.tilt.stays:
                    continue
                self._best = value
                self.basis += 1
                if undo is not None:
                    self._here((index, step))
                    self._undo = None
                self._move(trial, asked)
                return used
        self._spare += [trial for trial in asked if trial is not self._v]
        return len(values)


class Probe(NamedTuple):
    """The slope between x - below u and x + above u, on the minibatch of iteration ``batch``."""

    u: FloatArray
    above: float
    below: float
    batch: int


class TwoPoint(Search):
    """K' slopes g_k = (f(p + mu u_k) - f(p - mu u_k)) / (2 mu), and v += scale[k] g_k u_k.

    ``moving``: p = v, which starts at x and moves after every ``group`` estimates; these share a
    minibatch. Else p = x and v is the sum of the steps. u_k is the stream's vector number k, or
    ``numbers[k]``; the last estimates are those of the ``probes``. A slope that is not finite
    counts as 0. The answer holds the slopes, or what ``encode`` makes of them. Where p moves, at
    most the points of one group can be evaluated together; else all of them.
    """

    def __init__(
        self, task: Task, worker: int, stream: Stream, scale: FloatArray, *, radius: float,
        layout: Layout, batches: Batches, moving: bool, group: int = 1,
        numbers: IndexArray | None = None, probes: Sequence[Probe] = (),
        encode: Callable[[FloatArray], bytes] | None = None, box: Box | None = None,
    ) -> None:  # fmt: skip
        super().__init__(task, worker, layout, batches, box)
        self.stream, self.scale, self.radius, self.moving = stream, scale, radius, moving
        self.group, self.numbers = group, numbers
        self.probes = dict(enumerate(probes, scale.size - len(probes)))
        self._encode = encode or self._as_numbers
        self.point = self.x.copy() if moving else np.zeros_like(self.x)  # v
        self._slopes = np.zeros(scale.size)
        self._told: list[float] = []
        self._directions: dict[int, FloatArray] = {}

    @property
    def iterations(self) -> Sequence[int]:
        first = len(self._told)
        return [self._batch(i // 2) for i in range(first, first + max(1, len(self._asked)))]

    @property
    def index(self) -> int:
        return len(self._told)

    @property
    def needed(self) -> int:
        return self._end() - len(self._told)

    def _batch(self, k: int) -> int:
        probe = self.probes.get(k)
        return k // self.group if probe is None else probe.batch

    def direction(self, k: int) -> Stream:
        """The stream of u_k."""
        return self.stream.at(k if self.numbers is None else int(self.numbers[k]))

    def finish(self, slopes: FloatArray, nans: int) -> None:
        """The outcome of all estimates; ``point`` is v already."""
        self._asked, self._slopes = [], slopes
        self.nans, self.evaluations = nans, 2 * slopes.size
        self._told = [0.0] * self.evaluations

    def answer(self, rows: int = 1) -> Answer:
        if len(self._told) < 2 * self.scale.size:
            raise ValueError(
                f"the search has {len(self._told)} of {2 * self.scale.size} values: ask and tell "
                "more"
            )
        point = self.point if self.scale.any() else None
        return self._answer(self._encode(self._slopes), rows, point)

    def _propose(self, p: int) -> list[Buffer]:
        first = len(self._told)
        values = range(first + len(self._asked), min(first + p, self._end()))
        return [self._trial(*divmod(i, 2)) for i in values]

    def _as_numbers(self, slopes: FloatArray) -> bytes:
        """In the precision of the layout."""
        if self._layout.float32:
            single = np.clip(slopes, -_LARGEST_SINGLE, _LARGEST_SINGLE)
            return self._layout.encode(float32=single)
        return self._layout.encode(float64=slopes)

    def _end(self) -> int:
        """The values that can be computed now: all of them, or up to the end of a group."""
        told, end, size = len(self._told), 2 * self.scale.size, 2 * self.group
        return min(end, told - told % size + size) if self.moving else end

    def _trial(self, k: int, below: int) -> Buffer:
        """p + mu u_k, or p - mu u_k."""
        if k not in self._directions and k not in self.probes:
            self._directions[k] = streams.normals(self.direction(k), self.x.size)
        trial = self._buffer()
        at = self.point if self.moving else self.x
        probe = self.probes.get(k) or Probe(self._directions[k], self.radius, self.radius, k)
        np.multiply(probe.u, -probe.below if below else probe.above, out=trial[0])
        np.add(at, trial[0], out=trial[0])
        if self.box is not None:
            self.box.project(trial[0])
        return trial

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        for value in values:
            self._told.append(value)
            if len(self._told) % 2 == 0:
                self._estimate(len(self._told) // 2 - 1, *self._told[-2:])
        self._spare += asked
        return len(values)

    def _estimate(self, k: int, above: float, below: float) -> None:
        probe = self.probes.get(k)
        g = (above - below) / (2.0 * self.radius if probe is None else probe.above + probe.below)
        self._slopes[k] = g if isfinite(g) else 0.0
        if probe is not None:
            return
        if (k + 1) % self.group and k + 1 < self.scale.size:
            return
        for j in range(k - k % self.group, k + 1):  # the group is complete
            u, c = self._directions.pop(j), self.scale[j] * self._slopes[j]
            if c != 0.0:  # as in a replay, which does not draw u for nothing
                add_scaled(self.point, c, u)
        if self.moving and self.box is not None:
            self.box.project(self.point)


class Population(Search):
    """The values at x + sigma z_j for j < members; the answer has lambda sums over the data.

    ``shape`` changes z_j ~ N(0, I), in place, to a step of another distribution. A member without
    a finite value, or beyond ``members``, has the sum +inf: it ranks last. With constraints there
    are 2 lambda numbers: the violations, +inf for such a member, and the sums.
    """

    def __init__(
        self, task: Task, worker: int, stream: Stream, sigma: float, *, members: int,
        layout: Layout, shape: Callable[[FloatArray], None] | None = None, box: Box | None = None,
        constrained: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(task, worker, layout, Batches.ALL, box)
        self.stream, self.sigma, self.members, self.shape = stream, sigma, members, shape
        self._constrained = constrained
        self._values: list[float] = []
        self._violations: list[float] = []

    @property
    def iterations(self) -> Sequence[int]:
        first = len(self._values)
        return range(first, first + max(1, len(self._asked)))

    @property
    def index(self) -> int:
        return len(self._values)

    @property
    def needed(self) -> int:
        return self.members - len(self._values)

    def finish(self, values: FloatArray) -> None:
        """The values of all members."""
        self._asked, self._values, self.evaluations = [], values.tolist(), values.size
        self.nans = int(values.size - np.isfinite(values).sum())

    def answer(self, rows: int = 1) -> Answer:
        if len(self._values) < self.members:
            raise ValueError(
                f"the search has {len(self._values)} of {self.members} values: ask and tell more"
            )
        numbers = np.full(
            (1 + self._constrained, self._layout.float64 // (1 + self._constrained)), inf
        )
        values = np.array(self._values, np.float64) * rows
        if self._constrained:
            over = np.array(self._violations, np.float64)
            values[over > 0.0] = inf
            numbers[0, : self.members] = np.where((over > 0.0) | np.isfinite(values), over, inf)
        numbers[-1, : self.members] = np.where(np.isfinite(values), values, inf)
        return self._answer(self._layout.encode(float64=numbers.ravel()), rows, None)

    def _propose(self, p: int) -> list[Buffer]:
        first = len(self._values)
        members = range(first + len(self._asked), min(first + p, self.members))
        return [self._trial(j) for j in members]

    def _trial(self, j: int) -> Buffer:
        trial = self._buffer()
        streams.normals(self.stream.at(j), self.x.size, out=trial[0])
        if self.shape is not None:
            self.shape(trial[0])
        np.multiply(trial[0], self.sigma, out=trial[0])
        np.add(self.x, trial[0], out=trial[0])
        if self.box is not None:
            self.box.reflect(trial[0])
        return trial

    def _decide(
        self, asked: list[Buffer], values: Sequence[float], violations: Sequence[float]
    ) -> int:
        self._values += values
        self._violations += violations or [0.0] * len(values)
        self._spare += asked
        return len(values)
