"""Messages as bytes: as docs/wire.md says, small, and refused where anything is wrong."""

import hashlib
import json
import math
import random
import re
import struct
import tracemalloc
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from desopt.contract import codec
from desopt.contract.codec import digest_of
from desopt.contract.participation import participants
from desopt.contract.payload import Layout
from desopt.contract.types import Answer, Task
from desopt.methods import METHODS
from desopt.methods.cma_es import CMAES
from desopt.methods.des import DES, DESState
from desopt.methods.es_csa import ESCSA
from desopt.methods.samplers import MixtureRademacher
from desopt.protocol import wire
from desopt.protocol.replica import VERSION, Limits, Replica
from desopt.protocol.server import Server, logger
from desopt.protocol.wire import Reason, WireError

DOC = (Path(__file__).resolve().parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
VECTORS = {
    name: bytes.fromhex(text)
    for name, text in re.findall(r"^```(\w+)\n([0-9a-f\s]+)^```", DOC, flags=re.MULTILINE)
}
RUN = bytes(range(1, 9))
X = np.array([0.5, -1.0])
STATE = DESState(3, X, np.array([0.0, 0.25]))
DIGEST = wire.task_digest(Task(3, X))
LAYOUT = Layout(bits=12)


# --- a client of somebody else, written from docs/wire.md alone ------------------------------


def foreign_frame(data: bytes) -> dict[str, Any]:
    assert data[0] == 0xD5
    assert (data[2], data[3]) == (1, 1)
    assert struct.unpack("<I", data[-4:])[0] == zlib.crc32(data[:-4])
    (round,) = struct.unpack("<I", data[4:8])
    return {"kind": chr(data[1]), "round": round, "run": data[8:16], "digest": data[16:24]}


def foreign_answer(data: bytes) -> tuple[Any, ...]:
    return *struct.unpack("<IIQI", data[24:44]), data[44:-4]


def foreign_update(data: bytes) -> list[tuple[int, list[tuple[int, bytes]]]]:
    """(round, [(worker, payload), ...]) for each round."""
    first, p = struct.unpack("<II", data[24:32])
    at, rounds = 32, []
    while at < len(data) - 4:
        (c,) = struct.unpack("<I", data[at : at + 4])
        workers = struct.unpack(f"<{c}I", data[at + 4 : at + 4 + 4 * c])
        at += 4 + 4 * c
        rounds.append(
            (first, [(w, data[at + i * p : at + i * p + p]) for i, w in enumerate(workers)])
        )
        first, at = first + 1, at + c * p
    return rounds


def foreign_snapshot(data: bytes) -> dict[str, Any]:
    (length,) = struct.unpack("<I", data[24:28])
    meta = json.loads(data[28 : 28 + length])
    numbers = struct.iter_unpack("<d", zlib.decompress(data[28 + length : -4]))
    arrays = {
        name: [next(numbers)[0] for _ in range(size)] for name, size in meta["arrays"].items()
    }
    return {**meta["plain"], **arrays}


# --- test vectors ----------------------------------------------------------------------------


def test_a_client_written_from_the_document_reads_the_vectors() -> None:
    x = struct.pack("<2d", 0.5, -1.0)
    digest = hashlib.blake2b(x, digest_size=8).digest()
    common = {"round": 3, "run": RUN, "digest": digest}
    kinds = {"answer": "A", "scalars": "A", "total": "T", "question": "Q", "update": "U"}
    for name, kind in (kinds | {"snapshot": "S"}).items():
        assert foreign_frame(VECTORS[name]) == {"kind": kind} | common
    assert foreign_answer(VECTORS["answer"]) == (7, 13, 1300, 1, b"\xa5\x0f")
    assert foreign_answer(VECTORS["scalars"])[:4] == (7, 4, 400, 0)
    assert struct.unpack("<2d", foreign_answer(VECTORS["scalars"])[4]) == (1.5, -0.25)
    assert struct.unpack("<IdQ", VECTORS["total"][24:-4]) == (7, -2.5, 40)
    assert foreign_update(VECTORS["update"]) == [(2, [(0, b"\xff\x01"), (7, b"\x00\x08")])]
    assert foreign_snapshot(VECTORS["snapshot"]) == {"round": 3, "x": [0.5, -1], "m": [0, 0.25]}
    assert json.loads(VECTORS["description"][24:-4]) == {"n": 2, "workers": 8}


def test_we_write_the_vectors() -> None:
    answers = [Answer(0, b"\xff\x01"), Answer(7, b"\x00\x08")]
    scalars = struct.pack("<2d", 1.5, -0.25)
    answer, numbers = Answer(7, b"\xa5\x0f", 13, 1300, 1), Answer(7, scalars, 4, 400, 0)
    assert wire.pack_answer(RUN, 3, DIGEST, answer) == VECTORS["answer"]
    assert wire.pack_answer(RUN, 3, DIGEST, numbers) == VECTORS["scalars"]
    assert wire.pack_total(RUN, 3, DIGEST, wire.Total(7, -2.5, 40)) == VECTORS["total"]
    assert wire.seal(wire.ASK, RUN, 3, DIGEST) == VECTORS["question"]
    block = codec.pack_round(answers)
    assert wire.pack_update(RUN, 3, DIGEST, 2, [block]) == VECTORS["update"]
    assert wire.pack_description(RUN, {"n": 2, "workers": 8}) == VECTORS["description"]
    # zlib is free to compress otherwise, so this one is compared by what it means
    assert foreign_snapshot(wire.pack_snapshot(RUN, DIGEST, STATE))["m"] == [0, 0.25]


def test_we_read_the_vectors() -> None:
    def body(name: str) -> wire.Message:
        kinds = [bytes([c]) for c in b"ATQUS"]
        return wire.unseal(VECTORS[name], kinds, 1000, RUN)

    assert wire.unpack_answer(body("answer").body, 8, LAYOUT) == Answer(7, b"\xa5\x0f", 13, 1300, 1)
    assert wire.unpack_total(body("total").body, 8) == wire.Total(7, -2.5, 40)
    first, (block,) = wire.unpack_update(body("update"), 2)
    assert first == 2
    assert wire.unpack_round(block, 8) == [Answer(0, b"\xff\x01"), Answer(7, b"\x00\x08")]
    state = wire.unpack_snapshot(body("snapshot"), DESState(0, np.zeros(2), np.zeros(2)))
    assert (state.round, [*state.x], [*state.m]) == (3, [0.5, -1.0], [0.0, 0.25])
    assert wire.unpack_description(VECTORS["description"]) == (RUN, {"n": 2, "workers": 8})


def test_the_digest_covers_all_that_an_answer_depends_on() -> None:
    task = Task(3, X, (0.5,))
    by_hand = hashlib.blake2b(struct.pack("<3d", 0.5, -1.0, 0.5), digest_size=8).digest()
    assert wire.task_digest(task) == by_hand
    assert wire.task_digest(replace(task, scalars=(0.25,))) != by_hand
    assert wire.task_digest(replace(task, x=np.array([0.5, np.nextafter(-1.0, 0)]))) != by_hand
    assert wire.task_digest(replace(task, memory=np.zeros(1))) != by_hand
    assert wire.task_digest(Task(3, np.repeat(X, 2)[::2], (0.5,))) == by_hand  # not contiguous


# --- sizes -----------------------------------------------------------------------------------


def payload_bytes(method: str) -> int:
    settings = {"iterations": 500, "mixture": 8, "population": 247}
    algorithm: Any = METHODS[method].make(method, settings)
    size: int = algorithm.layout.size
    return size


@pytest.mark.parametrize("method", [name for name in METHODS if not METHODS[name].single_worker])
def test_sizes_are_those_of_the_table(method: str) -> None:
    n, M, size = 47_236, 10, payload_bytes(method)
    big = 2**32 - 1
    answers = [Answer(big - M + i, bytes(size), big, 2**64 - 1, big) for i in range(M)]
    up = len(wire.pack_answer(RUN, big, DIGEST, answers[0]))
    down = len(wire.pack_update(RUN, big, DIGEST, size, [codec.pack_round(answers)]))
    row = re.search(rf"^\| {METHODS[method].answer},[^|]*\|(.*)\|$", DOC, flags=re.MULTILINE)
    assert row is not None
    assert [int(cell.replace(",", "")) for cell in row.group(1).split("|")] == [up, down, 8 * n]
    assert up <= size + 48
    if METHODS[method].answer == "K bits":
        assert size == 63
        assert up <= 120
        assert down <= 1200


# --- refusals --------------------------------------------------------------------------------


def sealed(data: bytes) -> bytes:
    """The same with the right checksum: what a forger would send."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return sealed(data[:at] + new + data[at + len(new) :])


def server_in_round_3(algorithm: Any = None, batch_size: int | None = None) -> Server:
    server = Server(algorithm or DES(iterations=12), STATE, 9, run=RUN, batch_size=batch_size)
    server.admit("peer", [6, 7])
    return server


ANSWER = VECTORS["answer"]
CASES: dict[str, tuple[bytes, Reason]] = {
    "empty": (b"", Reason.LENGTH),
    "cut": (ANSWER[:20], Reason.LENGTH),
    "too long": (sealed(ANSWER + bytes(1)), Reason.LENGTH),
    "a gigabyte": (ANSWER + bytes(10**7), Reason.LENGTH),
    "no counts": (sealed(ANSWER[:30]), Reason.LENGTH),
    "magic": (changed(ANSWER, 0, b"\xd6"), Reason.MAGIC),
    "format": (changed(ANSWER, 2, b"\x02"), Reason.VERSION),
    "stream": (changed(ANSWER, 3, b"\x02"), Reason.STREAM),
    "checksum": (ANSWER[:-1] + b"\x00", Reason.CHECKSUM),
    "damaged": (ANSWER[:44] + b"\xa4" + ANSWER[45:], Reason.CHECKSUM),
    "kind": (changed(ANSWER, 1, b"S"), Reason.KIND),
    "run": (changed(ANSWER, 8, b"\x00"), Reason.RUN),
    "late": (changed(ANSWER, 4, struct.pack("<I", 2)), Reason.LATE),
    "early": (changed(ANSWER, 4, struct.pack("<I", 2**32 - 1)), Reason.GAP),
    "another x": (changed(ANSWER, 16, b"\x00"), Reason.DIVERGED),
    "no such worker": (changed(ANSWER, 24, struct.pack("<I", 9)), Reason.WORKER),
    "another's worker": (changed(ANSWER, 24, struct.pack("<I", 5)), Reason.WORKER),
    "short mask": (sealed(ANSWER[:45] + ANSWER[-4:]), Reason.PAYLOAD),
    "bits beyond K": (changed(ANSWER, 45, b"\x1f"), Reason.PAYLOAD),
    "total": (sealed(VECTORS["total"][:-5] + bytes(4)), Reason.LENGTH),
    "total of nobody": (changed(VECTORS["total"], 24, b"\xff\xff\xff\xff"), Reason.WORKER),
    "total over nothing": (changed(VECTORS["total"], 36, bytes(8)), Reason.COUNTS),
    "total over 2^64": (changed(VECTORS["total"], 36, b"\xff" * 8), Reason.COUNTS),
    "total is NaN": (changed(VECTORS["total"], 28, struct.pack("<d", np.nan)), Reason.PAYLOAD),
    "total is inf": (changed(VECTORS["total"], 28, struct.pack("<d", np.inf)), Reason.PAYLOAD),
    "total is -inf": (changed(VECTORS["total"], 28, struct.pack("<d", -np.inf)), Reason.PAYLOAD),
    "all counts": (changed(ANSWER, 28, b"\xff" * 16), Reason.COUNTS),
    "evaluations": (changed(ANSWER, 28, struct.pack("<I", 14)), Reason.COUNTS),
    "samples": (changed(ANSWER, 32, struct.pack("<Q", 13 * 100 + 1)), Reason.COUNTS),
    "NaNs": (changed(ANSWER, 40, struct.pack("<I", 14)), Reason.COUNTS),
}


@pytest.mark.parametrize("name", CASES)
def test_the_server_refuses(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, reason = CASES[name]
    server = server_in_round_3(batch_size=100)
    caplog.set_level("INFO", "desopt.wire")
    assert server.receive("peer", data) is None
    assert server.refused == Counter({reason: 1})
    assert server.bytes_up == len(data)
    assert (server.state, server.answers, server.totals) == (STATE, {}, {})
    (record,) = caplog.records
    assert str(reason) in record.message
    assert "'peer'" in record.message
    answer = server.receive("peer", ANSWER)  # and it goes on
    assert isinstance(answer, Answer)
    assert server.receive("peer", ANSWER) is None
    assert server.refused[Reason.DUPLICATE] == 1


def test_the_server_refuses_who_is_unknown_or_not_asked() -> None:
    server = Server(DES(iterations=12), STATE, 9, run=RUN, asked=lambda round: (round, 6))
    server.admit("peer", [6, 7])
    assert server.receive("stranger", ANSWER) is None
    assert server.receive("peer", ANSWER) is None
    assert server.refused == Counter({Reason.WORKER: 2})
    assert server.receive("peer", changed(ANSWER, 24, b"\x06")) is not None
    assert [*server.answers] == [6]


@pytest.mark.parametrize("value", [np.nan, -np.nan])
def test_nan_scalars_are_refused_and_infinite_ones_are_not(value: float) -> None:
    algorithm = ESCSA(population=2)
    state = replace(algorithm.init(X), round=3)
    server = Server(algorithm, state, 9, run=RUN)
    server.admit("peer", [7])
    digest = wire.task_digest(algorithm.plan(state))

    def message(*values: float) -> bytes:
        return wire.pack_answer(RUN, 3, digest, Answer(7, struct.pack("<2d", *values)))

    assert server.receive("peer", message(1.0, value)) is None
    assert server.refused == Counter({Reason.PAYLOAD: 1})
    assert server.receive("peer", message(1.0, np.inf)) is not None


def huge(name: str) -> bytes:
    """Messages that claim far more than they have."""
    update, snapshot = VECTORS["update"], VECTORS["snapshot"]
    billion = struct.pack("<I", 10**9)
    bomb = struct.pack("<I", 2**32 - 1) + snapshot[28:-4]
    meta = b'{"plain": {"round": 3}, "arrays": {"x": 1000000000, "m": 2}}'
    claims = struct.pack("<I", len(meta)) + meta + zlib.compress(bytes(2 * 10**6))
    body = struct.pack("<I", 51) + snapshot[28:79] + zlib.compress(bytes(2 * 10**6))
    return {
        "rounds": changed(update, 24, bytes(4)),
        "payload": changed(update, 28, billion),
        "answers": changed(update, 32, billion),
        "text": wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, bomb),
        "arrays": wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, claims),
        "zlib": wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, body),
        "bytes": wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, bytes(10**6)),
        "nested": wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, struct.pack("<I", 4000) + b"[" * 4000),
    }[name]


PLAIN = {"float": b'{"round": 3.0}', "bool": b'{"round": true}', "other": b'{"round": 4}'}


@pytest.mark.parametrize("plain", PLAIN.values(), ids=PLAIN)
def test_a_snapshot_must_be_of_its_round(plain: bytes) -> None:
    meta = b'{"plain": ' + plain + b', "arrays": {"x": 2, "m": 2}}'
    body = struct.pack("<I", len(meta)) + meta + zlib.compress(X.tobytes() + STATE.m.tobytes())
    replica = Replica(DES(iterations=12), 2, 8, RUN)
    with pytest.raises(WireError, match="state"):
        replica.follow(wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, body))
    good = body.replace(plain, b'{"round": 3}')
    shorter = struct.pack("<I", len(meta) - len(plain) + 12) + good[4:]
    assert replica.follow(wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, shorter)).round == 3


def test_a_number_in_a_snapshot_may_not_be_beyond_measure() -> None:
    algorithm = ESCSA(population=2)
    meta = b'{"plain": {"round": 3, "sigma": 1' + b"0" * 400 + b'}, "arrays": {"x": 2, "path": 2}}'
    body = struct.pack("<I", len(meta)) + meta + zlib.compress(bytes(32))
    with pytest.raises(WireError, match="sigma"):
        Replica(algorithm, 2, 8, RUN).follow(wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, body))


@pytest.mark.parametrize("period", [1e154, -1e308])
def test_answers_that_a_forged_state_cannot_merge_are_refused(period: float) -> None:
    """The state is followed, as its digest is right; the next update meets its numbers."""
    algorithm = METHODS["des-mr"].make("des-mr", {"iterations": 12, "step_size": "auto"})
    state = replace(algorithm.init(X), round=3, controls=1.0, period=period)
    replica = Replica(algorithm, 2, 8, RUN)
    replica.follow(wire.pack_snapshot(RUN, wire.task_digest(algorithm.plan(state)), state))
    before = replica.state
    payload = bytes(replica._layout.size)
    answers = codec.pack_round([Answer(0, payload)])
    with pytest.raises(WireError, match="payload"):
        replica.follow(wire.pack_update(RUN, 4, DIGEST, len(payload), [answers]))
    assert replica.state is before


def test_counts_are_those_that_a_method_can_spend() -> None:
    """What honest workers say is let in, to the last evaluation; one more is not."""
    settings = {"iterations": 12, "mixture": 8, "population": 5}
    for name, most in {
        "des-mr": 13,
        "es": 13,
        "zo-signsgd": 12,
        "fed-zo-gd": 12,
        "es-csa": 5,
    }.items():
        algorithm = METHODS[name].make(name, settings)
        payload = bytes(algorithm.layout.size)
        for evaluations, fine in ((most, True), (most + 1, False)):
            answer = Answer(7, payload, evaluations, 10 * evaluations, evaluations)
            body = wire.unseal(wire.pack_answer(RUN, 3, DIGEST, answer), [b"A"], 1000).body
            assert wire.unpack_answer(body, 8, algorithm.layout) == answer
            if fine:
                wire.check_counts(answer, algorithm.cost, 10)
                with pytest.raises(WireError, match="counts: worker 7 says"):
                    wire.check_counts(answer, algorithm.cost, 9)
            else:
                with pytest.raises(WireError, match=f"at most {most} are possible"):
                    wire.check_counts(answer, algorithm.cost, 10)


def test_peers_of_our_own_may_say_what_a_serial_run_would() -> None:
    server = Server(DES(iterations=12), STATE, 9, run=RUN, trusted=True)
    server.admit("peer", [6, 7])
    assert server.receive("peer", CASES["total is inf"][0]) == wire.Total(7, np.inf, 40)
    assert server.receive("peer", CASES["evaluations"][0]) is not None
    assert server.receive("peer", CASES["total over nothing"][0]) is None


def test_peers_of_our_own_need_no_declared_cost() -> None:
    class WithoutCost(DES):
        @property
        def cost(self) -> Any:
            raise AttributeError("cost")

    algorithm = WithoutCost(iterations=12)
    server = Server(algorithm, STATE, 9, run=RUN, trusted=True)
    server.admit("peer", [6, 7])
    assert server.receive("peer", CASES["evaluations"][0]) is not None
    with pytest.raises(AttributeError, match="cost"):
        Server(algorithm, STATE, 9, run=RUN)


def test_refusals_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "desopt.wire")
    server = server_in_round_3()
    for _ in range(1000):
        server.receive("peer", b"")
        server.receive("peer", CASES["late"][0])
    assert server.refused == Counter({Reason.LENGTH: 1000, Reason.LATE: 1000})
    assert 20 < len(caplog.records) < 50
    assert "more refusals in round 3 are only counted" in caplog.text
    server.finish_round()
    caplog.clear()
    server.receive("peer", b"")
    assert len(caplog.records) == 1


def test_rounds_of_an_update_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty ones take four bytes each, and a merge."""
    assert wire.MAX_REPLAY == 2**16
    monkeypatch.setattr(wire, "MAX_REPLAY", 50)
    algorithm, n = DES(iterations=12), 100
    replica = Replica(algorithm, n, 8, RUN, x0=np.zeros(n))
    many = wire.MAX_REPLAY + 1
    data = wire.pack_update(RUN, many, bytes(8), 2, [codec.pack_round([])] * many)
    assert len(data) < replica.limit
    with pytest.raises(WireError, match=f"more than {many - 1} rounds"):
        replica.follow(data)
    server = Server(algorithm, algorithm.init(np.zeros(n)), 8, run=RUN)
    server.admit("peer", [0])
    server.receive("peer", replica.ask())
    for _ in range(many):
        server.advance(replace(server.state, round=server.state.round + 1), [])
    assert server.message_for("peer")[1:2] == wire.SNAPSHOT


HUGE = ("rounds", "payload", "answers", "text", "arrays", "zlib", "bytes", "nested")


def replica_in_round_2() -> Replica:
    replica = Replica(DES(iterations=12), 2, 8, RUN, x0=X)
    replica.state = replace(replica.state, round=2)
    return replica


U = VECTORS["update"]
UPDATES: dict[str, tuple[bytes, Reason]] = {
    "as it is": (U, Reason.DIVERGED),  # by whoever had another x
    "no rounds": (sealed(U[:32]), Reason.LENGTH),
    "half a count": (sealed(U[:34] + bytes(4)), Reason.LENGTH),
    "one byte short": (sealed(U[:-1]), Reason.LENGTH),
    "one byte more": (sealed(U + bytes(1)), Reason.LENGTH),
    "an answer": (ANSWER, Reason.KIND),
    "run": (changed(U, 8, b"\x00"), Reason.RUN),
    "late": (changed(changed(U, 4, b"\x01"), 24, b"\x00"), Reason.LATE),
    "gap": (changed(changed(U, 4, b"\x04"), 24, b"\x03"), Reason.GAP),
    "payload": (changed(U, 28, b"\x01"), Reason.PAYLOAD),
    "bits beyond K": (changed(U, 45, b"\x10"), Reason.PAYLOAD),
    "no such worker": (changed(U, 40, b"\x08"), Reason.WORKER),
    "falling": (changed(U, 36, b"\x07\x00\x00\x00\x00"), Reason.WORKER),
    "twice": (changed(U, 40, b"\x00"), Reason.WORKER),
}


@pytest.mark.parametrize("name", UPDATES)
def test_the_replica_refuses(name: str) -> None:
    data, reason = UPDATES[name]
    replica = replica_in_round_2()
    before = replica.state
    with pytest.raises(WireError) as caught:
        replica.follow(data)
    assert caught.value.reason is reason
    assert replica.state is before


@pytest.mark.parametrize("name", HUGE)
def test_claims_cost_no_memory(name: str) -> None:
    replica = replica_in_round_2()
    data, before = huge(name), replica.state
    tracemalloc.start()
    with pytest.raises(WireError):
        replica.follow(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000
    assert replica.state is before


def test_names_in_a_snapshot_are_few_and_their_sizes_right() -> None:
    n = 10_000
    replica = Replica(DES(iterations=12), n, 8, RUN)

    def snapshot(arrays: dict[str, int]) -> bytes:
        meta = json.dumps({"plain": {"round": 3}, "arrays": arrays}).encode()
        body = struct.pack("<I", len(meta)) + meta + zlib.compress(bytes(16 * n))
        return wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, body)

    with pytest.raises(WireError, match="8214 bytes of names; 4096 are allowed"):
        replica.follow(snapshot({"x" * 8160: 2 * n, "m": 3}))
    # each pair of sizes would be one more copy of all there is
    copies = snapshot({f"{i}": 2 * n if i % 2 == 0 else -2 * n for i in range(250)})
    tracemalloc.start()
    with pytest.raises(WireError, match="state"):
        replica.follow(copies)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


GOOD: dict[str, Any] = {
    "desopt": VERSION, "n": 2, "workers": 8, "batch_size": 5, "seed": 1,
    "method": DES(iterations=12).settings(),
}  # fmt: skip
DESCRIPTIONS: dict[str, Any] = {
    "list": [1],
    "version": {"desopt": "0.0"},
    "n": {"n": 10**12},
    "n is text": {"n": "2"},
    "workers": {"workers": 2**32},
    "batch size": {"batch_size": None},
    "seed": {"seed": 1.0},
    "method": {"method": {"name": "nonsense"}},
    "no method": {"method": None},
    "settings": {"method": {"name": "des-mr", "sampler": {"name": "gaussian"}, "more": 1}},
    "sampler": {"method": {"name": "des-mr", "sampler": 3}},
    "true is no number": {"method": DES(iterations=12).settings() | {"step_size": True}},
    "a word is no number": {"method": DES(iterations=12).settings() | {"step_size": "atuo"}},
    "no rule": {"method": ESCSA(population=8, iterations=12).settings() | {"step_size": "auto"}},
    "no rows": {"batch_size": 0},
    "no numbers": {"n": 0},
    "nobody": {"workers": 0},
    "participation": {"participation": 1.5},
    "nobody asked": {"participation": 0},
    "asked is text": {"participation": "all"},
    **{
        f"box {box}": {"method": DES(iterations=12).settings() | {"box": box}}
        for box in (
            3, None, {}, {"n": 3, "lower": 0, "upper": 1}, {"n": 2, "lower": 0},
            {"n": 2, "lower": [0, 0, 0], "upper": 1}, {"n": 2, "lower": [0, True], "upper": 1},
            {"n": 2, "lower": "0", "upper": 1}, {"n": 2, "lower": [[0], 1], "upper": 1},
        )
    },
    "constrained": {"method": DES(iterations=12).settings() | {"constrained": 1}},
}  # fmt: skip
SMALL = Limits(
    n=100, workers=50, iterations=50, batch_size=50, draws=400, population=50, memory=1000
)
LARGE: dict[str, Any] = {
    "n": {"n": 101},
    "workers": {"workers": 51},
    "batch_size": {"batch_size": 51},
    "iterations": {"method": DES(iterations=51, sampler=MixtureRademacher(1)).settings()},
    "draws": {"method": DES(iterations=50, sampler=MixtureRademacher(9)).settings()},
    "mixture": {"method": DES(iterations=1, sampler=MixtureRademacher(401)).settings()},
    "population": {"method": ESCSA(population=51, iterations=50).settings()},
    "memory": {"n": 25, "method": CMAES(population=41, correlations=25, iterations=50).settings()},
}


@pytest.mark.parametrize("name", LARGE)
def test_a_server_may_not_ask_for_more_than_the_limits(name: str) -> None:
    data = wire.pack_description(RUN, GOOD | LARGE[name])
    with pytest.raises(
        WireError, match=rf"description: {name} is .*desopt\.protocol\.replica\.Limits"
    ):
        Replica.joining(data, limits=SMALL)
    raised = "draws" if name == "mixture" else name
    assert Replica.joining(data, limits=replace(SMALL, **{raised: 2000})).state is None


def test_members_of_cma_es_are_in_memory_at_once_only_with_correlations() -> None:
    method = CMAES(population=50, correlations=24, iterations=50).settings()
    Replica.joining(wire.pack_description(RUN, GOOD | {"n": 25, "method": method}), limits=SMALL)


@pytest.mark.parametrize("name", ["n", "workers", "batch_size"])
def test_limits_are_looked_at_before_memory_is_taken(name: str) -> None:
    data = wire.pack_description(RUN, GOOD | {name: 2**31})
    tracemalloc.start()
    with pytest.raises(WireError, match=name):
        Replica.joining(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_descriptions_are_refused(name: str) -> None:
    change = DESCRIPTIONS[name]
    assert Replica.joining(wire.pack_description(RUN, GOOD)).algorithm == DES(iterations=12)
    settings: Any = change if isinstance(change, list) else GOOD | change
    with pytest.raises(WireError) as caught:
        Replica.joining(wire.pack_description(RUN, settings))
    assert caught.value.reason in (Reason.DESCRIPTION, Reason.VERSION)


def test_descriptions_have_a_limit() -> None:
    with pytest.raises(ValueError, match=f"at most {2**20}"):
        wire.pack_description(RUN, {"objective": "x" * 2**20})
    deep = wire.seal(wire.DESCRIPTION, RUN, 0, wire.NOWHERE, b"[" * 60_000)
    with pytest.raises(WireError, match="description"):
        wire.unpack_description(deep)


JSON: dict[str, bytes] = {
    "nested just so far that it can be read": b'{"n": ' + b"[" * 300 + b"]" * 300 + b"}",
    "names twice": b'{"n": 2, "n": 2000}',
    "NaN": b'{"n": NaN}',
    "infinity": b'{"n": -Infinity}',
    "beyond numbers": b'{"n": 1e999}',
    "digits": b'{"n": 1' + b"0" * 5000 + b"}",
    "not UTF-8": b'{"n": "\xff"}',
}


@pytest.mark.parametrize("text", JSON.values(), ids=JSON)
def test_json_is_taken_plain_or_not_at_all(text: bytes) -> None:
    data = wire.seal(wire.DESCRIPTION, RUN, 0, wire.NOWHERE, text)
    with pytest.raises(WireError, match="description: not JSON"):
        wire.unpack_description(data)
    body = struct.pack("<I", len(text)) + text
    if len(body) < wire.MAX_FIELDS:
        with pytest.raises(WireError, match="state"):
            replica_in_round_2().follow(wire.seal(wire.SNAPSHOT, RUN, 3, DIGEST, body))


def test_a_method_without_a_layout_cannot_be_sent() -> None:
    class Own:
        name = "own"

    with pytest.raises(TypeError, match="'own' declares no layout"):
        Server(Own(), STATE, 9)  # type: ignore[arg-type]


# --- fuzzing ---------------------------------------------------------------------------------


def mutated(data: bytes, draw: random.Random) -> bytes:
    """One to three changes; half of the time with the right checksum."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(out)) if out else 0
        what = draw.randrange(6)
        if what == 0:
            out[at : at + 1] = bytes([draw.randrange(256)])
        elif what == 1:
            out[at : at + 4] = draw.choice((b"\xff" * 4, bytes(4), b"\x00\xca\x9a\x3b"))
        elif what == 2:
            del out[at : at + draw.randint(1, 8)]
        elif what == 3:
            out[at:at] = draw.randbytes(draw.randint(1, 8))
        elif what == 4:
            del out[at:]
        else:
            out[at:] = data[draw.randrange(len(data)) :]
    result = bytes(out)
    return sealed(result) if draw.random() < 0.5 and len(result) >= 4 else result


def fits(data: bytes) -> bool:
    """Whether it is a good answer or total of worker 6 or 7, by the document's words."""
    try:
        frame = foreign_frame(data)
    except (AssertionError, struct.error, IndexError):
        return False
    if (frame["round"], frame["run"], frame["digest"]) != (3, RUN, DIGEST):
        return False
    if struct.unpack("<I", data[24:28].ljust(4, b"\xff"))[0] not in (6, 7):
        return False
    if frame["kind"] == "T":
        if len(data) != 48:
            return False
        total, rows = struct.unpack("<dQ", data[28:44])
        return math.isfinite(total) and 1 <= rows <= 2**32
    if frame["kind"] != "A" or len(data) != 50 or data[45] >= 16:
        return False
    _, evaluations, samples, nans, _ = foreign_answer(data)
    fine: bool = evaluations <= 13 and samples <= 2**32 * evaluations and nans <= evaluations
    return fine


def test_fuzzed_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger, "disabled", True)
    draw, server, accepted = random.Random(1), server_in_round_3(), 0
    before = server.state.x.tobytes() + server.state.m.tobytes()
    seeds = [VECTORS[name] for name in ("answer", "answer", "total", "question", "update")]
    for _ in range(100_000):
        data = mutated(draw.choice(seeds), draw)
        said = server.receive("peer", data)
        assert (said is not None) == fits(data), data.hex()
        accepted += said is not None
        server.answers.clear()
        server.totals.clear()
    assert server.state.x.tobytes() + server.state.m.tobytes() == before
    assert server.state.round == 3
    assert accepted > 500  # changed counts or bits make another good answer
    common = {Reason.LENGTH, Reason.CHECKSUM, Reason.RUN, Reason.DIVERGED, Reason.PAYLOAD}
    assert min(server.refused[reason] for reason in common) > 100, server.refused


def test_fuzzed_updates() -> None:
    draw, algorithm = random.Random(2), DES(iterations=12)
    start = algorithm.init(X)
    server = Server(algorithm, start, 8, run=RUN)
    server.replay_bytes = 10**6  # n is tiny: without this there would be snapshots only
    answers = [Answer(w, b"\xff\x0a") for w in (0, 3, 7)]
    for _ in range(2):
        server.advance(algorithm.merge(server.state, answers), answers)
    rounds = [past.answers for past in server._past]
    update = wire.pack_update(RUN, 2, server._digest, 2, rounds)
    snapshot = wire.pack_snapshot(RUN, server._digest, server.state)
    replica, reasons, followed = Replica(algorithm, 2, 8, RUN, x0=X), Counter[Reason](), 0
    for _ in range(20_000):
        data = mutated(draw.choice((update, snapshot)), draw)
        try:
            replica.follow(data)
        except WireError as error:
            reasons[error.reason] += 1
            assert replica.state.round == 0
        else:  # by chance the same, or a state that differs where the digest does not look
            assert replica.state.x.tobytes() == server.state.x.tobytes()
            replica, followed = Replica(algorithm, 2, 8, RUN, x0=X), followed + 1
    assert followed < 2000
    assert {Reason.DIVERGED, Reason.PAYLOAD, Reason.STATE, Reason.WORKER} <= {*reasons}
    assert replica.follow(update).x.tobytes() == server.state.x.tobytes()


def test_fuzzed_descriptions() -> None:
    draw = random.Random(3)
    good = wire.pack_description(RUN, GOOD)
    refused = 0
    for _ in range(5_000):
        try:
            Replica.joining(mutated(good, draw), limits=Limits(n=100))
        except WireError:
            refused += 1
    assert refused > 4_000


ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, 1e308, -1e308, 5e-324, 0.5, "", "x",
    "des-mr", [], [1], {}, {"name": "x"}, {"name": "MixtureGaussian", "l": 2**40}, {"name": []},
    {"name": "CustomSampler", "draw": "f"}, [[[[[]]]]], {"n": {"n": {}}},
]  # fmt: skip


