"""The benchmark in ``benchmarks/benchopt`` with the real benchopt: ``make benches`` installs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("benchopt", reason="needs benchopt: make benches")
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "benchopt"


def test_every_solver_gets_better(tmp_path: Path) -> None:
    import pandas as pd

    place = tmp_path / "benchmark"
    shutil.copytree(
        BENCHMARK, place, ignore=shutil.ignore_patterns("outputs", "__cache__", "__pycache__")
    )
    command = [sys.executable, "-m", "benchopt", "run", ".", "-d", "simulated[rows=2000,n=20]"]
    command += ["-s", "desopt", "-s", "spsa", "-o", "linear model[loss=lr]", "-n", "4", "-r", "1"]
    command += ["--no-plot", "--no-html", "--output", "smoke"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (place / "outputs").glob("smoke*.parquet")
    found = pd.read_parquet(file)
    solvers = dict(iter(found.groupby("solver_name")))
    assert len(solvers) == 8
    for name, rows in solvers.items():
        values = rows.sort_values("stop_val")["objective_value"].to_numpy()
        assert values[0] == pytest.approx(0.693147, abs=1e-6), name  # x = 0
        assert values[-1] < (0.9 if "desopt" in name else 1.0) * values[0], name
        assert len(values) > 2, name
