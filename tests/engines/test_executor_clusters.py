"""Executors of Dask and MPI: the bits of serial runs, also after ``kill -9`` of a process.

All on this machine: Dask through loopback, MPI through memory.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import executor_runs
from helpers.executor_runs import run, sphere, summary

Told = dict[str, dict[str, Any]]

_INSTALL = "is not installed: pip install 'desopt[executors]'"


@functools.cache
def serial() -> dict[str, Any]:
    return summary(run("serial"))


def program(*command: str, **environment: str) -> tuple[int, Told, str]:
    """Exit code, what the runs told, and the rest of the output."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=os.environ | environment
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    told = {line.pop("run"): line for line in map(json.loads, lines)}
    return done.returncode, told, done.stdout[-2000:] + done.stderr[-6000:]


def assert_runs(told: Told) -> None:
    assert told["rounds"] == serial() | {"warnings": []}
    values = summary(run("serial", sphere, None, method="es-csa", workers=1))
    assert told["values"] == values | {"warnings": []}
    assert told["error"]["error"] == "ObjectiveError"
    assert re.search(r"worker \d, round 0\): ZeroDivisionError", told["error"]["said"])


def assert_same(found: dict[str, Any]) -> None:
    assert (found["x"], found["fun"]) == (serial()["x"], serial()["fun"])


@pytest.mark.timeout(1000)
def test_dask(tmp_path: Path) -> None:
    """A scheduler and two workers, whose nannies start them again."""
    if importlib.util.find_spec("distributed") is None:
        pytest.skip(f"Dask {_INSTALL}")
    script = [sys.executable, executor_runs.__file__, "dask", str(tmp_path)]
    code, told, output = program(*script)
    assert code == 0, output
    assert_runs(told)
    for name in ("dies", "dies in a value"):
        assert_same(told[name])
    assert (tmp_path / "died-0").exists()
    assert (tmp_path / "values" / "died-0").exists()
    found = told["dies and is told"]
    assert_same(found)
    assert found["repeated"] >= 1
    assert any("was lost (KilledWorker" in text for text in found["warnings"])


#: For Open MPI: any user, more processes than cores, messages through memory.
_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm", "PMIX_MCA_ptl_tcp_if_include": "lo",
}  # fmt: skip


@pytest.mark.timeout(2000)
def test_mpi(tmp_path: Path) -> None:
    """A dead process ends an MPI program; its journal resumes in the next one."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip(f"mpi4py {_INSTALL}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    mpiexec = shutil.which("mpiexec", path=path)
    if mpiexec is None:
        pytest.skip(f"mpiexec {_INSTALL}")
    script = [sys.executable, "-m", "mpi4py.futures", executor_runs.__file__, "mpi", str(tmp_path)]
    code, told, output = program(mpiexec, "-n", "3", *script, PATH=path, **_MPI)
    assert "error" in told, output
    assert_runs(told)
    assert code != 0, "a process was killed"
    assert "dies" not in told
    assert (tmp_path / "journal").exists()
    code, told, output = program(mpiexec, "-n", "3", *script, PATH=path, **_MPI)
    assert code == 0, output
    assert told["dies"]["x"] == serial()["x"]
