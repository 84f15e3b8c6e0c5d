"""Journals that somebody made: sealed as ours are, and malformed in every way that can be had."""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import hashlib
import json
import math
import os
import random
import socket
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from test_journal import ROUNDS, assert_same, run

import desopt
from desopt.cli.replay import replay as command
from desopt.methods import DES
from desopt.run import journal as journals
from desopt.run.journal_file import lock, remove_leftovers

Record = tuple[bytes, bytes]


def opened(data: bytes) -> list[Record]:
    """(kind, payload) of every record."""
    found, at = [], 8
    while at < len(data):
        end = at + 11 + int.from_bytes(data[at + 3 : at + 7], "little")
        found.append((data[at + 2 : at + 3], data[at + 11 : end]))
        at = end + 8
    return found


def sealed(records: list[Record]) -> bytes:
    """A journal of these records, every checksum right."""
    data, digest = b"desopt\x02\n", b""
    for kind, payload in records:
        head = b"\xd5\x9e" + kind + struct.pack("<I", len(payload))
        head += struct.pack("<I", zlib.crc32(head))
        digest = hashlib.blake2b(digest + head + payload, digest_size=8).digest()
        data += head + payload + digest
    return data


class Good(dict[str, list[Record]]):
    """Records by method."""

    def __repr__(self) -> str:
        return "Good()"  # hypothesis shows what a test was given


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Record]]:
    """The records of a run of every method, with a snapshot in the middle."""
    folder = tmp_path_factory.mktemp("good")
    for method in desopt.METHODS:
        run(folder / method, method=method, snapshot_every=2)
    return Good({method: opened((folder / method).read_bytes()) for method in desopt.METHODS})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "j"


def everything(path: Path, method: str) -> Iterator[Callable[[], Any]]:
    """All that reads a journal."""
    yield lambda: journals.read(path)
    yield lambda: desopt.replay(path)
    yield lambda: desopt.replay(path, round=1)
    yield lambda: desopt.replay(path, trial="0.0.0.0")
    yield lambda: command(path, digest=False)
    yield lambda: command(path, digest=True)
    yield lambda: run(path, method=method, rounds=ROUNDS + 1)


def assert_read_or_refused(path: Path, method: str, data: bytes) -> list[str]:
    """Nothing but a JournalError comes out, whoever reads; the messages."""
    refused = []
    for read in everything(path, method):
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                read()
            except desopt.JournalError as error:
                refused.append(str(error))
            except typer.BadParameter:
                pass
            except ValueError as error:
                if not any(text in str(error) for text in ("round must be 0 to", "no trial 0.")):
                    raise
    assert all(path.name in said and len(said) < 10_000 for said in refused)
    return refused


# --- by hand ---------------------------------------------------------------------------------


def changed_json(payload: bytes, change: Callable[[Any], Any]) -> bytes:
    value = json.loads(payload)
    return json.dumps(change(value) or value).encode()


def header(change: Callable[[Any], Any]) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [(b"H", changed_json(records[0][1], change)), *records[1:]]


def config(**values: Any) -> Callable[[list[Record]], list[Record]]:
    return header(lambda h: h["config"].update(values))


def of_method(**values: Any) -> Callable[[list[Record]], list[Record]]:
    return header(lambda h: h["config"]["method"].update(values))


def snapshot(meta: Any, zeros: int = 0) -> Callable[[list[Record]], list[Record]]:
    """A snapshot with so many bytes of arrays."""
    text = meta if isinstance(meta, bytes) else json.dumps(meta).encode()

    def changed(records: list[Record]) -> list[Record]:
        payload = struct.pack("<I", len(text)) + text + zlib.compress(bytes(zeros))
        return [records[0], (b"S", payload), *records[2:]]

    return changed


def state(**sizes: int) -> dict[str, Any]:
    return {"plain": {"round": 0}, "arrays": sizes}


def first_round(change: Callable[[bytes], bytes]) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [*records[:2], (b"R", change(records[2][1])), *records[3:]]


