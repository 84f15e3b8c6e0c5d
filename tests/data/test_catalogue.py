"""Data sets by name and by file: folders, labels, scaling, formats, the cache."""

from __future__ import annotations

import bz2
import errno
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import real_sets
from helpers.command import call
from scipy import sparse

import desopt
from desopt import data
from desopt.data import cache, catalogue, libsvm
from desopt.data import digests as digests_of

HEART = b"".join(b"%+d %d:%d.5 13:1\n" % (1 - 2 * (i % 2), 1 + i % 12, i) for i in range(270))


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DESOPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DESOPT_DATA", raising=False)


def put(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def entries(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "parsed").glob("*"))


# --- folders and names -----------------------------------------------------------------------


def test_folders_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESOPT_DATA", str(tmp_path / "b"))
    last = put(tmp_path / "cache" / "data", "heart_scale.bz2", bz2.compress(HEART))
    assert data.find("heart", tmp_path / "a") == last
    second = put(tmp_path / "b", "heart_scale", HEART)
    assert data.find("heart", tmp_path / "a") == second
    first = put(tmp_path / "a", "heart_scale.xz", b"")
    assert data.find("heart", tmp_path / "a") == first
    assert data.find("heart") == second
    assert data.find("heart_scale") == second  # a file by its name in a folder
    assert "heart" in data.available()
    assert "a9a" not in data.available()
    assert {"susy-like", "real-sim-like", "rcv1-like"} < set(data.available())
    assert set(data.available()) < set(data.names())


@pytest.mark.parametrize(
    ("name", "file"),
    [("SUSY", "SUSY.bz2"), ("rcv1", "rcv1_test.binary.bz2"), ("a9a", "a9a"), ("mnist", "mnist.xz"),
     ("covtype", "covtype.libsvm.binary.scale"), ("real-sim", "real-sim.gz"),
     ("news20", "news20.bz2")],
)  # fmt: skip
def test_names_of_the_page(tmp_path: Path, name: str, file: str) -> None:
    assert data.find(name, put(tmp_path, file, b"").parent).name == file


def test_a_missing_set_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        data.load("rcv1", data_dir=tmp_path / "mine")
    for part in ("rcv1_test.binary.bz2", str(tmp_path / "mine"), str(tmp_path / "cache" / "data"),
                 "desopt data fetch rcv1", "rcv1-like"):  # fmt: skip
        assert part in str(caught.value)
    with pytest.raises(
        FileNotFoundError, match=r"no file 'susy'.*did you mean 'SUSY'\?.*Known are"
    ):
        data.load("susy")


def test_a_path_is_never_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "mushrooms", b"3 1:1\n7 2:1\n")
    monkeypatch.chdir(tmp_path)
    for path in (Path("mushrooms"), "./mushrooms", tmp_path / "mushrooms"):
        loaded = data.load(path)
        assert (loaded.name, loaded.y.tolist()) == ("mushrooms", [-1.0, 1.0])


# --- labels and scaling ----------------------------------------------------------------------


def test_labels_of_a_file(tmp_path: Path) -> None:
    path = put(tmp_path, "two.txt", b"1 1:1\n2 2:1\n2 3:4\n")
    assert data.load(path).y.tolist() == [-1.0, 1.0, 1.0]
    assert data.load(path, positive=1).y.tolist() == [1.0, -1.0, -1.0]
    assert data.load(path, positive=1).origin == "two.txt; label 1 is +1"
    path = put(tmp_path, "many.txt", b"1 1:1\n2 2:1\n5 3:4\n")
    with pytest.raises(ValueError, match=r"many.txt has 3 different labels: 1, 2, 5; .*positive=3"):
        data.load(path)
    assert data.load(path, positive=lambda y: y >= 2).y.tolist() == [-1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"positive gave shape .* for 3 labels"):
        data.load(path, positive=lambda y: y[:1] > 2)
    for one, sign in ((b"-1", -1.0), (b"0", -1.0), (b"2", 1.0)):
        assert data.load(put(tmp_path, "one.txt", one + b" 1:1\n")).y.tolist() == [sign]


def test_a_named_set_of_another_shape_is_warned_of(tmp_path: Path) -> None:
    put(tmp_path, "mnist", b"4 1:255\n5 2:51\n")
    with pytest.warns(UserWarning, match="holds 2 rows of 780 numbers, but mnist has 60,000"):
        loaded = data.load("mnist", data_dir=tmp_path)
    assert loaded.origin == "mnist; values / 255; label > 4 is +1"
    assert loaded.X.shape == (2, 780)
    assert loaded.X.data.tolist() == [1.0, 0.2]
    assert loaded.y.tolist() == [-1.0, 1.0]


