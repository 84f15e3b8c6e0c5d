"""``desopt suite bbob`` with the real COCO: ``make benches`` installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from desopt.studies import bbob

cocoex = pytest.importorskip("cocoex", reason="needs COCO: make benches")


def suite(folder: Path, *only: str) -> str:
    command = [sys.executable, "-m", "desopt", "suite", "bbob", "--scale", "smoke", "--jobs", "2"]
    command += ["--out", str(folder), *(f"--only={each}" for each in only)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_cocopp_reads_what_was_observed(tmp_path: Path) -> None:
    said = suite(tmp_path, "bbob:es-csa,des-mr-auto", "bbob-noisy:cma-es")
    assert "3 parts done" in said
    code = (
        "import sys, cocopp.pproc\n"
        "for folder in sys.argv[1:]:\n"
        "    found = cocopp.pproc.processInputArgs([folder], True)[0]\n"
        "    ids = {d.algId for d in found}\n"
        "    print(len(found), *ids, {d.dim for d in found}, max(d.mMaxEvals() for d in found))"
    )
    folders = [str(tmp_path / f) for f in ("bbob/es-csa", "bbob/des-mr-auto", "bbob-noisy/cma-es")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *folders], cwd=tmp_path, text=True, check=True,
        capture_output=True,
    )  # fmt: skip
    read = [line for line in done.stdout.splitlines() if "{2}" in line]
    assert [line.split()[:3] for line in read] == [
        ["24", "es-csa", "{2}"],
        ["24", "des-mr-auto", "{2}"],
        ["30", "cma-es", "{2}"],
    ]
    assert all(float(line.split()[-1]) <= 20 for line in read)  # 10 n
    table = bbob.export_csv(bbob.parts("smoke"), tmp_path).read_text().splitlines()
    assert len(table) == 1 + 24 + 24 + 30  # an instance of each function


def test_an_interrupted_part_begins_anew_and_others_stay(tmp_path: Path) -> None:
    only = "bbob:es-csa,cma-es"
    suite(tmp_path, only)
    kept, lost = (tmp_path / part.folder for part in bbob.parts("smoke", [only]))
    before = kept.stat().st_mtime_ns
    cut = lost.rename(lost.with_name(f"{lost.name}.part"))
    (cut / "bbobexp_f1.info").write_text("torn")
    assert bbob.left(bbob.parts("smoke", [only]), tmp_path) == bbob.parts("smoke", ["bbob:cma-es"])
    suite(tmp_path, only)
    assert kept.stat().st_mtime_ns == before
    assert [path.name for path in lost.parent.iterdir()] == [lost.name]
    assert "torn" not in (lost / "bbobexp_f1.info").read_text()


def test_runs_begin_again_until_the_target_or_the_budget() -> None:
    sphere, rastrigin = (
        cocoex.Suite("bbob", "instances: 1", f"dimensions: 3 function_indices: {f}").get_problem(0)
        for f in (1, 3)
    )
    settings = bbob.SOLVERS["es-csa"]
    assert bbob.solve(sphere, settings, 3000) == 1
    assert sphere.final_target_hit
    assert sphere.evaluations < 1000
    assert bbob.solve(rastrigin, settings, 3000) > 1
    assert 2900 < rastrigin.evaluations <= 3000
