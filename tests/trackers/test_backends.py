"""Each tracker against its real back end, read back by the back end's own code."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.watched import ROUNDS, search

from desopt import trackers

pytestmark = pytest.mark.filterwarnings("default")  # of other packages


def columns(result: Any) -> dict[str, list[tuple[int, float]]]:
    """By name: rounds and values, as a tracker should have them."""
    names = [name for name in result.history[0] if name != "round"]
    return {
        name: [(row["round"], float(row[name])) for row in result.history if row[name] == row[name]]
        for name in names
    }


def test_tensorboard_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard: make trackers")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    folder = tmp_path / "events"
    half: dict[str, Any] = {"callbacks": [trackers.TensorBoard(str(folder))], "eval_every": 3}
    search(tmp_path / "a.journal", ROUNDS // 2, **half)
    half["callbacks"] = [trackers.TensorBoard(str(folder))]
    result = search(tmp_path / "a.journal", **half)  # resumed
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    found.Reload()
    for name, expected in columns(result).items():
        events = found.Tensors(f"desopt/{name}")
        assert [event.step for event in events] == [step for step, _ in expected]
        values = [float(tensor_util.make_ndarray(event.tensor_proto)) for event in events]
        assert values == pytest.approx([value for _, value in expected], rel=1e-6)  # float32


def pressed(row: Any) -> None:
    """Ctrl-C in the midst of a run, on a row that is evaluated."""
    if row["round"] == ROUNDS // 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("store", ["sqlite", "file"])
def test_mlflow_stores(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="needs the extra mlflow: make trackers")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = f"sqlite:///{tmp_path}/runs.db" if store == "sqlite" else (tmp_path / "runs").as_uri()
    tracker = trackers.MLflow(uri, run_name="first")
    settings: dict[str, Any] = {"eval_every": 3}
    client = MlflowClient(uri)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "a.journal", callbacks=[tracker, pressed], **settings)
    assert client.get_run(tracker.run_id).info.status == "KILLED"
    again = trackers.MLflow(uri, run_id=tracker.run_id)
    seen = []
    told = [again, lambda row: seen.append(client.get_run(again.run_id).info.status)]
    result = search(tmp_path / "a.journal", callbacks=told, **settings)
    assert set(seen) == {"RUNNING"}  # not finished, as it was before
    (run,) = client.search_runs([client.get_experiment_by_name("desopt").experiment_id])
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.data.params["method.name"] == "des-mr"
    assert run.data.params["workers"] == "3"
    for name, expected in columns(result).items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [(metric.step, metric.value) for metric in history] == expected


def logged(data: bytes, block: int = 2**15) -> Iterator[bytes]:
    """The records of an offline run: a header, then LevelDB's log format in blocks."""
    assert data[:4] == b":W&B"
    at, parts = 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:  # padding
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_wandb_beside_a_run_that_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb: make trackers")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("WANDB_SILENT", "true")
    offline = {"mode": "offline", "dir": str(tmp_path)}
    own = wandb.init(project="own", **offline)
    both = [trackers.WandB(project=name, **offline) for name in "ab"]
    search(tmp_path / "a.journal", callbacks=both)
    own.log({"after": 1})  # an error once it is finished
    own.finish()
    wandb.teardown()
    assert len(list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))) == 3


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb: make trackers")
    from wandb.proto import wandb_internal_pb2

    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = trackers.WandB(
        project="mine", mode="offline", dir=str(tmp_path), config={"note": "<b>"}
    )
    result = search(tmp_path / "a.journal", callbacks=[tracker], eval_every=3)
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "b.journal", callbacks=[tracker, pressed])
    wandb.teardown()  # ends its own process, which outlives runs
    (broken,) = {*tmp_path.glob("wandb/offline-run-*/run-*.wandb")} - {file}
    codes = []
    for data in (data for path in (file, broken) for data in logged(path.read_bytes())):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("exit"):
            codes.append(record.exit.exit_code)
    assert codes == [0, 1]
    config: dict[str, Any] = {}
    found: dict[str, list[Any]] = {}
    for data in logged(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in record.history.item:
            name = item.key or ".".join(item.nested_key)
            found.setdefault(name, []).append(
                (record.history.step.num, json.loads(item.value_json))
            )
        for item in record.run.config.update:
            config[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    for name, expected in columns(result).items():
        assert found[name] == expected
    assert config["method.name"] == "des-mr"
    assert config["note"] == "<b>"
