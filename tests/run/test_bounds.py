"""Bounds, scales and constraints from end to end, for every method."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import bits as golden
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint

import desopt
from desopt import METHODS
from desopt.contract.errors import JournalError, ObjectiveError
from desopt.run import folder, journal

Vector = NDArray[np.float64]

LOWER, UPPER = [0.0, -1.0, 10.0, 1e-6, 2.5], [1.0, 1.5, 1e4, 1.0, 2.5]
OPTIMUM, UNITS = [0.5, 2.0, 300.0, 1e-3, 0.0], [1.0, 1.0, 100.0, 1e-3, 1.0]
X0 = [0.1, 0.0, 100.0, 0.1, 2.5]
OBSERVE = {
    what: [name for name, m in METHODS.items() if what in m.algorithm.observes]
    for what in ("bounds", "constraints")
}


def inside(x: Vector) -> bool:
    return bool(np.all((x >= LOWER) & (x <= UPPER)) and x[4] == 2.5)


def parabola(x: Vector) -> float:
    """It fails for a point out of bounds, so that none can be evaluated unnoticed."""
    if not inside(x):
        raise RuntimeError(f"{x} is out of bounds")
    return float(np.sum(((x - OPTIMUM) / UNITS) ** 2))


def too_much(x: Vector) -> list[float]:
    """The optimum of ``parabola`` within bounds violates the first one."""
    return [x[0] + x[1] - 1.75, -x[2]]


def run(method: str, fun: Any = parabola, **changes: Any) -> Any:
    small = METHODS[method].pairs and method != "feedsign"
    settings: dict[str, Any] = {
        "bounds": list(zip(LOWER, UPPER, strict=True)), "method": method, "workers": 2,
        "scale": ["linear", None, "log", "log", "linear"], "rounds": 12, "iterations": 14,
        "step_size": 1e-2 if small else 1.0, "radius": 1e-3, "engine": "serial", "eval_every": 1,
        "progress": False,
    }  # fmt: skip
    return desopt.minimize(fun, X0, **settings | changes)


def test_which_methods_take_what() -> None:
    assert OBSERVE["bounds"] == list(METHODS)
    # a difference needs two values; so does what des-c learns from
    pairs = [name for name, m in METHODS.items() if m.pairs]
    assert OBSERVE["constraints"] == [m for m in METHODS if m not in (*pairs, "des-c")]


@pytest.mark.parametrize("method", METHODS)
def test_every_point_is_in_bounds_and_every_round_can_be_replayed(
    method: str, tmp_path: Path
) -> None:
    path, seen = tmp_path / "j", [np.array(X0)]

    def watch(row: Any) -> None:
        seen.append(row.x)

    result = run(method, journal=path, callbacks=watch)
    assert all(map(inside, seen))
    for t, x in enumerate(seen):
        np.testing.assert_allclose(desopt.replay(path, round=t), x, rtol=0 if t else 1e-13)
    assert result.x.tobytes() == seen[-1].tobytes() == desopt.replay(path).tobytes()
    assert inside(result.best_x)
    assert result.best_fun == pytest.approx(parabola(result.best_x))
    assert result.fun < result.initial_fun == pytest.approx(parabola(np.array(X0)))
    assert journal.read(path).header["config"]["n"] == 4, "the fixed variable is not searched"


@pytest.mark.parametrize("method", METHODS)
def test_resumed(method: str, tmp_path: Path) -> None:
    """With snapshots and without; the bounds are part of the run's identity."""
    whole = run(method)
    run(method, rounds=5, journal=tmp_path / "j", snapshot_every=3)
    resumed = run(method, journal=tmp_path / "j")
    assert resumed.x.tobytes() == whole.x.tobytes() == desopt.replay(tmp_path / "j").tobytes()
    assert resumed.best_x.tobytes() == whole.best_x.tobytes()
    with pytest.raises(JournalError, match=r"space\.upper is"):
        run(method, journal=tmp_path / "j", bounds=[(v, v + 1e4) for v in LOWER[:4]] + [(2.5, 2.5)])
    with pytest.raises(JournalError, match=r"space\.scale is"):
        run(method, journal=tmp_path / "j", scale="linear")


