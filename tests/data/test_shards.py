"""Shards, labels, and the values of the linear models."""

from __future__ import annotations

import math
import mmap
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from helpers import oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse, stats

import desopt
from desopt.contract.errors import ObjectiveError
from desopt.contract.streams import Purpose, Stream, generator, integers
from desopt.contract.types import Batches
from desopt.data import (
    Batch,
    Draw,
    Loader,
    NoData,
    Partitioned,
    Rows,
    all_finite,
    as_rows,
    as_shards,
    fingerprint,
    gather,
    partition,
    side_by_side,
    total_rows,
)
from desopt.methods import METHODS
from desopt.objectives import LOSSES, LinearModel, PythonObjective

Floats = NDArray[np.float64]

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((23, 4))
Y = np.where(X @ [1.0, -1.0, 0.5, 0.0] > 0, 1.0, -1.0)
STREAM = Stream(1, 2, 3, 0, Purpose.BATCH)


# --- dealing out rows ------------------------------------------------------------------------


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_every_row_goes_to_one_worker(rows: int, workers: int, seed: int) -> None:
    workers = min(rows, workers)
    parts = partition(rows, workers, seed)
    assert len(parts) == workers
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1
    for part, again in zip(parts, partition(rows, workers, seed), strict=True):
        np.testing.assert_array_equal(part, again)


def test_dealing_depends_on_the_seed_only() -> None:
    np.random.seed(1)  # noqa: NPY002
    first = [part.tolist() for part in partition(10, 3, 42)]
    np.random.seed(2)  # noqa: NPY002
    assert [part.tolist() for part in partition(10, 3, 42)] == first
    assert first == [[1, 4, 6, 9], [0, 2, 8], [3, 5, 7]]  # for ever: journals rely on it
    assert len({str(partition(10, 3, seed)) for seed in range(50)}) == 50


def test_dealing_is_uniform() -> None:
    """Any row, and any pair of rows, is with any worker equally often."""
    workers, rows, deals = 3, 6, 4000
    of_row = np.empty((deals, rows), np.int64)
    for seed in range(deals):
        for worker, part in enumerate(partition(rows, workers, seed)):
            of_row[seed, part] = worker
    for row in range(rows):
        assert stats.chisquare(np.bincount(of_row[:, row], minlength=workers)).pvalue > 1e-4
    together = int((of_row[:, 0] == of_row[:, 5]).sum())  # one of the five others is with row 0
    assert stats.binomtest(together, deals, 1 / 5).pvalue > 1e-4


# --- what data can be ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [X, X[:, 0], X.astype(np.float32), np.asfortranarray(X), X[::-1], sparse.csr_array(X),
     sparse.csr_matrix(X), sparse.csc_array(X), sparse.coo_array(X), np.arange(23), Y > 0,
     RANDOM.standard_normal((23, 2, 3)), np.array(list("abcdefghijklmnopqrstuvw"))],
    ids=lambda data: f"{type(data).__name__}-{getattr(data, 'dtype', '')}",
)  # fmt: skip
def test_one_array_is_dealt_out(data: Any) -> None:
    shards = as_shards(data, 4, seed=7)
    plain = data.toarray() if sparse.issparse(data) else np.asarray(data)
    for shard, rows in zip(shards, partition(23, 4, 7), strict=True):
        assert isinstance(shard, Rows)
        assert shard.size == len(rows)
        batch = shard.take()
        np.testing.assert_array_equal(as_plain(batch), plain[rows])
        drawn = rows[integers(STREAM, 3, len(rows))]
        np.testing.assert_array_equal(as_plain(shard.take(Batch(shard, 3, STREAM))), plain[drawn])
    assert total_rows(shards) == 23


def test_what_is_dealt_is_a_sequence() -> None:
    shards = as_shards(X, 4, seed=7)
    assert isinstance(shards, Partitioned)
    assert len(shards) == 4
    parts = partition(23, 4, 7)
    np.testing.assert_array_equal(shards[-1].rows, parts[3])
    for shard, rows in zip(shards[1:3], parts[1:3], strict=True):
        np.testing.assert_array_equal(shard.rows, rows)
        assert shard.arrays is shards.arrays
    with pytest.raises(IndexError):
        shards[4]


