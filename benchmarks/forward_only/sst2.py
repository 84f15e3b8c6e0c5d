"""SST-2 as tensors: what the frozen encoder makes of its sentences, computed once."""

from __future__ import annotations

import lzma
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import SCRATCH
from torch import nn

SHOTS, MORE = 16, 2_000

#: Features of length 1 have entries of about 0.05: the head sees them at the size of 1.
SCALE = 384**0.5

#: Training sentences of ``full``: 67,349, or fewer where there is no time for that.
ALL = int(os.environ.get("SENTENCES", "67349"))

#: Tokens of a sentence at most, and sentences of a part of the features of all.
WIDTH, PART = 48, 4096


def folder_of(variable: str, file: str) -> Path:
    """The folder that an environment variable names, if it has the file."""
    folder = Path(os.environ.get(variable, ""))
    if variable not in os.environ or not (folder / file).exists():
        raise FileNotFoundError(f"{variable} must be a folder with {file}")
    return folder


def sentences(file: str) -> tuple[list[str], np.ndarray[Any, Any]]:
    with lzma.open(folder_of("SST2", file) / file, "rt", encoding="utf-8") as stream:
        lines = [line.rstrip("\n").rsplit("\t", 1) for line in stream][1:]
    return [text for text, _ in lines], np.array([int(label) for _, label in lines])


class Tuned(nn.Module):  # type: ignore[misc]
    """The last layer of the encoder, on the states below it, with mean pooling and a head."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, flat_head()

    def pooled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(states, torch.where(mask, 0.0, -1e9)[:, None, None, :])
        return pooled(hidden[0] if isinstance(hidden, tuple) else hidden, mask)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(SCALE * self.pooled(states, mask))


def pooled(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean over a sentence's tokens, of length 1."""
    mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    return nn.functional.normalize(mean)


def flat_head() -> nn.Module:
    """A linear head of zeros."""
    head = nn.Linear(384, 2)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def encoder() -> Any:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder_of("MINILM", "config.json"))
    return model.eval()


def last_layer() -> Tuned:
    torch.manual_seed(0)
    model = Tuned(encoder().encoder.layer[-1])
    model.eval()
    return model


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(folder_of("MINILM", "config.json"))
    return lambda texts: made(
        texts, padding=True, truncation=True, max_length=WIDTH, return_tensors="pt"
    )


@cache
def states(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States below the last layer, masks and labels of sentences.

    ``dev``: the development set; ``more``: MORE of the training set; a seed: SHOTS of each label.
    """
    cached = SCRATCH / f"minilm-{name}.npz"
    if not cached.exists():
        texts, labels = sentences("dev.tsv.xz" if name == "dev" else "train.tsv.xz")
        seed = int(name) if name.isdigit() else 0
        rng = np.random.default_rng(seed)
        order = np.arange(len(texts)) if name == "dev" else rng.permutation(len(texts))[:MORE]
        if name.isdigit():
            order = np.concatenate([order[labels[order] == label][:SHOTS] for label in (0, 1)])
        tokenize, model = _tokenizer(), encoder()
        kept, masks = [], []
        for begin in range(0, len(order), 32):
            tokens = tokenize([texts[i] for i in order[begin : begin + 32]])
            with torch.inference_mode():
                below = model(**tokens, output_hidden_states=True).hidden_states[-2]
            pad = (0, 0, 0, WIDTH - below.shape[1])
            kept.append(nn.functional.pad(below, pad).half().numpy())
            masks.append(nn.functional.pad(tokens["attention_mask"], pad[2:]).bool().numpy())
        SCRATCH.mkdir(parents=True, exist_ok=True)
        np.savez(cached, states=np.concatenate(kept), mask=np.concatenate(masks), y=labels[order])
    data = np.load(cached)
    return (
        torch.from_numpy(data["states"]).float(),
        torch.from_numpy(data["mask"]),
        torch.from_numpy(data["y"]),
    )


@cache
def features(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The frozen features, and labels; ``full``: of all training sentences."""
    if name == "full":
        return _all_features()
    Z, mask, y = states(name)
    model, parts = last_layer(), range(0, len(y), 64)
    with torch.inference_mode():
        found = [cut(model.pooled, Z[i : i + 64], mask[i : i + 64]) for i in parts]
    return SCALE * torch.cat(found), y


def _all_features() -> tuple[torch.Tensor, torch.Tensor]:
    """In parts, each kept when it is done: they take ten minutes of a core."""
    texts, labels = sentences("train.tsv.xz")
    order = np.random.default_rng(0).permutation(len(texts))[:ALL]
    parts = [sorted(order[i : i + PART], key=lambda i: len(texts[i]))  # little padding
             for i in range(0, len(order), PART)]  # fmt: skip
    found = []
    tokenize, model = None, None
    for number, part in enumerate(parts):
        cached = SCRATCH / f"minilm-full-{number}.npy"
        if not cached.exists():
            tokenize, model = tokenize or _tokenizer(), model or encoder()
            rows = []
            for begin in range(0, len(part), 64):
                tokens = tokenize([texts[i] for i in part[begin : begin + 64]])
                with torch.inference_mode():
                    hidden = model(**tokens).last_hidden_state
                    rows.append(pooled(hidden, tokens["attention_mask"].bool()).numpy())
            SCRATCH.mkdir(parents=True, exist_ok=True)
            np.save(cached.with_suffix(".new.npy"), np.concatenate(rows))
            cached.with_suffix(".new.npy").replace(cached)
        found.append(torch.from_numpy(np.load(cached)))
    return SCALE * torch.cat(found), torch.from_numpy(labels[np.concatenate(parts)])


def cut(function: Any, Z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The function without the padding that no sentence of the batch needs."""
    width = int(mask.sum(1).max())
    found: torch.Tensor = function(Z[:, :width], mask[:, :width])
    return found


def loss(model: Any, batch: Any) -> torch.Tensor:
    Z, mask, y = batch
    return nn.functional.cross_entropy(cut(model, Z, mask), y)


def right(model: Any, name: str) -> float:
    """The accuracy on these sentences."""
    Z, mask, y = states(name)
    with torch.inference_mode():
        found = [cut(model, Z[i : i + 64], mask[i : i + 64]) for i in range(0, len(y), 64)]
    return float((torch.cat(found).argmax(1) == y).double().mean())
