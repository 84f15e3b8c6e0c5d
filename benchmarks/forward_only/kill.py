"""A 16-shot run on biases of the encoder's last layer, ended by kill -9 twice and resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minilm
from common import Measurement

KILLED = """
import os, signal, sys
sys.path.insert(0, {here!r})
import desopt.torch, minilm, sst2, torch
torch.set_num_threads(1)
calls, end = 0, int(sys.argv[2])

def loss(model, batch):
    global calls
    calls += 1
    if calls == end:
        os.kill(os.getpid(), signal.SIGKILL)
    return sst2.loss(model, batch)

model = sst2.last_layer()
result = desopt.torch.train(
    model, loss, sst2.states("0"), workers=minilm.WORKERS, rounds=6, iterations=25, eval_every=0,
    step_size="auto", journal=None if sys.argv[1] == "none" else sys.argv[1],
    **minilm.CHOICES["biases"],
)
print(result.digest, desopt.torch.parameters.base_digest(model))
"""


def killed() -> dict[str, Any]:
    """Killed in the third and in the fourth round, against a run that was left alone."""
    code = KILLED.format(here=str(Path(__file__).parent))

    def run(journal: Path | str, end: int) -> tuple[int, str]:
        call = [sys.executable, "-c", code, str(journal), str(end)]
        done = subprocess.run(call, capture_output=True, text=True)
        return done.returncode, done.stdout.strip()

    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "run.journal"
        codes = [run(journal, end)[0] for end in (250, 150)]  # a round is 104 calls
        resumed = run(journal, 0)
        alone = run("none", 0)
    return {
        "killed": codes == [-signal.SIGKILL] * 2, "resumed": resumed[1], "alone": alone[1],
        "same": resumed == alone and bool(alone[1]),
    }  # fmt: skip


def part() -> Iterator[Measurement]:
    if minilm.there():
        yield "kill/16-shot, biases", killed
