"""Settings are declared once: every signature, command line and help text agrees with that."""

import inspect
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import desopt
from desopt.cli.app import app
from desopt.engines.serial import Serial
from desopt.methods import DES, METHODS
from desopt.methods.samplers import Gaussian, MixtureRademacher
from desopt.objectives import LOSSES, LinearModel
from desopt.run import options
from desopt.run.options import OPTIONS, options_of
from desopt.studies.cases import DEFAULTS, NAMES, Case

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((40, 3))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def run(**settings: Any) -> desopt.Result:
    usual: dict[str, Any] = {
        "fun": "lr", "workers": 4, "rounds": 2, "iterations": 4, "batch_size": 10,
        "engine": "serial", "progress": False,
    }  # fmt: skip
    return desopt.minimize(data=(X, Y), **(usual | settings))


# --- one default ------------------------------------------------------------------------------


def test_minimize_has_the_declared_settings_and_defaults() -> None:
    parameters = inspect.signature(desopt.minimize).parameters
    found = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    declared = {name: option.default for name, option in options_of("minimize").items()}
    assert found == declared
    assert all(type(found[name]) is type(declared[name]) for name in found), "1 is not 1.0"


def test_the_docstring_of_minimize_names_every_setting() -> None:
    text = inspect.getdoc(desopt.minimize) or ""
    headings = {name for line in text.splitlines() if line[:1].strip() for name in line.split(", ")}
    assert headings >= options_of("minimize").keys()


def command(name: str) -> Any:
    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]


def test_the_command_line_has_the_declared_settings_and_defaults() -> None:
    found = {param.name: param for param in command("run").params}
    declared = options_of("run")
    assert found.keys() == declared.keys() | {"out", "resume", "debug"}
    for name, option in declared.items():
        assert found[name].default == option.default
        assert found[name].opts == [f"--{name.replace('_', '-')}"]


def test_asking_has_the_settings_of_the_optimizer() -> None:
    found = {param.name for param in command("ask").params}
    own = {"folder", "n", "x0", "variables", "count", "ahead", "json", "csv", "debug"}
    assert found == options_of("ask").keys() | own
    taken = options_of("minimize").keys() - set(options.CALLED)
    assert options_of("ask").keys() - {"plugin"} <= taken
    left = {name for name in taken if options_of("minimize")[name].kind is not None}
    assert left - options_of("ask").keys() == {"batch_size", "ahead"}


def test_a_case_of_a_study_has_the_declared_defaults() -> None:
    declared = options_of("study")
    assert declared.keys() <= set(NAMES)
    assert all(field.default is MISSING for field in fields(Case)), "a second place for defaults"
    given = {name: DEFAULTS[name] for name in declared if name in DEFAULTS}
    assert given == {name: declared[name].default_at("study") for name in given}
    assert given["regularization"] == 1e-6, "the test sees defaults"


def test_a_federation_has_the_declared_settings_and_defaults() -> None:
    federate = pytest.importorskip("desopt.federate")
    assert options_of("federation").keys() == federate._SETTINGS
    parameters = inspect.signature(federate.Federation).parameters
    for name, option in options_of("federation").items():
        if "minimize" not in option.doors and name not in federate.TABLE:
            assert parameters[name].default == option.default
    client = inspect.signature(federate.client_app).parameters
    assert client["regularization"].default == options_of("minimize")["regularization"].default


@pytest.mark.parametrize("method", METHODS)
def test_an_algorithm_object_has_the_declared_defaults(method: str) -> None:
    declared = {name: option.default for name, option in options_of("minimize").items()}
    chosen = {"sampler", "population", "step_size"}  # None: by the method and the problem
    assert {name for name in chosen if declared[name] is None} == chosen
    for field in fields(METHODS[method].algorithm):
        if field.name in declared.keys() - chosen and field.default is not MISSING:
            assert field.default == declared[field.name], field.name


def test_objects_have_the_declared_defaults() -> None:
    declared = options_of("minimize")
    assert LinearModel("lr").penalty == declared["regularization"].default
    assert MixtureRademacher().l == declared["mixture"].default


def test_names_are_unique_at_every_door() -> None:
    for door in options.EVERYWHERE:
        names = [option.name for option in OPTIONS if door in option.doors]
        assert len(names) == len(set(names))


