"""Data sets by name or file: their location, labels and scaling."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from desopt.contract import checks, streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import BoolArray, FloatArray, IndexArray
from desopt.data import cache, libsvm, readers, sites
from desopt.data.matrices import Matrix, density, in_suitable_layout, unit_rows
from desopt.data.twins import TWINS, VERSION, generate
from desopt.system.terminal import warn

# Twins with fewer entries are generated in less than a second.
_WORTH_KEEPING = 1 << 22

#: The label that becomes +1: its value, or a function from labels to booleans.
Positive: TypeAlias = float | Callable[[FloatArray], BoolArray]


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows with labels -1.0 and +1.0; ``origin`` describes their source in one line.

    ``sites``: the number of the site that each row comes from, where the set has sites.
    ``columns``: the names of the columns, where the file has them.

    >>> whole = data.load("susy-like", rows=100)
    >>> whole.name, whole.X.shape, whole.generated
    ('susy-like', (100, 18), True)
    """

    name: str
    X: Matrix
    y: FloatArray
    origin: str
    generated: bool = False
    sites: IndexArray | None = None
    columns: tuple[str, ...] | None = None

    @property
    def rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n(self) -> int:
        return int(self.X.shape[1])

    @property
    def density(self) -> float:
        return density(self.X)

    def take(self, picked: IndexArray, note: str) -> DataSet:
        """Some of the rows; ``note`` goes into the origin."""
        origin = f"{self.origin}; {note}"
        sites = None if self.sites is None else self.sites[picked]
        return replace(self, X=self.X[picked], y=self.y[picked], origin=origin, sites=sites)


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set in LIBSVM text: its file, shape, labels and scaling.

    ``page`` is its folder on the LIBSVM page; empty for sets that are not there. ``sites`` are the
    files of a set from several sites (``data.sites``), in the folder ``file``.

    >>> entry = data.CATALOGUE["covtype"]
    >>> entry.rows, entry.n, entry.in_paper
    (581012, 54, True)
    """

    file: str
    rows: int
    n: int
    nonzeros: int
    above: float  # labels above this are +1
    scaling: str = ""
    in_paper: bool = False
    page: str = "binary"
    sites: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The name of the file without its compression suffix."""
        return _stem(self.file)


SCALINGS: dict[str, Callable[[Matrix], Matrix]] = {
    "": lambda X: X,
    "values / 255": lambda X: X / 255.0,
    "rows to unit length": unit_rows,
}

#: The data sets known by name. By its size, the paper's rcv1 is the page's test file.
CATALOGUE = {
    "ijcnn1": CatalogueEntry("ijcnn1.bz2", 49_990, 22, 649_869, 0, in_paper=True),
    "SUSY": CatalogueEntry("SUSY.xz", 5_000_000, 18, 88_938_127, 0.5, in_paper=True),
    "covtype": CatalogueEntry(
        "covtype.libsvm.binary.scale.bz2", 581_012, 54, 6_940_438, 1.5, in_paper=True
    ),
    "mnist": CatalogueEntry(
        "mnist.bz2", 60_000, 780, 8_994_156, 4, "values / 255", True, "multiclass"
    ),
    "real-sim": CatalogueEntry(
        "real-sim.bz2", 72_309, 20_958, 3_709_083, 0, "rows to unit length", True
    ),
    "rcv1": CatalogueEntry(
        "rcv1_test.binary.bz2", 677_399, 47_236, 49_556_258, 0, "rows to unit length", True
    ),
    "news20": CatalogueEntry(
        "news20.bz2", 15_935, 62_061, 1_272_569, 10, "rows to unit length", page="multiclass"
    ),
    "rcv1-subset": CatalogueEntry(
        "rcv1_subset.bz2", 23_749, 47_236, 1_783_774, 0, "rows to unit length", page=""
    ),
    "susy-30k": CatalogueEntry("SUSY_30k.bz2", 30_000, 18, 533_692, 0.5, page=""),
    "a9a": CatalogueEntry("a9a", 32_561, 123, 451_592, 0),
    "mushrooms": CatalogueEntry("mushrooms", 8_124, 112, 170_604, 1.5),
    "heart": CatalogueEntry("heart_scale", 270, 13, 3_378, 0),
    "heart-sites": CatalogueEntry(
        "heart",
        920,
        13,
        10_028,
        0,
        "columns standardised, 0 where missing",
        page="",
        sites=tuple(f"processed.{s}.data" for s in ("cleveland", "hungarian", "switzerland", "va")),
    ),
}


