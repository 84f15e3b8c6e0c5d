"""``train``: the settings of ``minimize``, with a module in place of x."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from desopt.contract.scattered import Scattered
from desopt.run.history import Interrupted
from desopt.run.minimize import minimize
from desopt.torch.objective import ModuleObjective, evaluating
from desopt.torch.parameters import Choice, Coordinates, Parameters, Subspace, base_digest, chosen
from desopt.torch.rows import as_examples

if TYPE_CHECKING:
    from desopt.run.result import Result


def train(
    model: Any,
    loss_fn: Callable[..., Any],
    data: Any = None,
    *,
    parameters: Choice = None,
    subspace: Coordinates | Subspace | None = None,
    method: Any = "des-mr",
    rounds: int | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    journal: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Minimise the loss of a PyTorch module by forward passes, and leave the last x in it.

    model, loss_fn
        The module, on the device of your choice. ``loss_fn(model, batch)`` returns the mean over
        the batch, as a number or a tensor of one element; a criterion such as
        ``nn.CrossEntropyLoss()`` is called with ``(model(inputs), targets)``. What is to be
        maximised gets a minus sign.
    data
        Tensors, a data set, a ``DataLoader`` (its data set, ``collate_fn`` and batch size are used;
        batches are drawn by the run's own streams), a list of these with one item per worker,
        ``draw(rng, b)``, or None for ``loss_fn(model)``.
    parameters, subspace
        The parameters to search: those that require a gradient (None), patterns of names such as
        ``"classifier.*"``, ``"*bias"`` or ``"*lora_*"``, or a test ``f(name, parameter)``. Of
        their numbers, all are searched (None), ``Coordinates(d)`` or a ``Subspace(d)``.
    method, rounds, workers, batch_size, journal and all others
        Those of ``desopt.minimize``. The engine is ``"serial"`` unless given, as PyTorch uses the
        cores itself; ``workers`` is 1 unless ``data`` is a list.

    The module is evaluated in ``eval`` mode; its buffers and all other parameters stay as they are.
    ``result.x`` is the change of the numbers searched. After an error the module is as it was
    before the call; after Ctrl-C, as it was after the last whole round.

    >>> import torch
    >>> import desopt.torch
    >>> X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (X[:, 0] > 0).long()
    >>> loss = torch.nn.CrossEntropyLoss()
    >>> model = torch.nn.Linear(3, 2)
    >>> result = desopt.torch.train(model, loss, (X, y), rounds=5, iterations=20, workers=2)
    >>> result.fun < result.initial_fun
    True
    """
    named = chosen(model, parameters)
    examples, rows, size = as_examples(data, batch_size)
    identity = {"base": base_digest(model), "covers": "module"}
    if examples is not None:
        identity |= examples.settings()
    objective = ModuleObjective(
        model, as_loss(loss_fn), [name for name, _ in named], subspace, examples, identity
    )
    settings |= {} if size is None else {"batch_size": size}
    settings = {"engine": "serial", "log_values": False, **settings}
    searched = objective.parameters
    at = start(searched, settings)
    with evaluating(model):
        try:
            result = minimize(
                objective, at, rows, method=method, rounds=rounds, journal=journal,
                workers=1 if workers is None else workers, **settings,
            )  # fmt: skip
            at = result.get("x")  # not as an array
        except Interrupted as stopped:
            at = stopped.result.get("x")
            raise
        finally:
            searched.write(at)
    return result


def start(searched: Parameters, settings: Mapping[str, Any]) -> Any:
    """x0: zeros that take no memory where the run moves few numbers, one worker after the other.

    ``minimize`` makes an array of them for a method that moves all.
    """
    free = all(settings.get(name) is None for name in ("bounds", "scale", "constraints"))
    in_turn = settings["engine"] == "serial" and settings["log_values"] is False
    if searched.sparse and in_turn and free:
        return Scattered(searched.n)
    return np.zeros(searched.n)


def as_loss(loss_fn: Any) -> Callable[..., Any]:
    """loss_fn(model, batch), or a criterion of outputs and targets."""
    if isinstance(loss_fn, torch.nn.Module):
        return _Criterion(loss_fn)
    if not callable(loss_fn):
        raise TypeError(f"loss_fn must be a function of (model, batch), got {loss_fn!r:.80}")
    function: Callable[..., Any] = loss_fn
    return function


class _Criterion:
    """criterion(model(inputs), targets) of a batch (inputs, targets)."""

    def __init__(self, criterion: Any) -> None:
        self.criterion = criterion

    def __call__(self, model: Any, batch: Any) -> Any:
        inputs, targets = batch
        return self.criterion(model(inputs), targets)
