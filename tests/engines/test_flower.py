"""A federation finds the bits of a serial run, whoever comes, goes, fails or is late."""

from __future__ import annotations

import http.server
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import federate_simulation
from helpers.federate_simulation import EXAMPLE, load
from scipy import sparse

import desopt
from desopt.protocol import wire
from desopt.run import journal

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'desopt[flower]'")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from helpers.loopback import (
    ROUNDS,
    SETTINGS,
    WORKERS,
    Clock,
    Loopback,
    N,
    context,
    federated,
    kinds,
    load_shard,
    run,
    serial,
    shard,
    who_answered,
)

from desopt.data import as_shards
from desopt.engines import Job
from desopt.federate import client_app, server_app
from desopt.methods import restore
from desopt.objectives import LinearModel
from desopt.protocol.replica import Limits
from desopt.run.sites import SiteLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.of_a_test(monkeypatch)


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message carries who made it, which Flower tells each of its own processes."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def test_flower_is_new_enough() -> None:
    """pip answers a conflict over rich or typer with a release of years ago, without a word."""
    assert tuple(map(int, version("flwr").split(".")[:2])) >= (1, 41)


# --- the same bits ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "step_size"),
    [("des-mr", 1.0), ("des-mr", "auto"), ("fed-zo-sgd", 1.0), ("es-csa", 1.0)],
)
def test_a_federation_finds_the_bits_and_losses_of_a_serial_run(
    method: str, step_size: float | str
) -> None:
    more: dict[str, Any] = {"method": method, "population": 8, "step_size": step_size}
    found, expected = federated(Loopback(), **more), serial(**more)
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.initial_fun == expected.initial_fun
    for column in ("loss", "evaluations", "samples", "answers"):
        assert found.history[column].tolist() == expected.history[column].tolist()


@pytest.mark.parametrize("eval_every", [1, 0])
@pytest.mark.parametrize("method", ["des-mr", "fed-zo-sgd", "es-csa"])
def test_a_budget_shortens_the_last_round(method: str, eval_every: int) -> None:
    """Also where it is asked for along with the loss, before ``minimize`` comes to it."""
    each = {"des-mr": 21, "fed-zo-sgd": 20, "es-csa": 8}[method]
    more: dict[str, Any] = {"method": method, "population": 8, "eval_every": eval_every,
                            "max_evaluations": WORKERS * (3 * each + 6)}  # fmt: skip
    grid = Loopback()
    found, expected = federated(grid, **more), serial(**more)
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.nit == expected.nit == 4
    assert found.nfev == expected.nfev == more["max_evaluations"]
    limits = [order["limit"] for _, round, order in grid.sent if round == 3]
    assert limits == [6 * WORKERS] * WORKERS  # the round's; each node knows its share
    assert not any(order["work"] for _, round, order in grid.sent if round == 4)


def test_the_engine_by_name_is_an_engine_like_others() -> None:
    """It can be started again, as any of them."""
    federation = desopt.ENGINES["flower"](grid=Loopback(), poll=1e-6, last=ROUNDS)
    expected = serial()
    for _ in range(2):
        result = desopt.minimize(
            "lr", np.zeros(N), lambda worker: None, workers=WORKERS, rounds=ROUNDS, eval_every=1,
            engine=federation, progress=False, **SETTINGS,
        )  # fmt: skip
        assert result.x.tobytes() == expected.x.tobytes()
        assert result.history["loss"].tolist() == expected.history["loss"].tolist()


def test_what_travels_is_the_answers_and_not_x() -> None:
    grid = Loopback()
    history = federated(grid).history
    up = WORKERS * (3 + 48 + 48)  # 20 bits, a frame; a total
    down = WORKERS * (40 + WORKERS * (4 + 3))
    assert np.diff(history["bytes_up"]).tolist() == [up] * (ROUNDS - 1)
    assert np.diff(history["bytes_down"]).tolist() == [down] * (ROUNDS - 1)
    assert set(kinds(grid)) == {wire.UPDATE}
    described = [bool(order["description"]) for _, _, order in grid.sent]
    assert described == [True] * WORKERS + [False] * (len(grid.sent) - WORKERS)
    assert len(grid.sent) == (ROUNDS + 1) * WORKERS  # the loss costs no message but the last
    assert [order["work"] for _, _, order in grid.sent][-WORKERS:] == [False] * WORKERS


def test_the_state_on_a_node_does_not_grow() -> None:
    sizes = []
    for rounds in (2, 12):
        grid = Loopback()
        federated(grid, rounds=rounds)
        record: Any = grid.contexts[10].state["desopt"]
        sizes.append(record.count_bytes())
    assert sizes[1] < 1.3 * sizes[0] < 1.3 * (2 * 8 * N + 1_500)


