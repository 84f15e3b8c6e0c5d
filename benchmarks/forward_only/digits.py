"""mnist: an MLP and a CNN by des-mr, des and fed-zo-sgd, and by Adam with gradients."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import BATCH, SCRATCH, WORKERS, Measurement, accuracy, size_of
from torch import nn

import desopt
import desopt.torch
from desopt.data import libsvm

TRAIN, TEST = 10_000, 2_000
FORWARDS = {"mlp": 10_000, "cnn": 5_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "des-mr": {"step_size": "auto", "mixture": 8},
    "des-mr, l = 512": {"method": "des-mr", "step_size": "auto", "mixture": 512},
    "des": {"step_size": "auto"},
    "fed-zo-sgd, 0.03": {"method": "fed-zo-sgd", "step_size": 0.03, "radius": 1e-3},
    "fed-zo-sgd, 0.1": {"method": "fed-zo-sgd", "step_size": 0.1, "radius": 1e-3},
    "des-mr, 1,000 of a subspace": {"method": "des-mr", "step_size": "auto",
                                    "subspace": desopt.torch.Subspace(1000)},
}  # fmt: skip

#: Of the CNN, whose forward passes take four times as long.
CONVOLUTIONS = ("des-mr", "des", "fed-zo-sgd, 0.1")


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 5 * 5, 10),
    )  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "cnn": cnn}


def mnist() -> tuple[torch.Tensor, ...]:
    """X, y of training and of test, cut to a size that this study affords."""
    cached = SCRATCH / "mnist.npz"
    if not cached.exists():
        Z, labels = libsvm.read(desopt.data.catalogue.find("mnist"))
        rows = np.random.default_rng(0).permutation(Z.shape[0])[: TRAIN + TEST]
        X = np.zeros((rows.size, 784), np.float32)
        X[:, : Z.shape[1]] = Z[rows].toarray() / 255
        SCRATCH.mkdir(parents=True, exist_ok=True)
        np.savez(cached, X=X, y=labels[rows].astype(np.int64))
    data = np.load(cached)
    X, y = torch.from_numpy(data["X"]), torch.from_numpy(data["y"])
    return X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:]


def by_forwards(name: str, method: str) -> dict[str, Any]:
    """A run of a method; accuracy on test rows by forward passes."""
    X, y, X_test, y_test = mnist()
    settings = {"method": method, **SETTINGS[method]}
    model, iterations = MODELS[name](), 50
    curve: list[tuple[int, float]] = [(0, accuracy(model, X_test, y_test))]
    rounds = FORWARDS[name] // (WORKERS * (iterations + 1))
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "run.journal"
        began = time.process_time()

        def watch(intermediate_result: Any) -> None:
            if intermediate_result.nit % 5 == 0:
                at.write(intermediate_result.x)
                curve.append((intermediate_result.nfev, accuracy(model, X_test, y_test)))

        named = list(model.named_parameters())
        at = desopt.torch.parameters.Parameters(named, settings.get("subspace"))
        result = desopt.torch.train(
            model, nn.CrossEntropyLoss(), (X, y), workers=WORKERS, rounds=rounds, eval_every=0,
            iterations=iterations, batch_size=BATCH, journal=journal, callbacks=watch, **settings,
        )  # fmt: skip
        size = journal.stat().st_size
    row = result.history[-1]
    curve.append((result.nfev, accuracy(model, X_test, y_test)))
    return {
        "parameters": sum(p.numel() for p in model.parameters()), "searched": result.x.size,
        "forwards": result.nfev, "accuracy": curve[-1][1], "curve": curve, "journal": size,
        "bytes_up": row["bytes_up"], "weights": size_of(model),
        "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def by_adam(name: str) -> dict[str, Any]:
    """Adam with backpropagation for eight epochs; a backward pass counts as two forward passes."""
    X, y, X_test, y_test = mnist()
    model = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rng = np.random.default_rng(0)
    began, curve = time.process_time(), [(0, accuracy(model, X_test, y_test))]
    steps = 2 * TRAIN // BATCH * 4
    for step in range(1, steps + 1):
        rows = torch.from_numpy(rng.integers(0, TRAIN, BATCH))
        loss = nn.functional.cross_entropy(model(X[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 0 or step == steps:
            curve.append((3 * step, accuracy(model, X_test, y_test)))
    return {
        "parameters": sum(p.numel() for p in model.parameters()), "forwards": 3 * steps,
        "accuracy": curve[-1][1], "curve": curve, "cpu_seconds": time.process_time() - began,
        "weights": size_of(model),
    }  # fmt: skip


def part() -> Iterator[Measurement]:
    try:
        mnist()
    except (OSError, ValueError) as error:
        print(f"mnist is left out: {error}", file=sys.stderr)
        return
    for name in MODELS:
        yield f"mnist/{name}/adam", partial(by_adam, name)
        for method in SETTINGS if name == "mlp" else CONVOLUTIONS:
            yield f"mnist/{name}/{method}", partial(by_forwards, name, method)
