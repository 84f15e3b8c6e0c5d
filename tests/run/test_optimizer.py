"""Ask and tell: the bits of minimize, nothing told is lost, bad ids and values are refused."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.run.history import Status
from desopt.run.values import STORED, SUFFIX, ValueLog

Floats = NDArray[np.float64]
N = 5
SMALL: dict[str, Any] = {
    "rounds": 4, "iterations": 8, "seed": 3, "step_size": 0.5, "batch_size": 7, "radius": 0.01,
    "progress": False,
}  # fmt: skip
RANDOM = np.random.default_rng(1)
DATA = RANDOM.standard_normal((40, N)), RANDOM.standard_normal(40)


def sphere(x: Floats) -> float:
    return math.nan if x[0] > 1.0 else float(np.sum((x - 0.5) ** 2))


def squares(x: Floats, batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


def settings_of(method: str) -> dict[str, Any]:
    alone = desopt.METHODS[method].single_worker
    return SMALL | {"method": method} | ({} if alone else {"workers": 3})


def drive(opt: desopt.Optimizer, fun: Any, count: int = 3, ahead: bool = False) -> None:
    random, held = np.random.default_rng(0), list[desopt.OpenTrial]()
    while not opt.done:
        held += opt.ask(count - len(held), ahead=ahead) if len(held) < count else []
        trial = held.pop(int(random.integers(len(held))))
        opt.tell(trial, fun(trial.x, *trial.batch))


@pytest.mark.filterwarnings("ignore:fun returned NaN")
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("data", [None, DATA], ids=["plain", "data"])
@pytest.mark.parametrize("method", desopt.METHODS)
def test_the_bits_of_minimize(method: str, data: Any, ahead: bool) -> None:
    settings = settings_of(method)
    fun = sphere if data is None else squares
    expected = desopt.minimize(fun, np.zeros(N), data, engine="serial", eval_every=0, **settings)
    opt = desopt.Optimizer(np.zeros(N), data, **settings)
    drive(opt, fun, ahead=ahead)
    result = opt.result()
    assert result.x.tobytes() == expected.x.tobytes()
    assert (result.nfev, result.nit, result.nan_count) == (
        expected.nfev, expected.nit, expected.nan_count,
    )  # fmt: skip
    assert result.history["samples"][-1] == expected.history["samples"][-1]
    assert result.status == Status.ROUNDS
    assert not opt.ask(3)
    if data is None:
        values = [sphere(item.x) for item in result.evaluations if item.x is not None]
        assert len(values) == result.nfev + result.nfev_ahead
        assert result.best_fun == np.nanmin(values) == sphere(result.best_x)


@pytest.mark.filterwarnings("ignore:fun returned NaN")
@pytest.mark.parametrize("method", ["es", "des", "es-csa", "fed-zo-sgd"])
def test_reopened_after_every_value(method: str, tmp_path: Path) -> None:
    """As on the command line: a new process for each ask and each tell."""
    settings = settings_of(method) | {"rounds": 2}
    expected = desopt.minimize(sphere, np.zeros(N), engine="serial", eval_every=0, **settings)
    settings["journal"] = tmp_path / "j"
    asked = set()
    while True:
        with desopt.Optimizer(np.zeros(N), **settings) as opt:
            trials = opt.ask(2)
        if not trials:
            break
        with desopt.Optimizer(np.zeros(N), **settings) as opt:
            last = trials[-1]
            assert opt.tell(last.id, sphere(last.x))
            assert not opt.tell(last.id, sphere(last.x))
        assert last.id not in asked
        asked.add(last.id)
    with desopt.Optimizer(np.zeros(N), **settings) as opt:
        assert opt.done
        assert opt.result().x.tobytes() == expected.x.tobytes()
        assert len(opt.result().evaluations) == len(asked) == expected.nfev
    assert desopt.replay(tmp_path / "j").tobytes() == expected.x.tobytes()


@pytest.mark.parametrize("method", ["cma-es", "es", "des-mr"])
def test_the_best_point_of_many_variables(method: str, tmp_path: Path) -> None:
    """The log does not store it: it is at hand while the run goes on, and replayed afterwards."""
    start = np.full(STORED + 1, 0.9)
    settings = SMALL | {"method": method, "rounds": 3, "iterations": 5, "step_size": 0.001}
    settings["journal"] = tmp_path / "j"
    found = []
    for values in (2, 9, 100):
        with desopt.Optimizer(start, **settings) as opt:
            while (trials := opt.ask()) and len(opt.evaluations) < values:
                opt.tell(trials[0], sphere(trials[0].x))
            results = [opt.result()]
        with desopt.Optimizer(start, **settings) as opt:
            results.append(opt.result())
        for result in results:
            values_told = [item.value for item in result.evaluations]
            assert result.best_fun == min(values_told) == sphere(result.best_x)
        found.append(results[0].best_fun)
    assert found[2] < found[0]


def test_resumed_by_minimize_and_back(tmp_path: Path) -> None:
    """The objective is part of the run: what is asked cannot be continued by a function."""
    settings = SMALL | {"method": "es", "journal": tmp_path / "j"}
    with desopt.Optimizer(np.zeros(N), **settings) as opt:
        for trial in opt.ask(2):
            opt.tell(trial, sphere(trial.x))
    with pytest.raises(desopt.JournalError, match="values of another run"):
        desopt.minimize(sphere, np.zeros(N), **settings)


CHILD = """
import sys, numpy as np, desopt
with desopt.Optimizer(np.zeros(5), method="es", rounds=50, seed=3, journal=sys.argv[1]) as opt:
    while trials := opt.ask(2, ahead=True):
        for trial in trials:
            opt.tell(trial, float(np.sum(trial.x**2)))
            print(trial.id, flush=True)