def test_participation_asks_whom_a_serial_run_asks(tmp_path: Path) -> None:
    path, grid = tmp_path / "run.journal", Loopback(10)
    more: dict[str, Any] = {"participation": 0.3, "rounds": 9}
    found = federated(grid, 10, journal=path, eval_every=0, **more)
    assert found.x.tobytes() == serial(10, eval_every=0, **more).x.tobytes()
    assert all(len(workers) == 3 for workers in who_answered(path))
    assert len({tuple(workers) for workers in who_answered(path)}) > 3


def test_a_start_that_is_not_zero_is_sent_once() -> None:
    grid, x0 = Loopback(), np.linspace(-1, 1, N)
    found: list[desopt.Result] = []
    settings: dict[str, Any] = SETTINGS | {"rounds": 3, "workers": WORKERS, "poll": 1e-6}
    run(server_app("lr", x0, finished=found.append, **settings), grid)
    shards = [shard(worker) for worker in range(WORKERS)]
    expected = desopt.minimize("lr", x0, shards, engine="serial", rounds=3, **SETTINGS)
    assert found[0].x.tobytes() == expected.x.tobytes()
    assert kinds(grid).count(wire.SNAPSHOT) == WORKERS


# --- nodes that come and go ------------------------------------------------------------------


def test_a_node_that_dies_and_forgets_is_brought_back_by_replay() -> None:
    grid = Loopback()
    died: list[int] = []

    def mishap(node: int, round: int) -> str:
        if (node, round) in {(11, 3), (12, 5)} and node not in died:
            died.append(node)
            return "gone"
        return ""

    grid.mishap = mishap
    found = federated(grid)
    assert died == [11, 12]
    assert found.x.tobytes() == serial().x.tobytes()
    assert set(kinds(grid)) == {wire.UPDATE}, "answers, not x"
    again = [order for node, round, order in grid.sent if (node, round) == (11, 3)]
    assert len(again[1]["message"]) - len(again[0]["message"]) == 2 * (4 + WORKERS * (4 + 3))


def test_a_node_that_forgets_unnoticed_says_so() -> None:
    grid = Loopback()

    def mishap(node: int, round: int) -> str:
        if (node, round) == (12, 2) and len(grid.contexts[12].state):
            grid.contexts[12].state = RecordDict()
        return ""

    grid.mishap = mishap
    first = federated(grid)
    assert first.x.tobytes() == serial().x.tobytes()


def test_a_late_node_catches_up_and_replay_is_exact(tmp_path: Path) -> None:
    path, grid = tmp_path / "run.journal", Loopback()
    grid.absent = {12}

    def come(row: Any) -> None:
        if row["round"] == 3:
            grid.absent = set()

    found = federated(grid, journal=path, min_answers=2, min_nodes=2, callbacks=[come])
    answered = who_answered(path)
    assert answered[:3] == [[0, 1]] * 3
    assert set(map(tuple, answered[3:])) <= {(0, 1), (0, 2), (1, 2), (0, 1, 2)}
    assert any(2 in workers for workers in answered[3:])
    assert desopt.replay(path).tobytes() == found.x.tobytes()
    assert found.x.tobytes() == by_hand(path).tobytes()


def by_hand(
    path: Path, load: Callable[[int], Any] = shard, workers: int = WORKERS, penalty: float = 1e-6
) -> Any:
    """x after the journal's rounds, from plan, work and merge alone; the answers must be equal."""
    contents = journal.read(path)
    config = contents.header["config"]
    algorithm, objective = restore(config["method"]), LinearModel("lr", penalty)
    shards = objective.prepare(as_shards([load(w) for w in range(workers)], workers, 0))
    seed = config["method"]["seed"]
    job = Job(algorithm, objective, shards, config["batch_size"], seed, config["n"])
    state = algorithm.init(np.zeros(config["n"]))
    for answers in contents.answers:
        task = algorithm.plan(state)
        mine = [job.work(task, answer.worker) for answer in answers]
        assert [a.payload for a in mine] == [a.payload for a in answers]
        state = algorithm.merge(state, mine)
    return state.x


def test_a_round_waits_for_nodes_before_its_time_runs(tmp_path: Path, clock: Clock) -> None:
    path, grid = tmp_path / "run.journal", Loopback()
    grid.absent = {12}

    def nodes() -> list[int]:
        if clock.monotonic() > 0.5:
            grid.absent = set()
        return Loopback.get_node_ids(grid)

    grid.get_node_ids = nodes  # type: ignore[method-assign]
    federated(grid, journal=path, deadline=0.4, min_nodes=3)
    assert who_answered(path)[0] == [0, 1, 2]