def test_rows_of_unit_length(tmp_path: Path) -> None:
    put(tmp_path, "news20.bz2", bz2.compress(b"11 1:3 5:4\n10\n1 2:7\n3 1:0\n20\n"))
    with pytest.warns(UserWarning, match="news20"):
        loaded = data.load("news20", data_dir=tmp_path)
    assert loaded.X.toarray()[:, :5].tolist() == [
        [0.6, 0, 0, 0, 0.8], [0.0] * 5, [0, 1.0, 0, 0, 0], [0.0] * 5, [0.0] * 5,
    ]  # fmt: skip
    assert loaded.y.tolist() == [1, -1, -1, -1, 1]


@pytest.mark.parametrize(
    ("name", "dense", "positive"),
    [
        ("heart", True, 120),
        ("mushrooms", False, 4208),
        ("a9a", False, 7841),
        ("ijcnn1", True, 4853),
        ("rcv1-subset", False, 11829),
        ("susy-30k", True, 13815),
    ],
)
def test_real_sets(name: str, dense: bool, positive: int, tmp_path: Path) -> None:
    folder = tmp_path
    if real_sets.there(catalogue.CATALOGUE[name].file):
        folder = real_sets.SHARED
    elif not catalogue.CATALOGUE[name].page:
        pytest.skip(f"{catalogue.CATALOGUE[name].file} is not beside the clone, nor on the page")
    else:
        real_sets.write(folder, name, positive)
    loaded = data.load(name, data_dir=folder)  # no warning: the shape is the published one
    again = data.load(name, data_dir=folder)
    assert (loaded.rows, loaded.n) == (catalogue.CATALOGUE[name].rows, catalogue.CATALOGUE[name].n)
    assert loaded.density == pytest.approx(
        catalogue.CATALOGUE[name].nonzeros / loaded.rows / loaded.n
    )
    assert isinstance(loaded.X, np.ndarray) == dense
    assert int((loaded.y > 0).sum()) == positive
    assert not loaded.generated
    assert (loaded.X != again.X).sum() == 0


def test_a_subset_is_drawn_by_the_seed(tmp_path: Path) -> None:
    path = put(tmp_path, "x.txt", b"".join(b"%d 1:%d\n" % (i % 2, i) for i in range(100)))
    small, large, other = (data.load(path, rows=r, seed=s) for r, s in ((20, 0), (60, 0), (20, 1)))
    assert small.rows == small.y.size == 20
    assert set(small.X[:, 0]) < set(large.X[:, 0]) != set(other.X[:, 0])
    assert (small.X[:, 0] % 2 == (small.y > 0)).all()
    assert small.origin.endswith("20 of 100 rows, seed 0")
    for rows in (0, 101):
        with pytest.raises(ValueError, match=f"rows of x.txt must be 1 to 100, got {rows}"):
            data.load(path, rows=rows)


# --- other formats ---------------------------------------------------------------------------

X = np.array([[0.0, 1.5], [2.0, 0.0], [0.0, -1.0]])


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, X=X.astype(np.float32), y=np.array([1, 2, 1]))
    loaded = data.load(path)
    assert (loaded.X.tolist(), loaded.y.tolist()) == (X.tolist(), [-1, 1, -1])
    wide = sparse.csr_matrix(np.pad(X, ((0, 0), (0, 98))))
    np.savez(path, data=wide.data, indices=wide.indices, indptr=wide.indptr, shape=wide.shape,
             target=[1, 2, 1])  # fmt: skip
    loaded = data.load(path, label="target")
    assert sparse.issparse(loaded.X)
    np.testing.assert_array_equal(loaded.X.toarray(), wide.toarray())
    with pytest.raises(
        ValueError, match="holds data, indices, indptr, shape, target; expected X and y"
    ):
        data.load(path)
    np.savez(path, data=wide.data, indices=wide.indices, indptr=wide.indptr, shape=wide.shape,
             format=b"csc", y=[1, 2, 1])  # fmt: skip
    with pytest.raises(ValueError, match=r"set.npz holds a matrix in the format b'csc'"):
        data.load(path)
    for bad, message in (
        ({"X": X, "y": [1, 2]}, r"shapes \(3, 2\) and \(2,\)"),
        ({"X": X * np.nan, "y": [1, 2, 1]}, "NaN or infinity"),
        ({"X": X, "y": list("abc")}, "expected numbers"),
    ):
        np.savez(path, X=np.array(bad["X"]), y=np.array(bad["y"]))
        with pytest.raises(ValueError, match=f"set.npz.*{message}"):
            data.load(path)


