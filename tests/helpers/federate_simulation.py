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
APP = """
from hearts import COLUMNS, HOSPITALS, SETTINGS, load_shard
from desopt.federate import client_app, server_app


def load(config):
    return load_shard({{"data": f"{folder}/processed.{{HOSPITALS[config['partition-id']]}}.data"}})


server = server_app("lr", columns=COLUMNS, standardize=True, intercept=True, **SETTINGS)
client = client_app("lr", load, regularization=SETTINGS["regularization"])
"""


def load(script: Path) -> Any:
    """The example's script as a module."""
    sys.path.insert(0, str(script.parent))  # it imports its neighbour
    spec = importlib.util.spec_from_file_location("federation_example", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(code: Any, folder: Path, rounds: int) -> Any:
    """x of a serial run on the hospitals' files in a folder, without rows that are held out."""
    files = [folder / f"processed.{hospital}.data" for hospital in code.HOSPITALS]
    shards = [code.load_shard({"data": file}) for file in files]
    tables = [(code.Inputs(code.COLUMNS).table(columns), y) for columns, y in shards]
    moments = (code.Moments.of(X) for X, _ in tables)
    inputs = code.Inputs(code.COLUMNS, intercept=True).standardised(moments)
    settings = dict(code.SETTINGS)
    fun = code.PreparedModel("lr", settings.pop("regularization"), inputs)
    data = [(inputs.apply(X), y) for X, y in tables]
    return desopt.minimize(fun, None, data, rounds=rounds, engine="serial", **settings).x


def main(folder: Path) -> None:
    app, journal = folder / "app", folder / "run.journal"
    app.mkdir()
    code = load(EXAMPLE / "run.py")
    for number, hospital in enumerate(code.HOSPITALS):
        code.write_patients(folder / f"processed.{hospital}.data", number)
    shutil.copy(EXAMPLE / "hearts.py", app)
    project = (EXAMPLE / "pyproject.toml").read_text().replace("hearts:", "simulated:")
    (app / "pyproject.toml").write_text(project)
    (app / "simulated.py").write_text(APP.format(folder=folder))
    with code.Deployment(folder, "--simulation") as deployment:
        config = f'rounds={ROUNDS} journal="{journal}" model="{folder / "model.json"}"'
        nodes = "--federation-config", f"num-supernodes={len(code.HOSPITALS)}"
        deployment.run(app, config, *nodes).wait(1600)
        if not journal.exists():
            raise SystemExit(deployment.log("run"))
    x = train(code, folder, ROUNDS)
    print(f"same bits: {desopt.replay(journal).tobytes() == x.tobytes()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
