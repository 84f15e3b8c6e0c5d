"""The parser of LIBSVM text against scikit-learn's, on one core.

It reads the real files in ``DESOPT_DATA``, or in the folder of the tests, unpacked beforehand, and
generated text. Times are CPU times, which other processes disturb less; the fastest of three turns
counts. The last column is the time to open the same set from the cache.
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
DATA = Path(__file__).parents[2] / "shared" / "data" / "libsvm"
WANTED_SPEED, WANTED_RATIO = 50.0, 2.0


def seconds(action: Callable[[], object], turns: int = 3) -> float:
    """The fastest turn, the least disturbed one."""
    times = []
    for _ in range(turns):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return min(times)


def texts(folder: Path) -> Iterator[Path]:
    """The available data sets as plain text files in ``folder``."""
    data_dir = Path(os.environ.get("DESOPT_DATA", DATA))
    here = data.available(data_dir)
    for name in filter(here.__contains__, SETS):
        plain = folder / name
        with libsvm.opened(data.find(name, data_dir)) as stream, plain.open("wb") as file:
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
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["DESOPT_CACHE"] = temporary + "/cache"
        for path in texts(Path(temporary)):
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
