"""A Ray cluster of two nodes on loopback, and the runs on it that tests/engines/test_ray.py judges.

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
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from scipy import sparse

import desopt
from desopt.contract.types import Batches
from desopt.data import as_shards
from desopt.engines import Job
from desopt.engines.by_value import ByValue
from desopt.engines.trials import Key, Outcome, Trial
from desopt.methods import DES
from desopt.objectives import PythonObjective

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
    notes = os.environ.get("RAY_TEST_NOTES")  # on the nodes only
    if notes is not None:
        import ray

        with open(notes, "a") as file:
            file.write(f"{ray.get_runtime_context().get_node_id()} {worker}\n")
    return X[worker::WORKERS], Y[worker::WORKERS]


#: Every method once, over all kinds of objectives and data.
PROBLEMS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    **{name: ("lr", (X, Y), {}) for name in desopt.METHODS},
    "es": (least_squares, (X, Y), {"step_size": 0.03}),
    "des": ("lr", (X, Y), {"max_evaluations": 4 * 36 - 10}),  # the last round is shortened
    "des-mg": ("nsvm", (CSR, Y), {"step_size": "auto"}),
    "des-c": ("lr", (X, Y), {"step_size": "auto", "iterations": 12}),
    "des-mr": (least_squares, load, {"log_values": False}),  # whole rounds from the first one on
    "fed-zo-sgd": ("lr", [(CSR[w::4], Y[w::4]) for w in range(4)], {"participation": 0.5}),
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


def node(*arguments: str) -> subprocess.Popen[str]:
    """One node with one CPU, in the foreground of a process of its own, once it is up.

    Ray gives a node 30 seconds for that, which a busy machine may not have.
    """
    command = [sys.executable, "-u", "-m", "ray.scripts.scripts", "start", "--block"]
    usual = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
    for _ in range(10):
        popen = subprocess.Popen([*command, *usual, *arguments], stdout=subprocess.PIPE, text=True)
        assert popen.stdout is not None
        for line in popen.stdout:
            print(line, end="", file=sys.stderr)
            if "runtime started" in line:
                threading.Thread(target=popen.stdout.read, daemon=True).start()
                return popen
        popen.wait()
        time.sleep(2.0)
    raise SystemExit("no node of Ray can be started here")


def end(popen: subprocess.Popen[str]) -> None:
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


def at_once(
    folder: Path, name: str, act: Callable[[], Any], after: int, again: bool = False
) -> Any:
    """least_squares on two workers; the second does something after so many values, once.

    ``again``: and from then on at every value, in whatever process it is.
    """
    once = folder / name

    def fun(x: Vector, batch: Any) -> float:
        nonlocal after
        if batch[0][0, 0] in X[1::2, 0] and batch[0].shape[0] == 5:
            after -= 1
            if (after == 0 and not once.exists()) or (again and once.exists()):
                once.touch()
                act()
        return least_squares(x, batch)

    return fun


#: Of runs of ``at_once``: a worker's values stay on its actor, where they are counted. Otherwise
#: rounds whose values take long, as any do on a busy machine, share them among all actors.
WHOLE_ROUNDS: dict[str, Any] = {"workers": 2, "log_values": False}


def two(worker: int) -> tuple[Vector, Vector]:
    return X[worker::2], Y[worker::2]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(3600)  # longer than test_ray.py waits


def fail() -> None:
    raise ZeroDivisionError("deep inside")


def failing(folder: Path) -> Any:
    """Fails in round 1, iteration 3 of worker 1."""
    return at_once(folder, "fails", fail, ITERATIONS + 1 + 5)


def methods(notes: Path) -> None:
    """All methods, several at a time; what each puts into the object store is counted.

    A starved machine may lose an actor, and what it did is done again: such runs are as well.
    """
    import ray

    puts: Counter[int] = Counter()
    losses: Counter[int] = Counter()
    put = ray.put

    def lost(*_warning: Any, **_more: Any) -> None:
        losses[threading.get_ident()] += 1

    def counted(value: Any) -> Any:
        puts[threading.get_ident()] += 1
        return put(value)

    def one(method: str) -> None:
        fun, data, more = PROBLEMS[method]
        me = threading.get_ident()
        for _ in range(4):
            if data is load:
                notes.unlink(missing_ok=True)
            puts[me] = losses[me] = 0
            result = run(fun, data, method=method, engine="ray", **more)
            if not losses[me]:
                break
        tell(method, puts=puts[me], **summary(result))

    ray.put = counted
    with warnings.catch_warnings(), ThreadPoolExecutor(4) as pool:
        warnings.simplefilter("always")
        warnings.showwarning = lost
        list(pool.map(one, PROBLEMS))
    ray.put = put


def losses(folder: Path, victim: subprocess.Popen[str]) -> None:
    """Actors that die, hang and fail, and then a node that is lost."""
    patient = {"round_timeout": 20.0, "attempts": 6}  # a busy machine may seem to hang, too
    for name, act, settings in (("dies", die, {}), ("hangs", hang, patient)):
        with warnings.catch_warnings(record=True) as caught:
            fun = at_once(folder, name, act, 2 * (ITERATIONS + 1) - 3)
            result = run(fun, two, engine="ray", **WHOLE_ROUNDS, **settings)
        tell(name, warnings=[str(w.message) for w in caught], **summary(result))
    try:
        run(failing(folder), two, engine="ray", **WHOLE_ROUNDS)
    except desopt.ObjectiveError as error:
        places = error.worker, error.round, error.iteration
        tell("fails", places=places, text=str(error))

    stops(folder)

    def kill(row: desopt.Row) -> None:
        if row["round"] == 2:
            end(victim)

    with warnings.catch_warnings(record=True) as caught:
        result = run("lr", (X, Y), method="des-mr", engine="ray", callbacks=[kill])
    tell("node", warnings=[str(w.message) for w in caught], **summary(result))


FINE, HANGS, DIES, DIES_ONCE, EXITS, FAILS = range(6)


def disturbed(folder: Path) -> Any:
    """x @ x; the first coordinate says what else happens, and every attempt is noted."""

    def fun(x: Vector) -> float:
        act, number = int(x[0]), int(x[1])
        with open(folder / f"value{number}", "a") as notes:
            notes.write("x")
            notes.flush()
            attempt = notes.tell()
        if act == HANGS:
            hang()
        if act == DIES or (act == DIES_ONCE and attempt == 1):
            die()
        if act == EXITS:
            sys.exit(4)
        if act == FAILS:
            raise desopt.Failed("the mesh did not close")
        return float(x @ x)

    return fun


def values(folder: Path) -> None:
    """Single values of one worker on two actors; some of them go wrong."""
    acts = [FINE, HANGS, DIES, DIES_ONCE, FINE, EXITS, FAILS]
    job = Job(DES(), PythonObjective(disturbed(folder)), as_shards(None, 1, 0), 1, 0, 2)
    engine = desopt.engines.Ray(attempts=2, evaluation_timeout=10.0)
    engine.start(job)
    engine.begin(job.algorithm.init(np.zeros(2)))
    found: dict[int, Outcome] = {}
    with warnings.catch_warnings(record=True) as caught:
        for number, act in enumerate(acts):
            x = np.array([act, number], float)
            engine.submit(Trial(Key(0, 0, number, 0), x, Batches.ROUND, 0))
        while len(found) < len(acts):
            found |= {trial.key.number: outcome for trial, outcome in engine.completed()}
    tell(
        "values", slots=engine.slots, repeated=engine.repeated, warnings=len(caught),
        values=[found[i].value for i in range(len(acts)) if not found[i].failed],
        failed=[found[i].failed for i in range(len(acts)) if found[i].failed],
        attempts=[len((folder / f"value{i}").read_text()) for i in range(len(acts))],
    )  # fmt: skip
    engine.close()


def by_value() -> None:
    """A round of four workers by single values."""
    algorithm = DES(iterations=ITERATIONS, seed=2)
    job = Job(algorithm, PythonObjective(least_squares), as_shards((X, Y), WORKERS, 2), 5, 2, N)
    state = algorithm.init(np.zeros(N))
    engine = ByValue(desopt.engines.Ray(), always=True)
    engine.start(job)
    engine.begin(state)
    answers = list(engine.round(algorithm.plan(state)))
    expected = [job.work(algorithm.plan(state), worker) for worker in range(WORKERS)]
    totals = engine.evaluate(range(WORKERS))
    engine.close()
    tell(
        "by value", same=[a.payload for a in answers] == [a.payload for a in expected],
        totals=totals == [job.total(state.x, w) for w in range(WORKERS)],
    )  # fmt: skip


def stops(folder: Path) -> None:
    """Runs that end in round 1, by an actor that always dies and by Ctrl-C, and are resumed."""

    def interrupt(pid: int = os.getpid()) -> None:
        os.kill(pid, signal.SIGINT)
        hang()

    for name, act in (("always", die), ("interrupted", interrupt)):
        fun = at_once(folder, name, act, ITERATIONS + 1 + 3, again=name == "always")
        settings: dict[str, Any] = {"engine": "ray", "journal": folder / f"{name}.j"}
        try:
            run(fun, two, **WHOLE_ROUNDS, **settings, attempts=2)
        except (desopt.EngineError, desopt.Interrupted) as error:
            kind, text = type(error).__name__, str(error)
        result = run(least_squares, two, **WHOLE_ROUNDS, **settings)
        tell(name, kind=kind, text=text, **summary(result))


def driver(journal: str, address: str) -> None:
    """A run on the cluster that is killed after two rounds, or goes on; or one on its own."""
    import ray

    dies = address and not Path(journal).exists()

    def kill(row: desopt.Row) -> None:
        if dies and row["round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    options = {} if address else {"num_cpus": 2, "object_store_memory": 100_000_000}
    engine = desopt.engines.Ray(address or None, **options)
    result = run(least_squares, load, engine=engine, journal=journal, callbacks=[kill])
    left = [process.name() for process in psutil.Process().children(recursive=True)]
    home = os.listdir(Path.home())
    name = "driver" if address else "local"
    tell(name, connected=ray.is_initialized(), left=left, home=home, **summary(result))


def drivers(folder: Path) -> None:
    """A driver of the cluster that is killed and started again, beside a Ray of its own."""
    command = [sys.executable, __file__, "driver"]
    cluster = "RAY_ADDRESS", "RAY_AUTH", "RAY_USAGE"
    plain = {name: value for name, value in os.environ.items() if not name.startswith(cluster)}

    def local() -> int:
        for attempt in range(5):  # here, too, Ray has little patience
            code = subprocess.run([*command, str(folder / f"local{attempt}"), ""], env=plain)
            if code.returncode == 0:
                break
        return code.returncode

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(local)
        again = [*command, str(folder / "journal"), ADDRESS]
        tell("killed", code=subprocess.run(again).returncode)
        subprocess.run(again, check=True)
        tell("ended", code=beside.result())


def main(folder: Path) -> None:
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    os.environ |= {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_ADDRESS": ADDRESS,
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_TEST_NOTES": str(folder / "notes"),
        # A lost node is noticed after seconds, a slow one is not lost.
        "RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "20000",
        "RAY_worker_niceness": "0",  # actors starve on a busy machine otherwise
    }  # fmt: skip
    import ray  # reads the environment

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
    head = node("--head", "--port=6390", "--include-dashboard=false", f"--temp-dir={folder}/r")
    try:
        connect()
        other = node(f"--address={ADDRESS}")
        wait_for(2)
        tell("cluster", nodes=len(ray.nodes()))
        methods(folder / "notes")
        tell("loaders", notes=(folder / "notes").read_text().splitlines())
        values(folder)
        by_value()
        losses(folder, other)
        tell("still", connected=ray.is_initialized())
        ray.shutdown()
        drivers(folder)
    finally:
        end(head)


if __name__ == "__main__":
    if sys.argv[1] == "driver":
        driver(sys.argv[2], sys.argv[3])
    else:
        main(Path(sys.argv[1]))
