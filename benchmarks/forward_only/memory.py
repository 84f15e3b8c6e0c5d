"""Peaks of memory of inference, of desopt.torch and of Adam, for one large MLP."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import Measurement
from torch import nn

import desopt.torch

WIDTH, LAYERS, ROWS = 1536, 6, 64


def wide() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def peak_of(work: Callable[[nn.Module, torch.Tensor, torch.Tensor], Any]) -> int:
    """The most resident bytes while a module is made and worked with, above those before."""
    X, y = torch.randn(ROWS, WIDTH), torch.randint(0, 10, (ROWS,))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest mark
    before = _status("VmRSS")
    work(wide(), X, y)
    return _status("VmHWM") - before


def _status(field: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(text.split(f"{field}:")[1].split()[0])


def infer(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> None:
    with torch.inference_mode():
        nn.functional.cross_entropy(model(X), y)


def adam(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()


def forward_only(**settings: Any) -> Callable[[nn.Module, torch.Tensor, torch.Tensor], None]:
    def work(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> None:
        given = {"rounds": 2, "iterations": 4, "eval_every": 0, "step_size": 1e-3, **settings}
        desopt.torch.train(model, nn.CrossEntropyLoss(), (X, y), batch_size=ROWS, **given)

    return work


MEMORY: dict[str, Callable[[nn.Module, torch.Tensor, torch.Tensor], None]] = {
    "inference": infer,
    "adam": adam,
    "biases, des-mr": forward_only(parameters="*bias"),
    "biases, des": forward_only(parameters="*bias", method="des"),
    "Coordinates(100000), des-mr": forward_only(subspace=desopt.torch.Coordinates(100_000)),
    "Subspace(1000), des": forward_only(subspace=desopt.torch.Subspace(1000), method="des"),
    "all, des-mr": forward_only(),
    "all, des-mr, 51,200 numbers drawn": forward_only(mixture=512, rounds=4, iterations=25),
    "all, des": forward_only(method="des"),
}


def memory(name: str) -> dict[str, Any]:
    allocator = ctypes.CDLL(None)
    allocator.mallopt(-3, 2**16)  # M_MMAP_THRESHOLD: what is freed is given back at once
    tiny = nn.Linear(WIDTH, 10)
    for work in (infer, adam, forward_only(), forward_only(method="des")):
        work(tiny, torch.randn(2, WIDTH), torch.zeros(2, dtype=torch.long))  # loads and compiles
    allocator.malloc_trim(0)
    weights = (WIDTH + 1) * (LAYERS * WIDTH + 10) * 4
    return {"weights": weights, "peak": peak_of(MEMORY[name])}


def part() -> Iterator[Measurement]:
    for name in MEMORY:
        yield f"memory/{name}", partial(memory, name)
