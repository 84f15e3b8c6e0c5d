"""``desopt run``: one run in a folder of its own, from which it can be resumed.

=============  ==============================================================
settings.json  everything that was asked for
run.journal    the answers of all rounds: what a resumed run goes on from
history.csv    one line per round
x.npy          the final point
best_x.npy     the point with the least loss of those that were evaluated
result.json    losses, errors, cost, versions
curve.png      loss against rounds, where matplotlib is installed
=============  ==============================================================
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray
from desopt.data import load, train_test
from desopt.objectives.scoring import LabelledRows
from desopt.run.minimize import Interrupted, Result, minimize, versions

SETTINGS, JOURNAL = "settings.json", "run.journal"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one run is asked to do; the names are those of ``minimize`` where it has them."""

    data: str | None = None
    data_dir: str | None = None
    rows: int | None = None
    test_share: float = 0.2
    loss: str = "lr"
    python: str | None = None
    n: int | None = None
    x0: str | None = None
    method: str = "des-mr"
    workers: int = 10
    rounds: int = 100
    iterations: int = 100
    batch_size: int = 1000
    step_size: float = 1.0
    momentum: float = 0.5
    mixture: int = 8
    radius: float = 1e-6
    population: int | None = None
    regularization: float = 1e-6
    seed: int = 0
    participation: float = 1.0
    aggregate: str = "mean"
    engine: str = "auto"
    jobs: int | None = None
    eval_every: int | None = None
    max_evaluations: int | None = None
    max_seconds: float | None = None
    target: float | None = None
    patience: int | None = None

    def search(self) -> dict[str, Any]:
        """The keyword arguments of ``minimize``."""
        ours = ("data", "data_dir", "rows", "test_share", "loss", "python", "n", "x0")
        return {k: v for k, v in asdict(self).items() if k not in ours}


#: What a resumed run may be told anew; the rest decides what is computed.
MAY_CHANGE = (
    "rounds", "engine", "jobs", "data_dir", "eval_every", "max_evaluations", "max_seconds",
    "target", "patience",
)  # fmt: skip


def begin(folder: Path, settings: Settings) -> Settings:
    """A new folder with these settings."""
    if (folder / JOURNAL).exists():
        raise FileExistsError(
            f"{folder} holds a run already: go on with it by `desopt run --resume --out {folder}`, "
            "or give another --out"
        )
    _check(settings)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, settings)
    return settings


def resume(folder: Path, given: dict[str, Any]) -> Settings:
    """The settings in the folder, changed by those of ``given`` that may change."""
    path = folder / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no run to resume; start one with `desopt run --out {folder} ...`"
        )
    saved = json.loads(path.read_text(encoding="utf-8"))
    names = {field.name for field in fields(Settings)}
    saved = {name: value for name, value in saved.items() if name in names}
    for name, value in given.items():
        if name not in MAY_CHANGE and value != saved[name]:
            raise ValueError(
                f"--{name.replace('_', '-')} was {saved[name]} when this run began, got {value}; "
                "leave it out to resume, or start another run with another --out"
            )
    settings = Settings(**{**saved, **given})
    _write(folder, settings)
    return settings


def execute(folder: Path, settings: Settings, progress: bool | None = None) -> dict[str, Any]:
    """Run (or go on with) what the settings say; writes the folder, gives ``result.json``."""
    problem = _problem(settings)
    try:
        result = minimize(
            problem.fun, problem.x0, problem.data, journal=folder / JOURNAL, progress=progress,
            **settings.search(),
        )  # fmt: skip
    except Interrupted as stop:
        _save(folder, problem, stop.result)
        raise
    return _save(folder, problem, result)


@dataclass(frozen=True)
class _Problem:
    """What is minimised, on what, and how a point is judged."""

    fun: str | Callable[..., float]
    x0: FloatArray | None
    data: Any
    judge: Callable[[FloatArray], dict[str, float]]