@pytest.mark.usefixtures("clock")
def test_a_round_closes_at_its_deadline_without_the_slow(tmp_path: Path) -> None:
    path, grid = tmp_path / "run.journal", Loopback()
    grid.mishap = lambda node, round: "late" if node == 12 and round < 4 else ""
    found = federated(grid, journal=path, deadline=0.2, eval_every=0)
    answered = who_answered(path)
    assert [0, 1] in answered
    assert answered[-1] == [0, 1, 2]
    assert found.x.tobytes() == by_hand(path).tobytes() == desopt.replay(path).tobytes()


@pytest.mark.usefixtures("clock")
def test_a_round_that_nobody_answers_counts_and_changes_nothing(tmp_path: Path) -> None:
    path, grid = tmp_path / "run.journal", Loopback()
    grid.mishap = lambda node, round: "lost" if round == 2 else ""
    found = federated(grid, journal=path, deadline=0.3)
    answered = who_answered(path)
    assert answered[2] == []
    assert np.isnan(found.history["loss"][1])
    assert found.x.tobytes() == by_hand(path).tobytes()


def test_a_server_that_starts_again_goes_on(tmp_path: Path) -> None:
    path, grid = tmp_path / "run.journal", Loopback()

    def die(row: Any) -> None:
        if row["round"] == 3:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        federated(grid, journal=path, callbacks=[die])
    assert len(journal.read(path).rows) == 3
    found = federated(grid, journal=path)
    assert found.x.tobytes() == serial().x.tobytes()
    assert found.history["loss"].tolist() == serial().history["loss"].tolist()
    assert len(who_answered(path)) == ROUNDS


# --- what is refused -------------------------------------------------------------------------


def test_an_app_that_fails_ends_the_run_or_is_left_out(tmp_path: Path) -> None:
    def load(config: Mapping[str, Any]) -> tuple[Any, Any]:
        if config["partition-id"] == 1:
            raise OSError("no such disk")
        return load_shard(config)

    grid = Loopback(app=client_app("lr", load))
    with pytest.raises(desopt.EngineError, match=r"node 11 failed 3 times(.|\n)*no such disk"):
        federated(grid)
    path = tmp_path / "run.journal"
    federated(grid, journal=path, min_answers=2)
    assert who_answered(path) == [[0, 2]] * ROUNDS


def far_off(X: Any) -> Any:
    matrix = sparse.csr_array(X)
    matrix.indices[0] = 10**9
    return matrix


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X: X[:, 1:], r"worker 1: its data have 39 columns, but x has 40 numbers"),
        (far_off, r"the data of worker 1: row 0 has an entry in column 1000000000"),
    ],
    ids=["a column is missing", "a column is out of bounds"],
)
def test_a_nodes_data_are_checked_before_they_are_read(
    spoil: Callable[[Any], Any], message: str
) -> None:
    def load(config: Mapping[str, Any]) -> tuple[Any, Any]:
        X, y = load_shard(config)
        return (spoil(X) if config["partition-id"] == 1 else X), y

    grid = Loopback(app=client_app("lr", load))
    with pytest.raises(desopt.EngineError, match=rf"node 11 failed 3 times(.|\n)*{message}"):
        federated(grid)


def test_apps_of_different_objectives_do_not_work_together() -> None:
    with pytest.raises(desopt.EngineError, match="make both apps with the same objective"):
        federated(Loopback(app=client_app("lsvm", load_shard)))


def test_nodes_that_say_they_are_one_worker_take_turns(caplog: pytest.LogCaptureFixture) -> None:
    grid = Loopback()
    grid.contexts[13] = context(13, 1)
    found = federated(grid)
    assert found.x.tobytes() == serial().x.tobytes()
    assert caplog.text.count("nodes [11, 13] say that they are worker 1 and take turns") == 1
    asked = {node: [r for n, r, _ in grid.sent if n == node] for node in (11, 13)}
    assert asked == {11: [0, 2, 4, 6], 13: [0, 1, 3, 5]}


