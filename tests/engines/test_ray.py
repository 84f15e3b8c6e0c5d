"""Runs on a Ray cluster give the bits of serial runs, whatever dies."""

import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ray_cluster

import desopt
from desopt.data import as_shards
from desopt.data.shards import as_writeable
from desopt.engines import Job
from desopt.engines.processes import messages
from desopt.engines.processes.memory import separate
from desopt.engines.ray import actor
from desopt.methods import DES
from desopt.objectives.functions import PythonObjective
from desopt.protocol.server import Server
from desopt.protocol.wire import Reason

#: A command in a network of its own with nothing but loopback, among processes of its own.
ALONE = ["unshare", "-n", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c",
         'ip link set lo up && exec "$@"', "_"]  # fmt: skip

Runs = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def runs() -> Runs:
    """What tests/helpers/ray_cluster.py tells of its runs, by their names."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'desopt[ray]'")
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs the commands unshare and ip (Debian: util-linux, iproute2)")
    allowed = subprocess.run([*ALONE, "true"], capture_output=True, text=True)
    if allowed.returncode:
        pytest.skip(f"a network namespace is not permitted here: {allowed.stderr.strip()}")
    short = min("/tmp", tempfile.gettempdir(), key=len)  # the names of sockets are limited
    with tempfile.TemporaryDirectory(prefix="ray", dir=short) as folder:
        (Path(folder) / "home").mkdir()
        script = [sys.executable, ray_cluster.__file__, folder]
        done = subprocess.run(
            [*ALONE, "env", f"HOME={folder}/home", *script],
            capture_output=True, text=True, timeout=1700,
        )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return {told.pop("run"): told for told in map(json.loads, lines)}


on_a_cluster = pytest.mark.timeout(1800)  # the first of these tests waits for all the runs


@functools.cache
def serial(method: str) -> dict[str, Any]:
    fun, data, more = ray_cluster.PROBLEMS[method]
    return ray_cluster.summary(ray_cluster.run(fun, data, method=method, engine="serial", **more))


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["x"] == expected["x"]
    assert found["rows"] == expected["rows"]
    assert set(expected["x"]) != {"0"}, "runs that do nothing prove nothing"


@on_a_cluster
@pytest.mark.parametrize("method", desopt.METHODS)
def test_same_bits_as_serial(runs: Runs, method: str) -> None:
    assert runs["cluster"]["nodes"] == 2
    assert_same(runs[method], serial(method))
    assert runs[method]["repeated"] == [0] * ray_cluster.ROUNDS


@on_a_cluster
def test_messages_have_the_sizes_that_are_documented(runs: Runs) -> None:
    """No n in them. An update goes to the two actors with the first question of a round."""
    workers, actors, payload = ray_cluster.WORKERS, 2, ray_cluster.ITERATIONS // 8
    up = workers * (payload + 48) + workers * 48
    down = actors * (36 + 4 + workers * (4 + payload)) + actors * 36
    for method in ("des", "des-mg", "des-mr"):
        assert np.diff(runs[method]["bytes_up"]).tolist() == [up] * 3
        assert np.diff(runs[method]["bytes_down"]).tolist() == [down] * 3


@on_a_cluster
def test_arrays_are_stored_once(runs: Runs) -> None:
    """Four workers in two actors share X; of a CSR matrix the numbers and their columns."""
    assert (runs["des"]["puts"], runs["des-mg"]["puts"]) == (1, 2)


@on_a_cluster
def test_loaders_run_once_where_their_workers_live(runs: Runs) -> None:
    notes = sorted(line.split() for line in runs["loaders"]["notes"])
    by_node: dict[str, set[str]] = {}
    for node, worker in notes:
        by_node.setdefault(node, set()).add(worker)
    assert len(notes) == ray_cluster.WORKERS
    assert sorted(map(sorted, by_node.values())) == [["0", "2"], ["1", "3"]]


@on_a_cluster
@pytest.mark.parametrize(("run", "said"), [("dies", "died"), ("hangs", "gave no answer in time")])
def test_actor_that_dies_or_hangs_is_replaced(runs: Runs, run: str, said: str) -> None:
    least_squares, two = ray_cluster.least_squares, ray_cluster.two
    expected = ray_cluster.run(least_squares, two, workers=2, engine="serial")
    assert_same(runs[run], ray_cluster.summary(expected))
    assert any(f"worker 1 {said}" in text for text in runs[run]["warnings"])
    first, second, *_ = runs[run]["repeated"]
    assert first == 0 or len(runs[run]["warnings"]) > 1, "a busy machine may lose another one"
    assert second > first


@on_a_cluster
@pytest.mark.parametrize(
    ("run", "kind", "said"),
    [
        ("always", "EngineError", r"worker 1: its actor died .* 2 attempts of 2; .* resumed"),
        ("interrupted", "Interrupted", r"interrupted after round 1; .* goes on from there"),
    ],
)
def test_run_that_stops_can_be_resumed(runs: Runs, run: str, kind: str, said: str) -> None:
    """Where an actor dies at every attempt, and where Ctrl-C comes while actors work."""
    assert runs[run]["kind"] == kind
    assert re.search(said, runs[run]["text"])
    expected = ray_cluster.run(
        ray_cluster.least_squares, ray_cluster.two, workers=2, engine="serial"
    )
    assert_same(runs[run], ray_cluster.summary(expected))


@on_a_cluster
def test_single_values_give_the_bits_of_whole_rounds(runs: Runs) -> None:
    assert runs["by value"]["same"]
    assert runs["by value"]["totals"]


@on_a_cluster
def test_a_single_value_that_goes_wrong_costs_only_itself(runs: Runs) -> None:
    """One worker's values on both nodes: one that hangs, three that end their actor, one failed."""
    found = runs["values"]
    assert found["slots"] == 2
    assert found["values"] == [0.0, 3.0**2 + 3.0**2, 4.0**2]
    died = "its actor died (ActorDiedError) in 2 attempts"
    assert found["failed"] == ["no value within 10 s", died, died, "the mesh did not close"]
    if found["warnings"] == 3:  # a busy machine may lose another actor
        assert found["attempts"] == [1, 1, 2, 2, 1, 2, 1]
        assert found["repeated"] == 3