def test_npz_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, X=X, y=np.array([1, 2, 1]))
    whole = path.read_bytes()
    plain, pickled = io.BytesIO(), io.BytesIO()
    np.save(plain, X)
    np.savez(pickled, X=X.astype(object), y=np.array([1, 2, 1]))
    huge = whole.replace(b"(3, 2)", b"(3, 9)").replace(b"(3,)", b"(9,)")
    for content in (b"", b"PK", whole[:-9], whole[40:], plain.getvalue(), pickled.getvalue(), huge):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"set\.npz cannot be read: .*get it again") as caught:
            data.load(path)
        assert "\n" not in str(caught.value)


def test_npz_that_nobody_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not damaged, and another copy would not help."""

    def refused(path: Path, *_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    path = put(tmp_path, "set.npz", b"")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(PermissionError, match=r"Permission denied.*set\.npz"):
        data.load(path)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("a,Label,b\n0,1,1.5\n2,2,0\n0,1,-1\n", None),
        ('"a","b","kind"\r\n0,1.5,1\r\n2,0,2\r\n0,-1,1\r\n', "kind"),
        ("0,1.5,1\n2,0,2\n0,-1,1", -1),
        ("1,0,1.5\n2,2,0\n1,0,-1\n", 0),
        ("\ufeff1,0,1.5\n2,2,0\n1,0,-1\n", 0),
        ('"weight, kg", "b ""c""",kind\n0,1.5,1\n2,0,2\n0,-1,1\n', "kind"),
    ],
)
def test_csv(tmp_path: Path, text: str, label: str | int | None) -> None:
    for name, content in (("x.csv", text.encode()), ("x.csv.bz2", bz2.compress(text.encode()))):
        loaded = data.load(put(tmp_path, name, content), label=label)
        assert (loaded.name, loaded.X.tolist(), loaded.y.tolist()) == (
            "x.csv",
            X.tolist(),
            [-1, 1, -1],
        )


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        ("a,b\n1,2\n", None, "has the columns a, b; say which one holds the labels"),
        ("1,2\n", None, "columns 2 without names; say which"),
        ("a,y\n1,2\n", "z", "label='target' or label=0, got 'z'"),
        ("1,2\n", 2, "got 2"),
        ("a,y\n1,2\nx,2\n", None, "could not convert string 'x'"),
        ("a,y\n1,2\n1\n", None, "number of columns changed"),
        ("a,y\nnan,2\n", None, "holds NaN or infinity"),
        ("a,y\n", None, "holds no rows"),
        ("", None, "is empty; expected a line of names or numbers"),
        ("\r\na,y\n1,2\n", None, "begins with an empty line; expected a line of names"),
        ("weight, kg,y\n1,2\n3,4\n", None, "the first line has 3 columns, the rows have 2"),
        ("x" * 200_000 + ",y\n1,2\n", None, "line 1: field larger than"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, label: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"x.csv.*{message}"):
        data.load(put(tmp_path, "x.csv", text.encode()), label=label)
    assert not entries(tmp_path)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.bz2"])
def test_a_link_has_the_format_of_its_own_name(tmp_path: Path, name: str) -> None:
    """As to the blobs of caches that are named by digests."""
    text = b"a,y\n1,1\n2,-1\n"
    blob = put(tmp_path, "0a1b2c.txt", bz2.compress(text) if name.endswith(".bz2") else text)
    (tmp_path / name).symlink_to(blob)
    loaded = data.load(tmp_path / name)
    assert (loaded.columns, loaded.X.tolist(), loaded.y.tolist()) == (("a",), [[1], [2]], [1, -1])


def test_names_of_columns_may_have_commas(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", b'label,"weight, kg",height\n1,1,2\n-1,2,3\n')
    assert data.load(path).columns == ("weight, kg", "height")


def test_a_label_column_is_for_csv(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"label=3 is for \.csv and \.npz files"):
        data.load(put(tmp_path, "x.txt", b"1 1:1\n"), label=3)


# --- the cache -------------------------------------------------------------------------------


def test_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "x.txt", HEART)
    reads: list[Path] = []
    read = libsvm.read

    def counted(path: Path) -> Any:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(libsvm, "read", counted)
    first = data.load(path)
    second = data.load(path)
    assert len(reads) == 1
    np.testing.assert_array_equal(first.X.toarray(), second.X.toarray())
    second.X.data[:] = 7.0  # a private copy: neither the file nor another load sees it
    assert data.load(path).X.data[0] == first.X.data[0] != 7.0
    path.write_bytes(HEART + b"1 1:1\n")
    assert data.load(path).rows == 271
    assert len(entries(tmp_path)) == 1  # those of former versions are gone
    assert len(reads) == 2
    path.write_bytes(HEART + b"1 1:1\n")  # a new time, but nothing new
    assert data.load(path).rows == 271
    assert len(reads) == 2


