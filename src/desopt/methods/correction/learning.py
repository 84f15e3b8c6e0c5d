"""The estimates of ``des-c`` on the server's side, and on that of everybody who follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from desopt.contract.types import Answer, FloatArray
from desopt.kernels import correction as kernels
from desopt.methods.correction.states import DESCState, Table
from desopt.methods.proposals import MixtureProposals
from desopt.methods.samplers import Key
from desopt.methods.step_size import AUTO

if TYPE_CHECKING:
    from desopt.methods.des_c import DESC

_LEAST_WEIGHT = 0.1  # of a coordinate in the filter, in units of the mean estimate
_RATE = 0.5  # of the filter, for n >= K
_AT_ONCE = 64  # answers to learn from in one call
_LINE = 8  # numbers in a line of the cache, where each line of a table begins


class Learning:
    """The estimates while they learn from the answers of a round."""

    def __init__(self, method: DESC, state: DESCState) -> None:
        self._method, self._round, self._n = method, state.round, state.x.size
        self._old = state.memory.reshape(-1, self._n)
        self._new = np.empty_like(self._old)
        self._spread = state.spread
        self.answered = state.answered.copy()
        self.alpha = method.sizes(state.round, method.scalars(state))
        self._rate = _RATE * min(1.0, self._n / method.iterations)
        self._table, self._finite = table_of(state), False
        # the weights of a coordinate are fixed for the round: what was large moves more
        self._weights = kernels.weights_of(
            *self._table, _LEAST_WEIGHT, self.alpha[0],
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
        lines, means = self._table
        known = self.answered > 0.0  # the best guess of a worker that never answered is the mean
        kernels.centre(self._old, self._new, lines, learnt, known, share, length, means)
        if not np.isfinite(length).all():
            return self._old.ravel(), self._spread
        self._finite = True
        return self._new.ravel(), np.where(known, length[2:], 0.0)

    def leave(self, state: DESCState) -> DESCState:
        """The state after the round, with the table of its estimates for the next merge."""
        if self._finite:
            state.table.append(self._table)
        return state

    def _learn(self, answers: list[Answer]) -> None:
        method, n, alpha = self._method, self._n, self.alpha
        workers = np.array([method.checked(answer.worker) for answer in answers], np.int64)
        content, nibbles = method.layout.packed(answers), method.correction == "full"
        scales, expected = content.float32[:, 0].astype(np.float64), method.expected_parts(n)
        steps = method.sampler.proposals(alpha, Key(method.seed, self._round, 0), n)
        if isinstance(steps, MixtureProposals):  # all in one call
            c1, _, c3, k0, k1 = steps.stream.key()
            kernels.learn_mixtures(
                self._table.lines, self._weights, self._old, self._new, *expected, steps.scale,
                steps.l, steps.gaussian or None, alpha, content.bits, nibbles, scales, workers,
                self._rate, c1, c3, k0, k1,
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
                self._table.lines, self._weights, old, delta, *method.expected_parts(n), index,
                step, alpha[part], slopes[part], self._rate,
            )  # fmt: skip


def table_of(state: DESCState) -> Table:
    """What another merge has left, and from now on the caller's; else made of the estimates."""
    with suppress(IndexError):
        return state.table.pop()
    n = state.x.size
    room = np.empty((n + 1) * _LINE)
    first = -(room.ctypes.data // room.itemsize) % _LINE
    table = Table(room[first : first + n * _LINE].reshape(n, _LINE), np.empty(3))
    kernels.side_by_side(state.memory.reshape(-1, n), *table)
    return table
