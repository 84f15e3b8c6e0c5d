"""The demo ends in sensible numbers and a plot, and is a study like any other."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from typer.testing import CliRunner

from desopt.cli.app import app, main
from desopt.contract.types import FloatArray
from desopt.methods.registry import COMPARED
from desopt.protocol import wire
from desopt.report.results import Series, best_steps, read_results
from desopt.studies import demo
from desopt.studies.execute import Split


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)])
    assert result.exit_code == 0, result.exception
    return result.stdout


@pytest.fixture(scope="module")
def series(folder: Path, printed: str) -> dict[str, Series]:
    return {s.case.method: s for s in best_steps(read_results(folder).item(demo.ITEM))}


def test_the_plot_is_written_in_both_formats(folder: Path, printed: str) -> None:
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "demo.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    for text in ("demo.png", "demo.svg", "DES-mR", "optimum", f"desopt report {folder}"):
        assert text in printed


def test_a_narrow_terminal_shows_every_number(
    folder: Path, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)]).stdout
    head = [line.rstrip() for line in printed.splitlines() if "DES" in line or "train loss" in line]
    assert len(head) > 4
    assert set(head) <= {line.rstrip() for line in narrow.splitlines()}


def test_every_compared_method_improves_on_the_start(
    folder: Path, series: dict[str, Series]
) -> None:
    assert set(series) == set(demo.BEST_STEPS) == set(COMPARED)
    best = demo.optimum(folder).train_loss
    for found in series.values():
        assert found.start == pytest.approx(np.log(2))  # at x = 0
        assert best * (1 - 1e-9) <= found.final() < found.start


def test_des_comes_near_the_optimum(folder: Path, series: dict[str, Series]) -> None:
    best = min((series[name] for name in ("des", "des-mg", "des-mr")), key=Series.final)
    optimum = demo.optimum(folder)
    assert best.final() <= 1.02 * optimum.train_loss
    assert best.final("test_error") <= optimum.test_error + 0.03


def test_des_sends_bits_and_the_others_numbers(series: dict[str, Series]) -> None:
    sent = demo.WORKERS * (wire.OVERHEAD + -(-demo.ITERATIONS // 8)) * demo.ROUNDS
    assert series["des-mr"].x["upload"][-1] == sent
    numbers = demo.WORKERS * demo.ITERATIONS // 2 * 8 * demo.ROUNDS
    assert series["fed-zo-gd"].x["upload"][-1] >= numbers


def test_the_same_command_shows_finished_results_at_once(folder: Path, printed: str) -> None:
    before = read_results(folder).outcomes[0].finished
    again = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)])
    assert "DES-mR" in again.stdout
    assert read_results(folder).outcomes[0].finished == before


def test_the_optimum_is_that_of_the_objective_that_desopt_minimises(tmp_path: Path) -> None:
    demo.write_digits(tmp_path)
    optimum, split = demo.optimum(tmp_path), Split.load(demo.DATA, None, str(tmp_path))

    def loss(x: FloatArray) -> float:
        margins = split.train.y * (split.train.X @ x)
        return float(np.logaddexp(0, -margins).mean() + demo.REGULARIZATION / 2 * (x @ x))

    found = scipy.optimize.minimize(loss, np.zeros(64), method="BFGS", options={"gtol": 1e-5})
    assert optimum.train_loss == pytest.approx(found.fun, rel=1e-6)
    error = np.mean(np.where(split.test.X @ found.x > 0, 1, -1) != split.test.y)
    assert optimum.test_error == pytest.approx(error, abs=0.01)


@pytest.mark.parametrize("package", ["sklearn.datasets", "matplotlib"])
def test_a_missing_package_is_named_with_the_command(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "argv", ["desopt", "demo", "--out", str(tmp_path / "never")])
    with pytest.raises(SystemExit):
        main()
    assert "pip install 'desopt[sklearn,report]'" in capsys.readouterr().err
    assert not (tmp_path / "never").exists()
