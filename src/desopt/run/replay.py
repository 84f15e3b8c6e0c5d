"""``replay``: the points of a run from the answers in its journal, without workers or data."""

from __future__ import annotations

import inspect
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from desopt.contract import checks
from desopt.contract.errors import JournalError
from desopt.contract.scattered import Scattered
from desopt.contract.space import Box, Space
from desopt.contract.types import Algorithm, FloatArray, LocalSearch
from desopt.engines.trials import OBJECTIVE, Key
from desopt.methods import METHODS, restore
from desopt.methods.samplers import Sampler, as_sampler, restore_sampler
from desopt.objectives.scaled import violation_at
from desopt.run import header as headers
from desopt.run import journal as journals
from desopt.run.arguments import is_algorithm
from desopt.run.journal_file import refusing
from desopt.run.restrict import as_function
from desopt.run.values import SUFFIX, ValueLog

#: The most coordinates that the steps of one worker's round may change, in a replay.
MAX_COORDINATES = 2**27


def replay(
    journal: str | os.PathLike[str],
    round: int | None = None,
    *,
    trial: str | None = None,
    method: Algorithm | Callable[..., Algorithm] | None = None,
    sampler: Sampler | Callable[[np.random.Generator, int], Any] | None = None,
    constraints: Callable[[FloatArray], Any] | None = None,
) -> FloatArray:
    """x after ``round`` rounds (None: all), rebuilt from the journal's answers bit for bit.

    With ``trial``, the point of a single value instead, by its id in ``result.evaluations``. A run
    with a method or a sampler of your own needs ``method`` or ``sampler`` here. ``method`` is the
    algorithm object, or its class, which is called with the settings in the journal. A trial of a
    run with ``constraints`` needs these: the log has no values of points that violate them.

    >>> fun = lambda x: float(x @ x)
    >>> result = desopt.minimize(fun, np.ones(5), rounds=5, journal="a.journal")
    >>> bool(np.array_equal(desopt.replay("a.journal"), result.x))
    True
    >>> desopt.replay("a.journal", round=0)
    array([1., 1., 1., 1., 1.])
    """
    path, contents = Path(journal), journals.read(journal)
    if trial is None:
        return replayed(path, contents, round, method=method, sampler=sampler)
    if round is not None:
        raise ValueError("give round or trial, not both: a trial's id names its round")
    if not isinstance(trial, str):
        raise TypeError(f"trial must be an id, a text such as '3.0.17.2'; got {trial!r:.80}")
    headers.check_versions(path, contents.header)
    algorithm = algorithm_of(path, contents.header, method, sampler)
    return _point_of(path, contents, trial, algorithm, as_function(constraints))


def _point_of(
    path: Path, contents: journals.Contents, trial: str, algorithm: Algorithm,
    constraints: Callable[[FloatArray], Any] | None,
) -> FloatArray:  # fmt: skip
    """The point of a trial: the search of its round with the values before it, from the log."""
    key = Key.parse(trial.split(".", 1)[1] if trial.count(".") == len(Key._fields) else trial)
    done, config = len(contents.rows), contents.header["config"]
    if key.round > done or key.worker >= config["workers"]:
        raise ValueError(f"no trial {trial}: {path} has {done} rounds")

    def shown(x: FloatArray) -> FloatArray:
        """A searched point in the user's variables, as an array of its own."""
        with refusing(path, "what it holds"):
            return of_user(np.array(x), config)

    with refusing(path, "what it holds"):
        (state,) = forward(algorithm, contents, (key.round,))
        if key.number == OBJECTIVE:
            return shown(state.x)
        task = algorithm.plan(state)
        search, again = (algorithm.search(task, key.worker) for _ in range(2))  # type: ignore[attr-defined]

    def violation(x: FloatArray) -> float:
        return 0.0 if constraints is None else violation_at(shown(x), constraints)

    with ValueLog(path.with_name(path.name + SUFFIX), None) as log:
        _lead(search, key, key.number, log, violation)
        if search.basis > key.basis:  # computed ahead of a step that was accepted: stop before it
            _lead(again, key, search.index - 1, log, violation)
            search = again
    ahead = key.number - search.index
    points = search.ask(ahead + 2)
    if search.basis != key.basis or not 0 <= ahead < len(points):
        needed = config["method"].get("constrained") and constraints is None
        hint = "; give the constraints of the run" if needed else ""
        raise ValueError(f"no trial {trial}: the values in {path}{SUFFIX} do not lead there{hint}")
    return shown(points[ahead])


def _lead(
    search: LocalSearch, key: Key, number: int, log: ValueLog,
    violation: Callable[[FloatArray], float],
) -> None:  # fmt: skip
    """Tell a trial's search the values before this number, as far as they are known.

    It ends after the first step that is accepted besides those of the trial's basis.
    """
    while search.index < number and search.basis <= key.basis:
        known = log.evaluations.find(Key(*key[:2], search.index, search.basis))
        points = search.ask(2)
        if not points:
            break
        if known is not None:
            search.tell([math.nan if known.failed else known.value])
        elif (over := violation(points[0])) > 0.0:
            search.tell([math.nan], [over])
        else:
            break


