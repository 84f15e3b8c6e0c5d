"""The parser of LIBSVM text against scikit-learn's, on one core.

It reads the available files of the LIBSVM data page, unpacked beforehand (``desopt data list`` says
where they are searched for), and generated text. Times are CPU times, which other processes disturb
less; the fastest of three turns counts. The last column is the time to open the same set from the
cache.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from desopt import data
from desopt.data import libsvm
from desopt.data.twins import sparse_twin

SETS = ("a9a", "mushrooms", "ijcnn1", "covtype", "news20", "mnist")
WANTED_SPEED, WANTED_RATIO = 50.0, 2.0


def seconds(action: Callable[[], object], turns: int = 3) -> float:
    """The fastest turn, the least disturbed one."""
    times = []
    for _ in range(turns):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return min(times)


def texts(sources: dict[str, Path], folder: Path) -> Iterator[Path]:
    """These data sets and a generated one as plain text files in ``folder``."""
    for name, path in sources.items():
        plain = folder / name
        with libsvm.opened(path) as stream, plain.open("wb") as file:
            while piece := stream.read(1 << 20):
                file.write(piece)
        yield plain
    generated = folder / "generated"
    X, y = sparse_twin(20_000, 20_000, 50.0)
    dump_svmlight_file(X, y, str(generated), zero_based=False)  # 16 digits: beyond exact products
    yield generated


def main() -> None:
    print(f"{'file':>12} {'MB':>7} {'desopt MB/s':>12} {'sklearn MB/s':>13} {'ratio':>6}"
          f" {'from cache ms':>14}")  # fmt: skip
    available = data.available()
    sources = {name: data.find(name) for name in SETS if name in available}
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["DESOPT_CACHE"] = temporary + "/cache"
        for path in texts(sources, Path(temporary)):
            size = path.stat().st_size / 1e6
            X, _ = libsvm.read(path)  # compiles
            theirs, _ = load_svmlight_file(str(path))
            assert np.array_equal(X.data, theirs.data), "the two disagree"
            mine = size / seconds(partial(libsvm.read, path))
            other = size / seconds(partial(load_svmlight_file, str(path)))
            load = partial(data.load, path, positive=1)
            load()
            print(f"{path.name:>12} {size:7.1f} {mine:12.0f} {other:13.0f} {mine / other:6.1f}"
                  f" {seconds(load, 9) * 1e3:14.2f}")  # fmt: skip
            path.unlink()
    print(f"wanted: {WANTED_SPEED:.0f} MB/s and a ratio of {WANTED_RATIO:.0f} at least")


if __name__ == "__main__":
    main()