DEEP = b"[" * 100_000
BAD: dict[str, Callable[[list[Record]], list[Record]]] = {
    "no header": lambda records: records[1:],
    "nothing": lambda records: [],
    "only a header": lambda records: records[:1],
    "two headers": lambda records: [records[0], *records],
    "round first": lambda records: [records[0], records[2], *records[1:]],
    "unknown kind": lambda records: [*records[:2], (b"X", b""), *records[2:]],
    "header is no JSON": lambda records: [(b"H", b"{"), *records[1:]],
    "header is no text": lambda records: [(b"H", b"\xff\xfe\x00"), *records[1:]],
    "header is a list": lambda records: [(b"H", b"[1]"), *records[1:]],
    "header is null": lambda records: [(b"H", b"null"), *records[1:]],
    "header is deep": lambda records: [(b"H", DEEP), *records[1:]],
    "config is deep": header(lambda h: h["config"].update(a=nested(800, {}))),
    "config has a deep list": header(lambda h: h["config"].update(a=nested(800, []))),
    "no versions": header(lambda h: h.pop("versions") and None),
    "versions is a list": header(lambda h: h.update(versions=[1, 2])),
    "no config": header(lambda h: h.pop("config") and None),
    "no method": header(lambda h: h["config"].pop("method") and None),
    "no n": header(lambda h: h["config"].pop("n") and None),
    "no workers": header(lambda h: h["config"].pop("workers") and None),
    "n too large": config(n=2**40),
    "n is a float": config(n=7.0),
    "n is another": config(n=8),
    "n is negative": config(n=-1),
    "workers is text": config(workers="4"),
    "fewer workers": config(workers=2),
    "participation is a list": config(participation=[1]),
    "initial_fun is a list": header(lambda h: h.update(initial_fun=[1])),
    "initial_fun is endless": header(lambda h: h.update(initial_fun=10**400)),
    "unknown method": of_method(name="dse"),
    "method is a list": config(method=["des-mr"]),
    "name is a list": of_method(name=["des-mr"]),
    "unknown setting": of_method(speed=3),
    "iterations is text": of_method(iterations="6"),
    "iterations is a float": of_method(iterations=6.0),
    "iterations is true": of_method(iterations=True),
    "iterations is huge": of_method(iterations=2**28),
    "iterations is another": of_method(iterations=60),
    "step_size is null": of_method(step_size=None),
    "momentum is a list": of_method(momentum=[]),
    "seed is a float": of_method(seed=3.0),
    "seed is too large": of_method(seed=2**64),
    "aggregate is a number": of_method(aggregate=3),
    "sampler is text": of_method(sampler="MixtureRademacher"),
    "sampler is null": of_method(sampler=None),
    "sampler is unknown": of_method(sampler={"name": "Sobol"}),
    "sampler without a name": of_method(sampler={"l": 8}),
    "l is a float": of_method(sampler={"name": "MixtureRademacher", "l": 8.0}),
    "l is huge": of_method(sampler={"name": "MixtureRademacher", "l": 2**40}),
    "l is large": of_method(sampler={"name": "MixtureRademacher", "l": 2**26}),
    "space is empty": config(objective={"name": "lr", "space": {}}),
    "space has no n": config(objective={"name": "lr", "space": {"lower": [1]}}),
    "snapshot is empty": lambda records: [records[0], (b"S", b""), *records[2:]],
    "snapshot is a length": lambda records: [records[0], (b"S", b"\xff\xff\xff\xff"), *records[2:]],
    "snapshot is no JSON": snapshot(b"{"),
    "snapshot is deep": snapshot(DEEP),
    "snapshot is a list": snapshot([]),
    "snapshot has no round": snapshot({"plain": {}, "arrays": {"x": 7, "m": 7}}, 112),
    "snapshot of another round": snapshot({"plain": {"round": 1}, "arrays": {}}),
    "snapshot of round true": snapshot({"plain": {"round": False}, "arrays": {}}),
    "snapshot without arrays": snapshot(state()),
    "snapshot without m": snapshot(state(x=7), 56),
    "snapshot with more": snapshot(state(x=7, m=7, y=7), 168),
    "m is shorter": snapshot(state(x=7, m=3), 80),
    "x is longer": snapshot(state(x=9, m=7), 128),
    "x is negative": snapshot(state(x=-7, m=7), 56),
    "x is text": snapshot({"plain": {"round": 0}, "arrays": {"x": "7", "m": 7}}, 112),
    "arrays is a list": snapshot({"plain": {"round": 0}, "arrays": [7, 7]}, 112),
    "fewer bytes than declared": snapshot(state(x=7, m=7), 104),
    "more bytes than declared": snapshot(state(x=7, m=7), 120),
    "200 MB": snapshot(state(x=25_000_000, m=7), 200_000_056),
    "200 MB more": snapshot(state(x=7, m=7), 200_000_000),
    "no zlib": lambda records: [records[0], (b"S", records[1][1][:-20]), *records[2:]],
    "plain x": snapshot({"plain": {"round": 0, "x": [0.0] * 7}, "arrays": {"m": 7}}, 56),
    "round is empty": first_round(lambda r: b""),
    "round is short": first_round(lambda r: r[:50]),
    "seconds are NaN": first_round(lambda r: r[:4] + struct.pack("<d", math.nan) + r[12:]),
    "endless seconds": first_round(lambda r: r[:4] + struct.pack("<d", math.inf) + r[12:]),
    "answers are cut": first_round(lambda r: r[:-1]),
    "answers and more": first_round(lambda r: r + b"\0"),
    "another round": first_round(lambda r: b"\x09" + r[1:]),
    "round 0": first_round(lambda r: b"\x00" + r[1:]),
    "a billion answers": first_round(lambda r: r[:64] + b"\xff\xff\xff\x7f" + r[68:]),
    "no answers, but bytes": first_round(lambda r: r[:64] + bytes(4) + r[68:]),
    "a total that falls": first_round(lambda r: r[:20] + b"\xff" * 7 + b"\x00" + r[28:]),
    "an endless count": first_round(lambda r: r[:20] + b"\xff" * 8 + r[28:]),
    "a long varint": first_round(lambda r: r[:68] + b"\xff" * 30),
    "an endless gap": first_round(lambda r: r[:68] + b"\xff" * 9 + b"\x01" + r[69:]),
    "an endless length": first_round(lambda r: r[:69] + b"\xff" * 9 + b"\x01" + r[70:]),
    "bits beyond K": first_round(lambda r: r[:70] + b"\xff" + r[71:]),
}  # fmt: skip


