"""What an operator sees of a federation, and the model that its sites share."""

from __future__ import annotations

import functools
import http.server
import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import desopt

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'desopt[flower]'")

from flwr.supercore.task_identity import TaskIdentity
from helpers.loopback import SETTINGS, WORKERS, Clock, Loopback, N, federated, kinds, run, shard

from desopt.data.splits import held_out
from desopt.federate import client_app, server_app
from desopt.objectives.inputs import Inputs, Moments, PreparedModel
from desopt.objectives.metrics import auc
from desopt.protocol import wire
from desopt.run.sites import status

SITES = ("hospital-a", "hospital-b", "hospital-c")
NAMES = [f"c{i}" for i in range(5)]


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message carries who made it, which Flower tells each of its own processes."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.of_a_test(monkeypatch)


def named(grid: Loopback, **more: str) -> Loopback:
    """The grid, with sites in the nodes' configurations."""
    for site, context in zip(SITES, grid.contexts.values(), strict=True):
        context.node_config |= {"site": site, **{k: v.format(site) for k, v in more.items()}}
    return grid


def rows(worker: int) -> tuple[Any, Any]:
    """A site's rows: columns of different sizes, some values missing, another mean at each site."""
    X = shard(worker)[0]
    X = X[:, :5] * [1.0, 10.0, 100.0, 1.0, 1.0] + [worker, 5.0, 1000.0, 0.0, 0.0]
    X[worker::7, 2] = np.nan
    return X, np.where(X[:, 0] > worker, 1.0, -1.0)


def frame(config: Mapping[str, Any]) -> tuple[Any, Any]:
    X, y = rows(config["partition-id"])
    columns = {name: X[:, i] for i, name in enumerate(NAMES)}
    return {"patient": ["x"] * len(y), **dict(reversed(columns.items()))}, y


def trained(grid: Loopback, **more: Any) -> desopt.Result:
    """A run of a table by name, through the ServerApp."""
    found: list[desopt.Result] = []
    settings: dict[str, Any] = {
        "rounds": 4, "poll": 0.01, "columns": NAMES, "standardize": True, "intercept": True,
    }  # fmt: skip
    run(
        server_app("lr", workers=WORKERS, finished=found.append, **settings | SETTINGS | more), grid
    )
    return found[0]


# --- lines, names, status --------------------------------------------------------------------


def test_every_round_is_one_line_with_the_sites_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    grid, path = named(Loopback()), tmp_path / "run.journal"
    grid.mishap = lambda node, round: "lost" if node == 11 and round == 2 else ""
    result = federated(grid, rounds=4, journal=path, deadline=41.0, progress=None, poll=0.1)
    lines = capsys.readouterr().out.splitlines()
    losses = result.history["loss"]
    assert lines[0] == f"round 1/4 loss {losses[0]:.5g} answered 3 of 3"
    silent = re.fullmatch(
        r"round 3/4 loss \S+ answered 2 of 3, missing: 1 \(hospital-b, (\d+) s\)", lines[2]
    )
    assert silent is not None
    assert 41 <= int(silent[1]) <= 43
    assert len(lines) == 5
    up = result.history["bytes_up"][-1]
    assert lines[4].startswith(
        f"done: 4 rounds done (engine flower); loss {losses[-1]:.5g}, {up:,.0f} bytes"
    )
    assert "hospital-b: error 3, expired" in caplog.text
    assert "node 1" not in caplog.text + "".join(lines)

    found = status(path)
    assert (found["rounds"], found["of"], found["loss"]) == (4, 4, losses[-1])
    assert [(site["site"], site["answered"], site["last_round"]) for site in found["sites"]] == [
        ("hospital-a", 4, 4), ("hospital-b", 3, 4), ("hospital-c", 4, 4),
    ]  # fmt: skip
    assert [each["missing"] for each in found["recent"]] == [[], [], ["hospital-b"], []]
    assert found["ended"] == result.message


def test_a_long_wait_is_announced_every_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    grid = named(Loopback())
    grid.mishap = lambda node, round: "lost" if node == 12 and round == 1 else ""
    federated(grid, rounds=2, deadline=200.0, progress=None, poll=1.0)
    lines = [line for line in capsys.readouterr().out.splitlines() if "waiting" in line]
    assert [line.partition(";")[0] for line in lines] == [
        f"round 2: {seconds} s, waiting for hospital-c" for seconds in (61, 122, 183)
    ]