@pytest.mark.parametrize("name", ["a[1]*.txt", f"{'long' * 60}.txt"])
def test_entries_of_files_with_any_name(tmp_path: Path, name: str) -> None:
    for extra in (b"", b"1 1:1\n"):
        data.load(put(tmp_path, name, HEART + extra))
        assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize("settled", [-1.0, 2.0], ids=["noted", "too young to be noted"])
def test_a_change_is_noticed_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: float
) -> None:
    """The same size, and the old time put back: nothing but the bytes tells."""
    monkeypatch.setattr(cache, "_SETTLED", settled)
    path = put(tmp_path, "x.txt", HEART)
    before = path.stat()
    for new in (9, 8, 7):
        data.load(path)
        time.sleep(0.05)  # more than a tick of the clock that file systems have
        path.write_bytes(HEART.replace(b"1:0.5", b"1:%d.5" % new))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert data.load(path).X[0, 0] == new + 0.5


def test_a_file_left_alone_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_SETTLED", -1.0)
    path = put(tmp_path, "x.txt", HEART)
    data.load(path)
    data.load(path)
    monkeypatch.setattr(cache, "of_file", lambda path: pytest.fail(f"{path} is read"))
    assert data.load(path).rows == 270


def test_nothing_malformed_is_cached(tmp_path: Path) -> None:
    path = put(tmp_path, "x.txt", HEART + b"1 1:x\n")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"x.txt, line 271, column 5: expected a number"):
            data.load(path)
    assert not entries(tmp_path)


def test_a_file_that_changes_while_it_is_read_is_not_cached(tmp_path: Path) -> None:
    states = iter("ab")
    made = cache.cached("x", "y", lambda: next(states), lambda: (np.eye(2), np.ones(2)))
    assert made[0].tolist() == np.eye(2).tolist()
    assert not entries(tmp_path)


def test_a_damaged_entry_is_replaced(tmp_path: Path) -> None:
    path = put(tmp_path, "x.txt", HEART)
    expected = data.load(path).X.toarray()
    (entry,) = (tmp_path / "cache" / "parsed").iterdir()
    for damage in (b"", b"\x93NUMPY", (entry / "data.npy").read_bytes()[:-8]):
        (entry / "data.npy").write_bytes(damage)
        np.testing.assert_array_equal(data.load(path).X.toarray(), expected)
        assert (entry / "data.npy").stat().st_size > len(damage)
    (entry / "labels.npy").unlink()
    assert data.load(path).y.size == 270


@pytest.mark.parametrize("name", ["data", "indices", "indptr", "labels", "X"])
def test_an_altered_entry_is_replaced(tmp_path: Path, name: str) -> None:
    """By a number that could well be there: only the digest tells."""
    rows = HEART if name != "X" else b"1 1:3\n0 1:2\n" * 10
    path = put(tmp_path, "x.txt", rows)
    data.load(path)
    expected = as_dense(data.load(path))
    (entry,) = (tmp_path / "cache" / "parsed").iterdir()
    array = np.load(entry / f"{name}.npy")
    array[3] += 1
    np.save(entry / f"{name}.npy", array)
    np.testing.assert_array_equal(as_dense(data.load(path)), expected)


def as_dense(loaded: data.DataSet) -> Any:
    X = loaded.X.toarray() if sparse.issparse(loaded.X) else loaded.X
    return np.column_stack([X, loaded.y])


