"""The streams' vectors in docs/journal.md: ours, and those of whole numbers as published."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np

from desopt.contract import streams
from desopt.contract.streams import Purpose, Stream

DOCUMENT = (Path(__file__).parents[2] / "docs" / "journal.md").read_text("utf-8")
VECTORS = dict(re.findall(r"```(\w+)\n(.*?)```", DOCUMENT, re.DOTALL))


def philox(
    block: int, round: int, worker: int, purpose: int, iteration: int, seed: int
) -> list[int]:
    """Philox4x32-10 in whole numbers, as published."""
    low = 2**32 - 1
    a, b, c, d = block, round, worker, purpose << 28 | iteration
    k0, k1 = seed & low, seed >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & low, (p >> 32) ^ d ^ k1, p & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return [a | b << 32, c | d << 32]


def test_words_and_integers() -> None:
    words = [w for block in range(3) for w in philox(block, 3, 7, Purpose.BATCH, 11, 2**63 + 5)]
    assert [f"{word:016x}" for word in words[:4]] == VECTORS["words"].split()
    assert [word * 1000 >> 64 for word in words] == list(map(int, VECTORS["integers"].split()))
    stream = Stream(2**63 + 5, 3, 7, 11, Purpose.BATCH)
    assert streams.words(stream, 6).tolist() == words
    assert streams.integers(stream, 6, 1000).tolist() == [word * 1000 >> 64 for word in words]


def test_normals() -> None:
    normals = streams.normals(Stream(2**63 + 5, 3, 7, 11, Purpose.NORMAL), 5)
    found = [struct.pack(">d", number).hex() for number in normals]
    assert found == VECTORS["normals"].split()


def test_mixture() -> None:
    expected = [
        [f"{word * 100 >> 64}{'+' if word & 1 else '-'}" for block in range(2)
         for word in philox(block, 1, 2, Purpose.COORDINATE, k, 5)][:3]
        for k in range(2)
    ]  # fmt: skip
    assert [line.split() for line in VECTORS["mixture"].splitlines()] == expected
    stream = Stream(5, 1, 2, 0, Purpose.COORDINATE)
    index, step = streams.mixture_block(stream, np.array([0.5, 0.25]), 3, 100, gaussian=False)
    signs = np.where(step > 0, "+", "-")
    found = [
        [f"{i}{s}" for i, s in zip(*row, strict=True)] for row in zip(index, signs, strict=True)
    ]
    assert found == expected
    assert np.array_equal(np.abs(step), [[0.5] * 3, [0.25] * 3])
