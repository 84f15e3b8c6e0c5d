"""Bring your own transport: workers in separate processes, over HTTP.

The example uses plan, work, merge, the wire format and the HTTP of the standard library. A worker
posts its answers, then its position in the run; the server replies when there is a round for it
to work on. The server prints loss and bytes per round, and finally compares x with a serial run,
bit for bit.

Anybody can connect to a port. So slow connections are closed, the number of threads is limited,
and no request may be longer than a message. Authentication, by TLS and keys, is not shown here.
"""

import contextlib
import http.client
import math
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

import desopt
from desopt.data import as_shards
from desopt.engines import Job
from desopt.engines.base import describe
from desopt.methods.des import DES
from desopt.objectives import LinearModel
from desopt.protocol import wire
from desopt.protocol.replica import Replica
from desopt.protocol.server import Server

WORKERS, ROUNDS, N = 6, 10, 1_000
PEERS = {"0": (0, 1), "1": (2, 3), "2": (4, 5)}  # process: its workers
SEED, BATCH = 1, 300
ALGORITHM = DES(iterations=100, step_size=0.05, seed=SEED)
POLL, LIMIT = 10.0, 900.0  # seconds for a reply, and for everything
SLOTS, PATIENCE = 16, 5.0  # concurrent connections; seconds per request
LONGEST = wire.OVERHEAD + ALGORITHM.layout.size  # bytes of a message from a worker


def make_data() -> tuple[Any, Any]:
    """Every process generates the data; real workers would read their own."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3_000, N))
    return rows, np.sign(rows @ rng.standard_normal(N))


def make_job() -> Job:
    objective = LinearModel("lr")
    shards = objective.prepare(as_shards(make_data(), WORKERS, SEED))
    return Job(ALGORITHM, objective, shards, BATCH, SEED, N)


def work(port: int, peer: str) -> None:
    """The worker's side: follow the server until the run is over."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    end = time.monotonic() + LIMIT

    def call(message: bytes) -> bytes:
        while True:  # repeating a message is harmless
            try:
                connection.request("POST", f"/{peer}", message)
                response = connection.getresponse()
                if response.status == 200:
                    return response.read()
                reason = f"{response.status} {response.reason}"
            except (OSError, http.client.HTTPException) as error:
                reason = repr(error)
            if time.monotonic() > end:
                raise SystemExit(f"peer {peer} cannot reach the server: {reason}")
            connection.close()
            time.sleep(0.1)

    job, replica = make_job(), Replica.joining(call(b""))
    while message := call(replica.ask()):
        try:
            task = replica.follow(message)
        except wire.WireError:
            continue  # asks again
        for worker in PEERS[peer]:
            call(replica.total(task, worker, *job.total(task.x, worker)))
            call(replica.answer(task, job.work(task, worker)))


class Coordinator(ThreadingHTTPServer):
    """The server's side: a round closes when all workers have answered."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, job: Job) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        x0 = np.zeros(N)
        self.server = Server(job.algorithm, job.algorithm.init(x0), WORKERS, batch_size=BATCH)
        self.description = wire.pack_description(self.server.run, describe(job, x0))
        self.changed = threading.Condition()
        self.slots = threading.BoundedSemaphore(SLOTS)
        self.due: dict[socket.socket, float] = {}  # deadlines of requests
        for peer, workers in PEERS.items():
            self.server.admit(peer, workers)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, if a slot is free."""
        if not self.slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.due.pop(request, None)
            self.slots.release()

    def service_actions(self) -> None:
        """Twice a second: close connections with overdue requests, which ends their threads."""
        now = time.monotonic()
        for connection, due in list(self.due.items()):
            if now > due:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections; report anything else."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def reply(self, peer: str, message: bytes) -> bytes:
        """The description for an empty message, the next task for a question."""
        if not message:
            return self.description
        with self.changed:
            self.server.receive(peer, message)
            if len(self.server.answers) == WORKERS:
                self.finish_round()
            if message[1:2] != wire.ASK:
                return b""
            self.changed.wait_for(lambda: self.over or self.has_work(peer), POLL)
            return b"" if self.over else self.server.message_for(peer)

    def finish_round(self) -> None:
        sums = self.server.totals.values()
        loss = sum(s.total for s in sums) / sum(s.rows for s in sums) if sums else math.nan
        up, down = self.server.bytes_up, self.server.bytes_down
        round = self.server.state.round
        print(f"round {round:2}  loss {loss:.6f}  {up:6,} bytes up  {down:6,} down", flush=True)
        self.server.finish_round()
        self.changed.notify_all()

    def has_work(self, peer: str) -> bool:
        return not self.server.answers.keys() >= {*PEERS[peer]}

    @property
    def over(self) -> bool:
        return bool(self.server.state.round == ROUNDS)


class Handler(BaseHTTPRequestHandler):
    """POST /<peer> with one message, or nothing."""

    protocol_version = "HTTP/1.1"
    timeout = LIMIT  # for clients that do not read
    server: Coordinator

    def handle_one_request(self) -> None:
        self.server.due[self.connection] = time.monotonic() + PATIENCE
        super().handle_one_request()

    def do_POST(self) -> None:
        peer, length = self.path[1:], self.headers.get("Content-Length", "0")
        if peer not in PEERS or not length.isascii() or not length.isdigit():
            self.refuse()
            return
        body = self.rfile.read(int(length)) if len(length) < 9 and int(length) <= LONGEST else None
        if body is None or len(body) != int(length):
            self.refuse()
            return
        del self.server.due[self.connection]  # the rest is the server's time
        reply = self.server.reply(peer, body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def refuse(self) -> None:
        """Close a connection with a malformed request."""
        self.close_connection = True
        self.send_error(400)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: a line per request would hide the rounds."""


def main() -> None:
    with Coordinator(make_job()) as coordinator:
        threading.Thread(target=coordinator.serve_forever, daemon=True).start()
        command = [sys.executable, __file__, str(coordinator.server_address[1])]
        processes = [subprocess.Popen([*command, peer]) for peer in PEERS]
        try:
            for process in processes:
                process.wait(LIMIT)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            coordinator.shutdown()
        x = coordinator.server.state.x
    serial = desopt.minimize(
        "lr", None, make_data(), method=ALGORITHM, workers=WORKERS, rounds=ROUNDS,
        batch_size=BATCH, seed=SEED, engine="serial", progress=False,
    )  # fmt: skip
    same = x.tobytes() == serial.x.tobytes()
    print(f"loss {serial.fun:.6f}; x has {x.nbytes:,} bytes; same bits as the serial run: {same}")
    if not same:
        raise SystemExit("the runs differ")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        work(int(sys.argv[1]), sys.argv[2])
    else:
        main()
