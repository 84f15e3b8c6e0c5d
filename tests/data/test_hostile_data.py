"""Broken data of every kind through every entrance: none crashes the process, none runs.

What reads out of bounds may end the process, so most of this runs in a child, which says how far
it came. Nothing is compiled for it: all of it is refused before that.
"""

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as with_examples
from hypothesis import strategies as st
from scipy import sparse

import desopt
from desopt import METHODS, data
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Batches, Step, Task
from desopt.data import (
    Batch,
    Loader,
    Loaders,
    Partitioned,
    Rows,
    as_rows,
    as_shards,
    checks,
    matrices,
)
from desopt.engines import Job
from desopt.engines.processes import messages
from desopt.engines.processes.memory import separate
from desopt.engines.ray import actor
from desopt.methods.des import DES
from desopt.methods.samplers import Key, Sampler
from desopt.objectives import LinearModel
from desopt.protocol.server import Server

ROWS, N = 12, 6
RANDOM = np.random.default_rng(5)
X = np.where(RANDOM.random((ROWS, N)) < 0.6, RANDOM.standard_normal((ROWS, N)), 0.0)
Y = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
CSR = sparse.csr_matrix(X)
PARTS = ["data", "indices", "indptr"]
HOSTILE = settings(
    max_examples=200, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),  # the machine may be busy
)  # fmt: skip
REFUSED = ValueError, TypeError


def minimize(fun: Any, given: Any, n: int = N, **options: Any) -> Any:
    usual: dict[str, Any] = {
        "workers": 3,
        "rounds": 2,
        "iterations": 3,
        "batch_size": 5,
        "engine": "serial",
    }
    return desopt.minimize(fun, np.zeros(n), given, progress=False, **(usual | options))


# --- entrances -------------------------------------------------------------------------------


def by_python_function(given: Any, n: int) -> None:
    minimize(lambda x, batch: float(batch[0] @ x @ np.ones(len(batch[1]))), given, n)


def by_loader_and_function(given: Any, n: int) -> None:
    minimize(lambda x, batch: float(batch[0] @ x @ np.ones(len(batch[1]))), lambda w: given, n)


def by_node(given: Any, n: int) -> None:
    """As a federation's client app opens its data."""
    job = Job(DES(), LinearModel("lr"), as_shards(lambda w: given, 4, 0), 5, 0, n)
    job.work(Task(0, np.zeros(n), (0.1,)), 3)


def by_prepare(given: Any, n: int) -> None:
    model: Any = LinearModel("lr")
    (shard,) = model.prepare([Rows(given)])
    model.score(shard, np.zeros(n))


def by_npz(given: Any, n: int) -> None:
    matrix, y = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npz")
        try:
            np.savez(path, data=matrix.data, indices=matrix.indices, indptr=matrix.indptr,
                     shape=np.array(matrix.shape), y=y)  # fmt: skip
        except Exception as error:  # what cannot be saved cannot be loaded
            raise ValueError("cannot be saved") from error
        with np.load(path) as saved:
            again = sparse.csr_matrix((1, 1))
            again._shape = matrix.shape
            again.data, again.indices, again.indptr = (saved[p] for p in PARTS)
        if is_legal(again, ROWS, N):
            raise ValueError("a list became an array on the way")
        loaded = data.load(path)
        minimize("lr", (loaded.X, loaded.y), n)


BOTH: dict[str, Callable[[Any, int], Any]] = {
    "python function": by_python_function,
    "loader, python function": by_loader_and_function,
}
LINEAR: dict[str, Callable[[Any, int], Any]] = {
    "memory": partial(minimize, "lr"),
    "list": lambda given, n: minimize("lr", [(CSR, Y), given, (X, Y)], n),
    "loader": lambda given, n: minimize("lr", lambda worker: given, n),
    "loaders": lambda given, n: minimize("lr", [lambda: given] * 3, n, engine="threads"),
    "sampler": lambda given, n: minimize("lr", lambda rng, b: given, n),
    "node": by_node,
    "prepare": by_prepare,
    "npz": by_npz,
}


