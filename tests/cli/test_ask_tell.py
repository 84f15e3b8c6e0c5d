"""``desopt ask`` and ``desopt tell``: a laboratory on the command line."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import command
from numpy.typing import NDArray

import desopt
from desopt.cli import trials
from desopt.run.optimizer import OpenTrial

Floats = NDArray[np.float64]
COMMAND = [sys.executable, "-m", "desopt"]


class Done(NamedTuple):
    code: Any
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """The command in this process, in an empty folder."""

    def run(*words: object, stdin: str = "") -> Done:
        done = command.call(*words, cwd=tmp_path, stdin=stdin)
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def cost(x: Floats) -> float:
    return float(np.sum((x - 0.5) ** 2))


def rows(done: Done) -> list[dict[str, str]]:
    assert done.code == 0, done.err
    assert "desopt: " not in done.err, "a warning"
    return list(csv.DictReader(io.StringIO(done.out)))


def point(row: dict[str, str]) -> Floats:
    return np.array([float(text) for text in list(row.values())[3:]])


def refused(done: Done, code: int, *words: str) -> None:
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("desopt: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("es-csa", {}),
        ("es", {}),
        ("des", {"workers": 2}),
        ("des", {"workers": 2, "iterations": 10, "step_size": "auto"}),
    ],
)
def test_a_run_by_hand_has_the_bits_of_minimize(
    method: str, more: dict[str, Any], call: Call, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "method": method, "rounds": 2, "iterations": 4, "step_size": 0.5, "seed": 2,
    } | more  # fmt: skip
    given = [word for name, value in settings.items() for word in (_option(name), value)]
    expected = desopt.minimize(
        cost, [0.1, -2.0, 3.0], engine="serial", eval_every=0, progress=False, **settings
    )
    table = rows(call("ask", "lab", "--x0", "0.1,-2,3", *given, "--csv"))
    last = ""
    while table:
        told = [(row["id"], repr(cost(point(row)))) for row in reversed(table[:3])]
        last = call("tell", "lab", *(word for pair in told for word in pair)).out
        table = rows(call("ask", "lab", "--csv"))
    assert f"digest        {expected.digest}\n" in last
    x = np.load(tmp_path / "lab" / "x.npy")
    assert x.tobytes() == expected.x.tobytes()
    assert desopt.replay(tmp_path / "lab" / "run.journal").tobytes() == expected.x.tobytes()
    best = np.load(tmp_path / "lab" / "best_x.npy")
    summary = json.loads((tmp_path / "lab" / "result.json").read_text())
    assert summary["evaluations"] == expected.nfev
    assert summary["best_loss"] == cost(best)
    assert (tmp_path / "lab" / "evaluations.csv").read_text().count("\n") == expected.nfev + 1
    assert expected.digest in call("ask", "lab").out


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def test_real_processes_and_a_kill(call: Call, tmp_path: Path) -> None:
    """A value that has reached the file outlives kill -9."""
    plan = call("ask", "lab", "--n", "2", "--seed", "3", "--variables", "a,b", "--csv")
    ids = [row["id"] for row in rows(plan)]
    out = call("tell", "lab", ids[0], "-2.5").out
    assert out == "value kept; round 1 of 100, 1 value told, 0 failed, best -2.5, 5 open\n"
    values = tmp_path / "lab" / "run.journal.values"
    before = values.stat().st_size
    child = subprocess.Popen([*COMMAND, "tell", "lab", ids[1], "1"], cwd=tmp_path)
    while values.stat().st_size == before and child.poll() is None:
        time.sleep(0.001)
    child.kill()
    child.wait()
    both = [  # at the same time: one waits for the other
        subprocess.Popen([*COMMAND, "tell", "lab", id, "1"], cwd=tmp_path, stdout=subprocess.PIPE)
        for id in ids[2:4]
    ]
    assert [each.communicate()[0][:10] for each in both] == [b"value kept"] * 2
    left = "\n".join(f"{id},1" for id in ids[1:])
    out = call("tell", "lab", "--csv", "-", stdin=f"id,value\n{left}\n").out
    assert out.startswith("3 values told before; 2 values kept; round 2 of 100, 6 values told")


def test_the_same_trials_until_they_are_told(call: Call) -> None:
    first = rows(call("ask", "lab", "--n", 3, "--csv"))
    assert len(first) == 7
    assert rows(call("ask", "lab", "--csv", "--count", 4)) == first[:4]
    done = call("tell", "lab", first[2]["id"], "--failed", "--reason", "the pump leaked")
    assert done.out == "value kept; round 1 of 100, 1 value told, 1 failed, 6 open\n"
    assert rows(call("ask", "lab", "--csv")) == first[:2] + first[3:]
    shown = call("ask", "lab", "--count", 2).out.splitlines()
    assert [line.split()[0] for line in shown[:3]] == ["id", first[0]["id"], first[1]["id"]]
    assert shown[1].split()[2:] == list(first[0].values())[3:]  # every digit
    assert shown[-1].endswith("6 open, 4 of them not shown (--count)")


def test_trials_ahead(call: Call) -> None:
    settings = ("--n", 2, "--method", "es", "--seed", 1)
    assert len(rows(call("ask", "lab", *settings, "--csv"))) == 2  # x0, and the first step
    ahead = rows(call("ask", "lab", "--csv", "--ahead", "--count", 6))
    assert len(ahead) == 6
    done = call("tell", "lab", ahead[0]["id"], 5, ahead[3]["id"], 1, ahead[1]["id"], 2)
    assert done.out.startswith("3 values kept; round 1 of 100, 3 values told")
    done = call("tell", "lab", ahead[3]["id"], 1, ahead[2]["id"], 2)
    assert "value told before; value kept, but no longer needed; round 1" in done.out


def test_json(call: Call) -> None:
    done = call("ask", "lab", "--x0", "1,2", "--variables", "dose, time", "--json", "--count", 1,
                "--rounds", 1)  # fmt: skip
    found = json.loads(done.out)
    assert found["status"] == {
        "round": 1, "rounds": 1, "told": 0, "failed": 0, "best": None, "open": 6, "done": False,
    }  # fmt: skip
    (trial,) = found["trials"]
    assert list(trial["x"]) == ["dose", "time"]
    ids = [row["id"] for row in rows(call("ask", "lab", "--csv"))]
    done = call("tell", "lab", *(word for id in ids for word in (id, "7")))
    assert "ended         1 round done" in done.out
    found = json.loads(call("ask", "lab", "--json").out)
    assert found["status"]["done"]
    assert found["trials"] == []
    assert list(found["result"]["x"]) == ["dose", "time"]
    assert found["result"]["best_loss"] == 7.0
    # more rounds: the run goes on
    assert "round 2 of 3, 6 values told, 0 failed, best 7, 6 open" in call(
        "ask", "lab", "--rounds", 3
    ).out  # fmt: skip


def test_a_spreadsheet_there_and_back(call: Call, tmp_path: Path) -> None:
    plan = rows(call("ask", "lab", "--n", 2, "--variables", "a,b", "--csv"))
    lines = ["id,a,b,reason,value", f"{plan[0]['id']},0,0,,1.5", f"{plan[1]['id']},0,0,,",
             f"{plan[2]['id']},0,0,no power,", "", f"{plan[3]['id']},0,0,,nan"]  # fmt: skip
    (tmp_path / "plan.csv").write_text("\n".join(lines), encoding="utf-8-sig")
    done = call("tell", "lab", "--csv", "plan.csv")
    assert done.out == "3 values kept; round 1 of 100, 3 values told, 2 failed, best 1.5, 3 open\n"
    open_now = [row["id"] for row in rows(call("ask", "lab", "--csv"))]
    assert open_now == [plan[1]["id"], plan[4]["id"], plan[5]["id"]]


def test_semicolons_of_a_spreadsheet_are_named(call: Call, tmp_path: Path) -> None:
    """As it saves them where the comma is the decimal sign."""
    (trial, *_) = rows(call("ask", "lab", "--n", 1, "--csv"))
    for value in ("0,5", "0.5"):
        (tmp_path / "plan.csv").write_text(f"id;x0;value\n{trial['id']};1;{value}\n")
        refused(call("tell", "lab", "--csv", "plan.csv"), 2, "semicolons between its columns")


def test_settings_are_those_of_the_folder(call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "x0.npy", [1.0, 2.0])
    begin = ("ask", "lab", "--x0", "x0.npy", "--seed", 4, "--max-evaluations", 30)
    first = rows(call(*begin, "--csv"))
    assert rows(call(*begin, "--csv")) == first
    assert rows(call("ask", "lab", "--x0", "1,2", "--n", 2, "--csv")) == first
    for words, told in (
        (("--seed", 5), "--seed was 4 when this run began, got 5"),
        (("--x0", "1,3"), "--x0 was [1.0, 2.0]"),
        (("--n", 3), "--n was 2"),
        (("--variables", "a,b"), "--variables was None"),
        (("--method", "es"), "--method was auto"),
    ):
        refused(call("ask", "lab", *words), 1, told, "another folder")
    assert "round 1 of 2," in call("ask", "lab", "--max-evaluations", 12).out
    assert "round 1 of 2," in call("ask", "lab").out


def test_bad_starts_leave_nothing_behind(call: Call, tmp_path: Path) -> None:
    refused(call("ask", "lab"), 1, "lab holds no run", "desopt ask lab --x0 1,2,3")
    refused(call("tell", "lab", "a.0.0.0.0", 1), 1, "lab holds no run")
    for words, told in (
        (("--seed", 5), "give the starting point"),
        (("--n", 2, "--x0", "1,2"), "not both"),
        (("--x0", "1;2"), "numbers such as 1,2,3 or a file"),
        (("--x0", os.devnull), "numbers such as 1,2,3 or a file"),
        (("--x0", "1,nan"), "x0 must be finite; entry 1"),
        (("--n", 3, "--variables", "a,b"), "2 names for 3 numbers"),
        (("--variables", "a,a"), "'a' cannot be a name"),
        (("--variables", "a,id"), "'id' cannot be a name"),
        (("--n", 3, "--method", "nonsense"), "nonsense"),
        (("--n", 3, "--rounds", 0), "rounds"),
    ):
        refused(call("ask", "lab", *words), 1, told)
    refused(call("ask", "lab", "--n", 0), 2, "--n")
    refused(call("ask", "lab", "--n", 2, "--engine", "serial"), 2, "--engine")
    refused(call("ask", "lab", "--n", 2, "--csv", "--json"), 2, "not both")
    assert not list(tmp_path.iterdir())


def test_bad_values(call: Call, tmp_path: Path) -> None:
    plan = rows(call("ask", "lab", "--n", 2, "--csv"))
    id, tag = plan[0]["id"], plan[0]["id"][:4]
    for words, told in (
        ((), "give ID VALUE"), ((id,), "pairs"), ((id, "x"), "not a value: 'x'"),
        ((id, "1,5"), "not a value"), ((id, "1", "--reason", "r"), "--reason is for failed"),
        ((id, "--faild"), "not a value: '--faild'"), ((id, "1", "--csv", "-"), "not both"),
    ):  # fmt: skip
        refused(call("tell", "lab", *words), 2, told, "desopt tell --help")
    refused(call("tell", "lab", "--csv", "-", stdin="id,x\n1,2\n"), 2, "no column value")
    refused(call("tell", "lab", "--csv", "-", stdin=f"{id},1\n{id},two"), 2, "line 2", "'two'")
    refused(call("tell", "lab", "--csv", "none.csv"), 1, "none.csv: No such file")
    for content in ("id,value\n".encode("utf-16"), b"x" * 200_000):
        (tmp_path / "plan.csv").write_bytes(content)
        refused(call("tell", "lab", "--csv", "plan.csv"), 2, "plan.csv is no table", "UTF-8")
    for bad, told in (
        ("nonsense", "not an id"), ("beef.0.0.0.0", f"begin with {tag}"),
        (f"{tag}.9.0.0.0", "no such trial"), (f"{tag}.0.0.99.0", "no such trial"),
    ):  # fmt: skip
        refused(call("tell", "lab", bad, 1), 1, told)
    done = call("tell", "lab", id, 1, f"{tag}.0.0.99.0", 2, plan[1]["id"], 3)
    assert done.code == 1
    assert done.out.startswith("2 values kept; round 1 of 100, 2 values told")
    assert "no such trial" in done.err


def test_damaged_folders(call: Call, tmp_path: Path) -> None:
    assert call("ask", "lab", "--n", 2).code == 0
    settings = (tmp_path / "lab" / "settings.json").read_bytes()
    (tmp_path / "lab" / "settings.json").write_bytes(settings[:20])
    refused(call("ask", "lab"), 1, "settings.json cannot be read", "restore it")
    (tmp_path / "lab" / "settings.json").write_bytes(settings)
    (tmp_path / "lab" / "x0.npy").write_bytes(b"")
    refused(call("ask", "lab"), 1, "starting point", "x0.npy")


def test_folders_of_another_kind(call: Call, tmp_path: Path) -> None:
    (tmp_path / "sim.py").write_text("def cost(x):\n    return float(x @ x)\n")
    small = ("--python", "sim:cost", "--n", 2, "--rounds", 1, "--engine", "serial")
    assert call("run", *small, "--out", "done").code == 0
    refused(call("ask", "done"), 1, "no run by ask and tell", "desopt run --resume")
    refused(call("tell", "done", "a.0.0.0.0", 1), 1, "no run by ask and tell")
    assert call("ask", "lab", "--n", 2).code == 0
    refused(call("run", "--resume", "--out", "lab"), 1, "desopt ask lab")
    (tmp_path / "file").write_text("")
    refused(call("ask", "file"), 2, "file")


def test_told_while_a_script_has_the_run_open(call: Call, tmp_path: Path) -> None:
    plan = rows(call("ask", "lab", "--n", 2, "--csv"))
    call("tell", "lab", *(word for row in plan for word in (row["id"], 1)))
    with desopt.Optimizer(np.zeros(2), journal=tmp_path / "lab" / "run.journal") as opt:
        trial = opt.ask()[0]
        done = call("tell", "lab", trial.id, 0.25)
        assert done.out == "value kept for the process that has the run open\n"
        refused(call("ask", "lab"), 1, "in use by another process")
        assert not opt.open()
        assert opt.evaluations[-1].value == 0.25
        assert opt.rounds == (1, 100)


def test_tables_fit_the_terminal() -> None:
    names = [f"variable_{i}" for i in range(12)]
    x = np.linspace(-1.0, 1.0, 12) / 3.0
    shown = [OpenTrial(f"ab12.0.0.{i}.0", x * i, 0, 0, i) for i in range(3)]
    narrow = trials.as_text(shown, names, 70)
    assert max(map(len, narrow.splitlines())) <= 70
    assert all(narrow.count(name) >= 3 for name in names)
    wide = trials.as_text(shown, names, 400).splitlines()
    assert len(wide) == 4
    assert len(set(map(len, wide))) == 1
    plain = trials.as_text(shown, names, None).splitlines()
    assert [float(cell) for cell in plain[3].split()[2:]] == (2 * x).tolist()
