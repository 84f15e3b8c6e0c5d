"""DeComFL: local zeroth-order steps along shared directions, scalars in both directions.

Li, Ying, Liu, Dong and Yang, "Achieving Dimension-Free Communication in Federated Learning via
Zeroth-Order Optimization" (ICLR 2025). In round t a worker does S = K' / P local steps from x_t,
K' = K/2, each with P perturbations u_k ~ N(0, I) that all workers share, on a new minibatch:

    g_ik = (f_i(v + mu u_k) - f_i(v - mu u_k)) / (2 mu)   for the P directions of a local step
    v    = v - alpha (1/P) sum_k g_ik u_k                 then v is reset to x_t

The worker sends its scalars g_ik only. The server averages them over the workers, and everybody
makes the steps with the means: x_{t+1} = x_t - alpha (1/P) sum_k ((1/M) sum_i g_ik) u_k. If P
does not divide K', the last local step has fewer perturbations.

======  =============  ==================================================
symbol  name           meaning
======  =============  ==================================================
alpha   step_size      eta of the reference, constant
K       iterations     function values of a worker per round
P       perturbations  directions per local step
mu      radius         half the distance between the two points
======  =============  ==================================================

The reference's text has forward differences, its code central ones by default; so has this. A
worker's answer is its K' scalars in single precision, as the authors count them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from desopt.contract.payload import Layout
from desopt.contract.streams import SERVER
from desopt.contract.types import Answer, Batches, FloatArray, Task
from desopt.kernels.steps import replay_gaussian
from desopt.methods.base import PointState, TwoPointAlgorithm, directions, unmoved
from desopt.methods.searches import TwoPoint, affordable


@dataclass(frozen=True, kw_only=True)
class DeComFL(TwoPointAlgorithm):
    """The mean of scalars measured along the workers' own paths, on shared directions."""

    name: str = "decomfl"
    perturbations: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.perturbations < 1:
            raise ValueError(f"perturbations must be at least 1, got {self.perturbations!r}")

    def search(self, task: Task, worker: int) -> TwoPoint:
        scale = self.step_sizes()
        return TwoPoint(
            task, worker, directions(self.seed, task.round, SERVER),
            -scale[: affordable(scale.size, task.limit, each=2)], radius=self.radius,
            layout=self.layout, batches=Batches.ITERATION, moving=True, group=self.perturbations,
            box=self.box,
        )  # fmt: skip

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        scalars, count = np.zeros(self.estimates), 0
        for answer in answers:
            scalars += self.layout.decode(answer).float32
            count += 1
        if count == 0:
            return unmoved(state)
        x, stream = state.x.copy(), directions(self.seed, state.round, SERVER)
        replay_gaussian(x, -self.step_sizes() * (scalars / count), *stream.key())
        return PointState(state.round + 1, self.kept(x, state.x))

    @property
    def layout(self) -> Layout:
        return Layout(float32=self.estimates)

    def step_sizes(self) -> FloatArray:
        """alpha / P for every direction, P the number of those in its local step."""
        count, size = self.estimates, self.perturbations
        step = np.arange(count) // size
        return self.step_size / np.minimum(size, count - size * step)
