"""The example's HTTP server with strangers at its port."""

import importlib.util
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from desopt.protocol import wire
from desopt.protocol.replica import Replica

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "http_workers.py"
LIMIT = 60.0  # seconds: for whatever must happen at all


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("http_workers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def coordinator(example: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(example, "PATIENCE", 1.0)
    monkeypatch.setattr(example, "POLL", 0.01)
    with example.Coordinator(example.make_job()) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()


def exchange(coordinator: Any, data: bytes) -> bytes:
    """What comes back before the server closes the connection or has nothing more to say."""
    with socket.create_connection(coordinator.server_address, LIMIT) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65_536):
            received += part
        return received


def post(coordinator: Any, body: bytes, peer: str = "0") -> bytes:
    head = f"POST /{peer} HTTP/1.1\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    end = time.monotonic() + LIMIT
    while not (reply := exchange(coordinator, head.encode() + body)):
        # Cut off before it was read: on a loaded machine, an honest request may be late as well.
        assert time.monotonic() < end
    assert reply.startswith(b"HTTP/1.1 200"), reply
    return reply.partition(b"\r\n\r\n")[2]


LENGTHS = ["abc", "-1", "+5", "1e3", "0x10", "99999999999999999999", "1001", "\u0662", "", "5, 5"]


@pytest.mark.parametrize("length", LENGTHS)
def test_bad_lengths_are_refused(coordinator: Any, length: str) -> None:
    head = f"POST /0 HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"
    assert exchange(coordinator, head.encode()).startswith(b"HTTP/1.1 400")
    assert post(coordinator, b"") == coordinator.description


def test_a_body_that_does_not_come_is_not_waited_for(coordinator: Any) -> None:
    head = b"POST /0 HTTP/1.1\r\nContent-Length: 50\r\n\r\nabc"
    assert not exchange(coordinator, head).startswith(b"HTTP/1.1 200")


def test_slow_connections_hold_few_threads_and_not_for_long(coordinator: Any, example: Any) -> None:
    before = threading.active_count()
    with ExitStack() as slow:
        connections = []
        for _ in range(200):
            connection = socket.create_connection(coordinator.server_address, LIMIT)
            connections.append(slow.enter_context(connection))
            connection.sendall(b"POST /0 HTT")
        assert threading.active_count() - before <= example.SLOTS
        end = time.monotonic() + LIMIT
        while coordinator.due and time.monotonic() < end:
            for connection in connections:  # a byte now and then does not help them
                with suppress(OSError):
                    connection.send(b"x")
            time.sleep(0.05)
        assert not coordinator.due
        assert post(coordinator, b"") == coordinator.description


def test_lies_do_not_stop_the_round(coordinator: Any, example: Any) -> None:
    """Totals over no rows, infinite ones, counts without end: refused, and the round goes on."""
    replica, job = Replica.joining(post(coordinator, b"")), example.make_job()
    assert replica.task is not None
    server = coordinator.server
    for total, rows in ((0.0, 0), (float("nan"), 5), (float("inf"), 5), (1.0, 2**64 - 1)):
        post(coordinator, replica.total(replica.task, 0, total, rows))
    assert server.refused.total() == 4
    for peer, workers in example.PEERS.items():
        for worker in workers:
            post(coordinator, replica.answer(replica.task, job.work(replica.task, worker)), peer)
    assert server.state.round == 1, "without a single total"
    assert wire.unseal(post(coordinator, replica.ask()), [wire.UPDATE], 10**4).round == 1