def test_dealt_data_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once per worker: they may be large, and the workers many."""
    looks = 0

    def look(array: Any) -> bool:
        nonlocal looks
        looks += 1
        return all_finite(array)

    monkeypatch.setattr("desopt.objectives.tables.all_finite", look)
    shards = LinearModel("lr").prepare(as_shards((X, Y > 0), 20, seed=0))
    assert isinstance(shards, Partitioned)
    assert len(shards) == 20
    assert looks == 2  # X and y


def as_plain(batch: Any) -> NDArray[Any]:
    if sparse.issparse(batch):
        assert batch.format == "csr"
        return cast(NDArray[Any], batch.toarray())
    assert isinstance(batch, np.ndarray)
    return batch


def test_a_tuple_stays_a_tuple() -> None:
    for shard in as_shards((sparse.csr_array(X), Y, Y.tolist()), 3, seed=1):
        assert isinstance(shard, Rows)
        batch = shard.take()
        assert isinstance(batch, tuple)
        np.testing.assert_array_equal(batch[0].toarray(), X[shard.rows])
        np.testing.assert_array_equal(batch[1], batch[2])
    (single,) = as_shards((X,), 1, seed=1)
    assert isinstance(single, Rows)
    assert isinstance(single.take(), tuple)


def test_a_list_holds_ready_made_shards() -> None:
    """Used as they are: unequal, unshuffled, and as many as there are, whatever ``workers`` is."""
    given = [X[:3], X[3:20], X[20:]]
    shards = as_shards(given, 10, seed=1)
    assert len(shards) == 3
    for shard, array in zip(shards, given, strict=True):
        assert isinstance(shard, Rows)
        assert shard.rows is None
        np.testing.assert_array_equal(shard.take(), array)
    assert total_rows(shards) == 23


def test_functions_as_data() -> None:
    drawn = as_shards(lambda rng, b: rng.standard_normal(b), 3, seed=0)
    assert [type(shard) for shard in drawn] == [Draw] * 3
    numbered = as_shards(lambda worker: X[worker : worker + 2], 3, seed=0)
    opened = [shard.open(PythonObjective(float), i) for i, shard in enumerate(numbered)]
    for i, shard in enumerate(opened):
        assert isinstance(shard, Rows)
        np.testing.assert_array_equal(shard.take(), X[i : i + 2])
    mixed = as_shards([lambda: X, lambda rng, b: X[:b], X], 9, seed=0)
    assert [type(shard) for shard in mixed] == [Loader, Draw, Rows]
    assert total_rows(drawn) is total_rows(numbered) is total_rows(mixed) is None
    assert [type(shard) for shard in as_shards(None, 2, seed=0)] == [NoData] * 2


def test_a_draw_gets_a_generator_of_its_own() -> None:
    shard = Draw(lambda rng, b: rng.standard_normal(b))
    objective = PythonObjective(lambda x, batch: float(batch.sum()))
    expected = generator(STREAM).standard_normal(5).sum()
    for _ in range(2):
        f = objective.bind(Batch(shard, 5, STREAM), np.zeros(1))
        assert f.value(np.zeros(1)) == expected
        assert f.rows == 5
    other = objective.bind(Batch(shard, 5, Stream(1, 3, 3, 0, Purpose.BATCH)), np.zeros(1))
    assert other.value(np.zeros(1)) != expected


def test_a_loader_runs_when_it_is_opened_only() -> None:
    calls = []

    def load() -> Any:
        calls.append(1)
        return X

    (shard,) = as_shards([load], 1, seed=0)
    assert not calls
    shard.open(PythonObjective(float), 0)
    assert len(calls) == 1


def test_failures_of_the_users_code_say_whose_they_are() -> None:
    def broken(*_: Any) -> Any:
        raise OSError("no such bucket")

    with pytest.raises(ObjectiveError, match="loader failed: OSError: no such bucket"):
        Loader(broken).open(PythonObjective(float), 0)
    with pytest.raises(ObjectiveError, match="draw failed: OSError: no such bucket"):
        Batch(Draw(broken), 5, STREAM).arguments()
    with pytest.raises(ValueError, match=r"the data of worker 3 has no rows"):
        Loader(lambda: X[:0]).open(PythonObjective(float), 3)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([], ValueError, "data is an empty list"),
        ((), ValueError, "data is an empty tuple"),
        (3.0, ValueError, "data must have at least one dimension"),
        ("X.csv", TypeError, "data must be an array, got str 'X.csv'"),
        ((X, Y[:-1]), ValueError, r"one length, got shapes \(23, 4\), \(22,\)"),
        (X[:0], ValueError, "data has no rows"),
        ((X[:0], Y[:0]), ValueError, "data has no rows"),
        ([X, X[:0]], ValueError, r"data\[1\] has no rows"),
        (X[:4], ValueError, "data has 4 rows for 5 workers"),
        (np.where(X > 2, np.nan, X), ValueError, "data contains NaN"),
        ((X, np.where(Y > 0, np.nan, Y)), ValueError, r"data\[1\] contains NaN"),
        ([(X, Y), (X, Y * np.nan)], ValueError, r"data\[1\]\[1\] contains NaN"),
        (sparse.csr_array(np.where(X > 2, np.nan, X)), ValueError, "data contains NaN"),
        (lambda: X, TypeError, "0 required arguments; for loaders without arguments pass a list"),
        (lambda a, b, c: X, TypeError, "3 required arguments"),
        ([lambda worker: X], TypeError, r"data\[0\] must be load\(\) or draw\(rng, b\)"),
    ],
)  # fmt: skip
def test_bad_data(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_shards(data, 5, seed=0)


# --- fingerprints ----------------------------------------------------------------------------


def test_a_fingerprint_tells_data_apart() -> None:
    changed, label = X.copy(), Y.copy()
    changed[-1, -1] = np.nextafter(changed[-1, -1], 9)
    label[11] *= -1
    csr = sparse.csr_array(X)
    moved = csr.copy()
    moved.data = moved.data[::-1].copy()
    sets: list[Any] = [
        X, changed, X.T.copy(), X[:, ::-1], X.astype(np.float32), X[:-1], (X,), (X, Y), (X, label),
        (Y, X), csr, moved, [X[:10], X[10:]], [X[10:], X[:10]], [X[:11], X[11:]], None,
        lambda rng, b: X,
    ]  # fmt: skip
    digests = [fingerprint(as_shards(data, 2, seed=0)) for data in sets]
    assert digests == [fingerprint(as_shards(data, 2, seed=0)) for data in sets]
    same = digests[0], digests[6]  # X and (X,) are the same data
    assert same[0] == same[1]
    assert len(set(digests)) == len(digests) - 1


def test_a_fingerprint_sees_every_number() -> None:
    """Wherever it is, in a dense or a sparse matrix, and by its last bit."""
    random = np.random.default_rng(3)
    dense = random.standard_normal((1000, 300))  # some pieces, on some threads
    thin = sparse.csr_array(np.where(random.random((20_000, 50)) < 0.1, 3.0, 0.0))
    for matrix, numbers in ((dense, dense.reshape(-1)), (thin, thin.data)):
        seen = {fingerprint([as_rows(matrix, "data")])}
        for place in random.integers(0, numbers.size, 40).tolist():
            before = numbers[place]
            numbers[place] = np.nextafter(before, 9.0)
            seen.add(fingerprint([as_rows(matrix, "data")]))
            numbers[place] = before
        assert len(seen) == 41
        assert fingerprint([as_rows(matrix, "data")]) in seen


def test_a_fingerprint_is_of_the_numbers_not_of_their_place_in_memory() -> None:
    X = RANDOM.standard_normal((5000, 40)).round() + 0.0  # no -0.0, which int has not
    wide = np.zeros((5000, 80))
    wide[:, ::2] = X
    csr = sparse.csr_array(X)
    shuffled = csr.copy()
    for start, end in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        shuffled.indices[start:end] = csr.indices[start:end][::-1]
        shuffled.data[start:end] = csr.data[start:end][::-1]
    twice = sparse.csr_array(
        (np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), 2 * csr.indptr), shape=X.shape
    )
    large = csr.copy()
    large.indices, large.indptr = large.indices.astype(np.int64), large.indptr.astype(np.int64)
    dense: list[Any] = [np.asfortranarray(X), wide[:, ::2], X[::-1][::-1], X.astype(">f8")]
    thin: list[Any] = [sparse.csc_array(X), sparse.coo_matrix(X), shuffled, twice, large]
    for first, others in ((X, dense), (csr, thin)):
        digest = fingerprint([as_rows(first, "data")])
        for other in others:
            assert fingerprint([as_rows(other, "data")]) == digest
    y = X[:, 0] > 0
    model = LinearModel("lr")  # which makes float64 of whatever it is given, and -1 of 0
    digests = {
        fingerprint(model.prepare(as_shards(data, 3, 0)))
        for data in ((X, y), (X.astype(np.float32), np.where(y, 1, -1)), (X.astype(int), 3.0 * y))
    }
    assert len(digests) == 1


def test_a_fingerprint_says_who_has_what() -> None:
    other = X + 1
    lists = [X, other, X], [X, other, other], [X, X, other], [other, X, X]
    assert len({fingerprint(as_shards(list(data), 3, 0)) for data in lists}) == 4
    deals = [Partitioned((X,), np.arange(23), np.array(cuts)) for cuts in ([0, 9, 23], [0, 10, 23])]
    deals += [Partitioned((X,), np.arange(23)[::-1], np.array([0, 9, 23]))]
    assert len({fingerprint(deal) for deal in deals}) == 3
    assert fingerprint([Rows((X,), np.array([1]))]) != fingerprint([Rows((X,), np.array([2]))])


def test_fingerprints_in_journals_stay_valid() -> None:
    """Digests of the first version, whose classes had other names."""
    table = np.arange(12.0).reshape(6, 2)
    expected: dict[str, Any] = {
        "f86df4e6a1f8926c1a6ac6ac4c8ed895": None,
        "9241731f88386a9892ab5d992b182155": lambda rng, b: rng.random(b),
        "b2047101567b34fad2afaabb274d7e62": table,
        "403f72c8fede3f6618dc9be58fafa0c0": [np.arange(4.0), np.arange(3.0)],
    }
    for digest, given_ in expected.items():
        assert fingerprint(as_shards(given_, 2, 5)) == digest


def test_a_fingerprint_of_what_is_not_plain_numbers() -> None:
    fields = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    gaps = fields.copy()
    gaps.view(np.uint8)[1::16] = 7  # bytes that belong to no field
    changed = fields.copy()
    changed["b"][1] = 1.0
    long = np.linspace(0, 1, 5).astype(np.longdouble)
    longer = long + np.finfo(np.longdouble).eps * long
    words = np.array(["a", None, 2.0], object)
    assert of(fields) == of(gaps) != of(changed)
    assert of(long) != of(longer)
    assert of(words) == of(words.copy()) != of(np.array(["a", None, 2.5], object))
    assert of(np.array(["2020-01-01"], "M8[D]")) != of(np.array(["2020-01-02"], "M8[D]"))


def of(array: Any) -> str:
    return fingerprint([as_rows(array, "data")])


def test_fingerprints_of_journals_stay() -> None:
    """A journal is resumed only if its data have the fingerprint of its header."""
    table = np.arange(140.0).reshape(20, 7) % 11
    labels = np.arange(20) % 3 == 0
    large = np.arange(400_000.0).reshape(100_000, 4) % 5
    expected = {
        "fa4bcf236d32dc4ae09474232cda3489": np.asfortranarray(table),
        "f2d481c2400ea29db44a98be3a0a4dae": (table, labels),
        "b718194e4e9428395c6b51ad9b38342f": (sparse.csr_matrix(table), labels),
        "2694be5fec55e25bc484d3cb63d87c6a": (sparse.csr_array(large), large[:, 0] > 1),
        "418abccf9f922a6822a4d60f95595854": np.array([f"r{i}" for i in range(20)]),
        "88ccf1728f4f92b7e6b9af5dc9a15464": np.array([None, "a", 2.0] * 7, object),
    }
    for digest, data in expected.items():
        shards = as_shards(data, 3, seed=5)
        assert fingerprint(shards) == digest
        assert fingerprint(side_by_side(shards, math.inf)) == digest
    prepared = LinearModel("lr").prepare(as_shards((table, labels), 3, seed=5))
    for shards in (prepared, side_by_side(prepared, math.inf)):
        assert fingerprint(shards) == "96f58dc70fc3230aa1f4e015f366f1df"


# --- each worker's rows side by side ---------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [np.asarray, lambda a: a.astype(np.float32), np.asfortranarray, sparse.csr_array,
     sparse.csr_matrix, lambda a: a[:, 0], lambda a: a.reshape(23, 2, 2), lambda a: a.astype(str),
     lambda a: np.asfortranarray(a.reshape(23, 2, 2))],
)  # fmt: skip
def test_gathered_rows_are_the_same_rows(convert: Callable[[Any], Any]) -> None:
    given = convert(X)
    before = given.copy()
    scattered = as_shards((given, Y), 4, seed=7)
    gathered = cast(Partitioned, side_by_side(scattered, math.inf))
    assert gathered.order is not None
    assert side_by_side(gathered, math.inf) is gathered
    for worker, (one, other) in enumerate(zip(scattered, gathered, strict=True)):
        assert isinstance(one, Rows)
        assert other.rows is not None
        first, last = gathered.bounds[worker], gathered.bounds[worker + 1]
        assert other.rows.tolist() == list(range(first, last))
        for mine, same in zip(other.take(), one.take(), strict=True):
            assert type(mine) is type(same)
            assert mine.dtype == same.dtype
            np.testing.assert_array_equal(as_plain(mine), as_plain(same))
            if isinstance(same, np.ndarray):  # a user's function may depend on it in the last bit
                assert mine.strides == same.strides
    assert not np.shares_memory(memory_of(gathered.arrays[0])[0], memory_of(given)[0])
    np.testing.assert_array_equal(as_plain(given), as_plain(before))


def test_rows_are_gathered_where_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", X)

    def is_gathered(data: Any, workers: int = 2, passes: float = math.inf) -> bool:
        shards = as_shards(data, workers, seed=0)
        return side_by_side(shards, passes) is not shards

    assert is_gathered(X)
    assert is_gathered((sparse.csr_array(X), Y))
    assert is_gathered(X, passes=gather.ENOUGH_PASSES)
    assert not is_gathered(X, passes=gather.ENOUGH_PASSES - 1)
    assert not is_gathered(X, workers=1)
    assert not is_gathered([X, X])
    modes: dict[Any, bool] = {"r": False, "r+": False, "c": True}
    for mode, expected in modes.items():
        mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
        assert is_gathered(mapped) is expected
        assert is_gathered((np.asarray(mapped)[:, 1:], Y)) is True  # as_array has copied it
    with (tmp_path / "x.npy").open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert not is_gathered(np.frombuffer(memory, np.uint8))
    monkeypatch.setattr(gather, "LIMIT", X.nbytes)
    assert is_gathered(X)
    assert not is_gathered((X, Y))
    monkeypatch.setattr(gather, "_memory", lambda: 4 * X.nbytes - 4)
    assert not is_gathered(X)


@pytest.mark.parametrize(
    ("method", "expected"), [("des-mr", 5 * 0.1), ("fed-zo-sgd", 5 * 20 * 0.1), ("es-csa", 5 * 8)]
)
def test_expected_passes(method: str, expected: float) -> None:
    algorithm: Any = METHODS[method].make(method, {"iterations": 40, "population": 8})
    passes = partial(gather.expected_passes, x0=np.zeros(4), batch=100, rounds=5)
    assert passes(algorithm, rows=1000, eval_every=None) == pytest.approx(expected)
    assert passes(algorithm, rows=1000, eval_every=0) == pytest.approx(expected)
    assert passes(algorithm, rows=1000, eval_every=2) == pytest.approx(expected + 2.5)
    assert passes(algorithm, rows=None, eval_every=1) == 0
    bare = SimpleNamespace(init=algorithm.init, plan=algorithm.plan, cost=algorithm.cost)
    usual = 0.5 if method == "fed-zo-sgd" else expected  # its minibatches are not known
    assert passes(bare, rows=1000, eval_every=0) == pytest.approx(usual)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_a_model_does_not_see_the_difference(convert: Callable[[Any], Any]) -> None:
    model = LinearModel("lr")
    shards = model.prepare(as_shards((convert(X), Y > 0), 3, seed=2))
    x = np.array([0.3, -2.0, 1.5, 0.7])
    for one, other in zip(shards, side_by_side(shards, math.inf), strict=True):
        assert isinstance(one, Rows)
        assert isinstance(other, Rows)
        assert model.score(one, x) == model.score(other, x)


@pytest.mark.parametrize("engine", ["serial", "processes"])
@pytest.mark.parametrize("method", ["des-mr", "fed-zo-sgd", "es-csa"])
def test_runs_gather_rows_and_keep_their_bits(
    method: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a run on scattered rows, the rest of it on gathered ones, from one journal."""
    copies = []

    def count(array: Any, order: Any) -> Any:
        copies.append(array.shape)
        return gather.gather(array, order)

    monkeypatch.setattr("desopt.data.shards.gather", count)

    def run(rounds: int, journal: Path | None = None) -> Any:
        return desopt.minimize(
            "lr", None, (sparse.csr_array(X), Y), method=method, workers=3, rounds=rounds,
            iterations=4, batch_size=5, population=4, eval_every=1, engine=engine, jobs=1,
            journal=journal, progress=False,
        )  # fmt: skip

    gathered = run(20)
    assert copies == [(23, 4), (23,)]
    monkeypatch.setattr(gather, "LIMIT", 0)
    scattered = run(20)
    run(10, tmp_path / "journal")
    assert len(copies) == 2
    monkeypatch.undo()
    resumed = run(20, tmp_path / "journal")
    for other in (scattered, resumed):
        assert other.x.tobytes() == gathered.x.tobytes()
        assert other.history["loss"].tolist() == gathered.history["loss"].tolist()