def refused(given: Any, n: int, entrances: dict[str, Any]) -> None:
    for name, enter in entrances.items():
        message = refusal(partial(enter, given, n))
        assert message, f"{name} took it"
        assert "\n" not in message, name


def refusal(use: Callable[[], Any]) -> str:
    try:
        use()
    except REFUSED as error:
        return str(error)
    return ""


# --- broken matrices -------------------------------------------------------------------------

FAR = [2**31 - 1, 2**31, 10**9, -(10**9), 2**40, -(2**40), 2**62, -(2**63)]
NUMBERS = st.one_of(st.integers(-3, 2 * N), st.sampled_from(FAR))
KINDS = ["float64", "float32", "bool", "complex128", "object", "U5", "uint64", "int64", "M8[s]"]


def put_number(matrix: Any, draw: Any) -> None:
    part = draw(st.sampled_from(["indices", "indptr"]))
    array = getattr(matrix, part).astype(np.int64)
    array[draw(st.integers(0, array.size - 1))] = draw(NUMBERS)
    setattr(matrix, part, array)


def put_value(matrix: Any, draw: Any) -> None:
    value = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    matrix.data[draw(st.integers(0, matrix.data.size - 1))] = value


def cut(matrix: Any, draw: Any) -> None:
    part = draw(st.sampled_from(PARTS))
    setattr(matrix, part, getattr(matrix, part)[: draw(st.integers(0, ROWS))])


def lengthen(matrix: Any, draw: Any) -> None:
    part = draw(st.sampled_from(PARTS))
    array = getattr(matrix, part)
    setattr(matrix, part, np.concatenate([array, array[: draw(st.integers(1, 5))]]))


def reorder(matrix: Any, draw: Any) -> None:
    part = draw(st.sampled_from(PARTS))
    array = getattr(matrix, part)
    order = draw(st.permutations(range(array.size))) if array.size < 20 else [*range(array.size)]
    setattr(matrix, part, array[order[::-1]])


def convert(matrix: Any, draw: Any) -> None:
    part = draw(st.sampled_from(PARTS))
    setattr(matrix, part, getattr(matrix, part).astype(draw(st.sampled_from(KINDS))))


def reshape(matrix: Any, draw: Any) -> None:
    part = draw(st.sampled_from(PARTS))
    array = getattr(matrix, part)
    changed = draw(
        st.sampled_from([array[:, None], array.tolist(), None, array[0], array.tobytes()])
    )
    setattr(matrix, part, changed)


def resize(matrix: Any, draw: Any) -> None:
    matrix._shape = draw(st.integers(0, ROWS + 2)), draw(st.integers(0, N + 2))


def forget(matrix: Any, draw: Any) -> None:
    delattr(matrix, draw(st.sampled_from(PARTS)))


BREAKING = [put_number, put_value, cut, lengthen, reorder, convert, reshape, resize, forget]


def is_legal(matrix: Any, rows: int, n: int) -> bool:
    """What the format asks for, number by number, and nothing clever."""
    parts: list[Any] = [getattr(matrix, name, None) for name in PARTS]
    if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts):
        return False
    values, indices, indptr = parts
    if values.dtype.kind not in "fiub" or not all(p.dtype.kind in "iu" for p in parts[1:]):
        return False
    ends = indptr.tolist()
    if tuple(matrix.shape) != (rows, n) or len(ends) != rows + 1 or ends[0] != 0:
        return False
    if any(b < a for a, b in pairwise(ends)):
        return False
    if not ends[-1] <= len(indices) == len(values):
        return False
    inside = all(0 <= j < n for j in indices[: ends[-1]].tolist())
    return inside and all(np.isfinite(v) for v in values[: ends[-1]].tolist())


@st.composite
def broken_csr(draw: Any) -> Any:
    matrix = draw(st.sampled_from([sparse.csr_matrix, sparse.csr_array]))(X)
    for _ in range(draw(st.integers(1, 2))):
        with suppress(TypeError, AttributeError, IndexError, ValueError, OverflowError):
            draw(st.sampled_from(BREAKING))(matrix, draw)  # what is left of it, the second time
    assume(not is_legal(matrix, ROWS, N))
    return matrix