def nested(depth: int, kind: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind == {} else [value]
    return value


@pytest.mark.parametrize("name", BAD)
def test_malformed_but_sealed(good: dict[str, list[Record]], path: Path, name: str) -> None:
    """Refused by whoever must use it, in a few megabytes whatever it claims."""
    data = sealed(BAD[name](copy.deepcopy(good["des-mr"])))
    tracemalloc.start()
    try:
        refused = assert_read_or_refused(path, "des-mr", data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused
    assert peak < 60_000_000


def test_what_is_sealed_again_reads_as_before(good: dict[str, list[Record]], path: Path) -> None:
    for method, records in good.items():
        path.write_bytes(sealed(records))
        assert_same(run(path, method=method), run(None, method=method))


def test_a_population_without_evidence_costs_nothing(
    good: dict[str, list[Record]], path: Path
) -> None:
    """A round that nobody answered says nothing of the population, so it may not cost by it."""
    records = of_method(population=2**30)(good["es-csa"])[:2]
    empty = good["es-csa"][2][1][:64] + bytes(4)
    path.write_bytes(sealed([*records, (b"R", empty)]))
    assert desopt.replay(path).tolist() == [0.0] * 7


# --- by chance -------------------------------------------------------------------------------

NUMBERS = [
    *range(-3, 12), 2**31, 2**32, 2**63, 2**64, 10**30, -(2**63), 0.5, -0.0, 7.0, 1e308, math.inf,
    math.nan, True, False, None,
]  # fmt: skip
WORDS = ["", "x", "\ud800", "7", *desopt.METHODS, "MixtureRademacher", "Gaussian", "median"]


class Mutation(random.Random):
    """Changes somewhere inside of a journal's records."""

    def value(self) -> Any:
        return self.choice(
            [self.choice(NUMBERS), self.choice(NUMBERS), self.choice(WORDS), [], {},
             [self.choice(NUMBERS)], {self.choice(WORDS): self.choice(NUMBERS)}]
        )  # fmt: skip

    def settings(self, value: Any) -> Any:
        if not (isinstance(value, dict | list) and value) or self.random() < 0.15:
            return self.value()
        if isinstance(value, list):
            at = self.randrange(len(value))
            return [*value[:at], self.settings(value[at]), *value[at + 1 :]]
        key, how = self.choice(sorted(value)), self.random()
        if how < 0.15:
            return {name: item for name, item in value.items() if name != key}
        if how < 0.25:
            return value | {self.choice(WORDS): self.value()}
        return value | {key: self.settings(value[key])}

    def raw(self, data: bytes) -> bytes:
        at, gone = self.randint(0, len(data)), self.choice([0, 1, 1, 2, 4, 8, len(data)])
        return data[:at] + self.randbytes(self.choice([0, 1, 1, 2, 4, 9])) + data[at + gone :]

    def of_round(self, payload: bytes) -> bytes:
        """One of the ten numbers, or the answers."""
        if self.random() < 0.5:
            return payload[:68] + self.raw(payload[68:])
        row: list[Any] = list(struct.unpack("<IddQQQQQII", payload[:68]))
        at = self.randrange(10)
        row[at] = self.choice([0, 1, 3, 9, self.getrandbits(32 if at in (0, 8, 9) else 64)])
        if at in (1, 2):
            row[at] = self.choice([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308])
        return struct.pack("<IddQQQQQII", *row) + payload[68:]

    def of_state(self, payload: bytes) -> bytes:
        (size,) = struct.unpack_from("<I", payload)
        meta, body = json.loads(payload[4 : 4 + size]), payload[4 + size :]
        how = self.random()
        if how < 0.5:
            meta = self.settings(meta)
        elif how < 0.8:
            body = zlib.compress(self.raw(zlib.decompress(body)))
        else:
            body = self.raw(body)
        text = json.dumps(meta).encode()
        return struct.pack("<I", len(text)) + text + body

    def payload(self, kind: bytes, payload: bytes) -> bytes:
        try:
            if kind == b"H":
                return json.dumps(self.settings(json.loads(payload))).encode()
            return self.of_round(payload) if kind == b"R" else self.of_state(payload)
        except (ValueError, TypeError, AttributeError, struct.error, zlib.error):
            return self.raw(payload)  # of a record that is changed already

    def records(self, records: list[Record]) -> list[Record]:
        at = self.choice([0, self.randrange(len(records))])
        (kind, payload), how = records[at], self.random()
        if how < 0.6:
            new = [(kind, self.payload(kind, payload))]
        elif how < 0.7:
            new = [(kind, self.raw(payload))]
        elif how < 0.8:
            new = [(self.choice([b"H", b"S", b"R", b"\0"]), payload)]
        else:
            new = [records[at]] * self.choice([0, 2])
        return [*records[:at], *new, *records[at + 1 :]]


@given(st.integers(0, 2**64), st.sampled_from(sorted(desopt.METHODS)))
@settings(max_examples=200, deadline=None)
def test_mutated_and_sealed_again(
    good: dict[str, list[Record]], path: Path, seed: int, method: str
) -> None:
    mutation, records = Mutation(seed), good[method]
    for _ in range(mutation.choice([1, 1, 2])):
        records = mutation.records(records)
    assert_read_or_refused(path, method, sealed(records))


# --- files that are none ---------------------------------------------------------------------

ODD = """
import os, socket, sys
import desopt
from desopt.run import journal
fun = lambda x: float(x @ x)
for path in sys.argv[1:]:
    for call in (
        lambda: journal.read(path),
        lambda: desopt.replay(path),
        lambda: desopt.minimize(fun, [1.0], rounds=1, engine="serial", journal=path),
        lambda: journal.Journal.reopen(path),
    ):
        try:
            call()
        except (desopt.JournalError, ValueError) as error:
            assert path in str(error), error
        else:
            raise AssertionError(path)
print("refused")
"""


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
        here = os.getcwd()
        try:
            os.chdir(tmp_path)  # such a name must be short
            listening.bind("socket")
        finally:
            os.chdir(here)
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        (tmp_path / "link").symlink_to(tmp_path / "pipe")
        odd = [*(tmp_path / name for name in ("pipe", "socket", "link")), tmp_path]
        devices = [d for d in ("/dev/zero", "/dev/full", "/dev/null") if os.path.exists(d)]
        done = subprocess.run(
            [sys.executable, "-c", ODD, *map(str, odd), *devices],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.stdout == "refused\n", done.stderr
    with pytest.raises(ValueError, match=r"loop.*a link to itself"):
        run(tmp_path / "loop")


def test_links_are_followed(tmp_path: Path) -> None:
    """Also to a file that is not there yet; the link stays a link."""
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    first = run(link, rounds=2)
    assert link.is_symlink()
    assert len(journals.read(target).rows) == 2
    assert desopt.replay(link).tobytes() == first.x.tobytes()
    assert_same(run(link), run(None))
    (tmp_path / "nowhere").symlink_to(tmp_path / "no" / "folder")
    with pytest.raises(FileNotFoundError, match="no folder"):
        run(tmp_path / "nowhere")


@pytest.mark.parametrize("size", [2**26, 2**42])
def test_a_huge_file_is_not_read_into_memory(
    good: dict[str, list[Record]], tmp_path: Path, size: int
) -> None:
    """Sparse: a terabyte of nothing behind the magic, a header, a whole journal."""
    whole = sealed(good["des-mr"])
    for data in (whole[:8], sealed(good["des-mr"][:1]), whole):
        path = tmp_path / "j"
        path.write_bytes(data)
        try:
            os.truncate(path, size)
        except OSError:
            pytest.skip("no such large files here")
        tracemalloc.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            if data is whole and size < 2**32:  # it could be a torn tail
                assert len(journals.read(path).rows) == ROUNDS
            else:
                with pytest.raises(desopt.JournalError, match=r"damaged|ends before"):
                    journals.read(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 30_000_000


def test_a_tail_full_of_markers_is_damage(good: dict[str, list[Record]], path: Path) -> None:
    path.write_bytes(sealed(good["des"]) + b"\xd5\x9e" * 2_000_000)
    with pytest.raises(desopt.JournalError, match="damaged"):
        journals.read(path)


# --- one writer ------------------------------------------------------------------------------


def test_a_new_journal_is_locked_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link, tried = tmp_path / "j", os.link, []

    def and_at_once(source: Any, target: Any) -> None:
        link(source, target)
        with pytest.raises(desopt.JournalError, match="in use by another process"):
            journals.Journal.reopen(path)
        tried.append(target)

    monkeypatch.setattr(os, "link", and_at_once)
    result = run(path)
    assert tried == [path]
    assert_same(result, run(None))
    assert [file.name for file in tmp_path.iterdir()] == ["j"]


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: Any, target: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "j"
    assert_same(run(path), run(None))
    before = path.read_bytes()
    with pytest.raises(desopt.JournalError, match="made by another run"):
        journals.Journal.create(path, {}, DES().init(np.zeros(2)))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["j"]


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import test_journal
from pathlib import Path
os.link = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
test_journal.run(Path(sys.argv[2]), rounds=2)
"""


def test_leftovers_of_killed_processes_are_removed_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "j"
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path)]
    done = subprocess.run(command, timeout=300, stderr=subprocess.PIPE)
    assert done.returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("j.")
    assert left.name.endswith(".new")
    (tmp_path / "j.77.new").write_bytes(b"")  # as an older version named it
    keep = {
        "j.5-0123abcd.new": b"my own notes", "k.6-0123abcd.new": b"desopt\x02\n", "j.new": b"",
        "j.7-0123abcd.new.txt": b"", "j.8-0123abcd.new": b"desopt\x02\n",
    }  # fmt: skip
    for name, data in keep.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "j.9-0123abcd.new").symlink_to(tmp_path / "k.6-0123abcd.new")
    os.mkfifo(tmp_path / "j.4-0123abcd.new")
    with open(tmp_path / "j.8-0123abcd.new", "r+b") as living:
        lock(living, path)
        run(path)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {*keep, "j", "j.9-0123abcd.new", "j.4-0123abcd.new"}


def test_a_new_file_that_was_taken_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may see it before its lock is there."""
    path, flock, removed = tmp_path / "j", fcntl.flock, list[Path]()

    def late(file: Any, how: int) -> None:
        fresh = [name for name in tmp_path.iterdir() if name.name.endswith(".new")]
        if fresh and not removed:
            removed.extend(fresh)
            remove_leftovers(path, journals.MAGIC)
        flock(file, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        result = run(path)
    assert removed
    assert not removed[0].exists()
    assert_same(result, run(None))
    assert np.array_equal(desopt.replay(path), result.x)
