"""A Ray cluster of two nodes on loopback, and the runs on it that tests/test_ray.py judges.

Run by that test in a namespace of its own, where neither the network nor other processes can be
reached. Every run leaves a line of JSON on the output.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from scipy import sparse

import desopt

Vector = NDArray[np.float64]

ADDRESS = "127.0.0.1:6390"
N, WORKERS, ROUNDS, ITERATIONS = 60, 4, 4, 8
SETTINGS: dict[str, Any] = {
    "workers": WORKERS, "rounds": ROUNDS, "iterations": ITERATIONS, "batch_size": 5, "seed": 2,
    "step_size": 0.3, "eval_every": 1, "progress": False,
}  # fmt: skip

_RNG = np.random.default_rng(1)
X = _RNG.standard_normal((400, N))  # large enough for the object store
Y = np.sign(X @ _RNG.standard_normal(N))
CSR = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))


def least_squares(x: Vector, batch: Any) -> float:
    rows, y = batch
    return float(np.mean((rows @ x - y) ** 2))


def load(worker: int) -> tuple[Vector, Vector]:
    return X[worker::WORKERS], Y[worker::WORKERS]


#: Every method once, over all kinds of objectives and data.
PROBLEMS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "es": (least_squares, (X, Y), {}),
    "des": ("lr", (X, Y), {}),
    "des-mg": ("nsvm", (CSR, Y), {}),
    "des-mr": (least_squares, load, {}),
    "fed-zo-gd": ("lr", (X, Y), {}),
    "fed-zo-sgd": ("lr", [(CSR[w::4], Y[w::4]) for w in range(4)], {"participation": 0.5}),
    "zo-signsgd": ("lr", (X, Y), {}),
    "es-csa": (least_squares, (X, Y), {}),
}


def run(fun: Any, data: Any, **settings: Any) -> desopt.Result:
    x0 = None if isinstance(fun, str) and not callable(data) else np.zeros(N)
    return desopt.minimize(fun, x0, data, **(SETTINGS | settings))


def rows(result: desopt.Result) -> list[list[float]]:
    """What of the history must not depend on where it was computed."""
    names = "round", "evaluations", "samples", "nans", "loss", "answers"
    return [[row[name] for name in names] for row in result.history]


def summary(result: desopt.Result) -> dict[str, Any]:
    names = "bytes_up", "bytes_down", "repeated"
    counts = {name: result.history[name].tolist() for name in names}
    return {"x": result.x.tobytes().hex(), "rows": rows(result), **counts}


def tell(run: str, **found: Any) -> None:
    print(json.dumps({"run": run, "at": time.monotonic(), **found}), flush=True)


# --- the cluster -----------------------------------------------------------------------------


def node(*arguments: str) -> subprocess.Popen[bytes]:
    """One node with one CPU, in the foreground of a process of its own."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
    usual = ["--object-store-memory=100000000", "--disable-usage-stats"]
    return subprocess.Popen([*command, *usual, *arguments], stdout=sys.stderr)


def end(popen: subprocess.Popen[bytes]) -> None:
    """Kill a node with everything that runs on it, at once."""
    family = [*psutil.Process(popen.pid).children(recursive=True), psutil.Process(popen.pid)]
    for process in family:
        process.send_signal(signal.SIGSTOP)  # none of them may see another go
    for process in family:
        process.kill()


def connect() -> None:
    """Become a driver of the cluster, once it has a head."""
    import ray

    for attempt in range(100):
        try:
            ray.init(address=ADDRESS, log_to_driver=False)
            break
        except ConnectionError:
            if attempt == 99:
                raise
            time.sleep(0.5)


def wait_for(nodes: int) -> None:
    import ray

    while sum(node["Alive"] for node in ray.nodes()) < nodes:
        time.sleep(0.2)


# --- the runs --------------------------------------------------------------------------------


