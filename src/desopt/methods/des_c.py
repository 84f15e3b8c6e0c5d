"""DES-C: DES with corrected comparisons, for workers whose data differ.

The paper's workers each walk towards the minimum of their own f_i. Here worker i compares values
of f_i plus a linear term that turns its slope into that of f (the correction of SCAFFOLD, made for
comparisons), and keeps a step s from v if

    f_i(v + s) - f_i(v) + c_i^T s + mu_i/2 (||v + s - x||^2 - ||v - x||^2) <= 0,
    c_i = gain g - delta_i.

g + delta_i estimates the gradient of f_i, sum_i p_i delta_i = 0. The estimates cost no value: the
change of f_i by every step tried, accepted or not, is one linear equation, and a filter learns
from these (``kernels.correction``). Everybody who follows the answers has the same estimates.

========  =============  ==========================================================
symbol    name           meaning
========  =============  ==========================================================
g, h      memory         slope of f; even part of its changes, n numbers each
delta_i   memory         how the slope of f_i differs: M n numbers in all
p_i       shares         N_i / N from the workers' numbers of rows
gain      n / (n + K)    how much of g is in a worker's comparisons; by gain^2 the server
                         lengthens the part of the mean step that descends along g
mu_i                     0.15 ||delta_i|| / (alpha_0^t sqrt K) (K / (n + K))^2
========  =============  ==========================================================

All other symbols are those of ``des``. In the first round nothing is known: the workers only
measure. ``step_size="auto"`` has a rule of its own (``methods.last_step``), which takes four values
and two float32 per worker and round more.

A worker's answer with ``correction="full"`` is K accept bits, K residuals of 4 bits (0, or
+-scale 2^-j, j <= 6) and the float32 scale: e_k = change_k / alpha_k - what the estimates predict.
With ``"bits"`` it is K accept bits and a float32, the mean size of a compared difference; mu_i = 0.
Then a bit is the sign of change_k + c_i^T s_k, and that is what is learnt from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, Batches, BoolArray, FloatArray, LocalSearch, Task
from desopt.kernels import correction as kernels
from desopt.kernels.steps import inner_product, momentum_step, sum_of_squares
from desopt.methods import last_step
from desopt.methods.aggregation import combine
from desopt.methods.base import ProblemSize, directions, unmoved
from desopt.methods.des import DES, DESState
from desopt.methods.proposals import MixtureProposals
from desopt.methods.samplers import Key
from desopt.methods.searches import Probe, Probed, Tilt, Tilted, TwoPoint, affordable
from desopt.methods.step_size import AUTO, decreasing

#: What answers hold besides accept bits.
CORRECTIONS = ("full", "bits")

_LEAST_WEIGHT = 0.1  # of a coordinate in the filter, in units of the mean estimate
_RATE = 0.5  # of the filter, for n >= K
_PROX = 0.15
_NIBBLE = 4  # bits of a residual
_LARGEST = float(np.finfo(np.float32).max)
_AT_ONCE = 64  # answers to learn from in one call


@dataclass(frozen=True)
class DESCState(DESState):
    """The server's side after ``round`` rounds.

    ``memory`` is g, h, delta_0, ..., delta_M-1, one after the other. ``spread`` has the lengths
    ||delta_i||, ``answered`` the number of the round after the last answer of each worker, 0 if
    there was none.
    """

    memory: FloatArray
    spread: FloatArray
    answered: FloatArray

    @property
    def stage(self) -> float:
        """0: nothing is known; 1: slopes are."""
        return float(self.answered.any())


@dataclass(frozen=True)
class AdaptedDESCState(DESCState):
    """With log2 of alpha_0, and whether it is found: 0 or 1."""

    level: float
    found: float

    @property
    def stage(self) -> float:
        """That of ``methods.last_step``."""
        return super().stage + self.found


@dataclass(frozen=True, kw_only=True)
class DESC(DES):
    """DES with corrected comparisons, with any sampler."""

    observes: ClassVar[tuple[str, ...]] = ("bounds",)

    name: str = "des-c"
    correction: str = "full"
    #: The rows of each worker, from which p_i; there are as many workers.
    shares: tuple[int, ...] = (1,) * 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("correction", self.correction, CORRECTIONS)
        object.__setattr__(self, "shares", tuple(self.shares))
        if not self.shares or min(self.shares) < 1:
            raise ValueError(f"shares must be a number of rows >= 1 per worker, got {self.shares}")
        if self.step_size == AUTO and self._secants < 3:
            least = -(-3 * last_step.BITS // self._bits_per_step)
            raise ValueError(
                f"iterations must be at least {least} for step_size='auto' and "
                f"correction={self.correction!r}, got {self.iterations}"
            )

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"shares": list(self.shares)}

    @property
    def state_type(self) -> type[DESCState]:  # type: ignore[override]
        return AdaptedDESCState if self.step_size == AUTO else DESCState

    def init(self, x0: FloatArray) -> DESCState:
        workers, n = len(self.shares), x0.size
        memory = np.zeros((2 + workers) * n)
        more = (0.0, 0.0) if self.step_size == AUTO else ()
        return self.state_type(
            0, x0, np.zeros(n), memory, np.zeros(workers), np.zeros(workers), *more
        )

    def plan(self, state: DESCState) -> Task:  # type: ignore[override]
        scalars, memory = (*state.spread.tolist(), state.stage), state.memory
        if isinstance(state, AdaptedDESCState):  # workers measure along the last step as well
            scalars, memory = (*scalars, state.level), np.concatenate([memory, state.m])
        return Task(state.round, state.x, scalars, memory=memory)

    # --- a worker's side -------------------------------------------------------------------------

    def search(self, task: Task, worker: int) -> LocalSearch:
        assert task.memory is not None
        self._checked(worker)
        stage = task.scalars[len(self.shares)]
        if self.step_size != AUTO or stage == 0.0:
            return self._tilted(task, worker)
        n = task.x.size
        if stage == 1.0:
            g = task.memory[:n]
            length = math.sqrt(sum_of_squares(g))
            u = g * (-1.0 / length if length > 0.0 else 0.0)
            ends = last_step.distances(self._secants, self.iterations)
            return self._along([(u, end, 0.0) for end in ends.tolist()], task, worker)
        m = task.memory[-n:]
        probes = self._along([(m, 0.0, 1.0), (m, 1.0, 0.0)], task, worker)
        return Probed(probes, lambda slopes: self._tilted(task, worker, slopes))

    def _tilted(self, task: Task, worker: int, measured: FloatArray | None = None) -> Tilted:
        n, K, stage = task.x.size, self.iterations, task.scalars[len(self.shares)]
        assert task.memory is not None
        g, h, delta = _estimates(task.memory, n, worker)
        steps = affordable(K, task.limit, first=1 if measured is None else 5)
        alpha = self._sizes(task.round, task.scalars)[:steps]
        proposals = self.sampler.proposals(alpha, Key(self.seed, task.round, worker), n)
        mu = 0.0
        if self.correction == "full":
            share = K / (n + K)
            mu = _PROX * share * share * task.scalars[worker] / (alpha[0] * math.sqrt(K))
        tilt = Tilt(
            g, delta, h, self._gain(n), *self._expected(n), mu, stays=not stage, alpha=alpha
        )
        return Tilted(
            task, worker, proposals, tilt, layout=self.layout, dense=self.sampler.dense,
            encode=partial(self._encode, alpha, measured), box=self.box,
        )  # fmt: skip

    def _along(
        self, lines: list[tuple[FloatArray, float, float]], task: Task, worker: int
    ) -> TwoPoint:
        """Slopes of f_i between two points on each of the lines, in the round's minibatch."""
        count = affordable(len(lines), task.limit, each=2)
        return TwoPoint(
            task, worker, directions(self.seed, task.round, worker), np.zeros(count), radius=1.0,
            layout=self.layout, batches=Batches.ROUND, moving=False,
            probes=[Probe(*line, 0) for line in lines[:count]], box=self.box,
            encode=lambda slopes: self.layout.encode(last_step.to_bits(slopes)),
        )  # fmt: skip

    def _encode(
        self, alpha: FloatArray, measured: FloatArray | None,
        accepted: BoolArray, changes: FloatArray, expected: FloatArray,
    ) -> bytes:  # fmt: skip
        bits = np.zeros(self.layout.bits, np.bool_)
        bits[: accepted.size] = accepted
        scale = kernels.to_bits(changes, expected, alpha, _LARGEST, bits[self.iterations :])
        more = () if measured is None else np.clip(measured, -_LARGEST, _LARGEST)
        return self.layout.encode(bits, [scale, *more])

    def _expected(self, n: int) -> tuple[float, float]:
        """How much of g and h is in the change that a step is compared with.

        All of it where residuals are sent: the prediction. Where bits are, the change that makes
        up for the tilt, -c^T s.
        """
        return (1.0, 1.0) if self.correction == "full" else (-self._gain(n), 0.0)

    # --- the server's side -----------------------------------------------------------------------

    def merge(  # type: ignore[override]
        self, state: DESCState, answers: Iterable[Answer]
    ) -> DESCState:
        x, n, t = state.x, state.x.size, state.round
        if isinstance(state, AdaptedDESCState) and state.stage == 1.0:
            return self._found(state, answers)
        learning = _Learning(self, state)
        if not state.stage:
            return self._measured(state, learning, answers)
        followed = _Following(self, state)
        answers = followed.of(learning.of(answers))
        proposals = self.sampler.proposals(learning.alpha, Key(self.seed, t, 0), n)
        if self.aggregate == "mean" and proposals.at_once:
            answers = self._rebuilt(x, proposals, answers)
        add = partial(self._add, x, proposals)
        total, count = combine(self.aggregate, answers, add, n)
        if count == 0:
            return unmoved(state)
        memory, spread = learning.outcome()
        # the mean step; the more of it that descends along g again, the less a round can see of f
        with np.errstate(over="ignore", invalid="ignore"):
            d = total / count
            kernels.stretch(d, memory[:n], self._gain(n) * self._gain(n))
        new_x = momentum_step(x, state.m, d, 1, self.momentum)
        finite = np.isfinite(new_x)
        if not finite.all():
            new_x, d = np.where(finite, new_x, x), np.where(finite, d, 0.0)
        if self.box is not None:
            self.box.project(new_x)
        return replace(
            state, round=t + 1, x=new_x, m=d, memory=memory, spread=spread,
            answered=learning.answered, **followed.outcome(),
        )  # fmt: skip

    def _measured(
        self, state: DESCState, learning: _Learning, answers: Iterable[Answer]
    ) -> DESCState:
        """After the first round with answers: they were learnt from, and x stays."""
        if not sum(1 for _ in learning.of(answers)):
            return unmoved(state)
        memory, spread = learning.outcome()
        if self.step_size == AUTO:  # so short steps have no even part
            memory[state.x.size : 2 * state.x.size] = 0.0
        return replace(
            state, round=state.round + 1, memory=memory, spread=spread, answered=learning.answered
        )

    def _found(self, state: AdaptedDESCState, answers: Iterable[Answer]) -> DESCState:
        """After the round along -g: the first step size, and x stays."""
        total, rows = np.zeros(self._secants), 0
        for answer in answers:
            share = self.shares[self._checked(answer.worker)]
            bits = self.layout.decode(answer).bits[: self._secants * last_step.BITS]
            total, rows = total + share * last_step.from_bits(bits), rows + share
        if not rows:
            return unmoved(state)
        level = last_step.first_level(total / rows, self.iterations, self._gain(state.x.size))
        return replace(state, round=state.round + 1, level=level, found=1.0)

    @cached_property
    def layout(self) -> Layout:
        numbers = 3 if self.step_size == AUTO else 1
        return Layout(bits=self._bits_per_step * self.iterations, float32=numbers)

    @property
    def cost(self) -> Cost:
        return Cost(6, self.iterations + 5) if self.step_size == AUTO else super().cost

    @property
    def _bits_per_step(self) -> int:
        return 1 + (_NIBBLE if self.correction == "full" else 0)

    @property
    def _secants(self) -> int:
        return min(last_step.SECANTS, self.layout.bits // last_step.BITS)

    def _sizes(self, t: int, scalars: tuple[float, ...]) -> FloatArray:
        """alpha_k of all k, from the scalars of a task."""
        if self.step_size != AUTO:
            return self.step_sizes(t)
        stage, level = scalars[len(self.shares) :]
        if stage:
            return decreasing(self.iterations, level)
        return np.full(self.iterations, math.ldexp(1.0, int(last_step.TINY)))

    def _gain(self, n: int) -> float:
        return n / (n + self.iterations)

    def _checked(self, worker: int) -> int:
        if worker >= len(self.shares):
            raise ValueError(
                f"worker {worker} of des-c with shares of {len(self.shares)} workers; give the "
                "rows of each in shares"
            )
        return worker


class _Learning:
    """The estimates while they learn from the answers of a round."""

    def __init__(self, method: DESC, state: DESCState) -> None:
        self._method, self._round, self._n = method, state.round, state.x.size
        self._old = state.memory.reshape(-1, self._n)
        self._new = np.empty_like(self._old)
        self._spread = state.spread
        self.answered = state.answered.copy()
        self.alpha = method._sizes(state.round, method.plan(state).scalars)
        self._rate = _RATE * min(1.0, self._n / method.iterations)
        # the weights of a coordinate are fixed for the round: what was large moves more
        of_delta = np.empty(self._n)
        kernels.mean_size_of_rows(self._old, of_delta)
        self._table = kernels.side_by_side(
            self._old[0], self._old[1], of_delta, _LEAST_WEIGHT, self.alpha[0],
            method.step_size == AUTO,  # then h is 0 after the first round
        )  # fmt: skip

    def of(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers, each learnt from as it passes."""
        left = iter(answers)
        while chunk := list(islice(left, _AT_ONCE)):
            self._learn(chunk)
            yield from chunk

    def outcome(self) -> tuple[FloatArray, FloatArray]:
        """The new estimates, centred, and the lengths of delta_i; the old ones if not finite."""
        # an estimate counts by its worker's rows, the less the longer ago it was made
        learnt = self.answered == self._round + 1.0
        age = 1.0 + (self._round + 1.0) - self.answered
        share = np.where(self.answered > 0.0, np.array(self._method.shares) / age, 0.0)
        share, length = share / kernels.total(share), np.empty(2 + share.size)
        kernels.centre(self._old, self._new, self._table, learnt, share, length)
        if not np.isfinite(length).all():
            return self._old.ravel(), self._spread
        new = self.answered == 0.0  # the best guess of a worker that never answered is the mean
        self._new[2:][new], length[2:][new] = 0.0, 0.0
        return self._new.ravel(), length[2:]

    def _learn(self, answers: list[Answer]) -> None:
        method, n, alpha = self._method, self._n, self.alpha
        workers = np.array([method._checked(answer.worker) for answer in answers], np.int64)
        content, nibbles = method.layout.packed(answers), method.correction == "full"
        scales, expected = content.float32[:, 0].astype(np.float64), method._expected(n)
        steps = method.sampler.proposals(alpha, Key(method.seed, self._round, 0), n)
        if isinstance(steps, MixtureProposals):  # all in one call
            c1, _, c3, k0, k1 = steps.stream.key()
            kernels.learn_mixtures(
                self._table, self._old, self._new, *expected, steps.scale, steps.l,
                steps.gaussian or None, alpha, content.bits, nibbles, scales, workers, self._rate,
                c1, c3, k0, k1,
            )  # fmt: skip
        else:
            for worker, mask, scale in zip(workers.tolist(), content.bits, scales, strict=True):
                slopes = np.empty_like(alpha)
                kernels.from_bits(mask, nibbles, scale, slopes)
                self._learn_one(worker, slopes)
        self.answered[workers] = self._round + 1.0

    def _learn_one(self, worker: int, slopes: FloatArray) -> None:
        method, n, alpha = self._method, self._n, self.alpha
        old, delta = self._old[2 + worker], self._new[2 + worker]
        delta[:] = old
        key = Key(method.seed, self._round, worker)
        for first, index, step in method.sampler.proposals(alpha, key, n).blocks():
            part = slice(first, first + len(step))
            kernels.learn(
                self._table, old, delta, *method._expected(n), index, step, alpha[part],
                slopes[part], self._rate,
            )  # fmt: skip


class _Following:
    """What the answers of a round say of the last step, where the step size is "auto"."""

    def __init__(self, method: DESC, state: DESCState) -> None:
        self._method, self._state = method, state
        self._back = self._forth = 0.0
        self._rows = self._accepted = self._steps = 0

    def of(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """The same answers, counted as they pass."""
        if not isinstance(self._state, AdaptedDESCState):
            yield from answers
            return
        method, state, K = self._method, self._state, self._method.iterations
        for answer in answers:
            content = method.layout.decode(answer)
            _, _, delta = _estimates(state.memory, state.x.size, answer.worker)
            # what the worker's slope has more than that of f says nothing of f
            more, share = inner_product(delta, state.m), method.shares[answer.worker]
            self._back += share * (float(content.float32[1]) - more)
            self._forth += share * (float(content.float32[2]) - more)
            self._rows += share
            self._accepted += int(np.count_nonzero(content.bits[:K]))
            self._steps += K
            yield answer

    def outcome(self) -> dict[str, float]:
        """The fields of the next state."""
        if not isinstance(self._state, AdaptedDESCState):
            return {}
        back, forth = self._back / self._rows, self._forth / self._rows
        rate, gain = self._accepted / self._steps, self._method._gain(self._state.x.size)
        return {"level": last_step.next_level(self._state.level, back, forth, rate, gain)}


def _estimates(memory: FloatArray, n: int, worker: int) -> tuple[FloatArray, ...]:
    """g, h and delta of a worker: views."""
    rows = memory.reshape(-1, n)
    return rows[0], rows[1], rows[2 + worker]


def defaults(problem: ProblemSize) -> dict[str, Any]:
    """Equal shares where the rows of the workers are not known."""
    return {"shares": problem.shares or (1,) * problem.workers}