# --- held once -------------------------------------------------------------------------------


def memory_of(array: Any) -> list[NDArray[Any]]:
    return [array.data, array.indices, array.indptr] if sparse.issparse(array) else [array]


@pytest.mark.parametrize(
    "objective", [LinearModel("lr"), PythonObjective(float)], ids=["linear", "callable"]
)
@pytest.mark.parametrize("matrix", [X, sparse.csr_array(X)], ids=["dense", "csr"])
def test_arrays_are_not_copied(matrix: Any, objective: Any) -> None:
    """float64 and C-ordered or CSR: the shards look into the user's own memory.

    Not for indices, which nobody must be able to change once they have been checked.
    """
    for shard in objective.prepare(as_shards((matrix, Y), 3, seed=0)):
        mine, *indices = memory_of(shard.arrays[0])
        theirs = memory_of(matrix)
        assert np.shares_memory(mine, theirs[0])
        for own, other in zip(indices, theirs[1:], strict=True):
            assert not np.shares_memory(own, other)
            np.testing.assert_array_equal(own, other)
    shards = objective.prepare(as_shards([(matrix, Y)], 3, seed=0))
    assert np.shares_memory(memory_of(shards[0].arrays[0])[0], memory_of(matrix)[0])


@pytest.mark.parametrize(
    "convert",
    [np.asarray, lambda a: a.astype(np.float32), np.asfortranarray, lambda a: (9 * a).astype(int),
     lambda a: a[::-1], sparse.csr_array, sparse.csc_array, sparse.coo_matrix,
     lambda a: sparse.csr_array((9 * a).astype(np.int32))],
)  # fmt: skip
def test_shards_share_one_matrix(convert: Callable[[Any], Any]) -> None:
    """Whatever has to be converted is converted once."""
    given = convert(X)
    shards: Any = LinearModel("lr").prepare(as_shards((given, Y > 0), 5, seed=0))
    for shard in shards:
        assert shard.arrays[0] is shards[0].arrays[0]
        assert shard.arrays[1] is shards[0].arrays[1]
        assert sparse.issparse(shard.arrays[0]) == sparse.issparse(given)
    matrix, labels = shards[0].arrays
    plain = given.toarray() if sparse.issparse(given) else given
    np.testing.assert_array_equal(matrix.toarray() if sparse.issparse(matrix) else matrix, plain)
    assert all(part.dtype == np.float64 for part in memory_of(matrix)[:1])
    assert labels.tolist() == Y.tolist()