def load(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    rows: int | None = None,
    seed: int = 0,
    positive: Positive | None = None,
    label: str | int | None = None,
) -> DataSet:
    """A data set by name (see ``names``), a generated twin (``susy-like``), or a file by path.

    Files are LIBSVM text, plain or compressed (.bz2, .xz, .gz); .npz with X and y; or .csv with a
    column of labels. ``label`` is the name of y, or the name or number of the column. Files are
    searched for in ``data_dir``, in the folder ``DESOPT_DATA`` and in the user's cache folder.

    ``rows`` selects the first rows of a twin (any number), or a random subset of another set,
    drawn by ``seed``. ``positive`` is the label that becomes +1, or a function that selects labels.
    By default a named set has its own rule, and the larger of two labels is +1.

    >>> whole = data.load("susy-like", rows=100)
    >>> whole.X.shape, sorted(set(whole.y.tolist()))
    ((100, 18), [-1.0, 1.0])
    """
    name = name_or_path if isinstance(name_or_path, str) else os.path.join(os.curdir, name_or_path)
    if name in TWINS:
        return _twin(name, rows, seed)
    known = CATALOGUE.get(name)
    path = find(name, data_dir)
    places = None
    if known is not None and known.sites:
        X, labels, places = sites.read(path, known.sites)
    else:
        X, labels = _parsed(path, known, label)
    if known is not None and (X.shape[0], X.shape[1]) != (known.rows, known.n):
        warn(
            f"{path} holds {X.shape[0]:,} rows of {X.shape[1]:,} numbers, but {name} has "
            f"{known.rows:,} of {known.n:,}; it may be cut short or another file",
            stacklevel=2,
        )
    y, rule = binary_labels(labels, positive, known.above if known else None, str(path))
    done = [path.name, known.scaling if known else "", rule]
    title, origin = name if known else _stem(path.name), "; ".join(filter(None, done))
    columns = readers.csv_columns(path, label) if _stem(path.name).endswith(".csv") else None
    whole = DataSet(title, X, y, origin, sites=places, columns=columns)
    return whole if rows is None else subset(whole, rows, seed)


def find(name: str, data_dir: str | Path | None = None) -> Path:
    """The file of a named set, or a file by its path or by its name in a data folder.

    For a set from several sites: the folder of their files.

    >>> try:
    ...     data.find("no-such-set")
    ... except FileNotFoundError as error:
    ...     print(type(error).__name__)
    FileNotFoundError
    """
    path = lookup(name, data_dir)
    if path is not None:
        return path
    looked = ", ".join(map(str, folders(data_dir)))
    if name in CATALOGUE and CATALOGUE[name].sites:
        wanted = ", ".join(f"{CATALOGUE[name].file}/{file}" for file in CATALOGUE[name].sites)
        raise FileNotFoundError(f"{name} is not here: no {wanted} in {looked}; put them there")
    if name in CATALOGUE:
        twin = f"{name.lower()}-like"
        raise FileNotFoundError(
            f"{name} is not here: no {CATALOGUE[name].stem}, plain or compressed "
            f"({', '.join(libsvm.COMPRESSIONS)}), in {looked}. Run `desopt data fetch {name}`, or "
            f"put {CATALOGUE[name].file} there{f'; or use the generated {twin}' * (twin in TWINS)}"
        )
    names = {known.lower(): known for known in (*CATALOGUE, *TWINS)}
    close = difflib.get_close_matches(name.lower(), names, 1)
    hint = f"did you mean {names[close[0]]!r}? " if close else ""
    raise FileNotFoundError(
        f"there is no file {name!r}, here or in {looked}, and no data set of that name; "
        f"{hint}Known are {', '.join(names.values())}"
    )


def lookup(name: str, data_dir: str | Path | None = None) -> Path | None:
    """As ``find``, but None if there is no such file."""
    known = CATALOGUE.get(name)
    if known is not None and known.sites:
        there = (place / known.file for place in folders(data_dir))
        return next((p for p in there if all((p / s).is_file() for s in known.sites)), None)
    stem = known.stem if known else os.path.expanduser(name)
    places = folders(data_dir) if known else [Path(), *folders(data_dir)]
    for place in places:
        for suffix in ("", *libsvm.COMPRESSIONS):
            path = place / f"{stem}{suffix}"
            if path.is_file():
                return path
    return None


