"""Replay: the weights after any round

A classifier of handwritten threes and eights. The journal holds the answers of 60 rounds; the
weights after 1, 5, 20 and 60 of them are rebuilt from it, without the data.
"""

from pathlib import Path
from typing import Any

from show import show
from sklearn.datasets import load_digits

import desopt

DIGEST = "904786942da0a94c"


def run(journal: Path) -> desopt.Result:
    images, digit = load_digits(return_X_y=True)
    chosen = (digit == 3) | (digit == 8)
    labels = 1.0 - 2.0 * (digit[chosen] == 3)
    return desopt.minimize(
        "lr", None, (images[chosen] / 16.0, labels), workers=5, rounds=60, step_size=0.3,
        batch_size=50, regularization=1e-3, engine="serial", journal=journal,
    )  # fmt: skip


def draw(figure: Any, result: desopt.Result, journal: Path) -> None:
    for axes, t in zip(figure.subplots(1, 4), (1, 5, 20, 60), strict=True):
        x = desopt.replay(journal, round=t)
        axes.imshow(x.reshape(8, 8), cmap="PuOr", vmin=-abs(x).max(), vmax=abs(x).max())
        axes.set(title=f"after {t}", xticks=[], yticks=[])
    figure.suptitle("orange: speaks for a three, purple: for an eight")


if __name__ == "__main__":
    show(run, draw)