@pytest.mark.parametrize(("engine", "method"), [
    ("processes", "des-mr"), *(("threads", name) for name in ("des-mr", "es-csa", "fed-zo-gd")),
])  # fmt: skip
def test_engines(engine: str, method: str) -> None:
    constraints = too_much if method in OBSERVE["constraints"] else None
    expected = run(method, constraints=constraints)
    found = run(method, constraints=constraints, engine=engine, jobs=2)
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.nfev == expected.nfev


@pytest.mark.parametrize("method", ["des-mr", "des-mg", "es", "es-csa"])
def test_linear_models_in_own_units(method: str, tmp_path: Path) -> None:
    """Compiled searches; fixed variables stay as they are; the header has one number a side."""
    X, y = golden.LAYOUTS["csr"]()
    x = [
        desopt.minimize(
            "lr", None, (X, y), bounds=(0.25, 0.5), method=method, workers=3, rounds=3,
            iterations=20, batch_size=50, step_size=0.05, engine=engine, progress=False,
            journal=tmp_path / engine,
        ).x
        for engine in ("serial", "threads")
    ]  # fmt: skip
    assert x[0].tobytes() == x[1].tobytes() == desopt.replay(tmp_path / "serial").tobytes()
    assert np.all((x[0] >= 0.25) & (x[0] <= 0.5))
    assert np.ptp(x[0]) > 0.01
    assert method == "es-csa" or np.any(x[0] == 0.25)
    config = journal.read(tmp_path / "serial").header["config"]
    assert config["method"]["box"] == {"n": 301, "lower": 0.25, "upper": 0.5}
    assert "space" not in config["objective"]

    bounds = [(0.0, 0.0) if j % 2 else (None, 1.0) for j in range(301)]
    fixed = desopt.minimize(
        "lr", None, (X, y), bounds=bounds, method=method, rounds=2, iterations=20, batch_size=50,
        engine="serial", progress=False,
    )  # fmt: skip
    assert not fixed.x[1::2].any()
    assert fixed.x[::2].any()


def test_headers_without_bounds_know_nothing_of_them(tmp_path: Path) -> None:
    run("des-mr", rounds=1, bounds=None, scale=None, journal=tmp_path / "j",
        fun=lambda x: float(x @ x))  # fmt: skip
    text = json.dumps(journal.read(tmp_path / "j").header)
    assert not any(word in text for word in ("box", "space", "bounds", "constrained"))


# --- constraints -----------------------------------------------------------------------------


@pytest.mark.parametrize("x0", [[0.0, 0.0], [3.0, 4.0]])
@pytest.mark.parametrize("method", OBSERVE["constraints"])
def test_a_known_constrained_optimum(method: str, x0: list[float]) -> None:
    """(x - 2)^2 + (y - 2)^2 where x + y <= 2 and y >= 1.2: the optimum is (0.8, 1.2).

    Started where it is allowed and where it is not; no point that violates is ever evaluated.
    """
    calls = []

    def fun(x: Vector) -> float:
        calls.append(x.copy())
        assert x[0] + x[1] <= 2.0
        assert x[1] >= 1.2
        return float(np.sum((x - 2.0) ** 2))

    result = desopt.minimize(
        fun, x0, constraints=lambda x: (x[0] + x[1] - 2.0, 1.2 - x[1]), bounds=(-3, 5),
        method=method, workers=2, rounds=150, iterations=20, engine="serial", eval_every=10,
        # generations keep no point: the mean stays about a step away from a corner
        step_size=0.1 if method == "fedavg-es" else 1.0, progress=False,
    )  # fmt: skip
    near = 0.3 if method == "des-mr" else 0.05  # a corner is hard to reach by equal steps
    assert result.best_fun == pytest.approx(2.08, abs=near)
    np.testing.assert_allclose(result.best_x, [0.8, 1.2], atol=near)
    assert math.isnan(result.initial_fun), "x0 violates the second"
    evaluated = sum(1 for row in result.history.evaluated())
    assert len(calls) == result.nfev + evaluated
    assert result.success is not math.isnan(result.fun)
    assert result.nan_count == 0