"""


@pytest.mark.kills
def test_kill_loses_no_told_value(tmp_path: Path) -> None:
    journal, told = tmp_path / "j", list[str]()
    for lines in (5, 40, 150):
        command = [sys.executable, "-c", CHILD, str(journal)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(lines):
            told.append(child.stdout.readline().strip())
        os.kill(child.pid, signal.SIGKILL)
        told += child.stdout.read().split()
        child.wait()
        child.stdout.close()
    assert len(set(told)) == len(told), "asked for again"
    with desopt.Optimizer(np.zeros(5), method="es", rounds=50, seed=3, journal=journal) as opt:
        kept = {f"{opt.tag}.{item.id}" for item in opt.result().evaluations}
    assert set(told) - {""} <= kept


def test_told_from_another_process(tmp_path: Path) -> None:
    settings = SMALL | {"method": "es", "journal": tmp_path / "j"}
    with desopt.Optimizer(np.zeros(N), **settings) as opt:
        x, first = opt.ask(2)
        desopt.tell(tmp_path / "j", first.id, 4.0)
        desopt.tell(tmp_path / "j", x.id, failed=True, reason="the reactor leaked")
        assert not opt.open()
        assert [item.reason for item in opt.result().evaluations] == ["", "the reactor leaked"]
        with pytest.raises(ValueError, match="id of another run"):
            desopt.tell(tmp_path / "j", "beef.0.0.0.0", 1.0)
        (second,) = opt.ask()
        assert second.id.endswith(".0.0.2.1")  # accepted, as f(x) has no value
    with pytest.raises(FileNotFoundError, match="ask for trials first"):
        desopt.tell(tmp_path / "other", first.id, 4.0)


def test_told_from_another_process_while_a_value_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SMALL | {"method": "es", "journal": tmp_path / "j"}
    with desopt.Optimizer(np.zeros(N), **settings) as opt:
        x, first = opt.ask(2)
        write = ValueLog.add

        def late(log: ValueLog, *outcome: Any) -> None:  # after tell has looked at the file
            monkeypatch.undo()
            desopt.tell(tmp_path / "j", first.id, 4.0)
            write(log, *outcome)

        monkeypatch.setattr(ValueLog, "add", late)
        assert opt.tell(x, 5.0)
        assert not opt.open()
        (second,) = opt.ask()
        assert second.id.endswith(".0.0.2.1")


def test_data_told_from_another_process(tmp_path: Path) -> None:
    """The number of rows is known to the optimizer only, also after a restart."""
    settings = settings_of("es-csa") | {"rounds": 1, "batch_size": 3}
    options = settings | {"engine": "serial", "eval_every": 0}
    expected = desopt.minimize(squares, np.zeros(N), DATA, **options)
    for _ in range(2):
        with desopt.Optimizer(np.zeros(N), DATA, journal=tmp_path / "j", **settings) as opt:
            for trial in opt.ask(10):
                desopt.tell(tmp_path / "j", trial.id, squares(trial.x, *trial.batch))
    while not opt.done:
        with desopt.Optimizer(np.zeros(N), DATA, journal=tmp_path / "j", **settings) as opt:
            for trial in opt.ask(10):
                opt.tell(trial, squares(trial.x, *trial.batch))
    assert opt.result().x.tobytes() == expected.x.tobytes()


def test_ends() -> None:
    opt = desopt.Optimizer(np.zeros(N), max_evaluations=50, seed=1)
    drive(opt, sphere)
    result = opt.result()
    assert result.method == "es-csa"
    assert "method es-csa: a function without data" in result.message
    assert result.nfev <= 50 < result.nfev + 5
    opt = desopt.Optimizer(np.zeros(N), method="es", target=1.0)
    assert opt.result().status == Status.OPEN
    assert "round 1 of 100, 0 trials open" in opt.result().message
    assert not opt.result().success
    trial = opt.ask()[0]
    assert "1 trials open" in opt.result().message
    opt.tell(trial, 0.9)
    assert opt.done
    assert opt.result().status == Status.TARGET
    assert opt.result().success


def test_bad_input(tmp_path: Path) -> None:
    opt = desopt.Optimizer(np.zeros(N), method="es", journal=tmp_path / "j", rounds=3)
    (x,) = opt.ask()
    for value, message in (("2.0", "a real number"), (np.zeros(2), "real"), (1j, "real"),
                           (True, "real"), ([1.0], "real")):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            opt.tell(x, value)
    tag = x.id[:4]
    for id, message in (
        ("nonsense", "not an id"), (f"{tag}.0.0.0", "not an id"), (f"{tag}.0.0.0.0.0", "not an"),
        (f"{tag}.0.0.-1.0", "not an id"), (f"{tag}.0.0.4294967296.0", "not an id"),
        ("beef.0.0.0.0", "the id of another run"),
        (f"{tag}.1.0.0.0", "no such trial has been asked for; the run is in round 0"),
        (f"{tag}.0.7.0.0", "no such trial"), (f"{tag}.0.0.999.0", "no such trial"),
        (f"{tag}.0.0.3.9", "no such trial"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            opt.tell(id, 1.0)
        if "no such" not in message:  # the other process does not know the run
            with pytest.raises(ValueError, match=message):
                desopt.tell(tmp_path / "j", id, 1.0)
    for more, message in (
        ({"seconds": "3"}, "seconds must be a number"), ({"reason": 5}, "reason must be a text"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            opt.tell(x, None, **more)
    with pytest.raises(TypeError, match="give a trial or its id"):
        opt.tell(3, 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="count"):
        opt.ask(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Optimizer takes no engine"):
        desopt.Optimizer(np.zeros(N), engine="serial")
    with pytest.raises(ValueError, match="did you mean 'rounds'"):
        desopt.Optimizer(np.zeros(N), round=3)
    assert desopt.Optimizer(np.zeros(N), method="es", rounds=3).tell(x.id, 10**400)  # infinite
    assert opt.tell(x, np.float32(2.0))
    with pytest.warns(RuntimeWarning, match=r"was told 2\.0; the first value counts"):
        assert not opt.tell(x, 3.0)
    opt.close()
    with pytest.raises(desopt.JournalError, match="values of another run"):
        desopt.Optimizer(np.zeros(N), method="es", journal=tmp_path / "j", rounds=3, seed=1)


def test_a_reason_may_hold_what_no_encoding_has(tmp_path: Path) -> None:
    """The name of a file, say: Python has surrogates for its bytes."""
    settings = SMALL | {"method": "es", "journal": tmp_path / "j"}
    with desopt.Optimizer(np.zeros(N), **settings) as opt:
        one, other = opt.ask(2)
        assert opt.tell(one, failed=True, reason="no file a\udcffb")
        assert opt.tell(other, 2.0)
        opt.evaluations.to_csv(tmp_path / "j.csv")
        told = [item.reason for item in opt.evaluations]
    with desopt.Optimizer(np.zeros(N), **settings) as again:
        assert [item.reason for item in again.evaluations] == told == ["no file a?b", ""]


def test_damage_is_refused_and_a_torn_tail_dropped(tmp_path: Path) -> None:
    settings = SMALL | {"method": "es", "journal": tmp_path / "j"}
    path = tmp_path / ("j" + SUFFIX)
    with desopt.Optimizer(np.zeros(N), **settings) as opt:
        for _ in range(4):
            trial = opt.ask()[0]
            opt.tell(trial, sphere(trial.x))
    whole = path.read_bytes()
    for cut in (1, 20):
        path.write_bytes(whole[:-cut])
        with desopt.Optimizer(np.zeros(N), **settings) as opt:
            assert len(opt.result().evaluations) == 3
            assert opt.ask()[0].id == trial.id
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(desopt.JournalError, match="damaged"):
        desopt.Optimizer(np.zeros(N), **settings)


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_closed_one_is_of_no_use(rounds: int, tmp_path: Path) -> None:
    """The last value of a round would find no journal to write the round to."""
    settings = SMALL | {"method": "cma-es", "journal": tmp_path / "j"}
    opt = desopt.Optimizer(np.zeros(N), **settings)
    while opt.rounds[0] < rounds:
        for trial in opt.ask(99):
            opt.tell(trial, sphere(trial.x))
    trials = opt.ask(99)
    opt.close()
    for use in (opt.ask, lambda: opt.tell(trials[0], 1.0)):
        with pytest.raises(ValueError, match="is closed; make it again with the same arguments"):
            use()
    assert opt.result().nit == rounds
    opt.close()
    with desopt.Optimizer(np.zeros(N), **settings) as again:
        assert [trial.id for trial in again.ask(99)] == [trial.id for trial in trials]
        for trial in trials:
            again.tell(trial, sphere(trial.x))
        assert again.rounds[0] == rounds + 1