@HOSTILE
@with_examples(broken_csr())
def broken_csr_is_refused(matrix: Any) -> None:
    refused((matrix, Y), N, LINEAR)
    finite = is_legal(matrix, *matrix.shape) or _only_values_are_wrong(matrix)
    if not finite:
        refused((matrix, Y), N, BOTH)


def numbers_outside_are_refused() -> None:
    """One wrong number, at the beginning, in the middle or at the end."""
    for part in ("indices", "indptr"):
        for place in (0, 5, -1):
            for number in (-1, -2, N, N + 1, *FAR):
                matrix = CSR.copy()
                setattr(matrix, part, getattr(matrix, part).astype(np.int64))
                getattr(matrix, part)[place] = number
                if not is_legal(matrix, ROWS, N):
                    refused((matrix, Y), N, LINEAR | BOTH)


def _only_values_are_wrong(matrix: Any) -> bool:
    """Infinite values, another width, or no real numbers: a function of the user's may like it."""
    other = type(CSR)((ROWS, N))
    other._shape = matrix.shape
    for name in PARTS:
        setattr(other, name, getattr(matrix, name, None))
    if isinstance(other.data, np.ndarray) and other.data.dtype.kind in "fc":
        other.data = np.where(np.isnan(other.data), np.nan, 1.0)
    return is_legal(other, *matrix.shape)


def _csc(matrix: Any, number: int) -> Any:
    csc = matrix.tocsc()
    csc.indices[3] = number
    return csc


def _coo(name: str, matrix: Any, number: int) -> Any:
    coo = matrix.copy().tocoo()  # which shares memory with what it was made of
    getattr(coo, name)[3] = number
    return coo


def _lil(matrix: Any, number: int) -> Any:
    lil = matrix.tolil()
    lil.rows[3].append(number)
    lil.data[3].append(1.0)
    return lil


def _uneven_lil(matrix: Any, number: int) -> Any:
    lil = matrix.tolil()
    lil.data[3].extend([1.0] * 50)
    return lil


def _bsr(matrix: Any, number: int) -> Any:
    bsr = matrix.tobsr((2, 2))
    bsr.indices[1] = number
    return bsr


def _bsr_ends(matrix: Any, number: int) -> Any:
    bsr = matrix.tobsr((2, 2))
    bsr.indptr[1] = number if number != ROWS else 10**5
    return bsr


def _dok(matrix: Any, number: int) -> Any:
    dok = matrix.todok()
    dok._dict[number, 1] = 1.0
    return dok


def _dia(matrix: Any, number: int) -> Any:
    dia = matrix.todia()
    dia.offsets = dia.offsets[:1]
    return dia


def _csc_ends(matrix: Any, number: int) -> Any:
    csc = matrix.tocsc()
    csc.indptr[2] = number if number != ROWS else 10**5
    return csc


FORMATS = [_csc, _csc_ends, partial(_coo, "row"), partial(_coo, "col"), _lil, _uneven_lil, _bsr,
           _bsr_ends, _dok, _dia]  # fmt: skip


@HOSTILE
@with_examples(st.sampled_from(FORMATS), st.sampled_from([ROWS, -1, 10**6, 10**9, -(10**9)]))
def broken_formats_are_refused(breaking: Any, number: int) -> None:
    """SciPy's own conversions to CSR crash on most of these."""
    matrix = breaking(CSR, number)
    entrances = {name: enter for name, enter in LINEAR.items() if name != "npz"} | BOTH
    refused((matrix, Y), N, entrances)


