"""``DES``: rounds of a method as steps of an optimiser, for training loops of your own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from desopt.contract.errors import check_name
from desopt.contract.scattered import Scattered
from desopt.contract.streams import MAX_ROUNDS
from desopt.contract.types import FloatArray
from desopt.data import Batch
from desopt.run import options
from desopt.run.loop import Rounds
from desopt.run.minimize import job_of
from desopt.run.observers.evaluation import Evaluation
from desopt.run.session import Session
from desopt.torch.objective import ModuleFunction, number_of
from desopt.torch.parameters import Coordinates, Parameters, Subspace, digest_of
from desopt.torch.train import start

#: Settings of ``minimize`` that a step does not use, and what they are for it if not the default.
_UNUSED = (*options.CALLED, "workers", "batch_size", "participation", "ahead", "progress", "target")
_FIXED = {"progress": False, "workers": 1, "engine": "serial", "eval_every": 0}

_BY_STEPS: Any = SimpleNamespace(name="steps", quick=True)


class DES:
    """An optimiser whose ``step(closure)`` is a round of one worker: forward passes only.

    ::

        optimizer = desopt.torch.DES(model.named_parameters(), step_size=0.01, iterations=50)
        for batch in loader:
            loss = optimizer.step(lambda: loss_fn(model, batch))

    The closure returns the loss of the module as it is, always on the same batch within a step; it
    is called up to K + 1 times (K: ``iterations``) under ``inference_mode``. Put the module in
    ``eval`` mode first: a dropout or a batch norm that changes between two calls is noise in their
    comparison. Settings are those of ``desopt.minimize`` for the method; with ``journal``, the same
    call on the same base goes on where the last one ended. Parameters that do not require a
    gradient are left out.

    >>> import torch
    >>> import desopt.torch
    >>> X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (X[:, 0] > 0).long()
    >>> loss = torch.nn.CrossEntropyLoss()
    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = desopt.torch.DES(model.named_parameters(), step_size=0.3, iterations=20)
    >>> first = optimizer.step(lambda: loss(model(X), y))
    >>> optimizer.step(lambda: loss(model(X), y)) < first
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        subspace: Coordinates | Subspace | None = None,
        method: Any = "des-mr",
        journal: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        named = [(name, parameter) for name, parameter in _named(params) if parameter.requires_grad]
        if not named:
            raise ValueError("params has no parameter that requires a gradient")
        self._parameters = Parameters(named, subspace)
        self._objective = _Closure(self._parameters, digest_of(named))
        _refuse_unused(settings)
        known = {"rounds": MAX_ROUNDS - 1, **settings, **_FIXED}
        given = options.checked("minimize", {**known, "method": method, "journal": journal})
        x0 = start(self._parameters, {**vars(given), "log_values": False})
        self._job, at = job_of(self._objective, x0, None, given)
        self._session, self._closed = Session(self._job, at, given, plain=True), False
        try:
            evaluation = Evaluation(_BY_STEPS, (), given.rounds, 0, True)
            stopping, observers = self._session.observers(evaluation)
            self._rounds = Rounds(
                self._job, given.rounds, self._session.record, observers, stopping.limit
            )
            self._rounds.begin()
        except BaseException:
            self.close()
            raise
        self._write()

    def step(self, closure: Callable[[], Any]) -> float:
        """One round. Returns the loss before it, NaN where the method does not need that."""
        if not callable(closure):
            raise TypeError(
                f"closure must be a function that returns the loss, got {closure!r:.80}"
            )
        if self._closed and self._session.journals:
            raise ValueError("the journal is closed; make the optimiser again to go on with it")
        task = self._rounds.task()
        if task is None:
            raise ValueError("the run has ended; see its settings rounds and max_evaluations")
        self._objective.closure, self._objective.first = closure, float("nan")
        try:
            answer = self._job.work(task, 0)
            self._rounds.finish(self._rounds.merge(task, [answer]))
        finally:
            self._objective.closure = None
            self._write()
        return self._objective.first

    def zero_grad(self, set_to_none: bool = True) -> None:
        """There are no gradients."""

    @property
    def rounds(self) -> int:
        """Steps taken so far."""
        return int(self._rounds.state.round)

    @property
    def x(self) -> FloatArray:
        """The change of the parameters so far."""
        return np.array(self._changes())

    def state_dict(self) -> dict[str, Any]:
        """Settings, base and state, for ``torch.save``; a journal needs none."""
        state, space = self._rounds.state, self._job.space
        return {
            "method": self._job.algorithm.settings(),
            "base": self._objective.base,
            "subspace": self._parameters.settings()["subspace"],
            "space": None if space is None else space.settings(),
            "evaluations": self._rounds.evaluations,
            "state": {name: _as_tensor(value) for name, value in _fields(state).items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict`` of the same settings and base."""
        mine = self.state_dict()
        if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
            raise TypeError(f"state must be a state_dict() of desopt.torch.DES, got {state!r:.80}")
        for name in ("method", "base", "subspace", "space"):
            theirs, ours = state.get(name), mine[name]
            if theirs != ours:
                raise ValueError(
                    f"state_dict: {name} is {theirs!r:.200}, here it is {ours!r:.200}; "
                    "make the optimiser with the same settings, on the module that it started from"
                )
        if set(state["state"]) != set(mine["state"]):
            raise ValueError(
                f"state_dict: state has {', '.join(state['state'])}; it must have "
                f"{', '.join(mine['state'])}"
            )
        if self._session.journals:
            raise ValueError(
                "with a journal, the state is the journal's; leave load_state_dict out"
            )
        now = self._rounds.state
        found = {name: _as_array(state["state"][name]) for name in _fields(now)}
        values = {
            name: Scattered.of([found[name]]) if isinstance(value, Scattered) else found[name]
            for name, value in _fields(now).items()
        }
        # saved before these were counted: none
        self._rounds.go_on_from(type(now)(**values), state.get("evaluations", 0))
        self._write()

    def close(self) -> None:
        """Close the journal."""
        self._closed = True
        self._session.close()

    def _changes(self) -> Any:
        """x in the variables of the parameters: with bounds, those of the search are others."""
        x, space = self._rounds.state.x, self._job.space
        return x if space is None else space.decode(x)

    def _write(self) -> None:
        self._parameters.write(self._changes())


def _named(params: Any) -> list[tuple[str, Any]]:
    """Parameters with their names; a number where they come without."""
    several = isinstance(params, Iterable) and not isinstance(params, torch.Tensor)
    named = [
        item if isinstance(item, tuple) else (str(number), item)
        for number, item in enumerate(params if several else ())
    ]
    if not several or not all(isinstance(parameter, torch.Tensor) for _, parameter in named):
        raise TypeError(
            "params must be model.named_parameters() or other tensors, each alone or as (name, "
            f"tensor), got {params!r:.80}; groups with settings of their own are not supported"
        )
    return named


def _as_tensor(value: Any) -> Any:
    """An array as a tensor, which ``torch.load`` reads without unpickling other types."""
    arrays = isinstance(value, np.ndarray | Scattered)
    return torch.tensor(np.asarray(value)) if arrays else value


def _as_array(value: Any) -> Any:
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value


def _refuse_unused(settings: Mapping[str, Any]) -> None:
    """Refuse settings that do not exist, and those that would have no effect."""
    known = options.options_of("minimize")
    used = [name for name in known if name not in _UNUSED]
    for name, value in settings.items():
        if name not in known:
            check_name("setting", name, used)
        if name in _UNUSED and value not in (known[name].default, _FIXED.get(name)):
            raise ValueError(
                f"{name}={value!r:.80} has no effect on steps, each a round of one worker on the "
                f"batch of its closure; leave it out. There are {', '.join(used)}"
            )


def _fields(state: Any) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state)}


class _Closure:
    """The objective of a step: whatever its closure returns."""

    compiled = False

    def __init__(self, parameters: Parameters, base: str) -> None:
        self.parameters, self.base = parameters, base
        self.closure: Callable[[], Any] | None = None
        self.first = float("nan")

    def settings(self) -> dict[str, Any]:
        return {
            "name": "torch", "base": self.base, "covers": "parameters",
            **self.parameters.settings(),
        }  # fmt: skip

    def prepare(self, shards: Any, *, some: bool = False) -> Any:
        return shards

    def dimension(self, shards: Any) -> int | None:
        return None

    def bind(self, batch: Batch, x: FloatArray) -> ModuleFunction:
        def value(model: None) -> Any:
            assert self.closure is not None
            found = number_of(self.closure())
            if self.first != self.first:
                self.first = found
            return found

        return ModuleFunction(None, self.parameters, value, batch, None)
