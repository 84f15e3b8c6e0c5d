"""A module and a loss as an objective: x is written into the module, a forward pass is a value.

Values are computed under ``inference_mode`` with the module in ``eval``: dropout is off, and
buffers such as the statistics of a batch norm stay as they are.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from math import inf, isfinite, nan, prod
from typing import Any

import numpy as np
import torch

from desopt.contract.errors import Failed, ObjectiveError, failure, user_code
from desopt.contract.types import Batches, FloatArray, LocalSearch
from desopt.data import Batch, Shard
from desopt.kernels.philox import fill_normal_blocks
from desopt.methods.proposals import GaussianProposals, MixtureProposals
from desopt.methods.searches import OnePlusOne, TwoParts
from desopt.objectives.functions import as_number
from desopt.objectives.local import drive
from desopt.torch.parameters import Coordinates, Parameters, Subspace
from desopt.torch.rows import Examples, moved, mutable, versions

_LARGEST = sys.float_info.max


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The module in ``eval``; afterwards every part is in the mode that it was in."""
    training = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in training:
            part.training = mode


@contextmanager
def _counting() -> Iterator[None]:
    """Tensors made here count what is written into them, unlike those of ``inference_mode``."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def number_of(value: Any) -> float:
    """The value of a loss: a number, or a tensor or an array of one element."""
    if isinstance(value, torch.Tensor | np.ndarray) and prod(value.shape) == 1:
        value = value.item()
    return as_number(value)


class ModuleObjective:
    """``loss_fn(model, batch)``, the mean over the batch; ``loss_fn(model)`` where there are none.

    The thread that made it works on the module itself, others on copies of their own; so does
    every process.
    """

    compiled = False

    def __init__(
        self,
        model: Any,
        fun: Callable[..., Any],
        names: Sequence[str],
        subspace: Coordinates | Subspace | None,
        examples: Examples | None,
        identity: dict[str, Any],
    ) -> None:
        self.model, self.fun, self.examples = model, fun, examples
        self.parameters = _parameters(model, names, subspace)
        self.identity = identity
        self._made = threading.local()
        self._made.worker = model, self.parameters

    def __getstate__(self) -> dict[str, Any]:
        self.parameters.restore()  # a process starts from the base
        return {
            "model": self.model, "fun": self.fun, "names": self.parameters.names,
            "subspace": self.parameters.subspace, "examples": self.examples,
            "identity": self.identity,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def settings(self) -> dict[str, Any]:
        return {"name": "torch", **self.identity, **self.parameters.settings()}

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        return shards

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        return None

    def bind(self, batch: Batch, x: FloatArray) -> ModuleFunction:
        return ModuleFunction(*self._own(), self.fun, batch, self.examples)

    def _own(self) -> tuple[Any, Parameters]:
        """This thread's module. A copy may be made in the midst of another's step, which matters
        not: what is searched is written before every search, and the rest never changes."""
        if not hasattr(self._made, "worker"):
            model = copy.deepcopy(self.model)
            mine = _parameters(
                model, self.parameters.names, self.parameters.subspace, self.parameters
            )
            self._made.worker = model, mine
        worker: tuple[Any, Parameters] = self._made.worker
        return worker


def _parameters(
    model: Any, names: Sequence[str], subspace: Any, like: Parameters | None = None
) -> Parameters:
    known = dict(model.named_parameters())
    return Parameters([(name, known[name]) for name in names], subspace, like)


class ModuleFunction:
    """The loss on one minibatch, on a new one per iteration, or on all examples.

    A batch as large as a worker's data is all of them, once each. All examples are taken in
    batches; the value is the mean of theirs, weighted by their sizes.
    """

    def __init__(
        self, model: Any, parameters: Parameters, fun: Callable[..., Any], batch: Batch,
        examples: Examples | None,
    ) -> None:  # fmt: skip
        self._model, self.parameters, self._fun = model, parameters, fun
        size = batch.shard.size
        if size is not None and batch.size >= size:
            batch = batch._replace(batches=Batches.ALL, size=size)
        self.rows = batch.rows
        self._batch, self._examples = batch, examples
        self._kept: tuple[int, list[int], tuple[tuple[Any, ...], int]] | None = None  # one batch

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        self.parameters.write(x)
        return self.here(iteration)

    def here(self, iteration: int = 0) -> float:
        """The value of the module as it is."""
        try:
            with torch.inference_mode():
                values = [
                    (number_of(self._fun(self._model, *batch)), rows)
                    for batch, rows in self._batches(iteration)
                ]
        except (Failed, ObjectiveError):
            raise
        except Exception as error:
            raise failure("loss_fn", error) from error
        if len(values) == 1:
            return values[0][0]
        total = 0.0
        for value, rows in values:
            total += value * rows
        return total / self.rows

    def run(self, search: LocalSearch) -> None:
        """Bring a search to its end: step by step in the module, where its steps are known."""
        if isinstance(search, TwoParts):
            while (part := search.part) is not None:
                self.run(part)
                search.proceed()
        elif not self._in_place(search):
            drive(search, self.value)

    def _batches(self, iteration: int) -> Iterator[tuple[tuple[Any, ...], int]]:
        """The batches of a value and their sizes: one for a whole round, or many, one at a time."""
        if not self._keeps(iteration):
            with _counting():
                drawn = self._batch.at(iteration).arguments()
            if self._examples is not None and len(drawn[0]) > self._batch.size:
                for begin in range(0, len(drawn[0]), self._batch.size):
                    yield self._made((drawn[0][begin : begin + self._batch.size],))
                return
            made = self._made(drawn)
            self._kept = iteration, versions(made[0]), made
        assert self._kept is not None
        batch, rows = self._kept[2]
        yield tuple(copy.copy(item) if mutable(item) else item for item in batch), rows

    def _keeps(self, iteration: int) -> bool:
        """Whether the batch of this iteration is there, and the loss has not written into it."""
        if self._kept is None or self._kept[0] != iteration:
            return False
        return versions(self._kept[2][0]) == self._kept[1]

    def _made(self, drawn: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
        """What was drawn as arguments of the loss, on the module's device."""
        rows = self.rows
        with _counting():
            if self._examples is not None:
                rows = len(drawn[0])
                with user_code("data"):
                    drawn = (self._examples.take(drawn[0]),)
            return tuple(moved(item, self.parameters.device) for item in drawn), rows

    # --- searches in the module itself: True, or False where points must be given --------------

    def _in_place(self, search: Any) -> bool:
        plain = type(search) is OnePlusOne and search.box is None and not search.evaluations
        if not plain or self._batch.fresh:
            return False
        if type(search.proposals) is MixtureProposals and self.parameters.sparse:
            self._mixture(search, search.proposals)
            return True
        if type(search.proposals) is GaussianProposals and self.parameters.subspace is None:
            self._gaussian(search, search.proposals)
            return True
        return False

    def _tried(self) -> float:
        """The value of the module as it is, NaN where there is none."""
        try:
            return self.here()
        except Failed:
            return nan

    def _mixture(self, search: OnePlusOne, proposals: MixtureProposals) -> None:
        """Of v, only the numbers that differ from x are kept, and l of the module's are written."""
        x, write = search.x, self.parameters.write_at
        v: dict[int, float] = {}
        self.parameters.write(x)
        best, nans = _start(self._tried())
        accepted = np.zeros(proposals.count - search.first, np.bool_)
        for k, (index, step) in enumerate(islice(proposals.steps(), search.first, None)):
            assert index is not None
            old = {r: v.get(r, at_x) for r, at_x in zip(index.tolist(), x[index], strict=True)}
            trial = old.copy()
            for r, change in zip(index.tolist(), step.tolist(), strict=True):
                trial[r] += change  # drawn twice, it adds up
            where = np.fromiter(trial, np.int64, len(trial))
            write(where, np.fromiter(trial.values(), np.float64, len(trial)))
            value = self._tried()
            nans += not isfinite(value)
            accepted[k] = -inf < value <= best
            if accepted[k]:
                best = value
                v.update(trial)
            else:  # the old values are written again, never the step subtracted
                write(where, np.fromiter(old.values(), np.float64, len(old)))
        columns = np.fromiter(v, np.int64, len(v))
        values = np.fromiter(v.values(), np.float64, len(v))
        search.finish(accepted, nans, moved=(columns, values, values - x[columns]))

    def _gaussian(self, search: OnePlusOne, proposals: GaussianProposals) -> None:
        """v and, chunk by chunk, v + alpha_k u_k: no other vector of n numbers."""
        v = search.x.copy()
        self.parameters.write(v)
        best, nans = _start(self._tried())
        accepted = np.zeros(proposals.count - search.first, np.bool_)
        for k in range(search.first, proposals.count):

            def stepped(k: int = k) -> Iterator[FloatArray]:
                for _, begin, end, first in self.parameters.pieces():
                    u = _normals(first, end - begin, proposals.stream.at(k).key())
                    yield v[first : first + end - begin] + proposals.alpha[k] * u

            self.parameters.write_chunks(stepped())
            value = self._tried()
            nans += not isfinite(value)
            accepted[k - search.first] = -inf < value <= best
            if accepted[k - search.first]:
                best = value
                for (_, begin, end, first), new in zip(
                    self.parameters.pieces(), stepped(), strict=True
                ):
                    v[first : first + end - begin] = new
        search.finish(accepted, nans, point=v)


def _start(value: float) -> tuple[float, int]:
    """What the first step is compared with, and whether f(x) is not finite."""
    return (value, 0) if isfinite(value) else (_LARGEST, 1)


def _normals(first: int, count: int, key: Any) -> FloatArray:
    """The stream's normal numbers from ``first`` on."""
    block, skipped = divmod(first, 4)
    out = np.empty(skipped + count)
    fill_normal_blocks(out, block, *key)
    return out[skipped:]
