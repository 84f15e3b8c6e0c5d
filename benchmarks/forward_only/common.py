"""What the parts share: where features are kept, accuracy, sizes, the type of a measurement."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

SCRATCH = Path(os.environ.get("SCRATCH", tempfile.gettempdir())) / "desopt-forward-only"
#: A name and what it measures, called when its turn comes.
Measurement = tuple[str, Callable[[], dict[str, Any]]]

WORKERS, BATCH = 4, 256


def accuracy(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> float:
    with torch.inference_mode():
        return float((model(X).argmax(1) == y).double().mean())


def size_of(model: nn.Module) -> int:
    """Bytes of the weights in float32."""
    return 4 * sum(int(p.numel()) for p in model.parameters())
