"""Flower's simulation of the example's federation; test_federate.py runs it where it may.

Prints whether its x has the bits of a serial run. Ray is inside Flower's simulation, and takes
the machine's own address: so it is run in a network with nothing but loopback.
"""

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import desopt

ROUNDS = 3
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "federation"
SETTINGS: dict[str, Any] = {"workers": 3, "iterations": 400, "batch_size": 500, "step_size": 0.1}
APP = f"""
from desopt.federate import client_app, server_app
from run import N, make_shard

server = server_app("lr", n=N, **{SETTINGS})
client = client_app("lr", lambda config: make_shard(config["partition-id"]))
"""


def load(script: Path) -> Any:
    """The example's script as a module."""
    spec = importlib.util.spec_from_file_location("federation_example", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: Path) -> None:
    app, journal = folder / "app", folder / "run.journal"
    app.mkdir()
    for name in ("run.py", "pyproject.toml"):
        shutil.copy(EXAMPLE / name, app)
    (app / "logistic.py").write_text(APP)
    code = load(EXAMPLE / "run.py")
    with code.Deployment(folder, "--simulation") as deployment:
        config = f'rounds={ROUNDS} journal="{journal}"'
        nodes = "--federation-config", "num-supernodes=3"
        deployment.run(app, config, *nodes).wait(1600)
        if not journal.exists():
            raise SystemExit(deployment.log("run"))
    shards = [code.make_shard(worker) for worker in range(3)]
    x = desopt.minimize("lr", None, shards, rounds=ROUNDS, engine="serial", **SETTINGS).x
    print(f"same bits: {desopt.replay(journal).tobytes() == x.tobytes()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
