"""``desopt run``: one run in its own folder, from which it can be resumed.

==================  ==============================================================
settings.json       all settings
run.journal         the answers of all rounds, from which the run is resumed
run.journal.values  every single value, where values are slow
history.csv         one line per round
evaluations.csv     one line per single value, where values are slow
x.npy               the final point
best_x.npy          the evaluated point with the least loss
model.json          of a linear model: for desopt.load_model
result.json         losses, errors, cost, versions
curve.png           loss against rounds (the command, with matplotlib)
==================  ==============================================================
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt import plugins
from desopt.contract.errors import Failed
from desopt.contract.types import FloatArray, Objective
from desopt.data import load, train_test
from desopt.objectives import LOSSES
from desopt.objectives.command import Command
from desopt.objectives.inputs import Inputs, Moments, PreparedModel
from desopt.objectives.model import model_of, provenance_of
from desopt.objectives.scoring import LabelledRows
from desopt.run import journal, options
from desopt.run.header import versions
from desopt.run.history import Interrupted
from desopt.run.minimize import minimize
from desopt.system.files import write_whole

if TYPE_CHECKING:
    from desopt.run.result import Result

SETTINGS, JOURNAL, MODEL = "settings.json", "run.journal", "model.json"


def settings_of(given: Mapping[str, Any]) -> SimpleNamespace:
    """All settings of ``desopt run``, checked, before anything is written."""
    settings = options.checked("run", given)
    settings.plugin = plugins.load(settings.plugin or ()) or None
    _check_problem(settings)
    if (settings.standardize or settings.intercept) and (
        settings.loss not in LOSSES or settings.python or settings.command
    ):
        raise ValueError(
            "--standardize and --intercept are for the linear models: --data with --loss "
            f"{', '.join(LOSSES)}"
        )
    if not 0.0 < settings.test_share < 1.0:
        raise ValueError(f"--test-share must be between 0 and 1, got {settings.test_share}")
    return settings


def _check_problem(settings: SimpleNamespace) -> None:
    python, command = settings.python, settings.command
    if python is None and command is None and settings.data is None:
        raise ValueError(
            "say what to minimise: --data NAME with --loss, or --python MODULE:FUNC, or --command "
            "FILE.json"
        )
    if command is not None and (python is not None or settings.data is not None):
        raise ValueError("--command is a function of x alone: give it without --python and --data")
    if python is not None and ":" not in python:
        raise ValueError(f"--python must be module:function, got {python!r}")
    if (python or command) is not None and (settings.n is None) == (settings.x0 is None):
        which = "--python" if command is None else "--command"
        both = "; not both" if settings.n is not None else ""
        raise ValueError(
            f"{which} needs the starting point: --n N for zeros, or --x0 FILE.npy{both}"
        )


def begin(folder: Path, given: Mapping[str, Any]) -> SimpleNamespace:
    """Make a new folder for a run with these settings."""
    if (folder / JOURNAL).exists():
        command = f"desopt run --resume --out {quote(str(folder))}"
        raise FileExistsError(
            f"{folder} holds a run already: resume it with `{command}`, or give another --out"
        )
    settings = settings_of(given)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, settings)
    return settings


def resume(folder: Path, given: Mapping[str, Any]) -> SimpleNamespace:
    """The settings in the folder, with the given changes to those that may change."""
    path = folder / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no run to resume; start one with `desopt run --out {folder} ...`"
        )
    saved = saved_in(folder)
    if saved.get("kind", "run") != "run":
        raise ValueError(f"{folder} holds a run by ask and tell; see `desopt ask {folder}`")
    settings = settings_of(merged("run", saved, given))
    _write(folder, settings)
    return settings


def saved_in(folder: Path) -> dict[str, Any]:
    """What ``settings.json`` of the folder holds."""
    path = folder / SETTINGS
    try:
        saved = json.loads(path.read_bytes())
        if not isinstance(saved, dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} cannot be read: {error}; restore it from a copy, or start another run in "
            "another folder"
        ) from None
    return saved


def point_in(
    path: str | os.PathLike[str], what: str, expected: str = "a file for numpy.load"
) -> FloatArray:
    """A point from a file of NumPy; where it holds none, the error says ``what`` must be."""
    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError("it holds several arrays; save one by numpy.save")
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(f"{what} must be {expected}, got {path!s:.200}: {error}") from None
    return found


def merged(
    door: options.Door, saved: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a run that began with those saved; contradictions are refused."""
    known = options.options_of(door)
    before = {name: saved.get(name, option.default) for name, option in known.items()}
    now = {name: known[name].check(name, value) for name, value in given.items()}
    for name, value in now.items():
        if known[name].identity and json.loads(json.dumps(value)) != before[name]:
            raise ValueError(
                f"--{name.replace('_', '-')} was {before[name]} when this run began, got "
                f"{given[name]}; leave it out to continue, or start another run in another folder"
            )
    return before | now


