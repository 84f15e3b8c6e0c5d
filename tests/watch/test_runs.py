"""Runs as the live page sees them: journals that grow, are torn, replaced or hostile."""

import itertools
import json
import math
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.watched import ROUNDS, search, sphere

import desopt
from desopt.contract.codec import pack_state
from desopt.contract.errors import JournalError
from desopt.run import journal as journals
from desopt.run.replay import algorithm_of
from desopt.watch import points as pointing
from desopt.watch.files import Tree
from desopt.watch.points import Points, TooLong, described
from desopt.watch.runs import Run
from desopt.watch.server import Board


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a.journal"
    search(path)
    return path


def soon() -> float:
    return time.monotonic() + 60.0


def run_of(path: Path) -> Run:
    run = Run(Tree(path.parent), path)
    run.refresh(soon())
    return run


def test_a_journal_is_followed_while_it_grows(journal: Path, tmp_path: Path) -> None:
    whole, path = journal.read_bytes(), tmp_path / "a.journal"
    contents = journals.read(journal)
    run, seen = Run(Tree(tmp_path), path), []
    for end in range(0, len(whole) + 1, 37):  # every record is torn somewhere
        path.write_bytes(b"")  # the same file
        path.write_bytes(whole[:end])
        run.refresh(soon())
        seen.append(len(run.index.rounds))
        assert not run.index.problem
    path.write_bytes(whole)
    run.refresh(soon())
    assert seen == sorted(seen)
    assert set(seen) | {ROUNDS} == set(range(ROUNDS + 1))
    found = run.curve()
    assert found["y"] == [contents.header["initial_fun"], *(r["loss"] for r in contents.rows)]
    assert found["x"]["evaluations"][1:] == [row["evaluations"] for row in contents.rows]
    assert found["x"]["bytes"][-1] == sum(
        contents.rows[-1][f"bytes_{way}"] for way in ("up", "down")
    )
    assert found["workers"] == [[worker, "", ROUNDS, ROUNDS] for worker in range(3)]
    assert json.loads(json.dumps(run.summary(), allow_nan=False))["rounds"] == ROUNDS