def test_violations_that_are_not_numbers() -> None:
    """NaN is infinitely violated: any other point is better, none is worse."""

    def constraints(x: Vector) -> float:
        return math.nan if x[0] > 0.5 else x[0] + 0.5

    result = desopt.minimize(
        lambda x: float(x @ x), [1.0], constraints=constraints, method="es", rounds=20,
        progress=False,
    )  # fmt: skip
    assert result.best_x[0] == pytest.approx(-0.5, abs=0.01)


@pytest.mark.parametrize("method", ["es", "cma-es"])
def test_violations_too_large_to_add_up(method: str) -> None:
    """Their sum is infinite, which is as bad as NaN and no error."""

    def constraints(x: Vector) -> list[float]:
        return [1e308, 1e308] if x[0] > 0.5 else [x[0] + 0.5, -1.0]

    result = desopt.minimize(
        lambda x: float(x @ x), [1.0], constraints=constraints, method=method, rounds=20,
        progress=False,
    )  # fmt: skip
    assert result.x[0] <= -0.5


def test_nothing_is_allowed(tmp_path: Path) -> None:
    for method in ("des-mr", "es-csa"):
        result = desopt.minimize(
            lambda x: 1 / 0, np.ones(3), constraints=lambda x: 1.0 + x @ x, method=method,
            rounds=30, iterations=20, progress=False, journal=tmp_path / method,
        )  # fmt: skip
        assert result.nfev == 0
        assert math.isnan(result.fun)
        assert result.x @ result.x < 0.5, "but it is less violated"
        assert not result.success
        assert "; x violates the constraints by 1" in result.message
        assert desopt.replay(tmp_path / method).tobytes() == result.x.tobytes()


def test_errors_in_constraints_are_reported() -> None:
    for bad in (lambda x: x[7], lambda x: "much", lambda x: None):
        with pytest.raises(ObjectiveError, match="constraints failed"):
            run("des-mr", constraints=bad)


@pytest.mark.parametrize("method", sorted(METHODS.keys() - set(OBSERVE["constraints"])))
def test_methods_on_differences_refuse_constraints(method: str) -> None:
    with pytest.raises(ValueError, match=f"{method} does not take constraints; .* es, des, des-mg"):
        run(method, constraints=too_much)


def test_other_constraints_are_noticed(tmp_path: Path) -> None:
    run("es", journal=tmp_path / "j", rounds=2, constraints=too_much)
    with pytest.warns(RuntimeWarning, match="other code of constraints"):
        run("es", journal=tmp_path / "j", rounds=3, constraints=lambda x: x[0] - 0.3)
    with pytest.raises(JournalError, match="constrained"):
        run("es", journal=tmp_path / "j", rounds=4)