@on_a_cluster
def test_error_in_fun_arrives_as_it_was_raised(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(desopt.ObjectiveError) as caught:
        ray_cluster.run(
            ray_cluster.failing(tmp_path),
            ray_cluster.two,
            engine="serial",
            **ray_cluster.WHOLE_ROUNDS,
        )
    error = caught.value
    assert runs["fails"]["places"] == [error.worker, error.round, error.iteration] == [1, 1, 3]
    assert runs["fails"]["text"] == str(error)


@on_a_cluster
def test_node_that_is_lost_in_mid_run(runs: Runs) -> None:
    expected = ray_cluster.run(
        "lr", (ray_cluster.X, ray_cluster.Y), method="des-mr", engine="serial"
    )
    assert_same(runs["node"], ray_cluster.summary(expected))
    assert runs["node"]["warnings"]
    if len(runs["node"]["warnings"]) == 1:  # a busy machine may lose another actor
        assert runs["node"]["repeated"] == [0, 0, 2, 2], "the two workers that were there"
    assert runs["still"]["connected"], "only what the engine has begun is ended by it"


@on_a_cluster
def test_driver_that_was_killed_resumes(runs: Runs) -> None:
    assert runs["killed"]["code"] == -9
    assert_same(runs["driver"], serial("des-mr"))
    assert not runs["driver"]["connected"]


@on_a_cluster
def test_local_start_leaves_nothing_behind(runs: Runs) -> None:
    assert runs["ended"]["code"] == 0
    assert_same(runs["local"], serial("des-mr"))
    assert not runs["local"]["connected"]
    assert (runs["local"]["left"], runs["local"]["home"]) == ([], [])


# --- without a cluster -----------------------------------------------------------------------


def test_without_ray_the_error_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "import desopt\n"
        "desopt.minimize(lambda x: x @ x, [1.0], engine='ray', rounds=1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install 'desopt[ray]'")


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_the_store_look_like_ours(order: Any) -> None:
    array = np.arange(12.0).reshape(3, 4).copy(order=order)
    array.flags.writeable = False
    seen = as_writeable(array)
    assert seen.flags.writeable
    assert np.shares_memory(seen, array)
    assert seen.strides == array.strides
    assert np.array_equal(seen, array)


def test_group_follows_answers_and_asks_when_it_is_astray() -> None:
    algorithm = DES(iterations=8, seed=3)
    fun = PythonObjective(lambda x: float(x @ x - x.sum()))
    job = Job(algorithm, fun, as_shards(None, 3, 0), 1, 3, 5)
    server = Server(algorithm, algorithm.init(np.ones(5)), 3)
    server.admit("group", range(3))
    code, shards = separate(job)[0], separate(job.shards)[0]
    group = actor.Group()
    assert group.load(server.run, (0, 1), code, shards, 0) == messages.READY
    for _ in range(3):
        for reply in messages.unpack_list(group.work(server.message_for("group"))):
            server.receive("group", reply)
        expected = [job.work(algorithm.plan(server.state), worker) for worker in range(3)]
        assert [a.payload for a in expected] == [server.answers[w].payload for w in range(3)]
        server.finish_round()
    stray = server.message_for("group")[:-1]
    (question,) = messages.unpack_list(group.work(stray))
    assert server.receive("group", question) is None
    assert not server.refused, "a question is nothing to refuse"
    (total,) = messages.unpack_list(group.totals(server.message_for("group"), [2]))
    server.receive("group", total)
    assert server.totals[2].total == job.total(server.state.x, 2)[0]
    server.receive("group", total)
    assert server.refused == {Reason.DUPLICATE: 1}


def test_group_that_cannot_be_unpacked_says_why() -> None:
    reply = actor.Group().load(bytes(8), (0, 1), b"no pickle", separate([])[0], 0)
    assert reply[:1] == messages.ERROR
    assert "UnpicklingError" in str(messages.unpack_error(reply))