BROKEN: dict[str, Any] = {
    "indices": [np.full(540, 10**6, np.int32), np.full(540, -5, np.int32), np.zeros(9, np.int32),
                np.zeros((540, 1), np.int32), np.zeros(540), np.array(["a"] * 540)],
    "indptr": [np.full(271, 10**6, np.int32), np.arange(-1, 270), np.zeros(2, np.int32),
               np.arange(271)[::-1]],
    "data": [np.zeros(3), np.zeros(540, np.float32), np.zeros((540, 2))],
    "shape": [np.array([270, 2]), np.array([10**9, 13]), np.array([-1, -1]), np.array([270]),
              np.array([1e300, 1e300])],
    "labels": [np.zeros(3), np.zeros((270, 1)), np.zeros(270, np.float32)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "array"), [(name, array) for name, arrays in BROKEN.items() for array in arrays]
)
def test_a_forged_entry_is_replaced(tmp_path: Path, name: str, array: Any) -> None:
    """With digests to match: what is in it is checked nevertheless."""
    path = put(tmp_path, "x.txt", HEART)
    expected = as_dense(data.load(path))
    (entry,) = (tmp_path / "cache" / "parsed").iterdir()
    np.save(entry / f"{name}.npy", array)
    digests = {file.stem: digests_of.of_file(file) for file in entry.glob("*.npy")}
    (entry / "digests.json").write_text(json.dumps(digests))
    assert data.load(path, rows=100).rows == 100
    np.testing.assert_array_equal(as_dense(data.load(path)), expected)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"X": 1}', "\xff"])
def test_an_entry_with_other_digests_is_replaced(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, "x.txt", HEART)
    expected = as_dense(data.load(path))
    (entry,) = (tmp_path / "cache" / "parsed").iterdir()
    (entry / "digests.json").write_text(text)
    np.testing.assert_array_equal(as_dense(data.load(path)), expected)


def test_a_pipe_in_the_cache_is_not_waited_for(tmp_path: Path) -> None:
    path = put(tmp_path, "x.txt", HEART)
    data.load(path)
    (entry,) = (tmp_path / "cache" / "parsed").iterdir()
    (entry / "data.npy").unlink()
    os.mkfifo(entry / "data.npy")
    assert data.load(path).rows == 270


def test_no_cache_where_none_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "x.txt", HEART)
    monkeypatch.setenv("DESOPT_CACHE", str(put(tmp_path, "a-file", b"")))
    assert data.load(path).rows == data.load(path).rows == 270


def test_no_cache_where_none_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is too long fails as the folder of another user does, for root as well."""
    path = put(tmp_path, "x.txt", HEART)
    monkeypatch.setenv("DESOPT_CACHE", str(tmp_path / ("x" * 300)))
    assert data.load(path).rows == data.load(path).rows == 270


def test_processes_that_parse_at_once(tmp_path: Path) -> None:
    path = put(tmp_path, "x.txt", HEART * 50)
    code = f"from desopt import data; print(data.load({str(path)!r}).X.sum())"
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    sums = {process.communicate(timeout=900)[0] for process in running}
    assert sums == {f"{data.load(path).X.sum()}\n".encode()}
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_mapped_arrays_in_every_engine(tmp_path: Path, engine: str) -> None:
    dense = b"".join(b"%d 1:%d 2:%d.5\n" % (i % 2, i % 5, i % 7) for i in range(3000))
    wide = b"".join(b"%d %d:%d.5\n" % (i % 2, 1 + i % 40, i % 7) for i in range(3000))
    for text in (dense, wide):
        path = put(tmp_path, "x.txt", text)
        data.load(path)
        loaded = data.load(path)
        values = loaded.X.data if sparse.issparse(loaded.X) else loaded.X
        assert type(values) is np.ndarray
        assert values.base is not None  # mapped
        results = [
            desopt.minimize("lr", np.zeros(loaded.n), (matrix, loaded.y), workers=2, rounds=2,
                            iterations=10, batch_size=20, engine=by, jobs=1, progress=False).x
            for matrix, by in ((loaded.X, engine), (loaded.X.copy(), "serial"))
        ]  # fmt: skip
        np.testing.assert_array_equal(results[0], results[1])


# --- the command -----------------------------------------------------------------------------


def test_data_list(tmp_path: Path) -> None:
    put(tmp_path, "heart_scale", b"not parsed")
    done = call("data", "list", "--data-dir", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert set(data.names()) < set(rows)
    assert str(tmp_path / "heart_scale") in rows["heart"]
    assert "96.24%" in rows["heart"]
    assert "not found" in rows["rcv1"]
    assert "677,399" in rows["rcv1"]
    assert "generated" in rows["susy-like"]
    assert "\x1b" not in done.stdout


def test_a_digest_that_cannot_be_noted_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Any, target: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path, notes = tmp_path / "a", tmp_path / "notes"
    path.write_bytes(b"1")
    os.utime(path, (1.0, 1.0))
    monkeypatch.setattr(cache, "_SETTLED", -1.0)  # its ctime is now
    monkeypatch.setattr(os, "replace", full)
    assert len(cache.file_digest(path, notes / "a")) == 32
    assert list(notes.iterdir()) == []
