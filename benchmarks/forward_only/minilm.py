"""SST-2 by MiniLM: a head on frozen features, then biases, LoRA or a subspace of the last layer."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import sst2
import torch
from common import BATCH, WORKERS, Measurement, accuracy, size_of
from torch import nn

import desopt.torch

SEEDS = 5
#: Of the steps after the head.
ROUNDS, ITERATIONS = 12, 25
CHOICES: dict[str, dict[str, Any]] = {
    "biases": {"parameters": ["layer.*bias", "head.*"]},
    "LoRA": {"parameters": ["*lora_*", "head.*"]},
    "subspace": {"subspace": desopt.torch.Subspace(500)},
}


@cache
def head(
    name: str, method: str, rounds: int, batch_size: int = BATCH
) -> tuple[Any, dict[str, Any]]:
    """A linear head on frozen features: by forward passes, and by logistic regression."""
    from sklearn.linear_model import LogisticRegression

    Z, y = sst2.features(name)
    Z_dev, y_dev = sst2.features("dev")
    baseline = LogisticRegression(max_iter=1000).fit(Z.numpy(), y.numpy())
    model = sst2.flat_head()
    found = run(
        model, nn.CrossEntropyLoss(), (Z, y), method=method, rounds=rounds, iterations=50,
        batch_size=batch_size,
    )  # fmt: skip
    return model, {
        **found,
        "accuracy": accuracy(model, Z_dev, y_dev),
        "baseline": float((baseline.predict(Z_dev.numpy()) == y_dev.numpy()).mean()),
    }


def head_alone(name: str, method: str, rounds: int, batch_size: int = BATCH) -> dict[str, Any]:
    return head(name, method, rounds, batch_size)[1]


def last_layer(name: str) -> Any:
    """The last layer with the head that was found on frozen features."""
    model = sst2.last_layer()
    found, _ = head(name, "des-mr", 100)
    model.head.load_state_dict(found.state_dict())
    return model


def deeper(name: str, choice: str, batch_size: int = BATCH) -> dict[str, Any]:
    """From that head on: some parameters of the last layer, and the head."""
    model = last_layer(name)
    weights = size_of(model)
    if choice == "LoRA":
        from peft import LoraConfig, inject_adapter_in_model

        torch.manual_seed(0)
        adapters = LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"])
        inject_adapter_in_model(adapters, model)
    found = run(
        model.eval(), sst2.loss, sst2.states(name), rounds=ROUNDS, iterations=ITERATIONS,
        batch_size=batch_size, **CHOICES[choice],
    )  # fmt: skip
    _, by_head = head(name, "des-mr", 100)
    return {
        **found, "weights": weights, "accuracy": sst2.right(model, "dev"),
        "head": by_head["accuracy"], "baseline": by_head["baseline"],
    }  # fmt: skip


def run(model: nn.Module, loss: Any, data: Any, **settings: Any) -> dict[str, Any]:
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        journal, kept = Path(folder) / "run.journal", Path(folder) / "tuned.des"
        settings = {"batch_size": BATCH, **settings}
        result = desopt.torch.train(
            model, loss, data, workers=WORKERS, step_size="auto", eval_every=0, journal=journal,
            **settings,
        )  # fmt: skip
        desopt.torch.save(kept, journal)
        size = kept.stat().st_size
    return {
        "searched": result.x.size, "forwards": result.nfev,
        "examples": result.history[-1]["samples"], "saved": size, "weights": size_of(model),
        "bytes_up": result.history[-1]["bytes_up"], "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def there() -> bool:
    """Whether sentences and encoder are."""
    try:
        sst2.folder_of("SST2", "dev.tsv.xz")
        sst2.folder_of("MINILM", "config.json")
    except OSError as error:
        print(f"minilm is left out: {error}", file=sys.stderr)
        return False
    return True


def part() -> Iterator[Measurement]:
    if not there():
        return
    for seed in map(str, range(SEEDS)):
        yield f"minilm/16-shot, head/{seed}", partial(head_alone, seed, "des-mr", 100)
    for choice in CHOICES:
        for seed in map(str, range(SEEDS)):
            yield f"minilm/16-shot, {choice}/{seed}", partial(deeper, seed, choice)
    yield "minilm/2,000, head", partial(head_alone, "more", "des-mr", 100)
    yield "minilm/2,000, biases, batches of 64", partial(deeper, "more", "biases", 64)
    for method, rounds in (("des-mr", 100), ("des", 100), ("des-mr", 400)):
        name = f"minilm/{sst2.ALL:,}, head, {method}, {rounds} rounds"
        yield name, partial(head_alone, "full", method, rounds)
    name = f"minilm/{sst2.ALL:,}, head, des-mr, 400 rounds, batches of 4,096"
    yield name, partial(head_alone, "full", "des-mr", 400, 4096)
