"""The (1+1) search of es and des, in one part or in two."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf, isfinite
from typing import Any

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.types import Answer, Batches, BoolArray, FloatArray, IndexArray, Step, Task
from desopt.kernels.steps import apply_step, undo_step
from desopt.methods.proposals import Proposals
from desopt.methods.searches.base import Buffer, Search, buffer_of

#: Stands for a value at v that is not finite: no finite one is larger.
LARGEST = sys.float_info.max


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
        payload = self._payload(self.accepted)  # which a search that is not done does not have
        point = self.point if self._dense else None
        change = None if self._moved is None else (self._moved[0], self._moved[2])
        return self._answer(payload, rows, point, change)

    def _payload(self, accepted: BoolArray) -> bytes:
        return self._layout.encode(accepted)

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
                self._best = value if isfinite(value) and not over > 0.0 else LARGEST
                self._violation = min(over, LARGEST)
                continue
            self._drawn.popleft()
            if over <= self._violation if over > 0.0 else -inf < value <= self._best:
                self._best, self._violation = (LARGEST, over) if over > 0.0 else (value, 0.0)
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


class InTurn:
    """A search in two parts, the second one made when the first is done, or none.

    ``part`` is the one that is not done: compiled code may run each, and calls ``proceed`` after
    it.
    """

    def __init__(self, first: Any) -> None:
        self.round, self.x, self.batches = first.round, first.x, first.batches
        self.part: Any = first
        self._parts = [first]

    @property
    def iterations(self) -> Sequence[int]:
        found: Sequence[int] = self._parts[-1].iterations
        return found

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
        first = self.part is self._parts[0]
        self.part = self._second() if first else None
        if self.part is not None:
            self._parts.append(self.part)

    def _second(self) -> Any:
        raise NotImplementedError

    def answer(self, rows: int = 1) -> Answer:
        if self.part is not None:
            self.part.answer(rows)  # it says what is missing
        values, nans = self.evaluations, self.nans
        return replace(self._joined(), evaluations=values, samples=values * rows, nans=nans)

    def _joined(self) -> Answer:
        """The answer of both parts, apart from its counts."""
        raise NotImplementedError


class TwoParts(InTurn):
    """A (1+1) search whose second part is decided by the accept bits of the first one.

    ``then`` makes the second part of these bits, or none.
    """

    def __init__(self, first: OnePlusOne, then: Callable[[BoolArray], OnePlusOne | None]) -> None:
        super().__init__(first)
        self._then = then

    def _second(self) -> OnePlusOne | None:
        return self._then(self._parts[0].accepted)

    def _joined(self) -> Answer:
        first, *rest = self._parts
        payload = first._layout.encode(np.concatenate([part.accepted for part in self._parts]))
        point = rest[0].answer().point if rest else None  # else not all that was accepted is kept
        return Answer(first.worker, payload, point=point)
