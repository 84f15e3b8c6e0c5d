"""A federation on this machine: a SuperLink, a SuperNode per hospital, TLS, and a key for each.

It creates the certificates and the keys in a temporary folder, runs the Flower app of this folder
on the files of UCI's four heart hospitals, and compares: each hospital alone, all patients in one
place, the federation. It uses the loopback interface only and takes a minute or two.

    python run.py [FOLDER]

FOLDER holds processed.cleveland.data and the others. Without it, they are looked for where desopt
looks for data sets (``heart/`` in ``DESOPT_DATA``); where there are none, patients are generated.
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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as keys
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hearts import COLUMNS, HELD_OUT, HOSPITALS, SETTINGS, load_shard

import desopt
from desopt.data.catalogue import lookup
from desopt.data.splits import held_out
from desopt.objectives.inputs import Inputs, Moments, PreparedModel
from desopt.objectives.metrics import auc

APP = Path(__file__).resolve().parent
HOST = "127.0.0.1"
ROUNDS = 10
LIMIT = 1600.0  # seconds; a loaded machine may take ten times as long


# --- patients --------------------------------------------------------------------------------


def find_patients(folder: Path) -> tuple[Path, str]:
    """The folder of the hospitals' files, generated in ``folder`` where there are none."""
    found = Path(sys.argv[1]) if len(sys.argv) > 1 else lookup("heart-sites")
    if found is not None:
        return found, "UCI's patients"
    for number, hospital in enumerate(HOSPITALS):
        write_patients(folder / f"processed.{hospital}.data", number)
    return folder, "generated patients"


def write_patients(path: Path, number: int, rows: int = 200) -> None:
    """A stand-in for a hospital: its own share of ill patients, and a column it does not have."""
    rng = np.random.default_rng(number)
    ill = rng.random(rows) < (0.45, 0.35, 0.9, 0.75)[number]
    X = rng.standard_normal((rows, len(COLUMNS))) + np.outer(ill, np.linspace(1.0, -0.6, 13))
    X = 50.0 + 10.0 * X
    X[rng.random(X.shape) < 0.05] = np.nan
    X[:, 10 + number % 3] = np.nan
    lines = [
        ",".join("?" if np.isnan(value) else f"{value:.3f}" for value in row) + f",{int(sick)}"
        for row, sick in zip(X, ill, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


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
        # the database is what a SuperLink that starts again knows its nodes by
        self.options = options or ("--enable-supernode-auth", "--database", "superlink.db")
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
        self.start_superlink()
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name, signal.SIGKILL)

    def start_superlink(self) -> None:
        """Start the SuperLink, the first time or again, and wait for it."""
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
        """Start a SuperNode with these data; ``key`` and ``ca`` replace its usual files.

        ``model`` is where it keeps the final model, ``snapshot`` where it fetches a state.
        """
        own = "".join(f' {k}="{files[k]}"' for k in ("model", "snapshot") if k in files)
        self.start(
            name, "flower-supernode", "--superlink", f"{HOST}:{self.port}",
            "--root-certificates", files.get("ca", "ca.pem"), "--port", str(free_port()),
            "--auth-supernode-private-key", files.get("key", f"{name}.key"),
            "--node-config", f'partition-id={worker} site="{name}" data="{data}"{own}',
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


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="federation-") as name:
        folder = Path(name)
        files, whose = find_patients(folder)
        print(f"{whose}; starting a SuperLink and {len(HOSPITALS)} SuperNodes", flush=True)
        journal, model = folder / "run.journal", folder / "model.json"
        with Deployment(folder) as deployment:
            deployment.register(*HOSPITALS)
            for worker, hospital in enumerate(HOSPITALS):
                data = files / f"processed.{hospital}.data"
                deployment.start_node(
                    hospital, worker, data, model=str(folder / f"{hospital}.json")
                )
            deployment.run(APP, f'rounds={ROUNDS} journal="{journal}" model="{model}"')
            watch(deployment)
        if not model.exists():
            raise SystemExit(f"the run failed:\n{deployment.log('run')}")
        copies = {(folder / f"{hospital}.json").read_bytes() for hospital in HOSPITALS}
        x = desopt.replay(journal)
        federated = desopt.load_model(model)
        shards = [load_shard({"data": files / f"processed.{h}.data"}) for h in HOSPITALS]
    print(f"every hospital has the server's model: {copies == {federated.to_json().encode()}}")
    compare(shards, federated, x)


def watch(deployment: Deployment) -> None:
    """Print what ``flwr run --stream`` says of the run, until it is over."""
    shown, until = 0, time.monotonic() + LIMIT
    process = deployment.processes["run"]
    while True:
        ended = process.poll() is not None
        lines = deployment.log("run").splitlines()
        for line in lines[shown:]:
            if line.startswith(("columns ", "round ", "done: ", *HOSPITALS)):
                print(line, flush=True)
        shown = len(lines)
        if ended:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"not done in {LIMIT:g} seconds\n{deployment.log('run')}")
        time.sleep(0.2)


def compare(shards: list[Any], federated: desopt.Model, x: Any) -> None:
    """AUC on the patients that each hospital held out, whoever trained."""
    tables = [Inputs(COLUMNS).table(columns) for columns, _ in shards]
    labels = [y for _, y in shards]
    halves = [held_out(len(y), HELD_OUT) for y in labels]
    parts = [(X[own], y[own]) for X, y, (own, _) in zip(tables, labels, halves, strict=True)]
    tests = [(X[test], y[test]) for X, y, (_, test) in zip(tables, labels, halves, strict=True)]

    def train(parts: list[Any], workers: int) -> Any:
        """Model and inputs of these tables, by the settings of the federation."""
        inputs = Inputs(COLUMNS, intercept=True).standardised(Moments.of(X) for X, _ in parts)
        settings = {name: value for name, value in SETTINGS.items() if name != "regularization"}
        data: Any = [(inputs.apply(X), y) for X, y in parts]
        if len(data) != workers:  # in one place: dealt to as many workers as there are hospitals
            data = tuple(np.concatenate(column) for column in zip(*data, strict=True))
        fun = PreparedModel("lr", SETTINGS["regularization"], inputs)
        result = desopt.minimize(
            fun, None, data, rounds=ROUNDS, engine="serial", progress=False,
            **settings | {"workers": workers},
        )  # fmt: skip
        return result.x, lambda X: inputs.apply(X) @ result.x

    rows = {
        "alone": [auc(y, train([p], 1)[1](X)) for p, (X, y) in zip(parts, tests, strict=True)],
        "pooled": [auc(y, train(pooled(parts), 4)[1](X)) for X, y in tests],
        "federated": [auc(y, federated.decision_function(X)) for X, y in tests],
    }
    print(f"\n{'AUC, held out':<15}" + "".join(f"{hospital:>13}" for hospital in HOSPITALS))
    for name, found in rows.items():
        print(f"{name:<15}" + "".join(f"{value:13.3f}" for value in found))
    same = train(parts, 4)[0].tobytes() == x.tobytes()
    print(f"\nsame bits as the serial run: {same}")
    if not same:
        raise SystemExit("the runs differ")


def pooled(parts: list[Any]) -> list[Any]:
    """All patients in one table."""
    return [tuple(np.concatenate(column) for column in zip(*parts, strict=True))]


if __name__ == "__main__":
    main()