DENSE: list[tuple[Any, Any]] = [
    (np.where(X > 1, np.nan, X), Y),
    (np.where(X > 1, np.inf, X), Y),
    (np.ma.masked_greater(X, 1), Y),
    (X, np.ma.masked_greater(Y, 0)),
    (X.astype(object), Y),
    (X.astype("U8"), Y),
    (X + 1j, Y),
    (X.astype(np.longdouble) * np.longdouble("1e4000"), Y),
    (X.view([(f"f{i}", "f8") for i in range(N)]).squeeze(), Y),
    (X.astype("M8[s]"), Y),
    (X[:, :0], Y),
    (X[:0], Y[:0]),
    (X, Y[:-1]),
    (X, Y[:, None]),
    (X[:, 0], Y),
    (X[None], Y[None]),
    (X, np.where(Y > 0, np.nan, 0.0)),
    (X, np.where(Y > 0, np.inf, 0.0)),
    (X, Y.astype(object)),
    (X, Y.astype(complex)),
    (X, np.arange(ROWS)),
    (X, sparse.csr_matrix(Y)),
    (X, None),
    (None, Y),
    ([[1.0, 2.0], [3.0]], [0.0, 1.0]),
    (float("nan"), float("nan")),
]


def broken_arrays_are_refused() -> None:
    entrances = {name: enter for name, enter in LINEAR.items() if name != "npz"}
    no_pairs: list[Any] = [X, (X,), (X, Y, Y), (), "X.csv", {"X": X}, 7, iter([X]), object()]
    for given in [*DENSE, *no_pairs]:
        refused(given, N, entrances)


@HOSTILE
@with_examples(st.integers(1, 3 * N), st.integers(0, 2), st.booleans())
def other_widths_are_refused(n: int, odd: int, sparsely: bool) -> None:
    """At one of three workers too, and with a line that says who and how many."""
    assume(n != N)
    matrix = CSR if sparsely else X
    refused((matrix, Y), n, LINEAR)
    wide = np.hstack([X, X, X])[:, :n]
    sites = [(X, Y)] * 3
    sites[odd] = (sparse.csr_array(wide) if sparsely else wide, Y)
    for loaders in ([partial(tuple, site) for site in sites], lambda worker: sites[worker]):
        job = Job(DES(), LinearModel("lr"), as_shards(loaders, 3, 0), 5, 0, N)
        with pytest.raises(
            ValueError, match=rf"^worker {odd}: its data have {n} columns, but x ha"
        ):
            job.work(Task(0, np.zeros(N), (0.1,)), odd)
    with pytest.raises(ValueError, match=rf"worker {odd} has {n} columns, worker . has {N}; every"):
        minimize("lr", sites)


@HOSTILE
@with_examples(st.lists(NUMBERS, max_size=6), st.lists(NUMBERS, max_size=5))
def row_numbers_outside_are_refused(rows: list[int], bounds: list[int]) -> None:
    """In shards that somebody made by hand, and in a batch."""
    numbers = np.array(rows, np.int64)
    inside = bool(rows) and all(0 <= row < ROWS for row in rows)
    model: Any = LinearModel("lr")
    (whole,) = model.prepare([Rows((X, Y))])
    uses: list[Callable[[], Any]] = [
        partial(Rows, (X, Y), numbers),
        partial(Partitioned, (X, Y), numbers, np.array([0, max(1, len(rows))])),
        partial(Rows, whole.arrays, numbers),
    ]
    for use in uses:
        if inside:
            use()
        else:
            with pytest.raises(REFUSED):
                use()
    rising = len(bounds) > 1 and all(a < b for a, b in pairwise(bounds))
    if not (rising and bounds[0] >= 0 and bounds[-1] <= ROWS):
        with pytest.raises(REFUSED):
            Partitioned((X, Y), np.arange(ROWS), np.array(bounds, np.int64))


