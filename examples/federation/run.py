"""A federation on this machine: a SuperLink, three SuperNodes, TLS, and a key for every node.

It creates the certificates, the keys and a data file per node in a temporary folder, runs the
Flower app of this folder, prints loss and bytes per round, compares x with a serial run bit for
bit, and stops everything. It uses the loopback interface only and takes about a minute.
"""

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as keys
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import desopt
from desopt.run.journal import read

APP = Path(__file__).resolve().parent
HOST = "127.0.0.1"
NODES, ROUNDS, N = 3, 6, 500
LIMIT = 600.0  # seconds


def make_shard(node: int, rows: int = 1_000) -> tuple[Any, Any]:
    """A node's own rows of the common problem, as a hospital would have them."""
    truth = np.random.default_rng(0).standard_normal(N)
    X = np.random.default_rng(1 + node).standard_normal((rows, N))
    return X, np.sign(X @ truth)


# --- certificates and keys -------------------------------------------------------------------


def write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A node's key as ssh-keygen writes it: ``path`` and ``path.pub``."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = keys.PrivateFormat.OpenSSH, keys.NoEncryption()
    write_secret(path, key.private_bytes(keys.Encoding.PEM, *secret))
    public = key.public_key().public_bytes(keys.Encoding.OpenSSH, keys.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)
    return key


def write_certificates(folder: Path) -> None:
    """``ca.pem``, and ``server.pem`` with ``server.key`` for a SuperLink on loopback."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    )
    usage = x509.BasicConstraints(ca=True, path_length=0)
    ca = certificate("desopt example CA", authority, authority, usage)
    mine = certificate("localhost", server, authority, names)
    (folder / "ca.pem").write_bytes(ca.public_bytes(keys.Encoding.PEM))
    (folder / "server.pem").write_bytes(mine.public_bytes(keys.Encoding.PEM))
    secret = keys.PrivateFormat.PKCS8, keys.NoEncryption()
    write_secret(folder / "server.key", server.private_bytes(keys.Encoding.PEM, *secret))


def certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    """A certificate for a day, signed by the example's authority."""

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named("desopt example CA"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(signer, hashes.SHA384())
    )


def write_secret(path: Path, data: bytes) -> None:
    """Create the file readable by its owner only."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)


# --- processes -------------------------------------------------------------------------------


class Deployment:
    """A SuperLink and SuperNodes, all files in one folder; leaving it ends all processes."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options or ("--enable-supernode-auth",)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.env = os.environ | {
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        write_certificates(folder)
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "ours"\n\n[superlink.ours]\naddress = "{HOST}:{self.port}"\n'
            f'root-certificates = "{folder / "ca.pem"}"\n'
        )

    def __enter__(self) -> Self:
        self.start(
            "superlink", "flower-superlink", "--host", HOST, "--port", str(self.port),
            "--ssl-ca-certfile", "ca.pem", "--ssl-certfile", "server.pem",
            "--ssl-keyfile", "server.key", "--disable-runtime-dependency-installation",
            *self.options,
        )  # fmt: skip
        try:
            self.wait_for_port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name, signal.SIGKILL)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in its own group, with its output in NAME.log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        return self.processes[name]

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process and its children. On SIGTERM, a SuperNode signs off first."""
        process = self.processes.pop(name)
        family = [process.pid, *descendants(process.pid)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.send_signal(how)
            process.wait(10)
        for pid in family:  # Flower starts some in separate sessions
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # children of a process that has exited
        process.wait()

    def start_node(self, name: str, worker: int, data: Path, **files: str) -> None:
        """Start a SuperNode with these data; ``key`` and ``ca`` replace its usual files."""
        self.start(
            name, "flower-supernode", "--superlink", f"{HOST}:{self.port}",
            "--root-certificates", files.get("ca", "ca.pem"), "--port", str(free_port()),
            "--auth-supernode-private-key", files.get("key", f"{name}.key"),
            "--node-config", f'partition-id={worker} data="{data}"',
        )  # fmt: skip

    def register(self, *names: str) -> None:
        """Create keys for these nodes and register them with the SuperLink."""
        running = []
        for name in names:
            write_key(self.folder / f"{name}.key")
            register = "flwr", "supernode", "register", str(self.folder / f"{name}.pub"), "ours"
            running.append((name, self.start(f"register-{name}", *register)))
        for name, process in running:
            if process.wait(600):
                raise RuntimeError(f"{name} was not registered\n{self.log(f'register-{name}')}")

    def run(self, app: Path, config: str, *more: str) -> subprocess.Popen[bytes]:
        """``flwr run``; the process ends when the run does."""
        return self.start("run", "flwr", "run", str(app), "ours", "--stream", "-c", config, *more)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for_port(self) -> None:
        until = time.monotonic() + 600
        while time.monotonic() < until and self.processes["superlink"].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the SuperLink did not start\n{self.log('superlink')}")


def descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    listing = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listing.stdout.splitlines()]
    found = [pid]
    for parent in found:  # grows during the loop
        found += [child for child, its_parent in pairs if its_parent == parent]
    return found[1:]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


# --- the run ---------------------------------------------------------------------------------


def rows_of(journal: Path) -> list[Any]:
    """The rounds in the journal so far."""
    if not journal.exists():
        return []
    with warnings.catch_warnings(action="ignore"):  # a record still being written
        return read(journal).rows


def watch(process: subprocess.Popen[bytes], journal: Path) -> None:
    """Print every finished round until the run is over."""
    shown, up, down, until = 0, 0, 0, time.monotonic() + LIMIT
    while running := process.poll() is None or shown < len(rows_of(journal)):
        for row in rows_of(journal)[shown:]:
            print(
                f"round {row['round']:2}  loss {row['loss']:.6f}  {row['bytes_up'] - up:6,} bytes "
                f"up  {row['bytes_down'] - down:8,} down",
                flush=True,
            )
            shown, up, down = shown + 1, row["bytes_up"], row["bytes_down"]
        if running and time.monotonic() > until:
            raise TimeoutError(f"only {shown} rounds in {LIMIT:g} seconds")
        time.sleep(0.2)


def main() -> None:
    from logistic import SETTINGS

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="federation-") as name:
        folder, nodes = Path(name), [f"node-{i}" for i in range(NODES)]
        for worker, node in enumerate(nodes):
            X, y = make_shard(worker)
            np.savez(folder / f"{node}.npz", X=X, y=y)
        print("starting a SuperLink and three SuperNodes", flush=True)
        journal = folder / "run.journal"
        with Deployment(folder) as deployment:
            deployment.register(*nodes)
            for worker, node in enumerate(nodes):
                deployment.start_node(node, worker, folder / f"{node}.npz")
            process = deployment.run(APP, f'rounds={ROUNDS} journal="{journal}"')
            watch(process, journal)
            if len(rows_of(journal)) != ROUNDS:
                raise SystemExit(f"the run failed:\n{deployment.log('run')}")
        x = desopt.replay(journal)
    shards = [make_shard(worker) for worker in range(NODES)]
    serial = desopt.minimize(
        "lr", None, shards, rounds=ROUNDS, engine="serial", progress=False, **SETTINGS
    )
    same = x.tobytes() == serial.x.tobytes()
    print(f"loss {serial.fun:.6f}; x has {x.nbytes:,} bytes; same bits as the serial run: {same}")
    if not same:
        raise SystemExit("the runs differ")


if __name__ == "__main__":
    main()