def at_once(folder: Path, name: str, act: Callable[[], Any], after: int) -> Any:
    """least_squares on two workers; the second does something after so many values, once."""
    once = folder / name

    def fun(x: Vector, batch: Any) -> float:
        nonlocal after
        if batch[0][0, 0] in X[1::2, 0] and batch[0].shape[0] == 5:
            after -= 1
            if after == 0 and not once.exists():
                once.touch()
                act()
        return least_squares(x, batch)

    return fun


def two(worker: int) -> tuple[Vector, Vector]:
    return X[worker::2], Y[worker::2]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(600)


def fail() -> None:
    raise ZeroDivisionError("deep inside")


def methods() -> None:
    import ray

    puts, put = [0], ray.put
    ray.put = lambda value: (puts.__setitem__(0, puts[0] + 1), put(value))[1]
    for method, (fun, data, more) in PROBLEMS.items():
        puts[0] = 0
        result = run(fun, data, method=method, engine="ray", **more)
        tell(method, puts=puts[0], **summary(result))
    ray.put = put


def losses(folder: Path, victim: subprocess.Popen[bytes]) -> None:
    """Actors that die, hang and fail, and then a node that is lost."""
    for name, act, settings in (("dies", die, {}), ("hangs", hang, {"round_timeout": 5.0})):
        with warnings.catch_warnings(record=True) as caught:
            fun = at_once(folder, name, act, 2 * (ITERATIONS + 1) - 3)
            result = run(fun, two, workers=2, engine="ray", **settings)
        tell(name, warnings=[str(w.message) for w in caught], **summary(result))
    try:
        run(at_once(folder, "fails", fail, ITERATIONS + 1 + 4), two, workers=2, engine="ray")
    except desopt.ObjectiveError as error:
        places = error.worker, error.round, error.iteration
        tell("fails", what=error.what, error=error.error, places=places, text=str(error))

    def kill(row: desopt.Row) -> None:
        if row["round"] == 2:
            end(victim)

    with warnings.catch_warnings(record=True) as caught:
        result = run("lr", (X, Y), method="des-mr", engine="ray", callbacks=[kill])
    tell("node", warnings=[str(w.message) for w in caught], **summary(result))


def driver(journal: str, address: str | None) -> None:
    """A run that is killed after two rounds; the next call goes on."""
    first = not Path(journal).exists()

    def kill(row: desopt.Row) -> None:
        if first and row["round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = desopt.engines.Ray(address, num_cpus=None if address else 2,
                                object_store_memory=None if address else 100_000_000)  # fmt: skip
    result = run(least_squares, load, engine=engine, journal=journal, callbacks=[kill])
    import ray

    left = len(psutil.Process().children(recursive=True))
    tell("local" if address is None else "driver", initialised=ray.is_initialized(), left=left,
         home=sorted(os.listdir(Path.home())), **summary(result))  # fmt: skip


def drivers(folder: Path) -> None:
    """A driver of the cluster killed and started again; then the same without a cluster."""
    command = [sys.executable, __file__, "driver", str(folder / "journal"), ADDRESS]
    killed = subprocess.run(command, timeout=200).returncode
    tell("killed", code=killed)
    subprocess.run(command, timeout=200, check=True)


def main(folder: Path) -> None:
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    os.environ |= {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_ADDRESS": ADDRESS,
        "RAY_USAGE_STATS_ENABLED": "0",
        # A lost node is noticed after seconds, a slow one is not lost.
        "RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "20000",
    }  # fmt: skip
    import ray  # reads the environment

    head = node("--head", "--port=6390", "--include-dashboard=false", f"--temp-dir={folder}/r")
    try:
        connect()
        other = node(f"--address={ADDRESS}")
        wait_for(2)
        tell("cluster", nodes=len(ray.nodes()))
        methods()
        losses(folder, other)
        tell("still", initialised=ray.is_initialized())
        ray.shutdown()
        drivers(folder)
    finally:
        end(head)


if __name__ == "__main__":
    if sys.argv[1] == "driver":
        driver(sys.argv[2], sys.argv[3] or None)
    else:
        main(Path(sys.argv[1]))