def test_sparse_data_stay_sparse() -> None:
    """A dense copy would be 800 MB."""
    rows, n = 2000, 50_000
    place = np.random.default_rng(0).integers(0, n, (rows, 5))
    starts = np.arange(0, 5 * rows + 1, 5, dtype=np.int32)
    wide = sparse.csr_array(
        (np.ones(5 * rows), place.ravel().astype(np.int32), starts), shape=(rows, n)
    )
    labels = np.where(place[:, 0] < n // 2, 1, -1)

    def fun(x: Floats, batch: Any) -> float:
        return float(np.logaddexp(0.0, -batch[1] * (batch[0] @ x)).mean())

    for objective, methods in (("lr", list(desopt.METHODS)), (fun, ["des-mr", "fed-zo-sgd"])):
        for method in methods:
            run = partial(
                desopt.minimize, objective, method=method, workers=3, rounds=1, iterations=2,
                batch_size=50, population=4, engine="serial", progress=False,
            )  # fmt: skip
            run(np.zeros(9), (wide[:9, :9], labels[-9:]))  # compile
            tracemalloc.start()
            try:
                run(np.zeros(n), (wide, labels))
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak < 20_000_000, method


def test_a_batch_taken_whole_is_protected() -> None:
    for matrix in (X.copy(), sparse.csr_array(X)):
        shard = as_rows((matrix, Y), "data")
        for part in (*memory_of(shard.take()[0]), shard.take()[1]):
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 5
        assert np.shares_memory(shard.take()[1], Y)
        assert np.shares_memory(memory_of(shard.take()[0])[0], memory_of(matrix)[0])


# --- labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [(-1, 1), (0, 1), (1, 2), (False, True), (-5.5, 3), (4, 9)], ids=str
)
def test_the_smaller_label_is_minus_one(labels: tuple[float, float]) -> None:
    """Also where a shard has one of the two only."""
    given = np.where(Y > 0, labels[1], labels[0])
    order = np.argsort(Y, kind="stable")
    ones = int((Y > 0).sum())
    cuts = [order[: 23 - ones], order[23 - ones :], np.arange(23)]
    shards: Any = LinearModel("lr").prepare(
        as_shards([(X[cut], given[cut]) for cut in cuts], 3, seed=0)
    )
    for shard, cut in zip(shards, cuts, strict=True):
        assert shard.arrays[1].tolist() == Y[cut].tolist()


