"""Train a PyTorch module on its error rate, which has no gradient, and keep it in kilobytes.

Needs PyTorch: pip install '.[torch]' in a clone.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import desopt.torch

torch.manual_seed(0)
X = torch.randn(1000, 2)
y = (X[:, 0] * X[:, 1] > 0).long()  # two classes in four quadrants: no line separates them


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))


def error_rate(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    inputs, labels = batch
    return float((model(inputs).argmax(1) != labels).double().mean())


model = network()
with tempfile.TemporaryDirectory() as folder:
    journal, tuned = Path(folder) / "run.journal", Path(folder) / "tuned.des"
    result = desopt.torch.train(
        model, error_rate, (X, y), rounds=30, iterations=50, step_size=0.3, journal=journal
    )
    print(
        f"error rate {result.initial_fun:.3f} -> {result.fun:.3f} in {result.nfev} forward passes"
    )

    desopt.torch.save(tuned, journal)
    again = desopt.torch.load(network(), tuned)  # from the same weights, on any device
    same = all(map(torch.equal, model.parameters(), again.parameters()))
    print(f"rebuilt from {tuned.stat().st_size} bytes, bit for bit: {same}")
