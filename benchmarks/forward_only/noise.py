"""How often float32 gets the sign of a step of eight coordinates wrong, by the size of a module."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from common import Measurement
from torch import nn

import desopt.torch


def noise(width: int, factor: float, steps: int, l: int = 8) -> dict[str, Any]:
    """Steps of l coordinates by a part of a typical weight: effect on a loss, error in float32."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    X, y = torch.randn(16, width), torch.randint(0, 10, (16,))
    single = desopt.torch.parameters.Parameters(list(model.named_parameters()))
    double = copy.deepcopy(model).double()
    exact = desopt.torch.parameters.Parameters(list(double.named_parameters()))
    size = factor * float(torch.cat([p.detach().view(-1)[:1000] for p in model.parameters()]).std())
    rng = np.random.default_rng(0)

    def losses(index: Any, change: Any) -> tuple[float, float]:
        single.write_at(index, change)
        exact.write_at(index, change)
        with torch.inference_mode():
            return (
                float(nn.functional.cross_entropy(model(X), y)),
                float(nn.functional.cross_entropy(double(X.double()), y)),
            )

    none = np.arange(l), np.zeros(l)
    at = losses(*none)
    effects, errors, wrong = [], [], 0
    for _ in range(steps):
        index = np.unique(rng.integers(0, single.n, l))
        change = rng.choice([-size, size], index.size)
        found = losses(index, change)
        effects.append(abs(found[1] - at[1]))
        errors.append(abs((found[0] - at[0]) - (found[1] - at[1])))
        wrong += (found[0] <= at[0]) != (found[1] <= at[1])
        single.write_at(index, np.zeros(index.size))
        exact.write_at(index, np.zeros(index.size))
    return {
        "n": single.n, "step": size, "effect": float(np.median(effects)),
        "error": float(np.median(errors)), "wrong": wrong / steps, "steps": steps,
    }  # fmt: skip


def part() -> Iterator[Measurement]:
    for width, steps in ((50, 40), (160, 40), (500, 40), (1600, 40), (5000, 12)):
        for factor in (1.0, 0.1):
            yield f"noise/{width}, {factor:g}", partial(noise, width, factor, steps)