@pytest.mark.parametrize("labels", [(-1.0, 1.0), (0, 1), (False, True)], ids=str)
def test_labels_a_worker_alone_can_see(labels: tuple[Any, Any]) -> None:
    """A loader's data may lack one label, and must mean the same as those of the others."""
    for side, sign in zip(labels, (-1.0, 1.0), strict=True):
        shard: Any = Loader(partial(tuple, (X, np.full(23, side)))).open(LinearModel("lr"), 0)
        assert set(shard.arrays[1]) == {sign}
    with pytest.raises(ValueError, match=r"labels must be -1 and \+1, or 0 and 1; got 2 .* 1, 2"):
        Loader(lambda: (X, np.where(Y > 0, 2, 1))).open(LinearModel("lr"), 0)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (np.arange(23) % 3, ValueError, "labels must be two-valued .* got 3 different: 0, 1, 2"),
        (np.arange(23), ValueError, r"two-valued .* got 23 different: 0, 1, 2, 3, 4, 5, \.\.\."),
        (np.full(23, 7), ValueError, "two-valued .* got 1 different: 7"),
        (np.array(["a", "b", "c"])[np.arange(23) % 3], TypeError, "labels must be numbers"),
        (Y[:, None], ValueError, r"must be \(X, y\): .* shape \(23, 4\), \(23, 1\)"),
        (np.array([None, 1])[(Y > 0).astype(int)], TypeError, "labels must be numbers"),
    ],
)
def test_bad_labels(labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LinearModel("lr").prepare(as_shards((X, labels), 2, seed=0))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (X, ValueError, r"must be \(X, y\): .* got 1 array"),
        ([X, Y], ValueError, r"must be \(X, y\)"),
        ((X, Y, Y), ValueError, "got 3 array"),
        ((X[:, 0], Y), ValueError, r"must be \(X, y\)"),
        (None, TypeError, "data is missing: 'lr' needs"),
        ((X + 1j, Y), TypeError, "X must hold real numbers, got dtype complex128"),
        ((X.astype(str), Y), TypeError, "X must hold real numbers"),
        ((X.astype(object), Y), TypeError, "X must hold real numbers, got dtype object"),
        ((X[:, :0], Y), ValueError, r"at least one column, got shape \(23, 0\)"),
        ((np.where(X > 1, np.inf, X), Y), ValueError, "X contains infinity"),
        ((sparse.csr_array(np.where(X > 1, -np.inf, X)), Y), ValueError, "X contains infinity"),
    ],
)
def test_bad_data_for_a_linear_model(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LinearModel("lr").prepare(as_shards(data, 2, seed=0))


def test_shards_of_different_widths() -> None:
    model = LinearModel("lr")
    shards = model.prepare(as_shards([(X[:, :3], Y), (X, Y), (X, Y)], 2, seed=0))
    with pytest.raises(ValueError, match=r"worker 0 has 3 columns, worker 1 has 4; every worker"):
        model.dimension(shards)


# --- values ----------------------------------------------------------------------------------


def model_value(loss: str, matrix: Any, y: Any, x: Floats, penalty: float = 0.0) -> float:
    model = LinearModel(loss, penalty)
    (shard,) = model.prepare([as_rows((matrix, y), "data")], some=True)
    return model.score(cast(Rows, shard), x)[0]


@pytest.mark.parametrize("layout", [np.array, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_at_all_margins(loss: str, layout: Callable[[Any], Any]) -> None:
    margins = [0.0, -0.0, 1e4, -1e4, 1e-300, -1e-300, 1.0, -1.0, 20.0, -20.0, 36.0, 300.0, -300.0]
    margins += [700.0, -700.0, 709.0, 710.0, -710.0, 746.0, 1e300, -1e300]
    margins += np.random.default_rng(1).uniform(-50, 50, 200).tolist()
    for a in margins:
        for sign in (-1.0, 1.0):  # the margin is y z'x
            found = model_value(loss, layout([[sign * a]]), [sign], np.ones(1))
            exact = float(oracle.exact_loss(loss, a))
            assert found == pytest.approx(exact, rel=1e-13, abs=1e-300), a


@pytest.mark.parametrize("loss", LOSSES)
def test_nan_is_not_lost(loss: str) -> None:
    """A margin of inf - inf, as a point that runs away has it. The penalty is inf, not NaN."""
    value = model_value(loss, np.ones((1, 2)), [1.0], np.array([np.inf, -np.inf]), penalty=1.0)
    assert np.isnan(value)


@pytest.mark.parametrize("layout", [np.array, sparse.csr_array], ids=["dense", "csr"])
def test_objective_against_scikit_learn(layout: Callable[[Any], Any]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    special = pytest.importorskip("scipy.special")
    matrix, x, penalty = layout(X), np.array([0.3, -2.0, 1.5, 0.7]), 0.37
    ridge = penalty / 2 * float(x @ x)
    scores = X @ x
    lr = metrics.log_loss(Y, special.expit(scores))
    assert model_value("lr", matrix, Y, x, penalty) == pytest.approx(lr + ridge, rel=1e-12)
    lsvm = metrics.hinge_loss(Y, scores)
    assert model_value("lsvm", matrix, Y, x, penalty) == pytest.approx(lsvm + ridge, rel=1e-12)
    for loss, expected in (("lr", lr + ridge), ("lsvm", lsvm + ridge)):  # and through minimize
        result = desopt.minimize(
            loss, x, (matrix, Y), workers=4, rounds=1, iterations=2, batch_size=3,
            regularization=penalty, progress=False,
        )  # fmt: skip
        assert result.initial_fun == pytest.approx(expected, rel=1e-12)


def test_a_batch_counts_rows_as_often_as_they_are_drawn() -> None:
    model = LinearModel("lr", 0.0)
    (shard,) = model.prepare(as_shards([(X, Y)], 1, seed=0))
    x = np.array([0.3, -2.0, 1.5, 0.7])
    drawn = Rows(shard.arrays, np.array([3, 3, 3, 8]))
    f = model.bind(Batch(drawn, 1, STREAM, Batches.ALL), x)
    losses = np.logaddexp(0.0, -Y * (X @ x))
    assert f.value(x) == pytest.approx((3 * losses[3] + losses[8]) / 4, rel=1e-13)
    assert f.rows == 4
