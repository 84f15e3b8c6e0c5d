"""Server and replicas: the bits of a serial run, whatever a network does in between."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.contract.space import Box
from desopt.contract.types import Answer, FloatArray, Task
from desopt.data import as_shards, shares
from desopt.engines import Job
from desopt.engines.base import describe
from desopt.methods import METHODS
from desopt.objectives import PythonObjective
from desopt.protocol import wire
from desopt.protocol.replica import Replica
from desopt.protocol.server import Server, Traffic
from desopt.protocol.wire import Reason, WireError

N, WORKERS, ROUNDS = 60, 5, 8
SETTINGS: dict[str, Any] = {
    "iterations": 10, "step_size": 0.3, "momentum": 0.5, "seed": 3, "mixture": 4,
    "population": 6, "radius": 1e-4,
}  # fmt: skip
_RNG = np.random.default_rng(5)
_X = _RNG.standard_normal((40, N))
_Y = _X @ _RNG.standard_normal(N)
GROUPS = {"a": [0, 2], "b": [1], "c": [3, 4]}


def least_squares(x: FloatArray, batch: tuple[NDArray[Any], NDArray[Any]]) -> float:
    X, y = batch
    return float(np.mean((X @ x - y) ** 2))


def make_job(method: str = "des-mr", participation: float = 1.0, n: int = N) -> Job:
    objective = PythonObjective(least_squares, None)
    shards = objective.prepare(as_shards((_X[:, :n], _Y), WORKERS, 3))
    settings = SETTINGS | {"aggregate": "mean", "shares": shares(shards)}
    algorithm = METHODS[method].make(method, settings)
    return Job(algorithm, objective, shards, 4, 3, n, participation)


def serial(method: str = "des-mr", n: int = N, rounds: int = ROUNDS, **more: Any) -> desopt.Result:
    settings = {k: v for k, v in SETTINGS.items() if k != "momentum" or method.startswith("des")}
    return desopt.minimize(
        least_squares, np.zeros(n), (_X[:, :n], _Y), method=method, workers=WORKERS, rounds=rounds,
        batch_size=4, engine="serial", progress=False, eval_every=0, **settings | more,
    )  # fmt: skip


def make_server(job: Job, **options: Any) -> tuple[Server, bytes]:
    x0 = np.zeros(N)
    server = Server(job.algorithm, job.algorithm.init(x0), WORKERS, asked=job.asked, **options)
    for peer, workers in GROUPS.items():
        server.admit(peer, workers)
    return server, wire.pack_description(server.run, describe(job, x0))


@dataclass
class Lossy:
    """Peers behind a network that loses, repeats, delays and reorders what it carries."""

    job: Job
    server: Server
    description: bytes
    draw: random.Random
    mishaps: bool = True
    wire: list[tuple[str, str, bytes]] = field(default_factory=list)
    replicas: dict[str, Replica] = field(default_factory=dict)
    refused: list[Reason] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replicas = {peer: Replica.joining(self.description) for peer in GROUPS}

    def send(self, to: str, peer: str, data: bytes) -> None:
        copies = self.draw.choice((0, 1, 1, 2)) if self.mishaps else 1
        self.wire += [(to, peer, data)] * copies

    def deliver(self) -> None:
        at = self.draw.randrange(len(self.wire)) if self.mishaps else 0
        to, peer, data = self.wire.pop(at)
        if self.mishaps and self.draw.random() < 0.05:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if to == "server":
            self.server.receive(peer, data)
        else:
            self.work(peer, data)

    def work(self, peer: str, data: bytes) -> None:
        replica = self.replicas[peer]
        try:
            task = replica.follow(data)
        except WireError as error:
            self.refused.append(error.reason)
            self.send("server", peer, replica.ask())
            return
        for worker in sorted(set(GROUPS[peer]) & set(self.job.asked(task.round))):
            answer = self.job.work(task, worker)
            self.send("server", peer, replica.answer(task, answer))

    def mishap(self) -> None:
        """A peer starts again with nothing, or its memory goes wrong where it shows later."""
        peer = self.draw.choice([*GROUPS])
        replica = self.replicas[peer]
        if self.draw.random() < 0.5:
            self.replicas[peer] = Replica.joining(self.description)
        elif hasattr(replica.state, "m"):
            replica.state = replace(replica.state, m=replica.state.m + 1e-9)
        else:
            replica.state = replace(replica.state, x=replica.state.x + 1e-9)

    def round(self) -> None:
        for _ in range(1000):
            missing = set(self.server.asked) - self.server.answers.keys()
            if not missing:
                self.server.finish_round()
                return
            if self.mishaps and self.draw.random() < 0.05:
                self.mishap()
            for peer, workers in GROUPS.items():
                if missing & set(workers) and (self.draw.random() < 0.3 or not self.mishaps):
                    self.send("peer", peer, self.server.message_for(peer))
            while len(self.wire) > (3 if self.mishaps else 0):
                self.deliver()
        raise AssertionError("the round never ends")


def lossy(job: Job, seed: int, mishaps: bool = True, **options: Any) -> Lossy:
    server, description = make_server(job, **options)
    return Lossy(job, server, description, random.Random(seed), mishaps)


@pytest.mark.parametrize("method", [name for name in METHODS if not METHODS[name].single_worker])
@pytest.mark.parametrize("seed", range(3))
def test_same_bits_as_serial_over_a_bad_network(method: str, seed: int) -> None:
    network = lossy(make_job(method), seed)
    for _ in range(ROUNDS):
        network.round()
    assert network.server.state.x.tobytes() == serial(method).x.tobytes()
    assert network.server.refused[Reason.DUPLICATE] > 0
    assert network.server.refused[Reason.LATE] > 0
    assert network.server.refused[Reason.CHECKSUM] > 0


@pytest.mark.parametrize("method", ["des-mr", "des-c", "zo-nsgd"])
@pytest.mark.parametrize("replay_bytes", [0, 2**20])  # a replica that is astray: the state, or all
def test_the_same_with_a_step_size_that_answers_decide(method: str, replay_bytes: int) -> None:
    job = make_job(method)
    job.algorithm = replace(job.algorithm, step_size="auto")  # type: ignore[type-var]
    network = lossy(job, 0, replay_bytes=replay_bytes)
    for _ in range(ROUNDS):
        network.round()
    found = network.server.state.x.tobytes()
    assert found == serial(method, step_size="auto").x.tobytes() != serial(method).x.tobytes()


@pytest.mark.parametrize("method", ["des-mr", "es-csa", "fed-zo-gd", "feedsign"])
def test_the_box_goes_with_the_description(method: str) -> None:
    """Replicas rebuild the method from it, and project as the server does."""
    job, lower = make_job(method), np.full(N, -0.01)
    job.algorithm = replace(job.algorithm, box=Box(lower, np.full(N, 0.02)))  # type: ignore[type-var]
    network = lossy(job, 0)
    for _ in range(ROUNDS):
        network.round()
    expected = serial(method, bounds=(-0.01, 0.02), scale="own").x
    assert network.server.state.x.tobytes() == expected.tobytes()
    assert np.all((expected >= lower) & (expected <= 0.02))
    assert np.any(expected != serial(method).x)


@pytest.mark.parametrize("seed", range(20))
def test_mishaps_of_every_kind(seed: int) -> None:
    share = 0.5 if seed % 2 else 1.0
    network = lossy(make_job(participation=share), seed)
    for _ in range(ROUNDS):
        network.round()
    assert network.server.state.x.tobytes() == serial(participation=share).x.tobytes()


def test_the_mishaps_do_happen() -> None:
    reasons = set[Reason]()
    for seed in range(12):
        network = lossy(make_job(), seed)
        for _ in range(ROUNDS):
            network.round()
        reasons |= {*network.refused}
    assert {Reason.DIVERGED, Reason.GAP, Reason.LATE, Reason.CHECKSUM} <= reasons


# --- what is sent ----------------------------------------------------------------------------


def test_peers_in_step_are_sent_answers_only() -> None:
    network = lossy(make_job(), 0, mishaps=False)
    for peer, replica in network.replicas.items():  # they know x0 from the description
        network.server.receive(peer, replica.ask())
    sizes = []
    for _ in range(ROUNDS):
        down, up = network.server.bytes_down, network.server.bytes_up
        network.round()
        sizes.append((network.server.bytes_up - up, network.server.bytes_down - down))
    assert not network.refused
    update = 36 + 4 + WORKERS * (4 + 2)  # K = 10 bits are two bytes
    assert sizes == [(WORKERS * 50, 3 * 36)] + [(WORKERS * 50, 3 * update)] * (ROUNDS - 1)


def test_who_missed_rounds_gets_them_until_the_state_is_smaller() -> None:
    network = lossy(make_job(), 0, mishaps=False)
    network.round()
    server = network.server
    absent, seen = network.replicas["a"], []
    answers = [Answer(w, b"\xff\x03") for w in range(1, WORKERS)]
    for _ in range(40):
        server.advance(server.algorithm.merge(server.state, answers), answers)
        seen.append(server.message_for("a"))
    by_kind = [message[1:2] for message in seen]
    switch = by_kind.index(wire.SNAPSHOT)
    assert by_kind == [wire.UPDATE] * switch + [wire.SNAPSHOT] * (40 - switch)
    state = 2 * 8 * N
    assert len(seen[switch - 1]) <= state + 36 < len(seen[switch - 1]) + 4 + 4 * 6
    for message in (seen[3], seen[switch - 1], seen[-1]):
        task = absent.follow(message)
    assert task.x.tobytes() == server.state.x.tobytes()
    assert absent.state.m.tobytes() == server.state.m.tobytes()


def test_rounds_without_answers_are_replayed_too() -> None:
    job = make_job()
    server, description = make_server(job)
    replica = Replica.joining(description)
    server.receive("a", replica.ask())
    for _ in range(3):
        server.finish_round()
    task = replica.follow(server.message_for("a"))
    assert task.round == 3
    assert replica.state.x.tobytes() == server.state.x.tobytes()


def test_the_state_is_always_sent_if_so_told() -> None:
    network = lossy(make_job(), 0, mishaps=False, replay_bytes=0)
    for _ in range(ROUNDS):
        network.round()
        assert {network.server.message_for(peer)[1:2] for peer in GROUPS} == {wire.SNAPSHOT}
    assert network.server.state.x.tobytes() == serial().x.tobytes()


def test_a_late_joiner_who_knows_x0_catches_up_by_replay() -> None:
    network = lossy(make_job(), 0, mishaps=False)
    for _ in range(5):
        network.round()
    network.server.admit("late", [])
    late = Replica.joining(network.description)
    network.server.receive("late", late.ask())
    message = network.server.message_for("late")
    assert message[1:2] == wire.UPDATE
    assert late.follow(message).x.tobytes() == network.server.state.x.tobytes()


# --- replicas that went astray ---------------------------------------------------------------


def test_an_answer_from_another_x_is_refused_and_answered_with_the_state() -> None:
    job = make_job()
    server, description = make_server(job)
    server.receive("b", Replica.joining(description).ask())  # it was in step once
    assert server.message_for("b")[1:2] == wire.UPDATE
    astray = Replica(job.algorithm, N, WORKERS, server.run, x0=np.full(N, 1e-300))
    assert astray.task is not None
    data = astray.answer(astray.task, job.work(astray.task, 1))
    assert server.receive("b", data) is None
    assert server.refused == {Reason.DIVERGED: 1}
    message = server.message_for("b")
    assert message[1:2] == wire.SNAPSHOT
    task = astray.follow(message)
    assert isinstance(server.receive("b", astray.answer(task, job.work(task, 1))), Answer)


def test_a_replica_whose_merge_goes_wrong_keeps_its_state_and_asks_for_ours() -> None:
    network = lossy(make_job(), 0, mishaps=False)
    network.round()
    server, replica = network.server, network.replicas["b"]
    replica.state = before = replace(replica.state, m=replica.state.m + 1e-9)
    with pytest.raises(WireError, match="diverged"):
        replica.follow(server.message_for("b"))
    assert replica.state is before
    server.receive("b", replica.ask())
    replica.follow(server.message_for("b"))
    assert replica.state.m.tobytes() == server.state.m.tobytes()


def test_an_answer_belongs_to_its_task_even_if_the_replica_has_moved_on() -> None:
    network = lossy(make_job(), 0, mishaps=False)
    server, replica = network.server, network.replicas["b"]
    old = replica.follow(server.message_for("b"))
    slow = network.job.work(old, 1)
    network.round()
    replica.follow(server.message_for("b"))
    data = replica.answer(old, slow)
    assert data[4:8] == bytes(4)
    assert data[16:24] == wire.task_digest(old)
    assert server.receive("b", data) is None
    assert server.refused[Reason.LATE] == 1


def test_a_saved_replica_goes_on() -> None:
    network = lossy(make_job(), 0, mishaps=False)
    network.round()
    network.round()
    saved = network.replicas["a"].save()
    again = Replica.joining(network.description)
    assert again.follow(saved).round == 1
    assert again.follow(network.server.message_for("a")).round == 2


def test_messages_of_another_run_are_refused() -> None:
    job = make_job()
    (one, _), (_, description) = make_server(job), make_server(job)
    with pytest.raises(WireError, match="run"):
        Replica.joining(description).follow(one.message_for("a"))


def test_totals_give_the_loss() -> None:
    network = lossy(make_job(), 0, mishaps=False)
    network.round()
    server = network.server
    for peer, workers in GROUPS.items():
        replica = network.replicas[peer]
        task = replica.follow(server.message_for(peer))
        for worker in workers:
            server.receive(peer, replica.total(task, worker, *network.job.total(task.x, worker)))
    sums = [server.totals[worker] for worker in range(WORKERS)]
    loss = sum(t.total for t in sums) / sum(t.rows for t in sums)
    assert loss == pytest.approx(least_squares(server.state.x, (_X, _Y)), rel=1e-12)


# --- bytes without messages -----------------------------------------------------------------


def exchanged(method: str, participation: float, n: int, rounds: int) -> list[tuple[int, int]]:
    """Bytes up and down after each round between a server and a replica per worker."""
    job = make_job(method, participation, n)
    server = Server(job.algorithm, job.algorithm.init(np.zeros(n)), WORKERS, asked=job.asked)
    replicas = [Replica(job.algorithm, n, WORKERS, server.run) for _ in range(WORKERS)]
    for worker in range(WORKERS):
        server.admit(worker, [worker])
    counts = []
    for _ in range(rounds):
        for worker in sorted(server.asked):
            task = replicas[worker].follow(server.message_for(worker))
            server.receive(worker, replicas[worker].answer(task, job.work(task, worker)))
        assert not server.refused
        server.finish_round()
        counts.append((server.bytes_up, server.bytes_down))
    return counts


@pytest.mark.parametrize("n", [1, 9, 60])  # answers longer and shorter than the state
@pytest.mark.parametrize("participation", [1.0, 0.6, 0.2])
@pytest.mark.parametrize("method", ["des-mr", "fed-zo-gd", "es-csa"])
def test_engines_in_memory_count_the_bytes_of_the_messages(
    method: str, participation: float, n: int, tmp_path: Path
) -> None:
    rounds = 14
    expected = exchanged(method, participation, n, rounds)
    more = {"participation": participation, "journal": tmp_path / "journal"}
    serial(method, n, rounds // 2, **more)
    history = serial(method, n, rounds, **more).history  # resumed: it counts the same
    assert [*zip(history["bytes_up"], history["bytes_down"], strict=True)] == expected


def test_bytes_are_counted_without_building_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is packed once, for the first round; everyone is in step from then on."""
    packed: list[int] = []
    pack = wire.pack_snapshot

    def noting(run: bytes, digest: bytes, state: Any, float32: bool) -> bytes:
        packed.append(state.round)
        return pack(run, digest, state, float32)

    monkeypatch.setattr(wire, "pack_snapshot", noting)
    serial()
    assert packed == [0]
    packed.clear()
    serial(participation=0.4)
    assert packed[0] == 0
    assert len(packed) < ROUNDS