def test_the_server_may_know_who_is_who(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever says it is somebody else, first or not, has no part."""
    grid = Loopback()
    grid.contexts = {9: context(9, 1)} | grid.contexts
    found = federated(grid, nodes={10: 0, 11: 1, 12: 2})
    assert found.x.tobytes() == serial().x.tobytes()
    assert "node 9 is left out of round 0: it says that it is worker 1, but nodes=" in caplog.text
    assert {round for node, round, _ in grid.sent if node == 11} == {*range(ROUNDS + 1)}


@pytest.mark.usefixtures("clock")
def test_another_node_may_be_the_worker_when_the_first_is_gone() -> None:
    grid = Loopback()

    def replaced(row: Any) -> None:
        if row["round"] == 3:
            del grid.contexts[11]
            grid.contexts[13] = context(13, 1)

    found = federated(grid, callbacks=[replaced], deadline=5)
    assert found.x.tobytes() == serial().x.tobytes()


def test_strange_reports_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    grid = Loopback()
    honest = grid.app
    grid.contexts[9] = context(9, 0)
    said: Iterator[ConfigRecord] = iter(
        [
            ConfigRecord({"worker": 7, "messages": [b"x"]}),
            ConfigRecord({"worker": 0, "messages": [b"x"] * 3}),
            ConfigRecord({"worker": "0", "messages": [b"x"]}),
            ConfigRecord({"worker": 0}),
        ]
    )

    def app(message: Message, where: Context) -> Message:
        if where.node_id != 9:
            reply: Message = honest(message, where)
            return reply
        return Message(RecordDict({"desopt": next(said, ConfigRecord())}), reply_to=message)

    grid.app = app
    assert federated(grid).x.tobytes() == serial().x.tobytes()
    assert caplog.text.count("node 9 is left out") >= 4


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match=r"unknown settings \['round'\]; there are .*deadline"):
        server_app("lr", n=3, round=5)
    with pytest.raises(ValueError, match="either x0"):
        server_app("lr")
    with pytest.raises(ValueError, match="min_answers must be at least 1"):
        run(server_app("lr", n=3, min_answers=0), Loopback())
    grid = Loopback()
    grid.contexts[10].node_config = {}
    with pytest.raises(desopt.EngineError, match="--node-config 'partition-id=NUMBER'"):
        federated(grid)


def test_a_runs_configuration_comes_first() -> None:
    found: list[desopt.Result] = []
    app = server_app("lr", n=N, workers=WORKERS, finished=found.append, poll=1e-6, **SETTINGS)
    run(app, Loopback(), {"rounds": 2, "step-size": 0.25, "of-the-user": 1})
    expected = serial(rounds=2, step_size=0.25)
    assert found[0].x.tobytes() == expected.x.tobytes()


# --- hostile nodes ---------------------------------------------------------------------------


def with_liar(grid: Loopback, lie: Callable[[Message, Message], Message], node: int = 11) -> None:
    """Let the node send ``lie(order, honest reply)``."""
    honest = grid.app

    def app(message: Message, where: Context) -> Message:
        reply: Message = honest(message, where)
        return lie(message, reply) if where.node_id == node else reply

    grid.app = app


def report(order: Message, *messages: bytes, worker: int = 1) -> Message:
    said = ConfigRecord({"worker": worker, "messages": list(messages)})
    return Message(RecordDict({"desopt": said}), reply_to=order)


def resealed(message: bytes, at: int, new: bytes) -> bytes:
    body = message[:at] + new + message[at + len(new) : -4]
    return body + struct.pack("<I", zlib.crc32(body))


def changed(at: int, new: bytes, kind: bytes = b"A") -> Callable[[Message, Message], Message]:
    """The honest reply, with other bytes in the messages of a kind."""

    def lie(order: Message, reply: Message) -> Message:
        said: Any = reply.content["desopt"]
        messages = [resealed(m, at, new) if m[1:2] == kind else m for m in said["messages"]]
        return report(order, *messages)

    return lie


def question(order: Message, reply: Message) -> Message:
    said: Any = reply.content["desopt"]
    return report(order, wire.seal(wire.ASK, said["messages"][0][8:16], 0, wire.NOWHERE))


def total_only(order: Message, reply: Message) -> Message:
    """The same sum twice, and again in place of the answer."""
    wanted: Any = order.content["desopt"]
    said: Any = reply.content["desopt"]
    if wanted["total"]:
        return report(order, *said["messages"][:1] * 2)
    return report(order, *[resealed(said["messages"][0], 1, wire.TOTAL)] * 2)


NUISANCES: dict[str, Callable[[Message, Message], Message]] = {
    "garbage": lambda order, _: report(order, b"garbage"),
    "long garbage": lambda order, _: report(order, bytes(10**6)),
    "questions": question,
    "empty reports": lambda order, _: report(order),
    "duplicates": total_only,
    "no reports": lambda order, _: Message(RecordDict(), reply_to=order),
    "other workers": lambda order, _: report(order, b"x", worker=7),
    "huge counts": changed(28, b"\xff" * 16),
    "another x": changed(16, bytes(8)),
    "gone": lambda order, _: Message(Error(5, "gone"), reply_to=order),
    "expired": lambda order, _: Message(Error(3, "expired"), reply_to=order),
    "errors": lambda order, _: Message(Error(2, "x\n" * 10**5 + "\x1b[2J"), reply_to=order),
}


@pytest.mark.parametrize("name", NUISANCES)
def test_a_nuisance_ends_the_run_or_is_left_out(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a deadline or min_answers everybody is needed: then the run says who was not."""
    grid, path = Loopback(), tmp_path / "run.journal"
    with_liar(grid, NUISANCES[name])
    with pytest.raises(desopt.EngineError, match=r"node 11 failed 3 times") as caught:
        federated(grid, journal=path)
    assert len(grid.sent) < 12
    assert len(str(caught.value)) < 3000
    assert "\x1b" not in str(caught.value)
    grid.sent.clear()
    found = federated(grid, journal=path, min_answers=2)
    assert who_answered(path) == [[0, 2]] * ROUNDS
    assert len(grid.sent) <= 5 * (ROUNDS + 1)
    assert np.isfinite(found.history["loss"]).all()
    assert found.x.tobytes() == by_hand(path).tobytes()
    assert max(map(len, caplog.messages)) < 1000


def test_a_nuisance_without_work_to_do_does_not_end_the_run() -> None:
    """After the budget is spent only the loss is requested, and that goes on without the node."""
    grid = Loopback()

    def lie(order: Message, reply: Message) -> Message:
        only_loss: Any = order.content["desopt"]
        return reply if only_loss["work"] else report(order, b"garbage")

    with_liar(grid, lie)
    found = federated(grid, max_evaluations=2 * WORKERS * 21 + 1, eval_every=2)
    assert found.nit == 2
    assert np.isfinite(found.fun)


def test_a_nuisance_that_nobody_needs_does_no_harm() -> None:
    for name, lie in NUISANCES.items():
        grid = Loopback()
        grid.contexts[13] = context(13, 1)
        with_liar(grid, lie, 13)
        assert federated(grid).x.tobytes() == serial().x.tobytes(), name


def test_who_comes_first_with_anothers_number_locks_nobody_out(tmp_path: Path) -> None:
    """A false worker 1 that answers as if it were: the right one has its say in turn."""
    path, grid = tmp_path / "run.journal", Loopback()
    grid.contexts = {9: context(9, 1)} | grid.contexts
    with_liar(grid, changed(44, b"\x00\x00\x00"), 9)
    federated(grid, journal=path)
    bits = [answers[1].payload for answers in journal.read(path).answers]
    assert [payload == bytes(3) for payload in bits] == [True, False] * (ROUNDS // 2)


def test_who_joins_again_and_again_still_waits_for_its_turn(tmp_path: Path) -> None:
    """Node 9 says nothing for two rounds and is new in round 4, which is node 11's by then."""
    path, grid = tmp_path / "run.journal", Loopback()
    grid.contexts = {9: context(9, 1)} | grid.contexts
    false = changed(44, b"\x00\x00\x00")

    def lie(order: Message, reply: Message) -> Message:
        return report(order) if order.metadata.group_id in "23" else false(order, reply)

    with_liar(grid, lie, 9)
    federated(grid, journal=path)
    bits = [answers[1].payload for answers in journal.read(path).answers]
    assert [payload == bytes(3) for payload in bits] == [True, False, False, False, False, True]
    assert 4 in {round for node, round, _ in grid.sent if node == 9}


@pytest.mark.parametrize("samples", [2**64 - 1, 2**63])
def test_counts_of_a_liar_cannot_end_the_run(samples: int, tmp_path: Path) -> None:
    path, grid = tmp_path / "run.journal", Loopback()
    with_liar(grid, changed(32, struct.pack("<Q", samples)))
    found = federated(grid, journal=path, min_answers=2, max_evaluations=10**6)
    assert found.nit == ROUNDS
    assert found.history["samples"][-1] == 2 * ROUNDS * 21 * 8


@pytest.mark.parametrize(
    ("total", "rows"),
    [(-1e308, 1), (-1e308, 2**32), (1e308, 1), (np.nan, 5), (-np.inf, 5), (np.inf, 1), (0.0, 0)],
)
@pytest.mark.parametrize("rule", [{"target": 0.1}, {"patience": 5}])
def test_one_nodes_total_does_not_end_a_run(rule: Any, total: float, rows: int) -> None:
    """The median of three losses falls in these rounds; the mean would be what the liar wants."""
    grid = Loopback()
    with_liar(grid, changed(28, struct.pack("<dQ", total, rows), wire.TOTAL))
    found = federated(grid, **rule)
    assert found.nit == ROUNDS
    assert found.x.tobytes() == serial().x.tobytes()
    assert 0.1 < found.fun < 1.0


def test_the_loss_that_decides_is_the_median_of_the_nodes() -> None:
    found, x = federated(Loopback(), target=1e-9), serial().x
    model = LinearModel("lr")
    shards: Any = model.prepare(as_shards([shard(w) for w in range(WORKERS)], WORKERS, 0))
    losses = [model.score(rows, x)[0] for rows in shards]
    assert found.fun == sorted(losses)[1]
    assert federated(Loopback(), target=1e-9, loss="mean").fun == serial().fun
    assert federated(Loopback(), loss="median").fun == found.fun
    reached = federated(Loopback(), target=0.6)
    assert reached.status == 1
    assert reached.nit < ROUNDS


def test_a_median_of_half_the_workers_decides_nothing() -> None:
    grid = Loopback()
    grid.absent = {11, 12}
    found = federated(grid, min_answers=1, target=100.0)
    assert found.nit == ROUNDS
    assert np.isnan(found.history["loss"]).all()


def test_the_server_may_have_data_of_its_own() -> None:
    grid = Loopback()
    with_liar(grid, changed(28, struct.pack("<dQ", -1e308, 1), wire.TOTAL))
    found = federated(grid, evaluation=shard(7), target=1e-9)
    model = LinearModel("lr")
    own: Any = model.prepare(as_shards([shard(7)], 1, 0))[0]
    assert found.x.tobytes() == serial().x.tobytes()
    assert found.fun == pytest.approx(model.score(own, found.x)[0], rel=1e-12)
    assert not any(order["total"] for _, _, order in grid.sent)


@pytest.mark.filterwarnings("ignore:fun returned NaN or infinity")
def test_a_node_whose_loss_is_not_finite_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    def fun(x: Any, batch: Any) -> float:
        return float(np.mean((batch @ x - 1.0) ** 2)) if batch[0, 0] != 7.0 else np.inf

    def load_rows(config: Mapping[str, Any]) -> Any:
        X = shard(config["partition-id"])[0].copy()
        X[:, 0] = 7.0 if config["partition-id"] == 1 else X[:, 0]
        return X

    found: list[desopt.Result] = []
    grid = Loopback(app=client_app(fun, load_rows))
    settings: dict[str, Any] = {"rounds": 2, "poll": 1e-6, "progress": False} | SETTINGS
    run(server_app(fun, n=N, workers=WORKERS, finished=found.append, **settings), grid)
    assert found[0].nit == 2
    assert np.isfinite(found[0].fun)
    assert len(grid.sent) == 3 * WORKERS
    assert not caplog.records


@pytest.mark.parametrize("method", ["des-mr", "fed-zo-sgd", "zo-signsgd", "es-csa"])
def test_whatever_a_node_says_the_others_go_on(method: str, tmp_path: Path) -> None:
    """Its messages with random bytes changed, and the right checksum: refused, or an answer."""
    for seed in range(5):
        draw = random.Random(seed)

        def lie(order: Message, reply: Message, draw: random.Random = draw) -> Message:
            said: Any = reply.content["desopt"]
            messages = said["messages"]
            for _ in range(draw.randrange(4)):
                i = draw.randrange(len(messages))
                at = draw.choice((draw.randrange(len(messages[i]) - 4), draw.randrange(24, 48)))
                new = draw.choice((b"\xff" * 8, b"\x7f\xef" * 4, bytes(4), draw.randbytes(2)))
                messages[i] = resealed(messages[i], min(at, len(messages[i]) - 12), new)
            return report(order, *messages)

        grid, path = Loopback(), tmp_path / f"{seed}.journal"
        with_liar(grid, lie)
        rules: dict[str, Any] = {"target": 1e-3, "max_evaluations": 10**6, "population": 8}
        found = federated(grid, journal=path, min_answers=2, method=method, **rules)
        assert found.nit == ROUNDS
        assert np.isfinite(found.x).all()
        assert desopt.replay(path).tobytes() == found.x.tobytes()


# --- hostile servers -------------------------------------------------------------------------


def order_of(settings: Any = None, **changes: Any) -> Message:
    """An order as a server sends it, changed, or with other settings in the description."""
    grid = Loopback()
    federated(grid, rounds=1)
    sent = {
        name: grid.sent[0][2][name] for name in ("message", "description", "work", "total", "limit")
    }
    if settings is not None:
        run, known = wire.unpack_description(sent["description"])
        sent["description"] = wire.pack_description(run, known | settings)
    return Message(RecordDict({"desopt": ConfigRecord(sent | changes)}), 10, "train")


ORDERS: dict[str, Callable[[], Message]] = {
    "nothing": lambda: Message(RecordDict(), 10, "train"),
    "no message": lambda: Message(RecordDict({"desopt": ConfigRecord({})}), 10, "train"),
    "text": lambda: order_of(message="U"),
    "numbers": lambda: order_of(work=1),
    "more": lambda: order_of(more=1),
    "limit": lambda: order_of(limit=-1),
    "a limit of another type": lambda: order_of(limit=1.5),
    "description": lambda: order_of(description=b"x" * 40),
    "batch_size": lambda: order_of({"batch_size": 2**40}),
    "n": lambda: order_of({"n": 2**31}),
    "objective": lambda: order_of({"objective": "x" * 60_000}),
    "workers": lambda: order_of({"workers": 0}),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_node_refuses_what_a_server_may_not_say(name: str) -> None:
    order = ORDERS[name]()
    with pytest.raises(wire.WireError) as caught:
        client_app("lr", load_shard)(order, context(10, 0))
    assert len(str(caught.value)) < 1000


def test_fuzzed_orders_are_refused_or_answered() -> None:
    """Bytes changed anywhere, with the right checksum: a WireError, or a report of a few bytes."""
    draw, app = random.Random(1), client_app("lr", load_shard, limits=Limits(n=100))
    good = order_of().content["desopt"]
    answered = 0
    for _ in range(1500):
        record: Any = {
            name: good[name] for name in ("message", "description", "work", "total", "limit")
        }
        name = draw.choice(("message", "description"))
        at, new = draw.randrange(len(record[name]) - 6), draw.randbytes(draw.choice((1, 2)))
        record[name] = resealed(record[name], at, new)
        order = Message(RecordDict({"desopt": ConfigRecord(record)}), 10, "train")
        try:
            reply = app(order, context(10, 0))
        except wire.WireError:
            continue
        said: Any = reply.content["desopt"]
        assert sum(map(len, said["messages"])) < 200
        answered += 1
    assert 100 < answered < 1400


def test_a_nodes_limits_can_be_set() -> None:
    small = client_app("lr", load_shard, limits=Limits(batch_size=7))
    with pytest.raises(desopt.EngineError, match="batch_size is 8, not a whole number from 1 to 7"):
        federated(Loopback(app=small))
    larger = client_app("lr", load_shard, limits=Limits(batch_size=8))
    assert federated(Loopback(app=larger)).nit == ROUNDS


# --- the real thing: SuperLink, SuperNodes, TLS, keys ----------------------------------------


def until(true: Callable[[], bool], what: str, seconds: float = 900) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, f"{what}: not in {seconds:g} seconds"
        time.sleep(0.3)


#: UCI's hospitals, where they are at hand; the example generates its own where they are not.
HEARTS = Path(__file__).resolve().parents[3] / "shared" / "data" / "sites"


@contextmanager
def the_example() -> Iterator[list[str]]:
    """The example runs meanwhile; what it printed."""
    command = [sys.executable, str(EXAMPLE / "run.py")]
    env = os.environ | {"DESOPT_DATA": str(HEARTS)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        printed: list[str] = []
        try:
            yield printed
            printed.append(process.communicate(timeout=1700)[0])
            assert process.returncode == 0, printed
        finally:
            process.terminate()


@contextmanager
def shared(path: Path) -> Iterator[tuple[str, list[str]]]:
    """A web server for one file: its address, and the requests for it."""
    requests: list[str] = []

    class Web(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(path.read_bytes())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{web.server_port}/", requests
        finally:
            web.shutdown()


def test_a_deployment_with_nodes_that_die_return_and_join_late(tmp_path: Path) -> None:
    """And a SuperLink that dies, and the example, at the same time: most of it is waiting."""
    code, path = load(EXAMPLE / "run.py"), tmp_path / "run.journal"
    hospitals: tuple[str, ...] = code.HOSPITALS
    files = [tmp_path / f"processed.{hospital}.data" for hospital in hospitals]
    for number, file in enumerate(files):
        code.write_patients(file, number)
    (tmp_path / "other").mkdir()
    code.write_certificates(tmp_path / "other")
    code.write_key(tmp_path / "stranger.key")

    def answered() -> list[tuple[int, ...]]:
        return [tuple(w) for w in who_answered(path)] if path.exists() else []

    with (
        the_example() as output,
        shared(tmp_path / "state") as (published, fetched),
        code.Deployment(tmp_path) as deployment,
    ):

        def start(worker: int) -> None:
            site = hospitals[worker]
            kept = {"model": f"{tmp_path}/{site}.json", "snapshot": published}
            deployment.start_node(site, worker, files[worker], **kept)

        def activated() -> int:
            return int(deployment.log("superlink").count("Activated node_id"))

        def alive(worker: int) -> bool:
            return deployment.processes[hospitals[worker]].poll() is None

        deployment.register(*hospitals[:3])
        deployment.start_node("stranger", 2, files[2])
        ours = f"{hospitals[2]}.key"
        deployment.start_node("misled", 2, files[2], key=ours, ca="other/ca.pem")
        start(0)
        start(1)
        told = f'journal="{path}" model="{tmp_path / "model.json"}" float32=true'
        told += f' snapshot="{tmp_path / "state"}"'
        deployment.run(EXAMPLE, f"rounds=1000 min-answers=2 min-nodes=2 deadline=240.0 {told}")
        until(lambda: (0, 1) in answered(), "a round of two nodes")
        assert activated() == 2, "neither a stranger nor one who asks another authority gets in"
        assert "CERTIFICATE_VERIFY_FAILED" in deployment.log("misled")
        assert deployment.processes["stranger"].wait(900) != 0

        deployment.stop(hospitals[1], signal.SIGKILL)
        start(2)
        until(lambda: (0, 2) in answered(), "a round with the late node")
        assert fetched, "the late node has the state from where it is published"
        line = rf"round \d+/1000 loss \S+ answered 2 of 4, missing: 2 .*{hospitals[1]}, \d+ s"
        until(lambda: re.search(line, deployment.log("run")) is not None, "who is missing")
        assert "columns standardised by 2 of 4 sites" in deployment.log("run")

        def back() -> bool:
            if activated() == 4:
                return True
            if hospitals[1] not in deployment.processes or not alive(1):
                start(1)
            return False

        until(back, "the killed node is let in again")
        deployment.stop(hospitals[0])
        until(lambda: (1, 2) in answered(), "a round with the node that was killed")

        deployment.stop("superlink", signal.SIGKILL)  # with the run, in the middle of a round
        deployment.processes["run"].wait(900)
        before = len(answered())
        waits = [s for e in SiteLog(path).read() for s in e.get("answered", {}).values()]
        deadline = 15.0 + 2.0 * max(waits)  # this machine takes that long
        deployment.start_superlink()
        deployment.run(
            EXAMPLE, f"rounds={before + 1} min-answers=4 min-nodes=2 deadline={deadline} {told}"
        )
        deployment.processes["run"].wait(900)
        assert alive(1)
        assert alive(2)
        assert len(answered()) == before + 1, deployment.log("run")
        assert answered()[before:] == [(1, 2)], "the nodes have joined again by themselves"
        assert "done: " in deployment.log("run")

    x = desopt.replay(path)
    assert x.tobytes() == hearts_by_hand(code, path, files).tobytes()
    assert x.tobytes() == x.astype(np.float32).astype(np.float64).tobytes()
    model = (tmp_path / "model.json").read_bytes()
    assert (tmp_path / f"{hospitals[2]}.json").read_bytes() == model
    assert output[0].count("answered 4 of 4") == code.ROUNDS
    assert "same bits as the serial run: True" in output[0]


def hearts_by_hand(code: Any, path: Path, files: list[Path]) -> Any:
    """x from plan, work and merge alone, on the columns as the first two hospitals have them."""
    tables = []
    for file in files:
        columns, y = code.load_shard({"data": file})
        rows, _ = code.held_out(len(y), code.HELD_OUT)
        tables.append((code.Inputs(code.COLUMNS).table(columns)[rows], y[rows]))
    moments = [code.Moments.of(X) for X, _ in tables[:2]]
    inputs = code.Inputs(code.COLUMNS, intercept=True).standardised(moments)
    shards = [(inputs.apply(X), y) for X, y in tables]
    return by_hand(path, lambda worker: shards[worker], 4, code.SETTINGS["regularization"])


#: A command in a network of its own with nothing but loopback, among processes of its own.
ALONE = ["unshare", "-n", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c",
         'ip link set lo up && exec "$@"', "_"]  # fmt: skip


def test_flowers_simulation_finds_the_bits_of_a_serial_run(tmp_path: Path) -> None:
    wanted = [r for r in requires("flwr") or [] if r.startswith("ray==")]
    try:
        found = version("ray")
    except PackageNotFoundError:
        found = "none"
    if not any(r.startswith(f"ray=={found}") for r in wanted):
        pytest.skip(f"Flower's own Ray is not installed ({found}): pip install 'flwr[simulation]'")
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"]).returncode:
        pytest.skip("a network with nothing but loopback is not permitted here")
    script = [sys.executable, federate_simulation.__file__, str(tmp_path)]
    env = os.environ | {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([*ALONE, *script], env=env, capture_output=True, text=True, timeout=1700)
    assert done.stdout.splitlines()[-1:] == ["same bits: True"], done.stdout + done.stderr