def test_a_wait_for_the_last_loss_names_the_round_that_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There is no round after the last one, and all have answered that."""
    grid = named(Loopback())
    grid.mishap = lambda node, round: "lost" if node == 12 and round == 2 else ""
    federated(grid, rounds=2, deadline=100.0, progress=None, poll=1.0)
    lines = [line for line in capsys.readouterr().out.splitlines() if "waiting" in line]
    assert [line.partition(";")[0] for line in lines] == [
        "loss after round 2: 61 s, waiting for hospital-c"
    ]


def test_failures_name_the_site(tmp_path: Path) -> None:
    def load(config: Mapping[str, Any]) -> Any:
        if config["partition-id"] == 1:
            raise OSError("no such disk")
        return shard(config["partition-id"])

    grid, path = named(Loopback(app=client_app("lr", load))), tmp_path / "run.journal"
    with pytest.raises(
        desopt.EngineError, match=r"of hospital-b failed 3 times(.|\n)*no such disk"
    ):
        federated(grid)
    federated(grid, journal=path, min_answers=2, rounds=2)
    found = status(path)
    assert any("hospital-b: ObjectiveError: loader failed" in line for line in found["troubles"])


def test_a_run_that_fails_says_so_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(row: Any) -> None:
        raise RuntimeError("the disk is full")

    path = tmp_path / "run.journal"
    with pytest.raises(RuntimeError, match="the disk is full"):
        federated(Loopback(), journal=path, progress=None, callbacks=[die])
    assert capsys.readouterr().out.splitlines()[-1] == "failed: the disk is full"
    assert status(path)["ended"] == "failed: the disk is full"


def test_names_survive_a_restart_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, path = named(Loopback()), tmp_path / "run.journal"
    federated(grid, rounds=2, journal=path)
    grid.absent = {12}
    federated(grid, rounds=3, journal=path, min_answers=2, progress=None)
    assert "answered 2 of 3, missing: 1 (hospital-c, never heard of)" in capsys.readouterr().out
    assert status(path)["starts"] == 2


def test_two_sites_of_one_name_are_told_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid, path = named(Loopback()), tmp_path / "run.journal"
    grid.contexts[12].node_config["site"] = "hospital-b"
    grid.mishap = lambda node, round: "late" if node == 12 and round == 0 else ""
    with caplog.at_level("INFO"):
        federated(grid, rounds=3, journal=path, min_answers=2, eval_every=0)
    sites = [site["site"] for site in status(path)["sites"]]
    assert sites == ["hospital-a", "hospital-b", "hospital-b (worker 2)"]
    assert "refused a message of hospital-b (worker 2): late" in caplog.text


def test_a_name_cannot_write_on_the_operators_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    grid = Loopback()
    grid.contexts[11].node_config["site"] = "x\x1b[2J\n" + "y" * 100
    grid.mishap = lambda node, round: "lost" if node == 11 and round == 1 else ""
    federated(grid, rounds=2, deadline=5.0, progress=None)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert f"missing: 1 (x [2J {'y' * 58}, 5 s)" in out


# --- a state that is fetched -----------------------------------------------------------------

X0 = np.linspace(-1.0, 1.0, N)  # not zero: a node that joins needs the state


def started(grid: Loopback, **more: Any) -> desopt.Result:
    found: list[desopt.Result] = []
    settings = SETTINGS | {"rounds": 3, "workers": WORKERS, "poll": 0.01, "progress": False} | more
    run(server_app("lr", X0, finished=found.append, **settings), grid)
    return found[0]


def expected(**more: Any) -> desopt.Result:
    shards = [shard(worker) for worker in range(WORKERS)]
    return desopt.minimize("lr", X0, shards, engine="serial", **SETTINGS | {"rounds": 3} | more)


class _Web(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("place", ["file", "url", "nowhere", "garbage", "another run's"])
def test_a_node_fetches_the_state_where_it_is_told_or_is_sent_it(
    place: str, tmp_path: Path
) -> None:
    published, source = tmp_path / "state", str(tmp_path / "state")
    if place == "garbage":
        source = str(tmp_path / "other")
        Path(source).write_bytes(b"x" * 100)
    elif place == "another run's":
        source = str(tmp_path / "other")
        started(Loopback(), snapshot=source)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Web, directory=str(tmp_path))
    ) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        if place == "url":
            source = f"http://127.0.0.1:{web.server_port}/state"
        elif place == "nowhere":
            source = str(tmp_path / "none")
        grid = named(Loopback(), snapshot=source)
        found = started(grid, snapshot=published)
        web.shutdown()
        thread.join()
    assert found.x.tobytes() == expected().x.tobytes()
    sent = kinds(grid).count(wire.SNAPSHOT)
    assert sent == (0 if place in ("file", "url") else WORKERS)


def test_a_state_of_float32_is_half_as_long_and_the_same_for_everybody(tmp_path: Path) -> None:
    """Also for a node that lost it, and needs momentum and all."""
    lengths = []
    for float32 in (False, True):
        grid, lost = Loopback(), [2]
        grid.mishap = lambda node, round, lost=lost: (  # type: ignore[misc]
            "gone" if node == 11 and round in lost and not lost.remove(round) else ""
        )
        settings: dict[str, Any] = {"float32": float32, "rounds": 5}
        found = started(grid, journal=tmp_path / f"{float32}.journal", **settings)
        assert found.x.tobytes() == expected(**settings).x.tobytes()
        assert kinds(grid).count(wire.SNAPSHOT) == WORKERS + 1
        assert desopt.replay(tmp_path / f"{float32}.journal").tobytes() == found.x.tobytes()
        lengths.append(len(grid.sent[0][2]["message"]))
    assert found.x.tobytes() == found.x.astype(np.float32).astype(np.float64).tobytes()
    assert lengths[1] < lengths[0]
    with pytest.raises(ValueError, match="es-csa does not take float32; the methods that do are"):
        expected(float32=True, method="es-csa")


# --- a table of columns ----------------------------------------------------------------------


def test_a_table_is_standardised_over_all_sites_and_trained_as_in_one_place(
    tmp_path: Path,
) -> None:
    """Against ``minimize`` on tables prepared here, from the pooled moments: the same bits."""
    app = client_app("lr", frame, held_out=0.25, metrics={"auc": auc})
    grid = named(Loopback(app=app), model=str(tmp_path / "{}.json"))
    path = tmp_path / "model.json"
    found = trained(grid, model=str(path), journal=tmp_path / "run.journal")
    parts = [(*rows(w), *held_out(30 + w, 0.25)) for w in range(WORKERS)]
    moments = [Moments.of(X[train]) for X, _, train, _ in parts]
    inputs = Inputs(tuple(NAMES), intercept=True).standardised(moments)
    shards = [(inputs.apply(X[train]), y[train]) for X, y, train, _ in parts]
    expected = desopt.minimize(
        PreparedModel("lr", 1e-6, inputs), None, shards, rounds=4, engine="serial", **SETTINGS
    )
    assert found.x.tobytes() == expected.x.tobytes()
    pooled = np.concatenate([X[train] for X, _, train, _ in parts])
    assert inputs.means == pytest.approx(np.nanmean(pooled, 0), rel=1e-12)
    assert inputs.scales == pytest.approx(np.nanstd(pooled, 0), rel=1e-12)

    model = desopt.load_model(path)
    assert model.inputs == inputs
    assert (*model.weights, model.intercept) == tuple(found.x)
    assert model.provenance["x"] == found.digest
    for site, (X, y, _, test) in zip(SITES, parts, strict=True):
        assert (tmp_path / f"{site}.json").read_bytes() == path.read_bytes()
        score = model.decision_function(dict(zip(NAMES, X[test].T, strict=True)))
        assert found.metrics[site]["rows"] == test.size
        assert found.metrics[site]["auc"] == pytest.approx(auc(y[test], score))
    assert status(tmp_path / "run.journal")["metrics"] == found.metrics


def test_statistics_are_sent_once_also_when_the_server_starts_again(tmp_path: Path) -> None:
    questions: list[int] = []
    honest = client_app("lr", frame)

    def app(message: Any, context: Any) -> Any:
        questions.append(message.metadata.message_type == "query")
        return honest(message, context)

    path = tmp_path / "run.journal"
    first = trained(Loopback(app=app), journal=path, rounds=2)
    assert sum(questions) == WORKERS
    again = trained(Loopback(app=app), journal=path, rounds=4)
    assert sum(questions) == WORKERS
    assert again.x.tobytes() == trained(Loopback(app=app)).x.tobytes() != first.x.tobytes()
    with pytest.raises(desopt.JournalError, match="belongs to a run of another configuration"):
        trained(Loopback(app=app), journal=path, columns=NAMES[:4])


def test_a_site_without_a_column_ends_the_run_with_its_name() -> None:
    def load(config: Mapping[str, Any]) -> Any:
        columns, y = frame(config)
        columns["c2"] = np.nan_to_num(columns["c2"])
        if config["partition-id"] == 1:
            del columns["c3"]
        return columns, y

    for standardize in (True, False):
        grid = named(Loopback(app=client_app("lr", load)))
        with pytest.raises(desopt.EngineError, match=r"hospital-b (.|\n)*without 'c3'; it has"):
            trained(grid, standardize=standardize)


def test_a_site_that_is_late_is_standardised_by_the_others(tmp_path: Path) -> None:
    grid = named(Loopback(app=client_app("lr", frame)), model=str(tmp_path / "{}.json"))
    grid.absent = {12}
    found = trained(
        grid, min_answers=2, deadline=50.0, callbacks=[lambda row: grid.absent.clear()],
        model=str(tmp_path / "model.json"),
    )  # fmt: skip
    moments = [Moments.of(rows(worker)[0]) for worker in range(2)]
    inputs = Inputs(tuple(NAMES), intercept=True).standardised(moments)
    assert desopt.load_model(tmp_path / "model.json").inputs == inputs
    late = (tmp_path / "hospital-c.json").read_bytes()
    assert late == (tmp_path / "model.json").read_bytes()
    assert found.nit == 4


def test_a_run_waits_for_its_first_sites_however_long_they_take(clock: Clock) -> None:
    grid = named(Loopback(app=client_app("lr", frame)))

    def nodes() -> list[int]:
        return Loopback.get_node_ids(grid) if clock.monotonic() > 200.0 else []

    grid.get_node_ids = nodes  # type: ignore[method-assign]
    assert trained(grid, deadline=50.0, poll=1.0).nit == 4


@pytest.mark.parametrize(
    "found",
    [
        "", "{}", "[1]", "x",
        json.dumps({"counts": [1] * 5, "means": [0.0] * 5, "squares": [-1.0] * 5}),
        json.dumps({"counts": [10**30] * 5, "means": [0.0] * 5, "squares": [1.0] * 5}),
    ],
)  # fmt: skip
def test_strange_moments_are_refused(found: str) -> None:
    honest = client_app("lr", frame)

    def app(message: Any, context: Any) -> Any:
        reply: Any = honest(message, context)
        if context.node_id == 11 and message.metadata.message_type == "query":
            reply.content["desopt"]["found"] = found
        return reply

    with pytest.raises(desopt.EngineError, match="node 11 has not the columns"):
        trained(Loopback(app=app))


def test_strange_metrics_are_left_out() -> None:
    """A whole number that no float can hold, at the end of a run that has cost days."""
    honest = client_app("lr", frame)

    def app(message: Any, context: Any) -> Any:
        reply: Any = honest(message, context)
        if context.node_id == 11 and message.metadata.message_type == "evaluate":
            huge = "9" * 400
            reply.content["desopt"]["found"] = f'{{"auc": {huge}, "f1": -{huge}, "rows": 3}}'
        return reply

    found = trained(named(Loopback(app=app)))
    assert found.nit == 4
    assert found.metrics["hospital-b"] == {"rows": 3}


def test_settings_of_a_table_are_checked() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"n": 3, "columns": NAMES}, "give either x0"),
        ({"n": 3, "standardize": True}, "give columns=NAMES"),
        ({"columns": NAMES, "fun": max}, "are for the linear models"),
        ({"columns": ["a", "a"]}, "more than one column is called 'a'"),
    )
    for settings, message in cases:
        with pytest.raises(ValueError, match=message):
            run(server_app(**{"fun": "lr", **settings}), Loopback())
    with pytest.raises(ValueError, match="give held_out"):
        client_app("lr", frame, metrics=["auc"])