def test_memory_for_the_count_does_not_grow_with_the_workers() -> None:
    """Only workers that an update could still reach are known: of a million, a few."""
    algorithm = METHODS["des-mr"].make("des-mr", SETTINGS | {"aggregate": "mean"})
    asked = [range(10 * t, 10 * t + 10) for t in range(200)]
    traffic = Traffic(algorithm, 10**6, lambda round: asked[round])
    state: Any = algorithm.init(np.zeros(N))
    for round in range(200):
        traffic.count(replace(state, round=round))
    kept = 2 * 8 * N // (4 + 10 * 6)
    assert len(traffic._recent) == kept
    assert len(traffic._last) == 10 * kept


# --- the hook for engines --------------------------------------------------------------------


class Loopback:
    """An engine whose messages go through the wire, to replicas in the same process."""

    name, repeated = "loopback", 0

    def start(self, job: Job) -> None:
        self._job = job
        self._server: Server | None = None
        self._answers: list[Answer] = []
        self._before = 0, 0

    def begin(self, state: Any, limit: int | None = None) -> None:
        self._x = state.x
        if self._server is None:
            self._server, description = make_server(self._job)
            self._replicas = {peer: Replica.joining(description) for peer in GROUPS}
        else:
            self._server.advance(state, self._answers)

    def round(self, task: Task) -> list[Answer]:
        server = self._server
        assert server is not None
        for peer, workers in GROUPS.items():
            replica = self._replicas[peer]
            own = replica.follow(server.message_for(peer))
            for worker in workers:
                server.receive(peer, replica.answer(own, self._job.work(own, worker)))
        self._answers = [server.answers[worker] for worker in sorted(server.answers)]
        return self._answers

    def traffic(self) -> tuple[int, int]:
        assert self._server is not None
        now = self._server.bytes_up, self._server.bytes_down
        before, self._before = self._before, now
        return now[0] - before[0], now[1] - before[1]

    def evaluate(self, workers: Sequence[int]) -> list[tuple[float, int]]:
        return [self._job.total(self._x, worker) for worker in workers]

    def close(self) -> None: ...


def test_minimize_counts_what_an_engine_says_it_sent() -> None:
    settings = {k: v for k, v in SETTINGS.items() if k != "population"}
    result = desopt.minimize(
        least_squares, np.zeros(N), (_X, _Y), workers=WORKERS, rounds=ROUNDS, batch_size=4,
        engine=Loopback(), progress=False, **settings,
    )  # fmt: skip
    assert result.x.tobytes() == serial().x.tobytes()
    assert [*np.diff(result.history["bytes_up"])] == [WORKERS * 50] * (ROUNDS - 1)
    assert [*np.diff(result.history["bytes_down"])] == [3 * 70] * (ROUNDS - 1)
