"""Cases: their ids and checks; those of the paper, of a part of a study, of a TOML file."""

import math
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.small_studies import CASE, data_file

from desopt.methods.registry import COMPARED
from desopt.run.options import options_of
from desopt.studies import paper, study, toml, views
from desopt.studies.cases import NAMES, Case, make_case
from desopt.studies.study import distinct_cases, select_cases

EXAMPLE = Path(__file__).parents[2] / "examples" / "study.toml"


def test_an_id_never_changes() -> None:
    assert CASE.id == "58eb083d3b4170d5"
    assert replace(CASE, step_size=1.0).id == CASE.id


def test_every_field_decides_the_id() -> None:
    others: dict[str, Any] = {
        "data": "a",
        "problem": "nsvm",
        "method": "des",
        "rows": 9,
        "digest": "ab",
        "budget": 1.0,
        "settings": '{"participation": 0.5}',
    }
    cases = [CASE]
    for field in fields(Case):
        if field.name == "rounds":
            cases.append(replace(CASE, rounds=3, budget=None))
        else:
            value = others.get(field.name) or getattr(CASE, field.name) + 1
            cases.append(replace(CASE, **{field.name: value}))
    assert len({case.id for case in cases}) == len(cases)


def test_defaults_are_those_of_a_run() -> None:
    settings = options_of("study")
    assert settings.keys() <= set(NAMES)
    given = {"data": "d", "problem": "lr", "run": 0, "budget": 1.0}
    for name, option in settings.items():
        assert getattr(make_case(**given), name) == option.default_at("study")
    with pytest.raises(TypeError, match="stepsize"):
        make_case(**given, stepsize=1.0)


def test_settings_without_a_field_of_their_own() -> None:
    assert (CASE.partition, CASE.participation, CASE.settings) == ("iid", 1.0, None)
    skewed = CASE.varied(partition="dirichlet-0.30", step_size="auto", momentum=0)
    assert (skewed.partition, skewed.step_size, skewed.momentum) == ("dirichlet-0.3", "auto", 0.0)
    assert skewed.varied(partition="iid", step_size=1, momentum=0.5) == CASE
    half = make_case(**{**skewed._others, "participation": 0.5}, data="d", problem="lr", run=0,
                     budget=1)  # fmt: skip
    assert (half.partition, half.participation) == ("dirichlet-0.3", 0.5)
    assert half.settings == '{"participation":0.5,"partition":"dirichlet-0.3"}'
    assert "partition=dirichlet-0.3" in half.label
    with pytest.raises(AttributeError, match="no setting 'particpation'"):
        _ = CASE.particpation