def folders(data_dir: str | Path | None = None) -> list[Path]:
    """The folders that are searched for files, in this order."""
    chosen = [data_dir, os.environ.get("DESOPT_DATA")]
    return [*(Path(place) for place in chosen if place), cache.folder() / "data"]


def binary_labels(
    labels: FloatArray, positive: Positive | None, above: float | None, where: str
) -> tuple[FloatArray, str]:
    """Labels as -1.0 and +1.0, and a description of the rule."""
    if callable(positive):
        chosen, rule = np.asarray(positive(labels), bool), "labels chosen by a function are +1"
    elif positive is not None:
        chosen, rule = labels == positive, f"label {positive:g} is +1"
    else:
        border = _between_two(labels, where) if above is None else above
        chosen, rule = labels > border, f"label > {border:g} is +1"
    if chosen.shape != labels.shape:
        raise ValueError(
            f"positive gave shape {chosen.shape} for {labels.size} labels; it must give one "
            "True or False for each"
        )
    return np.where(chosen, 1.0, -1.0), rule


def _between_two(labels: FloatArray, where: str) -> float:
    """The smaller of two labels; 0 if there is only one, whose sign decides."""
    values = np.unique(labels)
    if values.size > 2:
        some = ", ".join(f"{value:g}" for value in values[:6]) + ", ..." * (values.size > 6)
        raise ValueError(
            f"{where} has {values.size} different labels: {some}; say which are +1: positive=3, "
            "or a function such as positive=lambda y: y > 3"
        )
    return float(values[0]) if values.size == 2 else 0.0


def subset(whole: DataSet, rows: int, seed: int) -> DataSet:
    """A random subset without replacement; subsets with one seed are nested."""
    rows = checks.whole(f"rows of {whole.name}", rows, 1, whole.rows)
    stream = Stream(checks.seed("seed", seed), 0, streams.SERVER, 1, Purpose.DATA)
    order = np.argsort(streams.words(stream, whole.rows))
    return whole.take(np.sort(order[:rows]), f"{rows:,} of {whole.rows:,} rows, seed {seed}")


def _parsed(
    path: Path, known: CatalogueEntry | None, label: str | int | None
) -> tuple[Matrix, FloatArray]:
    """The scaled matrix and the file's labels, by way of the cache."""
    scaling, n = (known.scaling, known.n) if known else ("", 0)
    path = path.parent.resolve() / path.name  # the format is that of this name, not of a link's end
    stem = _stem(path.name)

    def read() -> tuple[Matrix, FloatArray]:
        X, labels = readers.reader(stem)(path, label)
        return SCALINGS[scaling](in_suitable_layout(X, n)), labels

    if stem.endswith(".npz"):
        return read()
    return cache.cached(
        stem, f"{path} {scaling} {n} {label}", lambda: cache.file_digest(path), read
    )


def _stem(file: str) -> str:
    path = Path(file)
    return path.stem if path.suffix in libsvm.COMPRESSIONS else path.name


def _twin(name: str, rows: int | None, seed: int) -> DataSet:
    count = TWINS[name].rows if rows is None else checks.whole(f"rows of {name}", rows)
    make = partial(generate, name, count, checks.seed("seed", seed))
    slow = count * TWINS[name].nonzeros > _WORTH_KEEPING
    X, y = cache.cached(name, f"{count} {seed}", lambda: str(VERSION), make) if slow else make()
    return DataSet(name, X, y, f"generated, seed {seed}, {count:,} rows", True)


def names() -> list[str]:
    """The names that ``load`` takes: the paper's data sets first, generated twins last.

    >>> data.names()[0], data.names()[-1]
    ('ijcnn1', 'rcv1-like')
    """
    return [*CATALOGUE, *TWINS]


def available(data_dir: str | Path | None = None) -> list[str]:
    """The names of the data sets that can be loaded now.

    >>> "susy-like" in data.available()
    True
    """
    return [name for name in names() if name in TWINS or lookup(name, data_dir) is not None]
