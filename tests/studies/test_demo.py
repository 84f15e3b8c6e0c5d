"""The demo ends in numbers that make sense and a picture that can be opened."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

from desopt.contract.types import FloatArray
from desopt.protocol import wire
from desopt.studies import demo


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo.run(tmp_path_factory.mktemp("demo"), quick=True)


@pytest.fixture(scope="module")
def last(picture: Path) -> dict[str, dict[str, str]]:
    """The last line of every method in the file of numbers."""
    with picture.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


def test_picture_is_written_in_both_formats(picture: Path) -> None:
    assert picture.read_bytes().startswith(b"\x89PNG")
    svg = picture.with_suffix(".svg").read_text(encoding="utf-8")
    assert svg.rstrip().endswith("</svg>")


def test_every_method_improves_on_the_start(last: dict[str, dict[str, str]]) -> None:
    assert set(last) == set(demo.BEST_STEP)
    optimum = demo.load().optimum
    for row in last.values():
        # ln 2 is the loss at x = 0; nothing is below the optimum.
        assert optimum * (1 - 1e-9) <= float(row["loss"]) < np.log(2)


def test_des_comes_near_the_optimum(last: dict[str, dict[str, str]]) -> None:
    problem = demo.load()
    best = min((last[name] for name in ("des", "des-mg", "des-mr")), key=lambda r: float(r["loss"]))
    assert float(best["loss"]) <= 1.02 * problem.optimum
    assert float(best["test_error"]) <= problem.optimum_error + 0.03


def test_des_sends_bits_and_the_others_numbers(last: dict[str, dict[str, str]]) -> None:
    rounds = int(last["des-mr"]["round"])
    sent = demo.WORKERS * (wire.OVERHEAD + -(-demo.ITERATIONS // 8)) * rounds
    assert int(last["des-mr"]["bytes_up"]) == sent
    assert int(last["fed-zo-gd"]["bytes_up"]) >= demo.WORKERS * demo.ITERATIONS // 2 * 8 * rounds


def test_optimum_is_that_of_the_objective_that_desopt_minimises() -> None:
    problem = demo.load()

    def loss(x: FloatArray) -> float:
        margins = problem.labels * (problem.rows @ x)
        return float(np.logaddexp(0, -margins).mean() + demo.REGULARIZATION / 2 * (x @ x))

    found = scipy.optimize.minimize(loss, np.zeros(64), method="BFGS", options={"gtol": 1e-5})
    assert problem.optimum == pytest.approx(found.fun, rel=1e-6)
    assert problem.optimum_error == pytest.approx(problem.test_error(found.x), abs=0.01)


@pytest.mark.parametrize("package", ["sklearn.datasets", "matplotlib"])
def test_missing_package_is_named_with_the_command(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'desopt\[sklearn,report\]'"):
        demo.run(tmp_path / "never", quick=True)
    assert not (tmp_path / "never").exists()
