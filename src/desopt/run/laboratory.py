"""``desopt ask`` and ``desopt tell``: a run by ask and tell in its own folder.

The folder is that of ``desopt run`` (``folder.py``), and has x0.npy besides. Each command opens
the run, does its work and closes it. x0.npy is locked meanwhile: others wait.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from desopt import plugins
from desopt.contract.errors import JournalError
from desopt.contract.types import FloatArray
from desopt.run import folder as folders
from desopt.run import optimizer as optimizers
from desopt.run import options
from desopt.run.header import versions
from desopt.run.journal_file import exclusive, lock, open_regular
from desopt.run.optimizer import OpenTrial, Optimizer
from desopt.system.files import write_whole

X0 = "x0.npy"
#: Columns of tables of trials and values, which no variable may be called.
COLUMNS = ("id", "round", "worker", "value", "reason")

_ALL = 2**20  # trials that one may ask for


@dataclass(frozen=True)
class Start:
    """The starting point and the names of its variables, as far as the user gives them."""

    n: int | None = None
    x0: FloatArray | None = None
    variables: Sequence[str] | None = None

    @property
    def given(self) -> bool:
        return any(part is not None for part in (self.n, self.x0, self.variables))

    def point(self) -> FloatArray:
        """x0, checked against the rest."""
        if self.n is not None and self.x0 is not None:
            raise ValueError("give --n N to start at zeros or --x0, not both")
        names = self.variables
        n = self.n if self.n is not None or names is None else len(names)
        if self.x0 is None and n is None:
            raise ValueError(
                "give the starting point: --x0 1,2,3 or --x0 FILE.npy, or --n N for zeros"
            )
        x0 = np.zeros(n) if self.x0 is None and n is not None else self.x0
        assert x0 is not None
        if names is not None:
            _check_names(names, x0.size)
        return x0

    def check(self, x0: FloatArray, names: Sequence[str] | None) -> None:
        """Refuse what contradicts the run in the folder."""
        for option, before, now in (
            ("--n", x0.size, self.n),
            ("--x0", x0.tolist(), None if self.x0 is None else self.x0.tolist()),
            ("--variables", names, None if self.variables is None else list(self.variables)),
        ):
            if now is not None and now != before:
                raise ValueError(
                    f"{option} was {before!r:.80} when this run began, got {now!r:.80}; leave it "
                    "out to continue, or start another run in another folder"
                )


@dataclass(frozen=True)
class Status:
    """Where the run is. ``round`` counts from 1; ``open`` values can be computed now."""

    round: int
    rounds: int
    told: int
    failed: int
    best: float | None
    open: int
    done: bool

    def __str__(self) -> str:
        best = "" if self.best is None else f", best {self.best:.6g}"
        told = f"{self.told} value{'s' * (self.told != 1)} told, {self.failed} failed{best}"
        if self.done:
            return told
        return f"round {self.round} of {self.rounds}, {told}, {self.open} open"


@dataclass
class Laboratory:
    """An open run."""

    folder: Path
    variables: Sequence[str]
    optimizer: Optimizer
    trials: list[OpenTrial] = field(init=False)  # those that can be evaluated now

    def __post_init__(self) -> None:
        self.trials = self.optimizer.ask(_ALL)

    def ahead(self, count: int) -> None:
        """Fill up to so many trials with points that may turn out to be needed."""
        if len(self.trials) < count:
            self.trials += self.optimizer.ask(count - len(self.trials), ahead=True)

    def tell(self, id: str, value: float | None, reason: str = "") -> str:
        """Keep a value (None: failed); says what became of it."""
        key = optimizers.key_of(id, self.optimizer.tag)
        before = self.optimizer.evaluations.find(key)
        used = self.optimizer.tell(id, value, failed=value is None, reason=reason)
        if used:
            self.trials = self.optimizer.open() + self.optimizer.ask(_ALL)
            return "kept"
        if before is None:
            return "kept, but no longer needed"
        return "told before"

    def status(self) -> Status:
        done, rounds = self.optimizer.rounds
        values = self.optimizer.evaluations
        best = None if values.best is None else values.best.value
        return Status(
            min(done + 1, rounds), rounds, len(values), values.failures, best, len(self.trials),
            self.optimizer.done,
        )  # fmt: skip

    def finish(self) -> dict[str, Any]:
        """Write what was reached into the folder, as ``desopt run`` does; the summary."""
        result = self.optimizer.result()
        summary = folders.save(self.folder, result, lambda x: {})
        return summary | {"x": result.x.tolist(), "best_x": result.best_x.tolist()}


@contextmanager
def opened(
    folder: Path, start: Start | None = None, given: Mapping[str, Any] | None = None
) -> Iterator[Laboratory]:
    """The run in the folder, begun if there is none and ``start`` says where."""
    if not (folder / folders.SETTINGS).is_file():
        _begin(folder, start, given or {})
    with _locked(folder):
        settings, x0, names = _settings(folder, start or Start(), given or {})
        door = options.options_of("minimize")
        search = {name: value for name, value in vars(settings).items() if name in door}
        with Optimizer(x0, journal=folder / folders.JOURNAL, progress=False, **search) as optimizer:
            yield Laboratory(folder, names or [f"x{i}" for i in range(x0.size)], optimizer)


def is_open_elsewhere(folder: Path) -> bool:
    """Whether another process, such as a script with an ``Optimizer``, has the run open."""
    journal = folder / folders.JOURNAL
    if not (folder / X0).is_file() or not journal.exists():
        return False
    with _locked(folder), open_regular(journal) as file:
        try:
            lock(file, journal)
        except JournalError:
            return True
    return False


def leave(folder: Path, id: str, value: float | None, reason: str = "") -> None:
    """Keep a value for the process that has the run open."""
    optimizers.tell(folder / folders.JOURNAL, id, value, failed=value is None, reason=reason)


def _begin(folder: Path, start: Start | None, given: Mapping[str, Any]) -> None:
    """Make the folder; nothing is left behind if a setting is wrong."""
    if (folder / folders.JOURNAL).exists():
        raise FileExistsError(f"{folder} holds a journal but no settings.json; give another folder")
    if start is None or not (start.given or given):
        raise FileNotFoundError(
            f"{folder} holds no run; start one with `desopt ask {folder} --x0 1,2,3 ...` or --n N"
        )
    x0 = start.point()
    settings = _checked(given)
    search = {name: value for name, value in vars(settings).items() if name != "plugin"}
    Optimizer(x0, progress=False, **search).close()
    folder.mkdir(parents=True, exist_ok=True)
    data = io.BytesIO()
    np.save(data, x0)
    write_whole(folder / X0, data.getvalue())
    _write(folder, settings, None if start.variables is None else list(start.variables))


def _settings(
    folder: Path, start: Start, given: Mapping[str, Any]
) -> tuple[SimpleNamespace, FloatArray, Sequence[str] | None]:
    """Settings, x0 and names of the run in the folder, with the given changes."""
    saved = folders.saved_in(folder)
    x0 = folders.point_in(folder / X0, "the starting point of a run by ask and tell")
    names = saved.get("variables")
    start.check(x0, names)
    settings = _checked(folders.merged("ask", saved, given))
    if given:
        _write(folder, settings, names)
    return settings, x0, names


def _checked(given: Mapping[str, Any]) -> SimpleNamespace:
    settings = options.checked("ask", given)
    settings.plugin = plugins.load(settings.plugin or ()) or None
    return settings


def _write(folder: Path, settings: SimpleNamespace, names: list[str] | None) -> None:
    more = {"kind": "ask", "variables": names, "versions": versions()}
    folders.write_json(folder / folders.SETTINGS, vars(settings) | more)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if not (folder / X0).is_file():
        raise ValueError(
            f"{folder} holds no run by ask and tell; see `desopt run --resume --out {folder}`, or "
            "give another folder"
        )
    with open_regular(folder / X0, write=True) as file, exclusive(file):
        yield


def _check_names(names: Sequence[str], n: int) -> None:
    if len(names) != n:
        raise ValueError(f"--variables has {len(names)} names for {n} numbers: give one for each")
    for name in names:
        if not name or name in COLUMNS or names.count(name) > 1:
            raise ValueError(
                f"--variables: {name!r} cannot be a name here; names are not empty, all different, "
                f"and none of {', '.join(COLUMNS)}"
            )


def point(text: str) -> FloatArray:
    """x0 from the command line: numbers with commas, or a file."""
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        pass
    return folders.point_in(text, "--x0", "numbers such as 1,2,3 or a file for numpy.load")


def number(text: str) -> float | None:
    """A value from the command line; None: failed."""
    if text.strip().lower() == "failed":
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(
            f"not a value: {text!r:.80}; give a number, or failed where there is none"
        ) from None
    return value if math.isfinite(value) else None