# --- ask and tell ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["des-mg", "es-csa", "fed-zo-gd"])
def test_ask_and_tell(method: str, tmp_path: Path) -> None:
    """The points are the user's, and none of them violates the constraints."""
    constraints = too_much if method in OBSERVE["constraints"] else None
    settings: dict[str, Any] = {
        "bounds": list(zip(LOWER, UPPER, strict=True)), "method": method,
        "scale": ["linear", None, "log", "log", None], "workers": 2, "rounds": 3, "iterations": 8,
        "constraints": constraints,
        "radius": 1e-3, "progress": False,
    }  # fmt: skip
    expected = desopt.minimize(parabola, X0, engine="serial", **settings)
    with desopt.Optimizer(X0, journal=tmp_path / "j", **settings) as opt:
        while trials := opt.ask(3):
            for trial in trials:
                assert constraints is None or constraints(trial.x)[0] <= 0.0
                opt.tell(trial, parabola(trial.x))
        result = opt.result()
    assert result.x.tobytes() == expected.x.tobytes() == desopt.replay(tmp_path / "j").tobytes()
    assert result.nfev == expected.nfev
    assert all(map(inside, [e.x for e in result.evaluations if e.x is not None]))


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "message"), [
    ({"bounds": [(0, 1)]}, "bounds are for 1 variables, x0 has 5"),
    ({"bounds": (5, 200)}, r"x0\[0\] = 0.1\d* is outside its bounds \[5, 200\]"),
    ({"scale": "log"}, "variable 0 has scale 'log' and the lower bound 0"),
    ({"bounds": None, "scale": "log"}, r"x0\[1\] = 0, but its scale is 'log'"),
    ({"scale": "sqrt"}, "scale must be one of linear, log, own"),
])  # fmt: skip
def test_bad_input(changes: Any, message: str, tmp_path: Path) -> None:
    """Refused before anything is evaluated or written."""
    with pytest.raises(ValueError, match=message):
        run("des-mr", lambda x: 1 / 0, journal=tmp_path / "j", **changes)
    assert not (tmp_path / "j").exists()


def test_constraints_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="constraints must be a function of x"):
        run("des-mr", constraints=1.0)


def test_constraints_of_scipy() -> None:
    expected = run("es", constraints=lambda x: x[0] - 0.25)
    given: dict[str, Any] = {"type": "ineq", "fun": lambda x: 0.25 - x[0]}
    for constraints in (given, [given], LinearConstraint([[1, 0, 0, 0, 0]], ub=0.25)):
        assert run("es", constraints=constraints).x.tobytes() == expected.x.tobytes()
    assert expected.x[0] <= 0.25


def test_a_method_of_the_users_own_without_bounds() -> None:
    class Own(METHODS["des-mr"].algorithm):  # type: ignore[misc]
        observes = ()

    with pytest.raises(ValueError, match="does not take bounds; the methods that do are es, des"):
        desopt.minimize(parabola, X0, method=Own(name="own"), bounds=(0, 100), progress=False)


# --- desopt run ------------------------------------------------------------------------------


def test_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def f(x):\n    assert (x >= 1).all()\n    return x @ x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    np.save("x0.npy", [5.0, 6.0])
    given = {"python": "mine:f", "x0": "x0.npy", "rounds": 3, "bounds": "1,1e4", "scale": "log",
             "method": "des-mg", "iterations": 10}  # fmt: skip
    settings = folder.begin(tmp_path / "out", given)
    folder.execute(tmp_path / "out", settings, progress=False)
    x = np.load(tmp_path / "out" / "x.npy")
    assert (x >= 1.0).all()
    assert x.tobytes() == desopt.replay(tmp_path / "out" / "run.journal").tobytes()
    folder.resume(tmp_path / "out", {"bounds": "1,1e4", "rounds": 4})
    with pytest.raises(ValueError, match=r"--bounds was .* when this run began"):
        folder.resume(tmp_path / "out", {"bounds": "2,1e4"})


def test_bounds_as_text(tmp_path: Path) -> None:
    from desopt.run.options import options_of

    check = options_of("run")["bounds"].check
    (tmp_path / "b.json").write_text("[[0, 1], [null, 2.5]]")
    assert check("bounds", str(tmp_path / "b.json")) == [[0, 1], [None, 2.5]]
    assert check("bounds", "-1, 2") == [-1.0, 2.0]
    assert check("bounds", ",2") == [None, 2.0]
    for bad in ("1", "a,b", "1,2,3", str(tmp_path / "none.json")):
        with pytest.raises(ValueError, match="bounds must be LOW,HIGH or a JSON file"):
            check("bounds", bad)
    assert options_of("run")["scale"].check("scale", "log,own") == ["log", "own"]
