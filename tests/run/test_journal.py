"""The journal: what is written comes back bit for bit, and nothing else is taken for it."""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

import desopt
from desopt.cli.replay import replay as replay_command
from desopt.contract.types import Answer
from desopt.methods.des import DES, DESState
from desopt.run import header as headers
from desopt.run import journal as journals

ROUNDS = 6
_RNG = np.random.default_rng(5)
_X = _RNG.standard_normal((60, 7))
DATA = (_X, np.sign(_X @ _RNG.standard_normal(7)))
SETTINGS: dict[str, Any] = {
    "workers": 4, "rounds": ROUNDS, "iterations": 6, "batch_size": 5, "seed": 3,
    "engine": "serial", "eval_every": 1, "progress": False,
}  # fmt: skip


def run(journal: Path | None, **changes: Any) -> desopt.Result:
    arguments = {"fun": "lr", "x0": None, "data": DATA, **SETTINGS, **changes}
    return desopt.minimize(journal=journal, **arguments)


def rows(history: desopt.History) -> list[list[float | None]]:
    """The history without the time that it took; NaN as None, so that it equals itself."""
    names = sorted(set(history[0]) - {"seconds"})
    return [[None if row[n] != row[n] else row[n] for n in names] for row in history]


def assert_same(one: desopt.Result, other: desopt.Result) -> None:
    assert one.x.tobytes() == other.x.tobytes()
    assert rows(one.history) == rows(other.history)
    assert (one.fun, one.nfev, one.nit) == (other.fun, other.nfev, other.nit)
    assert one.initial_fun == other.initial_fun


class Points(list[NDArray[np.float64]]):
    """A callback that keeps x_0, x_1, ..."""

    def __init__(self) -> None:
        super().__init__([np.zeros(7)])

    def __call__(self, row: desopt.Row) -> None:
        self.append(row.x.copy())

    def assert_in(self, journal: Path) -> None:
        for t, x in enumerate(self):
            assert desopt.replay(journal, round=t).tobytes() == x.tobytes(), f"round {t}"


def records(data: bytes) -> list[tuple[int, int, bytes]]:
    """(start, end, kind) of the records, by the layout that the module describes."""
    found, at = [], 8
    while at < len(data):
        end = at + 11 + int.from_bytes(data[at + 3 : at + 7], "little") + 8
        found.append((at, end, data[at + 2 : at + 3]))
        at = end
    assert at == len(data)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, desopt.Result, Points]:
    """An undisturbed run: its journal, its result and its points."""
    path, points = tmp_path_factory.mktemp("whole") / "run.journal", Points()
    result = run(path, callbacks=[points])
    return path.read_bytes(), result, points


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journals")


# --- what is written comes back --------------------------------------------------------------

counts = st.integers(0, 2**60)
floats = st.floats(allow_nan=True)
answers_of_a_round = st.dictionaries(st.integers(0, 2**32 - 2), st.binary(max_size=200), max_size=4)


@given(st.lists(st.tuples(answers_of_a_round, floats, counts), max_size=5), st.lists(floats))
def test_round_trip(
    folder: Path, rounds: list[tuple[dict[int, bytes], float, int]], x: Any
) -> None:
    path = folder / "round-trip"
    path.unlink(missing_ok=True)
    config = {"workers": 2**32 - 1, "n": 7, "batch_size": 1, "participation": 1.0,
              "method": {"name": "ü", "c": [1.5]}}  # fmt: skip
    header = {"config": config, "versions": {}, "initial_fun": None}
    state = DESState(0, np.array(x, np.float64), np.array(x[::-1], np.float64))
    journal = journals.Journal.create(path, header, state)
    written = []
    count = 0
    for t, (payloads, loss, more) in enumerate(rounds):
        count += more
        row = desopt.Row(
            round=t + 1, seconds=0.1 * t, loss=loss, evaluations=count, samples=count,
            bytes_up=t, bytes_down=count, nans=t, repeated=3 * t, answers=len(payloads),
        )  # fmt: skip
        answers = [Answer(worker, payloads[worker]) for worker in sorted(payloads)]
        journal.append(row, answers)
        journal.snapshot(DESState(t + 1, state.x, state.m))
        written.append((row, answers))
    journal.close()
    contents = journals.read(path)
    assert contents.header == header
    assert [repr(row) for row in contents.rows] == [repr(row) for row, _ in written]
    assert contents.answers == [answers for _, answers in written]
    assert [snapshot.round for snapshot in contents.snapshots] == list(range(len(rounds) + 1))
    for snapshot in contents.snapshots:
        found = snapshot.state(state)
        assert found.round == snapshot.round
        assert found.x.tobytes() == state.x.tobytes()
        assert found.m.tobytes() == state.m.tobytes()
    assert not contents.torn
    assert contents.end == path.stat().st_size