@pytest.mark.parametrize(
    "name", ["sort", "dirichlet", "dirichlet-0", "dirichlet-x", "sites-2", "", 3, "quantity-inf"]
)
def test_a_partition_that_is_not_known(name: Any) -> None:
    with pytest.raises(ValueError, match="partition must be one of iid, sorted, dirichlet-C"):
        CASE.varied(partition=name)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"rounds": 3}, "either budget"),
        ({"budget": None}, "either budget"),
        ({"run": -1}, "run must be at least 0"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"step_size": 0.0}, "step_size must be > 0"),
        ({"momentum": math.nan}, "momentum must be a number, got NaN"),
        ({"workers": 2.5}, "workers must be a whole number"),
        ({"iterations": None}, "iterations must be a whole number"),
        ({"step_size": "best"}, "step_size must be a number"),
        ({"settings": "[1]"}, "settings must be a JSON object"),
        ({"settings": '{"partly": 1}'}, "unknown setting 'partly'.*did you mean 'partition'"),
        ({"settings": '{"participation": 2}'}, "participation must be > 0 and at most 1"),
    ],
)
def test_a_case_refuses(change: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        replace(CASE, **change)


# The paper's study.


def test_full_is_the_paper() -> None:
    items = paper.items("full", ["ijcnn1", "mnist"])
    assert {name: len(cases) for name, cases in items.items()} == {
        "curves": 2 * 504, "alpha": 2 * 504, "momentum": 2 * 120, "batch": 2 * 120
    }  # fmt: skip
    assert items["alpha"] == items["curves"]
    # b = 1000 of the last item is a case of the first
    assert len(distinct_cases(items)) == 2 * (504 + 120 + 96)
    settings = {(c.data, c.iterations, c.budget) for cases in items.values() for c in cases}
    assert settings == {("ijcnn1", 100, 1000.0), ("mnist", 500, 5000.0)}
    for case in items["curves"]:
        assert (case.workers, case.batch_size, case.momentum, case.mixture) == (10, 1000, 0.5, 8)
        assert (case.radius, case.regularization, case.rows) == (1e-6, 1e-6, None)
    assert {(c.method, c.step_size) for c in items["momentum"]} == {("des-mr", 1.0)}
    assert {c.momentum for c in items["momentum"]} == {0.0, 0.2, 0.4, 0.6, 0.8}
    assert {c.batch_size for c in items["batch"]} == {100, 500, 1000, 1500, 2000}
    assert {c.run for c in items["batch"]} == set(range(8))


def test_rows_are_capped_and_a_cap_that_does_nothing_is_no_other_case() -> None:
    assert {c.rows for c in paper.items("full", ["rcv1-like"], 5000)["batch"]} == {5000}
    assert {c.rows for c in paper.items("full", ["ijcnn1"], 10**6)["batch"]} == {None}


def test_a_file_of_the_data_folder_will_do(tmp_path: Path) -> None:
    data_file(tmp_path, "123")
    cases = study.paper("smoke", ["mine.csv"], data_dir=str(tmp_path)).cases
    assert {(case.data, case.rows, case.iterations) for case in cases} == {("mine.csv", None, 10)}


def test_twins_stand_in_for_what_is_missing() -> None:
    twins = ["susy-like", "real-sim-like", "rcv1-like"]
    some = paper.default_data("full", ["ijcnn1", "rcv1", "rcv1-subset", "heart", *twins])
    assert some == ["ijcnn1", "susy-like", "real-sim-like", "rcv1", "heart"]
    some = paper.default_data("full", ["rcv1-subset", "susy-30k", *twins])
    assert some == ["susy-30k", "real-sim-like", "rcv1-subset"]


def test_every_scale_has_all_items_and_methods() -> None:
    for scale in paper.SCALES:
        items = study.paper(scale).items
        assert set(items) == set(paper.ITEMS)
        assert {case.method for case in items["curves"]} == set(COMPARED)


# Parts of a study.


def test_only_selects_by_name() -> None:
    items = paper.items("full", ["ijcnn1", "covtype", "mnist"])
    part = select_cases(items, ["curves:ijcnn1,covtype:lr", "momentum:mnist"])
    assert set(part) == {"curves", "momentum"}
    assert {(c.data, c.problem) for c in part["curves"]} == {("ijcnn1", "lr"), ("covtype", "lr")}
    assert {c.data for c in part["momentum"]} == {"mnist"}
    assert select_cases(items, []) == items
    assert {c.method for c in select_cases(items, ["des-mg"])["alpha"]} == {"des-mg"}
    skewed = {"a": [CASE, CASE.varied(partition="sorted")]}
    assert select_cases(skewed, ["ijcnn1:sorted"]) == {"a": skewed["a"][1:]}
    with pytest.raises(
        ValueError, match=r"unknown name in --only 'ijcnn': .*did you mean 'ijcnn1'"
    ):
        select_cases(items, ["curves:ijcnn"])
    with pytest.raises(ValueError, match="no case matches --only curves:momentum"):
        select_cases(items, ["curves:momentum"])


# A study of one's own.


def test_the_example_is_what_its_comments_say() -> None:
    name, items, _ = toml.read(EXAMPLE)
    assert name == "first study"
    assert {item: len(cases) for item, cases in items.items()} == {
        "methods": 54,
        "beta": 18,
        "skew": 36,
    }
    assert {c.momentum for c in items["beta"]} == {0.0, 0.5, 0.8}
    assert {c.run for c in items["methods"]} == {0, 1, 2}


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


SMALL = 'data = "heart"\nproblems = ["lr"]\nmethods = ["des"]\n'


def test_an_item_replaces_what_is_shared(tmp_path: Path) -> None:
    text = "budget = 5\nruns = 2\n[items.a]\nrounds = 7\nseeds = [4, 9]\n[items.b]\nworkers = 3\n"
    name, items, _ = toml.read(written(tmp_path, SMALL + text))
    assert name == "mine"
    assert [(c.rounds, c.budget, c.run) for c in items["a"]] == [(7, None, 4), (7, None, 9)]
    assert [(c.budget, c.run, c.workers) for c in items["b"]] == [(5.0, 0, 3), (5.0, 1, 3)]


def test_what_is_listed_twice_counts_once(tmp_path: Path) -> None:
    text = SMALL + "rounds = 3\nseeds = [4, 4, 5]\nmomentum = [0, 0.0]\n"
    _, items, figures = toml.read(
        written(tmp_path, text + 'figures = ["train_loss", "train_loss:rounds"]')
    )
    assert [(case.run, case.momentum) for case in items["mine"]] == [(4, 0.0), (5, 0.0)]
    assert figures == (views.View("train_loss"),)


def test_figures_are_a_metric_against_a_cost(tmp_path: Path) -> None:
    figures = toml.read(
        written(tmp_path, SMALL + "rounds = 3\nfigures = ['test_error', 'train_loss:bytes']")
    ).figures
    assert figures == (("test_error", "rounds"), ("train_loss", "bytes"))
    assert toml.read(written(tmp_path, SMALL + "rounds = 3")).figures == views.DEFAULT


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (SMALL + "figures = ['loss']", "unknown metric in figures 'loss': choose from train_loss"),
        (SMALL + "figures = ['test_loss:byte']", "unknown cost in figures 'byte'.*'bytes'"),
        (SMALL + "figures = 3", "figures must be texts such as"),
        (SMALL + "rouns = 3", "unknown key 'rouns'.*did you mean 'rounds'"),
        (SMALL + "[items.a]\nstepsize = 3", "unknown key 'stepsize'.*did you mean 'step_size'"),
        (SMALL, "either budget"),
        (SMALL + "rounds = 3\nbudget = 4", "either budget"),
        (SMALL.replace("des", "dse") + "rounds = 3", "unknown method 'dse'.*did you mean 'des'"),
        (SMALL.replace('"lr"', '"svm"') + "rounds = 3", "unknown problem 'svm'"),
        (SMALL + "rounds = 3\nworkers = [2, 'x']", "workers must be a whole number, got 'x'"),
        (SMALL + "rounds = 3\nruns = 0", "runs must be a whole number of at least 1"),
        (SMALL + "rounds = []", "rounds must be a value or a list of values"),
        ('methods = ["des"]\nproblems = ["lr"]\nrounds = 1', "data is missing"),
        ("data = [", "is not TOML"),
        (SMALL + "items = 3", "items must be tables"),
        (SMALL + "rounds = 3\n[items.'']", "items must have names"),
        (SMALL + "rounds = 3\n[items]", "items must have names"),
        (SMALL + "rounds = 3\ndigest = 'ab'", "unknown key 'digest'"),
        (SMALL + "rounds = 3\ncode = 'ab'", "unknown key 'code'"),
        (SMALL + "rounds = 3\npartition = ['iid', 'sort']", "partition must be one of iid, sorted"),
        (SMALL + "rounds = 3\nparticipation = 2", "participation must be > 0 and at most 1"),
        (SMALL + "rounds = 3\naggregate = 'mode'", "unknown aggregate 'mode'"),
        (SMALL + "rounds = 3\nstep_size = [1, 'best']", "step_size must be a number"),
        (SMALL.replace("lr", "nowhere:f") + "rounds = 3", "problem nowhere:f cannot be imported"),
        (SMALL.replace("lr", "sphere") + "rounds = 3", "data must be 'none'"),
        (SMALL + "rounds = 3\nruns = 2_000_000_000", "2,000,000,000 cases, more than 1,000,000"),
        (SMALL + "rounds = 3\nseeds = [9223372036854775808]", "run must be below 2"),
        (SMALL + "rounds = 3\nseeds = [1.5]", "run must be a whole number"),
        (SMALL + "rounds = true", "rounds must be a whole number"),
        (SMALL + "rounds = 3\nstep_size = inf", "step_size must be finite"),
        (SMALL.replace('"heart"', '""') + "rounds = 3", "data must be a non-empty text"),
        (SMALL + "rounds = 3\nname = 7", "name must be a text"),
        ("x = " + "[" * 9999, "is not TOML"),
    ],
)
def test_a_bad_study_says_what_is_wrong(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error) as caught:
        toml.read(written(tmp_path, text))
    assert "mine.toml" in str(caught.value)


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no study 'papr': give paper, stepsize, .*bbob"):
        toml.read(Path("papr"))
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path, tmp_path / "pipe.toml"):
        with pytest.raises(ValueError, match="not a regular file"):
            toml.read(path)