def places(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where something stands in nested settings."""
    inner = (
        [p for k, v in value.items() for p in places(v, (*path, k))]
        if isinstance(value, dict)
        else []
    )
    return [path, *inner] if path else inner


def with_value(value: Any, path: tuple[str, ...], new: Any) -> Any:
    return value | {path[0]: with_value(value[path[0]], path[1:], new)} if path else new


@pytest.mark.parametrize("name", METHODS)
def test_odd_settings_are_refused_or_can_be_worked_with(name: str) -> None:
    """Any value in any place: a WireError, or a replica that goes its way within the limits."""
    settings = {"iterations": 6, "mixture": 4, "population": 5, "aggregate": "mean"}
    method = METHODS[name].make(name, settings).settings()
    good = GOOD | {"method": method, "participation": 0.5, "x0": digest_of(np.zeros(2))}
    reasons = Counter[Reason]()
    for path in places(good):
        for odd in ODD:
            try:
                data = wire.pack_description(RUN, with_value(good, path, odd))
                replica = Replica.joining(data, limits=SMALL)
            except WireError as error:
                reasons[error.reason] += 1
                continue
            assert replica.algorithm.settings() == replica.settings["method"]
            assert replica._layout.size <= 8 * 51
            share = replica.settings["participation"]
            chosen = participants(replica.settings["seed"], 3, replica.workers, share)
            assert 1 <= len(chosen) <= replica.workers <= 50
            if replica.state is not None:
                payload = bytes(replica._layout.size)
                after = replica.algorithm.merge(replica.state, [Answer(0, payload)])
                assert np.isfinite(after.x).all()
    assert {*reasons} == {Reason.DESCRIPTION, Reason.VERSION}
    assert reasons.total() > 0.7 * len(places(good)) * len(ODD)


def test_fuzzed_snapshots_with_a_good_digest() -> None:
    """A forger knows the digest: whatever comes through is a state that can be worked with."""
    draw, algorithm = random.Random(4), ESCSA(population=3)
    state = replace(algorithm.init(np.zeros(2)), round=3)
    data = wire.pack_snapshot(RUN, wire.task_digest(algorithm.plan(state)), state)
    for _ in range(5_000):
        replica = Replica(algorithm, 2, 8, RUN)
        bad = mutated(data, draw)
        try:
            task = replica.follow(bad)
        except WireError:
            continue
        assert task.x.tolist() == [0, 0]
        algorithm.merge(replica.state, [Answer(0, bytes(24))])