def replayed(
    path: Path,
    contents: journals.Contents,
    round: int | None = None,
    *,
    method: Any = None,
    sampler: Any = None,
    scattered: bool = False,
) -> FloatArray:
    """``replay`` for a journal that has been read; ``scattered``: not as an array if possible."""
    headers.check_versions(path, contents.header)
    last = done = len(contents.rows)
    if round is not None:
        try:
            last = operator.index(round)
        except TypeError:
            raise TypeError(f"round must be a whole number, got {round!r:.80}") from None
    if not 0 <= last <= done:
        raise ValueError(f"round must be 0 to {done}, the rounds in {path}; got {round!r}")
    algorithm = algorithm_of(path, contents.header, method, sampler)
    with refusing(path, "what it holds"):
        few = scattered and getattr(algorithm, "scatters", False)
        x0: Any = Scattered(contents.header["config"]["n"]) if few else None
        (state,) = forward(algorithm, contents, (last,), x0)
        return of_user(state.x, contents.header["config"])


def of_user(x: FloatArray, config: Mapping[str, Any]) -> FloatArray:
    """x in the user's variables, where the run has searched others."""
    if "space" not in config["objective"]:
        return x
    settings = config["objective"]["space"]
    n, lists = settings["n"], [v for v in settings.values() if isinstance(v, list)]
    if n != x.size and [n] != [*{len(values) for values in lists}]:
        raise ValueError(f"a space of {n!r:.20} variables for {x.size} that are searched")
    space = Space.restore(settings)
    if space.size != x.size:
        raise ValueError(f"{space.size} variables are free, {x.size} are searched")
    return space.decode(x)


def forward(
    algorithm: Algorithm,
    contents: journals.Contents,
    rounds: Iterable[int],
    x0: FloatArray | None = None,
) -> list[Any]:
    """The states after these rounds, which must not decrease; their x is of the kind of ``x0``.

    Each is computed by merges from the nearest state before it: a snapshot, or the last one found.
    """
    like = algorithm.init(np.zeros(contents.header["config"]["n"]) if x0 is None else x0)
    found: list[Any] = []
    for last in rounds:
        snapshot = max((s for s in contents.snapshots if s.round <= last), key=lambda s: s.round)
        if not found or found[-1].round < snapshot.round:
            state = snapshot.state(like)
        while state.round < last:
            state = algorithm.merge(state, contents.answers[state.round])
        found.append(state)
    return found


def algorithm_of(
    path: Path, header: Mapping[str, Any], method: Any = None, sampler: Any = None
) -> Algorithm:
    """The algorithm of the run: the user's own, or the one that the header describes."""
    own = as_sampler(sampler)
    if is_algorithm(method):
        if own is not None:
            raise ValueError("method is an object with a sampler of its own; leave sampler out")
        headers.warn_of_other_part(path, header, "method", method)
        headers.check_method(path, header, method.settings())
        algorithm: Algorithm = method
        return algorithm
    if own is not None:
        headers.warn_of_other_part(path, header, "sampler", sampler)
    if method is not None:
        return _made(path, header, method, own)
    with refusing(path, "what it holds"):
        settings = header["config"]["method"]
        if settings["name"] not in METHODS:
            raise JournalError(
                f"{path}: method {settings['name']!r:.80} is not one of {', '.join(METHODS)}; give "
                "the algorithm object or its class as replay(..., method=...), or import the "
                "plug-in that registers it"
            )
        _check_plausible(header["config"])
        return restore(settings, own)


def _made(
    path: Path, header: Mapping[str, Any], make: Callable[..., Any], sampler: Sampler | None
) -> Algorithm:
    """The user's class called with the settings of the header."""
    if not callable(make):
        raise TypeError(f"method must be an algorithm object or a class of them, got {make!r:.80}")
    with refusing(path, "the settings of its method"):
        settings = dict(header["config"]["method"])
        _check_plausible(header["config"])
        if "box" in settings:
            settings["box"] = Box.restore(settings["box"])
        if "sampler" in settings:
            settings["sampler"] = sampler or restore_sampler(settings["sampler"])
        taken = inspect.signature(make).parameters
        if "name" not in taken and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            settings.pop("name")  # a class has a name of its own
        made = make(**settings)
    if not is_algorithm(made):
        raise TypeError(f"method must make an algorithm, but it returned {made!r:.80}")
    headers.check_method(path, header, made.settings())
    algorithm: Algorithm = made
    return algorithm


def _check_plausible(config: Mapping[str, Any]) -> None:
    """Refuse settings that no run can have had, before they take memory."""
    method = config["method"]
    if "box" in method and method["box"]["n"] != config["n"]:
        raise ValueError(f"bounds of {method['box']['n']!r:.20} variables, not {config['n']}")
    counts = "iterations", "seed", "population", "perturbations", "candidates"
    whole = {name: method[name] for name in counts if name in method}
    whole["mixture"] = method.get("sampler", {}).get("l", 1)
    for name, value in whole.items():
        checks.whole(name, value, 0)
    if whole["mixture"] * whole.get("iterations", 1) > MAX_COORDINATES:
        raise ValueError(f"{whole['mixture']} coordinates in each of {whole['iterations']} steps")
