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
measure. ``step_size="auto"`` has a rule of its own (``correction.last_step``), which takes four
values and two float32 per worker and round more.

A worker's answer with ``correction="full"`` is K accept bits, K residuals of 4 bits (0, or
+-scale 2^-j, j <= 6) and the float32 scale: e_k = change_k / alpha_k - what the estimates predict.
With ``"bits"`` it is K accept bits and a float32, the mean size of a compared difference; mu_i = 0.
Then a bit is the sign of change_k + c_i^T s_k, and that is what is learnt from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, BoolArray, FloatArray, LocalSearch, Task
from desopt.kernels import correction as kernels
from desopt.kernels.steps import momentum_step
from desopt.methods.aggregation import combine
from desopt.methods.base import NOISE, ProblemSize, unmoved
from desopt.methods.correction import (
    AdaptedDESCState,
    DESCState,
    Following,
    Learning,
    estimates,
    last_step,
)
from desopt.methods.des import DES
from desopt.methods.samplers import Key
from desopt.methods.searches import Probed, Tilt, Tilted, affordable
from desopt.methods.step_size import AUTO, decreasing

#: What answers hold besides accept bits.
CORRECTIONS = ("full", "bits")

_PROX = 0.15
_NIBBLE = 4  # bits of a residual
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class DESC(DES):
    """DES with corrected comparisons, with any sampler."""

    observes: ClassVar[tuple[str, ...]] = ("bounds",)

    name: str = "des-c"
    #: 1 is too long on many data sets of a scale of 1; "auto" needs values without noise.
    step_size: float | Literal["auto"] = 0.3
    correction: str = "full"
    #: The rows of each worker, from which p_i; there are as many workers.
    shares: tuple[int, ...] = (1,) * 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("correction", self.correction, CORRECTIONS)
        object.__setattr__(self, "shares", tuple(self.shares))
        if not self.shares or min(self.shares) < 1:
            raise ValueError(f"shares must be a number of rows >= 1 per worker, got {self.shares}")
        if self.step_size == AUTO and self.secants < 3:
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
        memory = state.memory
        if isinstance(state, AdaptedDESCState):  # workers measure along the last step as well
            memory = np.concatenate([memory, state.m])
        return Task(state.round, state.x, self.scalars(state), memory=memory)

    def scalars(self, state: DESCState) -> tuple[float, ...]:
        """Those of a task: ||delta_i||, the stage and, if it is followed, the level."""
        level = (state.level,) if isinstance(state, AdaptedDESCState) else ()
        return (*state.spread.tolist(), state.stage, *level)

    def doubt(self, task: Task, answers: Sequence[Answer]) -> str:
        if self.step_size != AUTO or task.scalars[len(self.shares)] != 1.0:
            return ""
        return NOISE if last_step.noisy(self, answers) else ""

    # --- a worker's side -------------------------------------------------------------------------

    def search(self, task: Task, worker: int) -> LocalSearch:
        assert task.memory is not None
        self.checked(worker)
        stage = task.scalars[len(self.shares)]
        if self.step_size != AUTO or stage == 0.0:
            return self._tilted(task, worker)
        if stage == 1.0:
            return last_step.along_slope(self, task, worker)
        probes = last_step.along_step(self, task, worker)
        return Probed(probes, lambda slopes: self._tilted(task, worker, slopes))

    def _tilted(self, task: Task, worker: int, measured: FloatArray | None = None) -> Tilted:
        n, K, stage = task.x.size, self.iterations, task.scalars[len(self.shares)]
        assert task.memory is not None
        g, h, delta = estimates(task.memory, n, worker)
        steps = affordable(K, task.limit, first=1 if measured is None else 5)
        alpha = self.sizes(task.round, task.scalars)[:steps]
        proposals = self.sampler.proposals(alpha, Key(self.seed, task.round, worker), n)
        mu = 0.0
        if self.correction == "full":
            share = K / (n + K)
            mu = _PROX * share * share * task.scalars[worker] / (alpha[0] * math.sqrt(K))
        tilt = Tilt(
            g, delta, h, self.gain(n), *self.expected_parts(n), mu, stays=not stage, alpha=alpha
        )
        return Tilted(
            task, worker, proposals, tilt, layout=self.layout, dense=self.sampler.dense,
            encode=partial(self._encode, alpha, measured), box=self.box,
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

    def expected_parts(self, n: int) -> tuple[float, float]:
        """How much of g and h is in the change that a step is compared with.

        All of it where residuals are sent: the prediction. Where bits are, the change that makes
        up for the tilt, -c^T s.
        """
        return (1.0, 1.0) if self.correction == "full" else (-self.gain(n), 0.0)

    # --- the server's side -----------------------------------------------------------------------

    def merge(  # type: ignore[override]
        self, state: DESCState, answers: Iterable[Answer]
    ) -> DESCState:
        x, n, t = state.x, state.x.size, state.round
        if isinstance(state, AdaptedDESCState) and state.stage == 1.0:
            return self._found(state, answers)
        learning = Learning(self, state)
        if not state.stage:
            return self._measured(state, learning, answers)
        followed = Following(self, state)
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
            d = np.divide(total, count, out=total)
            kernels.stretch(d, memory[:n], self.gain(n) * self.gain(n))
        new_x = momentum_step(x, state.m, d, 1, self.momentum)
        finite = np.isfinite(new_x)
        if not finite.all():
            new_x, d = np.where(finite, new_x, x), np.where(finite, d, 0.0)
        if self.box is not None:
            self.box.project(new_x)
        new: DESCState = replace(
            state, round=t + 1, x=new_x, m=d, memory=memory, spread=spread,
            answered=learning.answered, **followed.outcome(),
        )  # fmt: skip
        return learning.leave(new)

    def _measured(
        self, state: DESCState, learning: Learning, answers: Iterable[Answer]
    ) -> DESCState:
        """After the first round with answers: they were learnt from, and x stays."""
        if not sum(1 for _ in learning.of(answers)):
            return unmoved(state)
        memory, spread = learning.outcome()
        new = replace(
            state, round=state.round + 1, memory=memory, spread=spread, answered=learning.answered
        )
        if self.step_size != AUTO:
            return learning.leave(new)
        memory[state.x.size : 2 * state.x.size] = 0.0  # so short steps have no even part
        return new

    def _found(self, state: AdaptedDESCState, answers: Iterable[Answer]) -> DESCState:
        """After the round along -g: the first step size, and x stays."""
        level = last_step.found(self, state.x.size, answers)
        if level is None:
            return unmoved(state)
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
    def secants(self) -> int:
        """Those that an answer has room for."""
        return min(last_step.SECANTS, self.layout.bits // last_step.BITS)

    def sizes(self, t: int, scalars: tuple[float, ...]) -> FloatArray:
        """alpha_k of all k, from the scalars of a task."""
        if self.step_size != AUTO:
            return self.step_sizes(t)
        stage, level = scalars[len(self.shares) :]
        if stage:
            return decreasing(self.iterations, level)
        return np.full(self.iterations, math.ldexp(1.0, int(last_step.TINY)))

    def gain(self, n: int) -> float:
        """How much of g is in a worker's comparisons."""
        return n / (n + self.iterations)

    def checked(self, worker: int) -> int:
        """The worker, if it has a share."""
        if worker >= len(self.shares):
            raise ValueError(
                f"worker {worker} of des-c with shares of {len(self.shares)} workers; give the "
                "rows of each in shares"
            )
        return worker


def defaults(problem: ProblemSize) -> dict[str, Any]:
    """Equal shares where the rows of the workers are not known."""
    return {"shares": problem.shares or (1,) * problem.workers}