def what_was_not_prepared_is_refused() -> None:
    """There is no way to the kernels around the check."""
    model: Any = LinearModel("lr")
    stream = Stream(0, 0, 0, 0, Purpose.BATCH)
    for shard in (as_rows((X, Y), "data"), Rows((CSR, Y), np.arange(3))):
        for batches in Batches:
            batch = Batch(shard, 5, stream, batches)
            with pytest.raises(TypeError, match=r"went through its prepare\(\) only"):
                model.bind(batch, np.zeros(N))
        with pytest.raises(TypeError, match=r"went through its prepare\(\) only"):
            model.score(shard, np.zeros(N))
    (good,) = model.prepare([Rows((X, Y))])
    for point in (np.zeros(N - 1), np.zeros(10**6), np.zeros((N, 1)), np.zeros(0)):
        width = f"data have {N} columns, but x has {point.size} n"
        refused = partial(pytest.raises, ValueError, match=width)
        for batches in Batches:
            batch = Batch(good, 5, stream, batches)
            with refused():
                model.bind(batch, point)
            with refused():
                model.bind(batch, np.zeros(N)).value(point)
        for method in METHODS.values():  # a search at another x than that of bind
            algorithm: Any = method.make("a", {"iterations": 4, "population": 4})
            # by data, by members, or by the estimates of des-c
            with pytest.raises(ValueError, match=f"{width}|broadcast|reshape"):
                _search_at(point, algorithm, model, good, stream)


def _search_at(point: Any, algorithm: Any, model: LinearModel, shard: Any, stream: Stream) -> None:
    """A search as the method plans it, but at this point."""
    task = algorithm.plan(algorithm.init(np.ones(max(1, point.size))))
    search = algorithm.search(replace(task, x=point), 0)
    model.bind(Batch(shard, 5, stream, search.batches), np.zeros(N)).run(search)


class Nonsense(Sampler):
    """A sampler whose coordinates are not there."""

    def __init__(self, index: Any, values: Any) -> None:
        self.step = index, values

    def vector(self, key: Key, k: int, n: int) -> Step:
        return self.step


def coordinates_outside_are_refused() -> None:
    for index, values in (
        ([10**9], [1.0]),
        ([-1], [1.0]),
        ([N], [1.0]),
        ([0, 1], [1.0]),
        ([[0]], [[1.0]]),
        (None, np.ones(N - 1)),
    ):
        sampler = Nonsense(None if index is None else np.array(index), np.array(values))
        with pytest.raises(REFUSED):
            minimize(lambda x: float(x @ x), None, method="des", sampler=sampler)
        with pytest.raises(REFUSED):
            sampler.replay(np.zeros(N), np.ones(1), np.ones(1, np.bool_), Key(0, 0, 0))