def test_each_record_is_read_once(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(journal)
    monkeypatch.delattr(journals, "unpack_totals")  # nobody calls it
    for _ in range(3):
        run.refresh(soon())
    assert len(run.index.rounds) == ROUNDS


def test_a_journal_begun_anew_is_another_run(journal: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(journal.read_bytes())
    run = run_of(path)
    other = tmp_path / "b.journal"
    for rounds in (3, ROUNDS + 5):  # a shorter file, and a longer one
        search(other, rounds, seed=7)
        path.write_bytes(other.read_bytes())  # the same inode
        run.refresh(soon())
        assert len(run.index.rounds) == rounds
        path.write_bytes(journal.read_bytes())
        run.refresh(soon())
        assert len(run.index.rounds) == ROUNDS
    path.unlink()
    run.refresh(soon())
    assert (run.index.rounds, run.index.problem) == ([], "")


def test_a_deleted_run_is_not_listed_until_the_folder_is_looked_at_again(
    journal: Path, tmp_path: Path
) -> None:
    """The page would ask for it, and get an error."""
    (tmp_path / "a.journal").write_bytes(journal.read_bytes())
    (tmp_path / "b.journal").write_bytes(journal.read_bytes())
    board = Board(tmp_path)

    def listed() -> list[str]:
        return sorted(run["id"] for run in board.overview()["runs"])

    assert listed() == ["a.journal", "b.journal"]
    (tmp_path / "a.journal").unlink()
    assert listed() == listed() == ["b.journal"]
    (tmp_path / "a.journal").write_bytes(journal.read_bytes())
    assert listed() == ["a.journal", "b.journal"]


def test_the_deadline_ends_a_reading_and_the_next_one_goes_on(journal: Path) -> None:
    run = Run(Tree(journal.parent), journal)
    counts: list[int] = []
    while not counts or counts[-1] < ROUNDS:
        run.refresh(0.0)  # one record at a time
        counts.append(len(run.index.rounds))
        assert run.whole == (counts[-1] == ROUNDS)
    assert len(counts) >= ROUNDS


def test_x_at_any_round_is_that_of_replay(journal: Path) -> None:
    points = Points(run_of(journal))
    for round in [*range(ROUNDS + 1), *random.Random(0).choices(range(ROUNDS + 1), k=20)]:
        x = desopt.replay(journal, round)
        assert points.at(round, soon()).x.tobytes() == x.tobytes()
        shown = points.shown(round, soon())
        assert [value for _, _, value in shown["coordinates"]] == x.tolist()
    with pytest.raises(ValueError, match="12 rounds, not 13"):
        points.at(ROUNDS + 1, soon())


def merges(points: Points, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    points.at(0, soon())
    algorithm, made = points._algorithm, []

    class Counted:
        def merge(self, state: Any, answers: Any) -> Any:
            made.append(state.round)
            return algorithm.merge(state, answers)

    monkeypatch.setattr(points, "_algorithm", Counted())
    return made


def test_scrubbing_does_not_replay_from_the_beginning(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = Points(run_of(journal))
    made = merges(points, monkeypatch)
    points.at(ROUNDS, soon())
    assert made == list(range(ROUNDS))
    for round in (3, 11, 7, ROUNDS):
        points.at(round, soon())
    assert len(made) == ROUNDS


def test_few_states_are_kept_and_spread_over_the_rounds(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointing, "MEMORY", 1)
    points = Points(run_of(journal))
    made = merges(points, monkeypatch)
    points.at(ROUNDS, soon())
    kept = sorted(points._states)
    assert len(kept) <= 9
    assert kept[0] == 0
    assert max(b - a for a, b in itertools.pairwise(kept)) <= 4
    made.clear()
    points.at(ROUNDS - 1, soon())
    assert len(made) <= 4


def test_a_replay_takes_several_requests_if_it_must(journal: Path) -> None:
    points = Points(run_of(journal))
    points.at(0, soon())
    assert points.shown(ROUNDS, 0.0) == {"round": 0, "of": ROUNDS}
    assert points.at(5, soon()).round == 5
    assert points.shown(ROUNDS, 0.0) == {"round": 5, "of": ROUNDS}


def test_what_is_too_long_is_refused(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(journal)
    monkeypatch.setattr(pointing, "MAX_CHANGES", 3 * 6 - 1)
    with pytest.raises((TooLong, JournalError), match="too long to replay here"):
        Points(run).at(1, soon())
    run.index.header["config"]["n"] = pointing.MAX_N + 1
    with pytest.raises((TooLong, JournalError), match="the page shows up to"):
        Points(run).at(0, soon())


def test_of_a_long_x_the_first_and_the_most_changed_are_shown() -> None:
    start, x = np.zeros(100_000), np.zeros(100_000)
    x[[70, 90_000]] = 5.0, -7.0
    shown = described(x, start)
    assert {70, 90_000, *range(pointing.FIRST)} <= {i for i, *_ in shown["coordinates"]}
    assert len(shown["coordinates"]) <= pointing.FIRST + pointing.CHANGED
    assert shown["norm"] == pytest.approx(math.sqrt(74.0))
    assert len(json.dumps(shown)) < 4000


def test_lengths_of_huge_points_are_finite() -> None:
    for size in (0.0, 1e-300, 1e200, sys.float_info.max):
        x = np.array([size, -size])
        shown = json.loads(json.dumps(described(x, -x), allow_nan=False))
        assert shown["norm"] == pytest.approx(min(size * math.sqrt(2.0), sys.float_info.max))


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_ends_the_watching(journal: Path, tmp_path: Path, seed: int) -> None:
    rng, data = random.Random(seed), bytearray(journal.read_bytes())
    for _ in range(rng.choice((1, 3, 50))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if seed % 3 == 0:
        data = data[: rng.randrange(len(data))]
    path = tmp_path / "a.journal"
    path.write_bytes(data)
    run = run_of(path)
    shown = json.loads(json.dumps([run.summary(), run.curve()], allow_nan=False))
    rounds = len(run.index.rounds)
    assert shown[0]["rounds"] == rounds
    if rounds:  # those before the damage, as they were
        x = desopt.replay(journal, rounds)
        assert Points(run).at(rounds, soon()).x.tobytes() == x.tobytes()


def forged(header: dict[str, Any], *more: tuple[bytes, bytes]) -> bytes:
    """A journal with good checksums and whatever content."""
    from desopt.run.records import seal

    data, digest = journals.MAGIC, b""
    for kind, payload in ((b"H", json.dumps(header).encode()), *more):
        record, digest = seal(kind, payload, digest)
        data += record
    return data


@pytest.mark.parametrize("what", ["deep", "huge", "workers", "kind", "state", "method", "text"])
def test_a_forged_journal_is_refused_at_once(journal: Path, tmp_path: Path, what: str) -> None:
    contents = journals.read(journal)
    header: Any = json.loads(json.dumps(contents.header))
    state = contents.snapshots[0].payload
    if what == "deep":
        header["config"]["method"]["sampler"] = json.loads("[" * 400 + "]" * 400)
    elif what == "huge":
        header["config"]["n"] = 2**30
    elif what == "workers":
        header["config"]["workers"] = 2**31
    elif what == "method":
        header["config"]["method"] = {"name": "<img src=x>" * 100, "iterations": 10**9}
    elif what == "text":
        header["config"]["method"]["step_size"] = {"a": [1]}
    kind = b"Z" if what == "kind" else b"S"
    payload = b"{}" if what == "state" else state
    path = tmp_path / "a.journal"
    path.write_bytes(forged(header, (kind, payload)))
    began = time.monotonic()
    run = run_of(path)
    json.dumps([run.summary(), run.curve()], allow_nan=False)
    if run.index.snapshots and what in ("huge", "state", "method", "deep"):
        with pytest.raises((ValueError, JournalError)):
            Points(run).at(0, soon())
    assert time.monotonic() - began < 30


def test_a_forged_point_that_is_not_finite_is_refused(journal: Path, tmp_path: Path) -> None:
    state = Points(run_of(journal)).at(0, soon())
    payload = pack_state(replace(state, x=np.full_like(state.x, np.nan)))
    (tmp_path / "a.journal").write_bytes(forged(journals.read(journal).header, (b"S", payload)))
    with pytest.raises(ValueError, match="not finite"):
        Points(run_of(tmp_path / "a.journal")).shown(0, soon())


def test_a_record_longer_than_any_is_not_read(tmp_path: Path) -> None:
    import struct
    import zlib

    start = b"\xd5\x9eH" + struct.pack("<I", 2**32 - 1)
    path = tmp_path / "a.journal"
    with path.open("wb") as file:
        file.write(journals.MAGIC + start + struct.pack("<I", zlib.crc32(start)))
        file.truncate(2**33)  # a hole: no disk
    run = run_of(path)
    assert "damaged" in run.index.problem
    assert run.index.rounds == []


def test_single_values_failures_and_open_trials(tmp_path: Path) -> None:
    journal = tmp_path / "lab" / "run.journal"
    journal.parent.mkdir()
    with desopt.Optimizer(
        np.zeros(3), journal=journal, method="des", workers=2, rounds=3, iterations=3, seed=1,
        progress=False,
    ) as optimizer:  # fmt: skip
        while optimizer.rounds[0] < 1:
            for trial in optimizer.ask(100):
                failed = trial.id.endswith(".2.0")
                optimizer.tell(
                    trial.id, None if failed else sphere(trial.x), failed=failed, reason="<b>no</b>"
                )
        open_now = optimizer.ask(100)
        run = run_of(journal)
        assert len(run.known) == len(optimizer.evaluations)
        assert run.failed == optimizer.evaluations.failures > 0
        assert run.curve()["failures"][0][1] == "<b>no</b>"
        found = Points(run).open_trials(soon())
        tag = optimizer.tag
        assert found is not None
        assert {f"{tag}.{id}" for id in found} == {trial.id for trial in open_now}
        optimizer.tell(open_now[0].id, 1.0)
        run.refresh(soon())
        again = Points(run).open_trials(soon())
        assert again is not None
        expected = {trial.id for trial in optimizer.open() + optimizer.ask(100)}
        assert {f"{tag}.{id}" for id in again} == expected


def test_a_method_without_a_seed_has_open_trials_if_the_journal_has_one(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(journal)
    algorithm = algorithm_of(journal, run.index.header)
    monkeypatch.setattr(pointing, "algorithm_of", lambda *_: algorithm)
    del run.index.header["config"]["method"]["seed"]
    points = Points(run)
    assert points.shown(ROUNDS, soon())["round"] == ROUNDS
    assert points.open_trials(soon()) == Points(run_of(journal)).open_trials(soon())
    del run.index.header["config"]["seed"]  # as in journals of 0.1
    with pytest.raises(JournalError, match="'seed'"):  # of which the page knows
        points.open_trials(soon())


def test_a_run_folder_says_how_far_it_goes_and_how_it_ended(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"rounds": 4, "variables": ["a", "b"]}))
    tree = Tree(tmp_path)
    (path,) = tree.find().journals  # before its first round
    run = Run(tree, path)
    run.refresh(soon())
    before = run.summary()
    assert (before["label"], before["rounds"], before["of"]) == ("mine", 0, 4)
    assert (before["age"], before["names"]) == (None, ["a", "b"])
    search(folder / "run.journal", 4)
    (folder / "result.json").write_text(json.dumps({"rounds": 4, "message": "4 rounds done"}))
    run.refresh(soon())
    assert run.summary()["ended"] == "4 rounds done"
    (folder / "result.json").write_text("[" * 100_000)
    assert run.summary()["ended"] is None


def test_only_regular_files_of_the_tree_are_found(journal: Path, tmp_path: Path) -> None:
    inside = tmp_path / "in"
    (inside / "deep" / "er").mkdir(parents=True)
    (inside / "deep" / "er" / "odd name").write_bytes(journal.read_bytes())
    (inside / "link.journal").symlink_to(journal)
    (inside / "folder").symlink_to(journal.parent)
    os.mkfifo(inside / "pipe.journal")
    (inside / "notes.txt").write_text("no journal")
    (inside / "old.journal").write_bytes(b"desopt\x01\n" + bytes(50))
    tree = Tree(inside)
    found = sorted(path.name for path in tree.find().journals)
    assert found == ["odd name", "old.journal"]
    for path in (inside / "link.journal", inside / "folder" / journal.name, journal,
                 inside / ".." / "x", inside / "pipe.journal"):  # fmt: skip
        with pytest.raises((PermissionError, FileNotFoundError, OSError)):
            tree.open(path)
    assert "format" in run_of(inside / "old.journal").summary()["problem"]