@pytest.mark.parametrize("method", desopt.METHODS)
def test_replay_gives_every_point(tmp_path: Path, method: str) -> None:
    points = Points()
    result = run(tmp_path / "j", method=method, callbacks=[points])
    assert len({x.tobytes() for x in points}) >= ROUNDS, "rounds that do nothing prove nothing"
    points.assert_in(tmp_path / "j")
    assert desopt.replay(tmp_path / "j").tobytes() == result.x.tobytes()


@pytest.mark.parametrize("round", [-1, ROUNDS + 1])
def test_replay_refuses_rounds_that_are_not_there(tmp_path: Path, round: int) -> None:
    run(tmp_path / "j")
    with pytest.raises(ValueError, match=f"round must be 0 to {ROUNDS}.*got {round}"):
        desopt.replay(tmp_path / "j", round=round)
    with pytest.raises(TypeError, match=r"round must be a whole number, got 1\.5"):
        desopt.replay(tmp_path / "j", round=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", desopt.METHODS)
def test_snapshots_are_used_and_change_nothing(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, plain, marked = Points(), tmp_path / "plain", tmp_path / "marked"
    run(plain, method=method, eval_every=0)
    run(marked, method=method, snapshot_every=2, eval_every=0, callbacks=[points])
    points.assert_in(marked)
    algorithm = desopt.METHODS[method].algorithm
    merge, merged = algorithm.merge, []

    def counted(self: Any, state: Any, answers: Any) -> Any:
        merged.append(state.round)
        return merge(self, state, answers)

    monkeypatch.setattr(algorithm, "merge", counted)
    desopt.replay(plain, round=5)
    desopt.replay(marked, round=5)
    assert merged == [0, 1, 2, 3, 4, 4]
    # Without losses there is no best point to rebuild besides.
    longer = run(marked, method=method, snapshot_every=2, eval_every=0, rounds=ROUNDS + 1)
    assert merged[6:] == [ROUNDS], "the resumed run starts at the last snapshot"
    assert (
        longer.x.tobytes() == run(plain, method=method, rounds=ROUNDS + 1, eval_every=0).x.tobytes()
    )


@pytest.mark.parametrize("snapshots", [0, 2])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_resumed_equals_undisturbed(tmp_path: Path, method: str, snapshots: int) -> None:
    points, path = Points(), tmp_path / "j"
    whole = run(None, method=method, callbacks=[points])
    first = run(path, method=method, rounds=2, snapshot_every=snapshots)
    second = run(path, method=method, snapshot_every=snapshots)
    assert_same(second, whole)
    assert second.history[:2] == first.history[:2], "the rows that were there, to the second"
    points.assert_in(path)
    again = run(path, method=method)
    assert_same(again, whole)
    assert again.history[:] == second.history[:]


def test_loss_that_is_not_computed_stays_so(tmp_path: Path) -> None:
    run(tmp_path / "j", rounds=3, eval_every=0)
    result = run(tmp_path / "j", eval_every=0)
    assert math.isnan(result.initial_fun)
    assert np.isnan(result.history["loss"]).all()


# --- a torn tail -----------------------------------------------------------------------------


def test_torn_tail_is_dropped(folder: Path, whole: tuple[bytes, desopt.Result, Points]) -> None:
    data, result, points = whole
    rounds = [(start, end) for start, end, kind in records(data) if kind == b"R"]
    assert len(rounds) == ROUNDS
    path = folder / "torn"
    cuts = set(range(rounds[-1][0] + 1, len(data)))
    for start, end in rounds:
        cuts |= {start + 1, (start + end) // 2, end - 1}
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        with pytest.warns(RuntimeWarning, match="torn.*incomplete") as caught:
            resumed = run(path)
        assert len(caught) == 1
        assert_same(resumed, result)
        assert len(path.read_bytes()) == len(data), f"cut at {cut}: no more and no less"
        points.assert_in(path)


def test_cut_between_records_is_only_shorter(
    folder: Path, whole: tuple[bytes, desopt.Result, Points]
) -> None:
    data, result, _ = whole
    path = folder / "shorter"
    for start, _, kind in records(data):
        if kind == b"R":
            path.write_bytes(data[:start])
            assert_same(run(path), result)


@pytest.mark.filterwarnings("ignore:.*incomplete:RuntimeWarning")
def test_cut_header_is_refused(folder: Path, whole: tuple[bytes, desopt.Result, Points]) -> None:
    """It appears with a complete header or not at all, so this is no crash of ours."""
    data = whole[0]
    path = folder / "cut-header"
    first_round = next(start for start, _, kind in records(data) if kind == b"R")
    for cut in range(first_round):
        path.write_bytes(data[:cut])
        with pytest.raises(desopt.JournalError, match="cut-header"):
            run(path)
        assert path.read_bytes() == data[:cut], "what is refused is not touched"


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_full_disk_stops_the_run_and_the_journal_resumes(
    tmp_path: Path, whole: tuple[bytes, desopt.Result, Points]
) -> None:
    """A write that the disk takes a part of only must not pass for a written round."""
    data, result, _ = whole
    limit = records(data)[4][0] + 30
    code = (
        "import sys, resource; sys.path.insert(0, sys.argv[1]); import test_journal as t\n"
        "from pathlib import Path\n"
        "t.run(None)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)\n"
        "t.run(Path(sys.argv[2]), callbacks=[lambda row: print(row['round'], flush=True)])\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "j")]
    done = subprocess.run([*command, str(limit)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 1
    assert "OSError" in done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a torn tail may be left
        assert len(journals.read(tmp_path / "j").rows) >= len(done.stdout.split())
        assert_same(run(tmp_path / "j"), result)


# --- damage ----------------------------------------------------------------------------------


def assert_refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(desopt.JournalError, match=path.name) as caught:
        desopt.replay(path)
    return str(caught.value)


def test_flipped_bit_in_any_byte_before_the_last_record_is_refused(
    folder: Path, whole: tuple[bytes, desopt.Result, Points]
) -> None:
    data = whole[0]
    parts = records(data)
    path, rounds = folder / "flipped", -1
    bits = np.random.default_rng(1).integers(8, size=len(data))
    for start, end, kind in [(0, 8, b"-"), *parts[:-1]]:
        rounds += kind == b"R"
        for offset in range(start, end):
            damaged = bytearray(data)
            damaged[offset] ^= 1 << bits[offset]
            message = assert_refused(path, bytes(damaged))
            if offset >= 8:
                assert f"after round {max(rounds, 0)} (byte {start} of" in message


def test_flipped_bit_in_the_magic_says_so(
    folder: Path, whole: tuple[bytes, desopt.Result, Points]
) -> None:
    data = bytearray(whole[0])
    data[0] ^= 4
    assert "not a desopt journal" in assert_refused(folder / "m", bytes(data))
    data = bytearray(whole[0])
    data[7] ^= 4
    assert "format 2" not in assert_refused(folder / "m", bytes(data)), "it is not the format"


@given(st.data())
@settings(max_examples=150)
def test_damaged_middle_is_refused_and_not_touched(
    folder: Path, whole: tuple[bytes, desopt.Result, Points], data: st.DataObject
) -> None:
    """A flipped bit, or bytes changed, lost or put in; a run that wants to go on refuses too."""
    good = whole[0]
    last = records(good)[-1][0]
    start = data.draw(st.integers(8, last - 1), "start")
    if data.draw(st.booleans(), "flip"):
        stop, new = start + 1, bytes([good[start] ^ 1 << data.draw(st.integers(0, 7), "bit")])
    else:
        stop = data.draw(st.integers(start, min(start + 40, last)), "stop")
        new = data.draw(st.binary(max_size=40), "new")
    damaged = good[:start] + new + good[stop:]
    assume(damaged != good)
    path = folder / "middle"
    assert_refused(path, damaged)
    with pytest.raises(desopt.JournalError, match=r"middle.*(round|byte) \d"):
        run(path)
    assert path.read_bytes() == damaged


def test_records_cannot_be_moved_repeated_or_left_out(
    folder: Path, whole: tuple[bytes, desopt.Result, Points]
) -> None:
    data = whole[0]
    parts = [data[start:end] for start, end, _ in records(data)]
    for i in range(len(parts) - 2):
        for changed in (
            [*parts[:i], *parts[i + 1 :]],
            [*parts[: i + 1], *parts[i:]],
            [*parts[:i], parts[i + 1], parts[i], *parts[i + 2 :]],
        ):
            assert_refused(folder / "order", data[:8] + b"".join(changed))


def test_flipped_bit_in_the_last_record_is_dropped(
    folder: Path, whole: tuple[bytes, desopt.Result, Points]
) -> None:
    """It looks like a torn tail, and computing the round again is right for both."""
    data, result, points = whole
    path = folder / "last"
    for offset in range(records(data)[-1][0], len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        with pytest.warns(RuntimeWarning, match="last.*incomplete") as caught:
            resumed = run(path)
        assert len(caught) == 1
        assert_same(resumed, result)
        points.assert_in(path)


# --- another run, another version, another file ----------------------------------------------


def least_squares(x: NDArray[np.float64], batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"seed": 4}, "method.seed is 3 in the journal and 4"),
    ({}, {"step_size": 0.5}, "method.step_size is 1.0 in the journal and 0.5"),
    ({}, {"iterations": 8}, "method.iterations is 6 in the journal and 8"),
    ({}, {"momentum": 0.25}, "method.momentum is 0.5 in the journal and 0.25"),
    ({}, {"mixture": 4}, "method.sampler.l is 8 in the journal and 4"),
    ({}, {"sampler": desopt.samplers.Gaussian()}, "method.sampler.name is 'MixtureRademacher'"),
    ({}, {"method": "des-mg"}, "method.name is 'des-mr' in the journal and 'des-mg'"),
    ({}, {"method": "fed-zo-gd"}, "method.name is 'des-mr' in the journal and 'fed-zo-gd'"),
    ({"method": "fed-zo-gd"}, {"radius": 1e-5}, "method.radius is 1e-06 in the journal and 1e-05"),
    ({"method": "es-csa"}, {"population": 8}, "method.population is 9 in the journal and 8"),
    ({}, {"workers": 3}, "workers is 4 in the journal and 3"),
    ({}, {"participation": 0.5}, "participation is 1.0 in the journal and 0.5"),
    ({}, {"aggregate": "median"}, "method.aggregate is 'mean' in the journal and 'median'"),
    ({}, {"batch_size": 6}, "batch_size is 5 in the journal and 6"),
    ({}, {"regularization": 0.1}, " is 1e-06 in the journal and 0.1"),
    ({}, {"fun": "nsvm"}, "objective.name is 'lr' in the journal and 'nsvm'"),
    ({}, {"fun": least_squares, "x0": np.zeros(7)}, "objective.name is 'lr' in the journal"),
    ({}, {"x0": np.full(7, 1e-300)}, "x0 is '"),
    ({}, {"data": (_X, -DATA[1])}, "data is '"),
    ({}, {"data": (np.where(_X[31, 3] == _X, 0, _X), DATA[1])}, "data is '"),
    ({}, {"data": (sparse.csr_array(_X), DATA[1])}, "data is '"),
    ({}, {"data": (_X[:, :6], DATA[1])}, "n is 7 in the journal and 6"),
]


@pytest.mark.parametrize(("before", "change", "said"), OTHERS, ids=[repr(c[2]) for c in OTHERS])
def test_another_configuration_is_refused(
    tmp_path: Path, before: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "j"
    run(path, rounds=2, **before)
    data = path.read_bytes()
    with pytest.raises(desopt.JournalError, match="another configuration") as caught:
        run(path, **(before | change))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == data
    assert_same(run(path, **before), run(None, **before))


def test_another_seed_beside_a_method_of_its_own_seed_is_refused(tmp_path: Path) -> None:
    """Minibatches and participation follow the run's seed, steps the method's."""
    path, method = tmp_path / "j", DES(iterations=6, seed=1)

    def draw(rng: np.random.Generator, b: int) -> tuple[np.ndarray, np.ndarray]:
        rows = rng.standard_normal((b, 7))
        return rows, rows.sum(axis=1)

    def go(journal: Path | None, seed: int, rounds: int = 4) -> desopt.Result:
        return desopt.minimize(
            least_squares, np.zeros(7), draw, method=method, workers=3, batch_size=5,
            rounds=rounds, seed=seed, journal=journal,
        )  # fmt: skip

    go(path, seed=5, rounds=2)
    with pytest.raises(desopt.JournalError, match=r"seed is 5 in the journal and 7 here"):
        go(path, seed=7)
    assert_same(go(path, seed=5), go(None, seed=5))


def test_a_journal_that_does_not_say_its_seed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of 0.1 have the method's seed only."""
    path, header_of = tmp_path / "j", headers.header_of

    def former(*args: Any) -> dict[str, Any]:
        header = header_of(*args)
        del header["config"]["seed"]
        return header

    with monkeypatch.context() as patch:
        patch.setattr(headers, "header_of", former)
        run(path, rounds=2)
    assert "seed" not in journals.read(path).header["config"]
    assert_same(run(path), run(None))


def test_how_it_is_run_is_not_configuration(tmp_path: Path) -> None:
    path = tmp_path / "j"
    run(path, rounds=2)
    other = {"engine": "threads", "jobs": 3, "rounds": 7, "eval_every": 2, "snapshot_every": 2}
    assert run(path, **other).x.tobytes() == run(None, rounds=7).x.tobytes()


@pytest.mark.parametrize(
    ("module", "name", "value", "said"),
    [
        ("desopt.run.header", "STREAM_VERSION", 99, "stream is 1 in the journal and 99"),
        (
            "desopt.run.header",
            "VERSION",
            "0.99",
            "desopt is '0.1' in the journal and '0.99'",
        ),
        ("desopt.run.journal", "FORMAT_VERSION", 99, "format is 2 in the journal and 99"),
    ],
)
def test_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, value: Any, said: str
) -> None:
    path = tmp_path / "j"
    run(path, rounds=2)
    data = path.read_bytes()
    for call in (run, desopt.replay):
        with monkeypatch.context() as patch:
            patch.setattr(import_module(module), name, value)
            with pytest.raises(desopt.JournalError, match="another version") as caught:
                call(path)
        assert said in str(caught.value)
    assert path.read_bytes() == data


def test_another_format_is_refused(
    folder: Path, whole: tuple[bytes, desopt.Result, Points]
) -> None:
    data = bytearray(whole[0])
    data[6] = 1
    message = assert_refused(folder / "format", bytes(data))
    assert "journal format 1, this version of desopt reads 2" in message


@pytest.mark.parametrize(
    "content", [b"", b"desopt", b"x,y\n1,2\n", b"\x93NUMPY\x01\x00", b"\x00" * 99]
)
def test_not_a_journal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    for call in (run, desopt.replay):
        with pytest.raises(desopt.JournalError, match=r"notes\.csv"):
            call(path)
    assert path.read_bytes() == content


def test_journal_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"journal.*no folder.*nowhere"):
        run(tmp_path / "nowhere" / "j")


# --- one writer ------------------------------------------------------------------------------


def test_journal_in_use_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_journal as t\n"
        "from pathlib import Path\n"
        "wait = lambda row: print(row['round'], flush=True) or sys.stdin.readline()\n"
        "t.run(Path(sys.argv[2]), rounds=2, callbacks=[wait])\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "j")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "1\n"
        with pytest.raises(desopt.JournalError, match="j is in use by another process"):
            run(tmp_path / "j")
        assert desopt.replay(tmp_path / "j", round=1).shape == (7,), "reading is not writing"
        other.communicate("\n\n", timeout=900)
    assert other.returncode == 0
    assert_same(run(tmp_path / "j"), run(None))


def test_journal_that_another_run_made_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """Two runs are started with the same new file; the first to have it keeps it."""
    path, calls = tmp_path / "j", 0
    problem = {"x0": np.zeros(7), "data": DATA}

    def slow(x: NDArray[np.float64], batch: Any) -> float:
        nonlocal calls
        calls += 1
        if calls == 1:
            run(path, fun=least_squares, **problem)
        return least_squares(x, batch)

    with pytest.raises(desopt.JournalError, match=r"in use|exists|another"):
        run(path, fun=slow, rounds=1, **problem)
    assert len(journals.read(path).rows) == ROUNDS


# --- what is in the file ---------------------------------------------------------------------


def test_no_pickle_in_files(tmp_path: Path) -> None:
    for method in desopt.METHODS:
        run(tmp_path / method, method=method, snapshot_every=1)
        data = (tmp_path / method).read_bytes()
        for start, _, kind in records(data):
            assert kind in b"HSR"
            assert not data[start + 11 :].startswith(
                (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
            )
        start, end, kind = records(data)[0]
        assert kind == b"H"
        assert json.loads(data[start + 11 : end - 8])["config"]["method"]["name"] == method


def test_source_reads_no_pickle_from_files() -> None:
    """Pickle is for the pipe to a process of our own or of an executor: nothing is opened there.

    Two others pickle to see whether that would work.
    """
    package = Path(desopt.__file__).parent
    users = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                counted = [alias.name for alias in node.names] == ["effective_n_jobs"]  # of joblib
                names = [] if counted else [node.module or ""]
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant)
                assert node.value.value is False, path.name
            elif isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("pickle.load", "pickle.dump", "joblib.load")
            if {name.split(".")[0] for name in names} & PICKLERS:
                users.add(path.relative_to(package).as_posix())
    piped = "engines/processes/memory.py", "engines/executor.py"
    assert users == {*piped, "run/choice.py", "testing/claims.py"}
    calls: Callable[[str], set[str]] = lambda name: {  # noqa: E731
        ast.unparse(node.func)
        for node in ast.walk(ast.parse((package / name).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    opened = {"open", "os.open", "Path", "np.load", "np.save"}
    assert not any(calls(name) & opened for name in piped)
    assert calls("run/choice.py") & {"cloudpickle.dumps", "open"} == {"cloudpickle.dumps"}


PICKLERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


@pytest.mark.parametrize("n", [7, 3000])
def test_size_of_a_round_does_not_depend_on_n(tmp_path: Path, n: int) -> None:
    """Ten workers x 500 iterations: 63 bytes of bits and two of framing an answer."""
    bits = -(-500 // 8)
    record = 11 + 68 + 10 * (1 + 1 + bits) + 8
    X = np.random.default_rng(0).standard_normal((20, n))
    sizes = []
    for rounds in (1, 2, 5):
        run(
            tmp_path / "j", data=(X, np.sign(X[:, 0])), workers=10, iterations=500, rounds=rounds,
        )  # fmt: skip
        sizes.append((tmp_path / "j").stat().st_size)
    assert sizes[1] - sizes[0] == record
    assert sizes[2] - sizes[0] == 4 * record
    assert record <= 10 * 65 + 100


# --- digests ---------------------------------------------------------------------------------


def test_digests_are_those_of_every_equal_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four lines and nothing of the machine, the time or the engine in them."""

    def digests(name: str, *, round: int | None = None, **changes: Any) -> list[str]:
        run(tmp_path / name, **changes)
        capsys.readouterr()
        replay_command(tmp_path / name, round, digest=True)
        return capsys.readouterr().out.splitlines()

    lines = digests("one")
    assert [line.split()[0] for line in lines] == ["round", "x", "answers", "losses"]
    assert lines[0] == f"round         {ROUNDS}"
    x = desopt.replay(tmp_path / "one")
    assert lines[1] == f"x             {hashlib.blake2b(x.tobytes(), digest_size=8).hexdigest()}"
    assert lines[1].endswith(run(None).digest)
    assert all(re.fullmatch(r"\w+ +[0-9a-f]{16}", line) for line in lines[1:])
    assert digests("two", engine="threads", jobs=2, snapshot_every=2) == lines
    run(tmp_path / "three", rounds=2)
    assert digests("three") == lines, "resumed"
    other = digests("four", seed=4)
    assert all(a != b for a, b in zip(lines[1:], other[1:], strict=True))
    silent = digests("five", eval_every=0)
    assert silent[:3] == lines[:3]
    assert silent[3] != lines[3]
    assert digests("one", round=2)[:3] == digests("six", rounds=2)[:3]


# --- test vectors ----------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[2] / "docs" / "journal.md"
VECTOR_HEADER = {
    "versions": {"desopt": "0.1", "format": 2, "stream": 1},
    "config": {
        "method": {"name": "des-mr"}, "workers": 2, "participation": 1.0, "batch_size": 10, "n": 2,
    },
    "initial_fun": 0.5,
}  # fmt: skip


def vector(name: str) -> bytes:
    found = re.search(rf"```{name}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return bytes.fromhex(found[1])


def test_records_are_those_of_the_document(tmp_path: Path) -> None:
    state = DESState(0, np.array([0.5, -1.0]), np.zeros(2))
    log = journals.Journal.create(tmp_path / "j", VECTOR_HEADER, state)
    row = desopt.Row(
        round=1, seconds=0.25, loss=0.125, evaluations=26, samples=260, bytes_up=4, bytes_down=32,
        nans=1, repeated=0, answers=2,
    )  # fmt: skip
    answers = [Answer(0, b"\xa5\x0f"), Answer(1, b"\x00\x08")]
    log.append(row, answers)
    log.close()
    written = (tmp_path / "j").read_bytes()
    document = journals.MAGIC + vector("header") + vector("snapshot") + vector("round")
    assert written.startswith(journals.MAGIC + vector("header"))
    (tmp_path / "document").write_bytes(document)
    for name in ("j", "document"):
        contents = journals.read(tmp_path / name)
        assert contents.header == VECTOR_HEADER
        assert contents.rows == [row]
        assert contents.answers == [answers]
        found = contents.snapshots[0].state(state)
        assert (found.x.tobytes(), found.m.tobytes()) == (state.x.tobytes(), state.m.tobytes())
    assert vector("round")[:-8] == written[-len(vector("round")) : -8]


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def denied(path: Any, *more: Any, **options: Any) -> Any:  # nobody denies root anything
        raise OSError(reason, os.strerror(reason), str(path))

    monkeypatch.setattr("desopt.run.journal_file.open", denied, raising=False)
    with pytest.raises(PermissionError, match="give a path in another folder") as caught:
        desopt.minimize(lambda x: float(x @ x), np.ones(3), rounds=1, journal=tmp_path / "a")
    assert f"in the folder {tmp_path} (" in str(caught.value)
    assert ".new" not in str(caught.value)