ATTACKS = [
    numbers_outside_are_refused,
    broken_csr_is_refused,
    broken_formats_are_refused,
    broken_arrays_are_refused,
    other_widths_are_refused,
    row_numbers_outside_are_refused,
    what_was_not_prepared_is_refused,
    coordinates_outside_are_refused,
]


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A process that goes through all attacks, and says which it has survived."""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import test_hostile_data as t; t.attack()"],
        capture_output=True, text=True, timeout=900, cwd=tmp_path_factory.mktemp("child"),
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip


def attack() -> None:
    for each in ATTACKS:
        try:
            each()
        except Exception:
            traceback.print_exc()
        else:
            print(each.__name__, flush=True)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_attack(attack: Callable[[], None], child: subprocess.CompletedProcess[str]) -> None:
    assert attack.__name__ in child.stdout.splitlines(), child.stderr[-3000:]
    assert child.returncode == 0


# --- what is legal, though odd ---------------------------------------------------------------


def odd_but_legal() -> Iterator[Any]:
    csr = sparse.csr_array(X)
    backwards = csr.copy()
    for start, end in pairwise(csr.indptr):
        backwards.indices[start:end] = csr.indices[start:end][::-1]
        backwards.data[start:end] = csr.data[start:end][::-1]
    backwards.has_sorted_indices = True  # as whoever made it believed
    backwards.has_canonical_format = True
    yield backwards
    yield sparse.csr_array(
        (np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), 2 * csr.indptr), shape=X.shape
    )
    slack = csr.copy()
    slack.data, slack.indices = np.append(slack.data, np.nan), np.append(slack.indices, 10**6)
    yield slack
    large = csr.copy()
    large.indices, large.indptr = large.indices.astype(np.uint64), large.indptr.astype(np.int64)
    yield large
    fixed = csr.copy()
    for part in (fixed.data, fixed.indices, fixed.indptr):
        part.flags.writeable = False
    yield fixed
    swapped = csr.copy()
    swapped.data = swapped.data.astype(">f8")
    yield swapped
    for name in ("csc", "coo", "bsr", "lil", "dok", "dia"):
        yield csr.asformat(name)


def test_the_matrix_counts_not_how_it_is_stored() -> None:
    """Sorted, summed and copied where need be: the kernels get the same arrays, to the bit."""
    expected = minimize("lr", (CSR, Y))
    wanted = [part.tobytes() for part in matrices.plain_arrays(CSR)]
    for i, matrix in enumerate(odd_but_legal()):
        (shard,) = LinearModel("lr").prepare(as_shards([(matrix, Y)], 1, 0))
        assert [part.tobytes() for part in matrices.plain_arrays(shard.arrays[0])] == wanted, i
        found = minimize("lr", (matrix, Y), engine=("serial", "threads")[i % 2])
        assert (found.x.tobytes(), found.fun) == (expected.x.tobytes(), expected.fun), i


def test_indices_changed_during_the_run_do_no_harm() -> None:
    """What was checked is a copy. Values may change, and then results do."""
    for matrix in (CSR.copy(), sparse.csr_array(X)):
        rows = np.arange(ROWS)
        model: Any = LinearModel("lr")
        (shard,) = model.prepare([Rows((matrix, Y), rows)])
        rows[:] = 10**9

        def vandalise(row: Any, matrix: Any = matrix) -> None:
            matrix.indices[:] = 10**9
            matrix.indptr[:] = -(10**9)

        expected = minimize("lr", (CSR, Y), rounds=5)
        found = minimize("lr", (matrix, Y), rounds=5, callbacks=[vandalise])
        assert found.x.tobytes() == expected.x.tobytes()
        value = model.score(shard, np.zeros(N))[0]
        assert value == pytest.approx(np.log(2))


# --- who and what the message names ----------------------------------------------------------


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, values: Any, columns: list[str]) -> None:
        self.values, self.columns = values, columns

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.values, dtype)

    def to_numpy(self) -> Any:
        return self.values


def frames() -> list[Callable[[Any, list[str]], Any]]:
    made: list[Callable[[Any, list[str]], Any]] = [Frame]
    with suppress(ImportError):
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]

        made.append(lambda values, columns: pandas.DataFrame(values, columns=columns))
    return made


NAMES = ["age", "bmi", "dose", "height", "sex", "weight"]


@pytest.mark.parametrize("frame", frames())
def test_columns_are_named(frame: Callable[[Any, list[str]], Any]) -> None:
    whole = frame(X, NAMES), Y
    fewer = frame(np.delete(X, 1, axis=1), NAMES[:1] + NAMES[2:]), Y
    turned = frame(X[:, ::-1], NAMES[::-1]), Y
    with pytest.raises(
        ValueError, match=r"worker 2 has 5 columns \(without 'bmi'\), worker 0 has 6"
    ):
        minimize("lr", [whole, whole, fewer])
    with pytest.raises(
        ValueError, match=r"column 0 of worker 1 is 'weight', of worker 0 'age'; every"
    ):
        minimize("lr", [whole, turned])
    with pytest.raises(
        ValueError, match=r"worker 1: its data have 5 columns \('age', 'dose', .*'weight'\), but x"
    ):
        minimize("lr", [lambda: whole, lambda: fewer])
    minimize("lr", whole)


@pytest.mark.parametrize("engine", ["serial", "threads", "processes"])
def test_one_site_of_three_misses_a_column(engine: str) -> None:
    sites = [(X, Y), (X[:, 1:], Y), (X, Y)]
    for loaders in ([partial(tuple, site) for site in sites], lambda worker: sites[worker]):
        with pytest.raises(ValueError, match=r"worker 1: its data have 5 columns, but x has 6 num"):
            minimize("lr", loaders, engine=engine, jobs=1)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_worker_with_broken_data_is_named(engine: str) -> None:
    broken = CSR.copy()
    broken.indices[2] = 99
    sites = [(CSR, Y), (broken, Y)]
    with pytest.raises(
        ValueError, match=r"array 0 of the data of worker 1: row . has an entry in column 99, but t"
    ):
        minimize("lr", lambda worker: sites[worker], workers=2, engine=engine, jobs=1)


def test_a_group_of_workers_elsewhere_checks_its_data() -> None:
    """What runs in an actor of the Ray engine."""
    algorithm, sites = DES(iterations=3), [(X, Y), (X[:, 1:], Y)]
    job = Job(algorithm, LinearModel("lr"), as_shards(lambda w: sites[w], 2, 0), 5, 0, N)
    server = Server(algorithm, algorithm.init(np.zeros(N)), 2)
    server.admit("group", range(2))
    group = actor.Group()
    code, shards = separate(job)[0], separate(job.shards)[0]
    assert group.load(server.run, (0, 1), code, shards, 0) == messages.READY
    for reply in (
        group.work(server.message_for("group")),
        group.totals(server.message_for("group"), [1]),
    ):
        (error,) = messages.unpack_list(reply)
        with pytest.raises(ValueError, match=r"^worker 1: its data have 5 columns, but x has 6 nu"):
            raise messages.unpack_error(error)


def test_a_sampler_is_named_with_its_worker() -> None:
    def draw(rng: np.random.Generator, b: int) -> Any:
        return X[:b, :-1], Y[:b]

    with pytest.raises(
        ValueError, match=r"worker 0: the batch of draw\(rng, b\): its data have 5 columns, but x h"
    ):
        minimize("lr", draw)


def test_labels_of_another_kind() -> None:
    """A site that says 0 for -1 is understood alone; beside the others three labels are seen."""
    zeros = (Y + 1) / 2
    with pytest.raises(ValueError, match=r"labels are 0 and 1 in data\[1\], but -1 and \+1 in oth"):
        minimize("lr", [(X, Y), (X, zeros), (X, Y)])
    expected = minimize("lr", lambda worker: (X, Y))
    found = minimize("lr", lambda worker: (X, zeros if worker == 1 else Y))
    assert found.x.tobytes() == expected.x.tobytes()
    with pytest.raises(
        ValueError, match=r"the data of worker 1: labels must be -1 and \+1, or 0 and 1; got 2 diff"
    ):
        minimize("lr", lambda worker: (X, Y + 3 if worker == 1 else Y))


def test_a_shard_is_opened_and_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    check = checks.as_array

    def counted(item: Any, where: str) -> Any:
        looks.append(where)
        return check(item, where)

    monkeypatch.setattr("desopt.data.shards.as_array", counted)
    minimize("lr", [(X, Y)] * 3, rounds=4)  # one data set for all
    assert len(looks) == 2
    minimize("lr", lambda worker: (X, Y), rounds=4)
    assert len(looks) == 2 + 6
    assert isinstance(as_shards(lambda worker: (X, Y), 9, 0), Loaders)
    assert isinstance(Loader(lambda: (X, Y)).open(LinearModel("lr"), 0), Rows)


@pytest.mark.parametrize("kind", ["read-only", "view", "mapped", "writeable", "int64"])
def test_indices_are_copied_only_where_somebody_could_change_them(
    kind: str, tmp_path: Path
) -> None:
    matrix = sparse.random(40, 9, 0.5, format="csr", random_state=1)
    indices = matrix.indices.copy()
    if kind == "mapped":
        np.save(tmp_path / "indices.npy", indices)
        indices = np.load(tmp_path / "indices.npy", mmap_mode="r")
    elif kind == "int64":
        indices = indices.astype(np.int64)
    if kind == "view":
        indices = indices.view()
    indices.flags.writeable = kind in ("writeable", "int64")
    given = sparse.csr_array((matrix.data, indices, matrix.indptr), shape=(40, 9), copy=False)
    own = matrices.as_csr(given, "data")
    assert np.shares_memory(own.indices, indices) == (kind in ("read-only", "mapped"))
    assert not np.shares_memory(own.indptr, matrix.indptr)
    assert np.array_equal(own.toarray(), matrix.toarray())
