"""Cases, replies and small studies for the tests of studies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from desopt.studies import study
from desopt.studies.cases import make_case
from desopt.studies.datasets import digest_if_available
from desopt.studies.leases import Session
from desopt.studies.store import Store

CASE = make_case(
    data="ijcnn1", problem="lr", method="des-mr", step_size=1, run=0, iterations=100, budget=1000
)
SHORT = replace(
    CASE, data="d", workers=4, iterations=10, batch_size=20, rounds=7, budget=None, points=3
)


def reply_of(losses: list[float]) -> dict[str, Any]:
    points = [
        [t, 10_100 * t, 10_100_000 * t, 630 * t, 6300 * t, 512_345 * t, loss, 17 * t, loss, 0]
        for t, loss in enumerate(losses)
    ]
    facts = {"name": "d", "train_rows": 400, "test_rows": 100, "n": 3, "density": 0.5,
             "generated": 1, "origin": "drawn"}  # fmt: skip
    result = {"rounds": 9, "paper_rounds_each": 0.5, "seconds": 1.5, "cpu_seconds": 1.4,
              "wall_seconds": 1.7, "seed": 0}  # fmt: skip
    return {"result": result, "data": facts, "points": points}


TOML = """
name = "s"
data = ["mine.csv"]
problems = ["lr"]
methods = {methods}
runs = {runs}
rounds = 3
[items.a]
[items.b]
momentum = [0.1, 0.2]
"""


def defined(folder: Path, methods: str = '["des", "des-mr"]', runs: int = 2) -> study.Study:
    path = folder / "s.toml"
    path.write_text(TOML.format(methods=methods, runs=runs))
    return study.from_toml(path)


def data_file(folder: Path, values: str) -> None:
    (folder / "mine.csv").write_text("label,a\n" + "".join(f"1,{v}\n-1,{v}\n" for v in values))


def pretend(chosen: study.Study, folder: Path, loss: float, data_dir: Path) -> None:
    """What ``study.run`` does, without the work."""
    where = str(data_dir)
    chosen = chosen.with_digests({name: digest_if_available(name, where) for name in chosen.data})
    with Store.open(folder, create=True) as store:
        store.define(chosen.items, study.CurrentCases(chosen, where, chosen.data))
        session = Session(store)
        for case in chosen.cases:
            if session.claim(case) == "mine":
                session.finish(case, "", reply_of([1.0, loss]))
        session.leave()