def test_declarations_load_no_numerical_package() -> None:
    code = (
        "import sys, desopt.run.options, desopt.cli.app\n"
        "print([m for m in ('numpy', 'numba', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- help -------------------------------------------------------------------------------------


def test_help_has_every_setting_in_groups_and_every_choice() -> None:
    run = command("run")
    context = typer.Context(run, info_name="desopt run")
    text = run.get_help(context)
    for name, option in options_of("run").items():
        assert f"  --{name.replace('_', '-')} " in text
        assert f"\n{option.group}:\n" in text
    plain = " ".join(text.split()).replace("- ", "-")  # lines may break at a hyphen
    for names in (METHODS, LOSSES, desopt.ENGINES, options.aggregate_names()):
        *most, last = names
        assert f"{', '.join(most)} or {last}" in plain
    kind = r"(<int>|INTEGER)"  # older versions of typer have the second
    assert re.search(f"--patience {kind} Stop after this many rounds without improvement", plain)


# --- the identity of a run --------------------------------------------------------------------

#: Another value of every setting, and the method that has it where that is not the default.
OTHER: dict[str, Any] = {
    "regularization": 0.1, "method": "des", "workers": 3, "iterations": 6, "batch_size": 9,
    "step_size": 0.5, "momentum": 0.25, "mixture": 3, "radius": 0.1, "population": 9,
    "correlations": 4, "perturbations": 3, "candidates": 50, "correction": "bits",
    "aggregate": "trimmed-mean", "float32": True, "sampler": Gaussian(), "participation": 0.5,
    "seed": 7, "engine": "threads", "jobs": 2, "round_timeout": 60.0, "attempts": 2, "rounds": 5,
    "evaluation_timeout": 60.0,
    "max_evaluations": 10**6, "max_seconds": 1e6, "target": -1.0, "patience": 50, "eval_every": 2,
    "log_values": True, "ahead": False, "callbacks": print, "snapshot_every": 1, "progress": None,
    "bounds": (-1, 1), "scale": "linear", "constraints": lambda x: 0.0,
}  # fmt: skip
METHOD = {
    "radius": "fed-zo-gd", "population": "es-csa", "correlations": "cma-es",
    "perturbations": "decomfl", "candidates": "fedkseed", "correction": "des-c",
}  # fmt: skip


#: Those of a Python function, and the journal itself.
WITHOUT = {"journal", "setup", "vectorized"}


@pytest.mark.parametrize("name", sorted(options_of("minimize").keys() - WITHOUT))
def test_a_resumed_run_may_change_what_is_not_its_identity(name: str, tmp_path: Path) -> None:
    path, rest = tmp_path / "j", {"method": METHOD.get(name, "des-mr")}
    first = run(journal=path, **rest)
    changed = rest | {"rounds": 3, name: OTHER[name]}
    if name == "evaluation_timeout":  # which not every engine has
        changed["engine"] = "auto"
    if options_of("minimize")[name].identity:
        with pytest.raises(desopt.JournalError, match="belongs to a run of another configuration"):
            run(journal=path, **changed)
    else:
        resumed = run(journal=path, **changed)
        assert resumed.nit == changed["rounds"]
        assert resumed.history[1] == first.history[1]
        assert resumed.x.tobytes() == run(**rest | {"rounds": changed["rounds"]}).x.tobytes()


# --- settings beside an object ----------------------------------------------------------------

OWN: dict[str, Any] = {
    "method": DES(iterations=4), "fun": LinearModel("lr"), "engine": Serial(),
}  # fmt: skip
BESIDE = [
    (option.part, name) for name, option in options_of("minimize").items()
    if option.part is not None
]  # fmt: skip


@pytest.mark.parametrize(("part", "name"), BESIDE)
def test_settings_beside_an_object_are_refused(part: str, name: str) -> None:
    value = {"setup": dict, "vectorized": True}.get(name, OTHER.get(name))
    with pytest.raises(ValueError, match=rf"{name}=.*({part}=|algorithm object)"):
        run(**{part: OWN[part], name: value})


def test_settings_that_agree_with_an_object_are_not() -> None:
    algorithm = DES(iterations=4, step_size=0.5)
    found = run(method=algorithm, step_size=0.5, engine=Serial(), fun=LinearModel("lr"))
    assert found.x.tobytes() == run(step_size=0.5).x.tobytes()
    with pytest.raises(ValueError, match=r"step_size=0.25 has no effect on method=DES\("):
        run(method=algorithm, step_size=0.25)


def test_every_part_is_tested() -> None:
    assert {part for part, _ in BESIDE} == {"method", "fun", "engine"}