def _problem(settings: Settings) -> _Problem:
    x0 = _start(settings)
    train, test = _split(settings)
    if settings.python is None:
        penalty = settings.regularization

        def judge(x: FloatArray) -> dict[str, float]:
            found: dict[str, float] = {}
            for name, part in (("train", train), ("test", test)):
                loss, wrong = part.score(x, settings.loss, penalty)
                found |= {f"{name}_loss": loss, f"{name}_error": wrong / part.y.size}
            return found

        return _Problem(settings.loss, x0, (train.X, train.y), judge)
    fun = _imported(settings.python)
    if train is None:
        return _Problem(fun, x0, None, lambda x: {})
    return _Problem(fun, x0, (train.X, train.y), lambda x: {"test_loss": fun(x, (test.X, test.y))})


def _split(settings: Settings) -> tuple[Any, Any]:
    if settings.data is None:
        return None, None
    whole = load(settings.data, data_dir=settings.data_dir, rows=settings.rows)
    train, test = train_test(whole, settings.seed, 1.0 - settings.test_share)
    return LabelledRows(train.X, train.y), LabelledRows(test.X, test.y)


def _start(settings: Settings) -> FloatArray | None:
    if settings.x0 is not None:
        x0: FloatArray = np.load(settings.x0, allow_pickle=False)
        return x0
    return None if settings.n is None else np.zeros(settings.n)


def _imported(place: str) -> Callable[..., float]:
    """The function that ``module:function`` names; modules of the current folder count."""
    module, _, name = place.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"--python {place} cannot be had: {error}; give module:function, with the module "
            f"installed or in {here}"
        ) from error
    if not callable(found):
        raise TypeError(f"--python {place} is {type(found).__name__}, not a function")
    function: Callable[..., float] = found
    return function


def _check(settings: Settings) -> None:
    if settings.python is None and settings.data is None:
        raise ValueError("say what to minimise: --data NAME with --loss, or --python MODULE:FUNC")
    if settings.python is not None:
        if ":" not in settings.python:
            raise ValueError(f"--python must be module:function, got {settings.python!r}")
        if (settings.n is None) == (settings.x0 is None):
            raise ValueError("--python needs the starting point: --n N for zeros, or --x0 FILE.npy")
    if not 0.0 < settings.test_share < 1.0:
        raise ValueError(f"--test-share must be between 0 and 1, got {settings.test_share}")


def _save(folder: Path, problem: _Problem, result: Result) -> dict[str, Any]:
    result.history.to_csv(folder / "history.csv")
    np.save(folder / "x.npy", result.x)
    np.save(folder / "best_x.npy", result.best_x)
    last = result.history[-1] if result.history else {}
    summary = {
        "message": result.message,
        "rounds": result.nit,
        "initial_loss": result.initial_fun,
        "loss": result.fun,
        "best_loss": result.best_fun,
        **problem.judge(result.x),
        "nan_count": result.nan_count,
        **{
            k: last.get(k, 0)
            for k in ("evaluations", "samples", "bytes_up", "bytes_down", "seconds")
        },
        "digest": result.digest,
        "engine": result.engine,
        "versions": versions(),
    }
    summary = {k: None if v != v else v for k, v in summary.items()}  # JSON has no NaN
    _write_json(folder / "result.json", summary)
    draw(folder / "curve.png", result)
    return summary


def draw(path: Path, result: Result) -> None:
    """Loss against rounds; nothing where matplotlib is missing or nothing was evaluated."""
    rows = result.history.evaluated()
    if not rows or importlib.util.find_spec("matplotlib") is None:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    rounds = [0, *(row["round"] for row in rows)]
    losses = [result.initial_fun, *(row["loss"] for row in rows)]
    axes.plot(rounds, losses, color="#D55E00", marker="o", markersize=3)
    axes.set(xlabel="rounds", ylabel="objective")
    if all(math.isfinite(loss) and loss > 0 for loss in losses):
        axes.set_yscale("log")
    axes.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=150)


def _write(folder: Path, settings: Settings) -> None:
    _write_json(folder / SETTINGS, asdict(settings) | {"versions": versions()})


def _write_json(path: Path, values: dict[str, Any]) -> None:
    """All or nothing: a run that is killed leaves the old file."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