def execute(
    folder: Path, settings: SimpleNamespace, progress: bool | None = None
) -> dict[str, Any]:
    """Start or continue the run; writes the folder and returns ``result.json``."""
    problem = _problem(settings)
    door = options.options_of("minimize")
    search = {name: value for name, value in vars(settings).items() if name in door}
    if isinstance(problem.fun, PreparedModel):
        del search["regularization"]  # it has its own
    try:
        with problem.fun if isinstance(problem.fun, Command) else nullcontext():
            result = minimize(
                problem.fun, problem.x0, problem.data, journal=folder / JOURNAL,
                progress=progress, **search,
            )  # fmt: skip
    except Interrupted as stop:
        save(folder, stop.result, problem.judge)
        raise
    if problem.inputs is not None and result.nit:  # without a round nothing is trained
        config = journal.read_header(folder / JOURNAL)["config"]
        provenance = provenance_of(config, result.nit, result.x)
        model_of(result.x, settings.loss, problem.inputs, provenance).save(folder / MODEL)
    return save(folder, result, problem.judge)


@dataclass(frozen=True)
class _Problem:
    """Objective, starting point and data, the scores of a point, and a linear model's inputs."""

    fun: str | Callable[..., float] | Objective
    x0: FloatArray | None
    data: Any
    judge: Callable[[FloatArray], dict[str, float]]
    inputs: Inputs | None = None


def _problem(settings: SimpleNamespace) -> _Problem:
    x0 = _start(settings)
    if settings.command is not None:
        return _Problem(_program(settings.command), x0, None, lambda x: {})
    train, test, columns = _split(settings)
    if settings.python is None:
        fun, inputs = settings.loss, None
        if settings.loss in LOSSES:
            fun, inputs, train, test = _prepared(settings, columns, train, test)
        penalty = settings.regularization

        def judge(x: FloatArray) -> dict[str, float]:
            found: dict[str, float] = {}
            for name, part in (("train", train), ("test", test)):
                loss, wrong = part.score(x, settings.loss, penalty)
                found |= {f"{name}_loss": loss, f"{name}_error": wrong / part.y.size}
            return found

        x0 = np.zeros(train.X.shape[1]) if x0 is None else x0
        return _Problem(fun, x0, (train.X, train.y), judge, inputs)
    fun = plugins.imported(settings.python, "--python")
    if train is None:
        return _Problem(fun, x0, None, lambda x: {})

    def tested(x: FloatArray) -> dict[str, float]:
        try:
            return {"test_loss": test.score(x, fun, settings.regularization)[0]}
        except Failed:
            return {"test_loss": math.nan}

    return _Problem(fun, x0, (train.X, train.y), tested)


def _prepared(
    settings: SimpleNamespace, columns: tuple[str, ...] | None, *parts: LabelledRows
) -> tuple[Any, ...]:
    """Objective and inputs of a linear model, and its training and test rows."""
    inputs = Inputs(columns, intercept=settings.intercept)
    if settings.standardize:
        inputs = inputs.standardised([Moments.of(parts[0].X, settings.data)])
    if not settings.standardize and not settings.intercept:
        return settings.loss, inputs, *parts
    model = PreparedModel(settings.loss, settings.regularization, inputs)
    return model, inputs, *(replace(part, X=inputs.apply(part.X)) for part in parts)


def _split(settings: SimpleNamespace) -> tuple[Any, Any, tuple[str, ...] | None]:
    if settings.data is None:
        return None, None, None
    whole = load(settings.data, data_dir=settings.data_dir, rows=settings.rows)
    share = 1.0 - settings.test_share
    if not 0 < round(share * whole.rows) < whole.rows:
        raise ValueError(
            f"--test-share must leave rows for training and for testing, of {whole.rows:,}; got "
            f"{settings.test_share}"
        )
    train, test = train_test(whole, settings.seed, share)
    return LabelledRows(train.X, train.y), LabelledRows(test.X, test.y), whole.columns


def _start(settings: SimpleNamespace) -> FloatArray | None:
    if settings.x0 is not None:
        return point_in(settings.x0, "--x0")
    return None if settings.n is None else np.zeros(settings.n)


def _program(description: dict[str, Any]) -> Command:
    try:
        return Command(**description)
    except TypeError as error:
        raise ValueError(f"--command: {error}; see help(desopt.Command)") from None


def save(
    folder: Path, result: Result, judge: Callable[[FloatArray], dict[str, float]]
) -> dict[str, Any]:
    """Write what was reached; returns ``result.json``."""
    result.history.to_csv(folder / "history.csv")
    if result.evaluations:
        result.evaluations.to_csv(folder / "evaluations.csv")
    np.save(folder / "x.npy", result.x)
    np.save(folder / "best_x.npy", result.best_x)
    last = result.history[-1] if result.history else {}
    summary = {
        "message": result.message,
        "rounds": result.nit,
        "initial_loss": result.initial_fun,
        "loss": result.fun,
        "best_loss": result.best_fun,
        **judge(result.x),
        "nan_count": result.nan_count,
        **{
            k: last.get(k, 0)
            for k in ("evaluations", "samples", "bytes_up", "bytes_down", "seconds")
        },
        "digest": result.digest,
        "engine": result.engine,
        "versions": versions(),
    }
    summary = {k: v if _is_json(v) else None for k, v in summary.items()}
    write_json(folder / "result.json", summary)
    return summary


def _is_json(value: Any) -> bool:
    """Whether JSON has a word for it: it has none for NaN and infinity."""
    return not isinstance(value, float) or math.isfinite(value)


def _write(folder: Path, settings: SimpleNamespace) -> None:
    write_json(folder / SETTINGS, vars(settings) | {"versions": versions()})


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Atomic: a killed run leaves the old file."""
    write_whole(path, (json.dumps(values, indent=1) + "\n").encode())
