"""Checks and conversions of the arguments of ``minimize`` that are not plain numbers.

Every message says what was given, what is allowed and, where it helps, what to do next.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desopt.contract.errors import TheoryWarning
from desopt.contract.scattered import Scattered
from desopt.contract.streams import MAX_DIMENSION
from desopt.contract.types import Algorithm, FloatArray, Objective
from desopt.data import Shard
from desopt.methods import METHODS, ProblemSize, make
from desopt.system.terminal import warn
from desopt.theory import MAX_MOMENTUM

_VERBS = ("init", "plan", "work", "merge", "settings")


def is_algorithm(method: Any) -> bool:
    """Whether it is an algorithm object: neither a name nor a class."""
    return not isinstance(method, type) and all(hasattr(method, verb) for verb in _VERBS)


def for_one_worker(method: Any) -> bool:
    """Whether the ``method`` argument is for a single worker with all the data."""
    known = METHODS.get(method) if isinstance(method, str) else method
    return bool(getattr(known, "single_worker", False))


def as_algorithm(method: Any, problem: ProblemSize, **settings: Any) -> Algorithm:
    """The ``method`` argument as an algorithm with these settings, checked."""
    if isinstance(method, str):
        return make(method, settings, problem)
    if not is_algorithm(method):
        raise TypeError(
            f"method must be one of {', '.join(METHODS)} or an algorithm object, got {method!r}"
        )
    algorithm: Algorithm = method
    return algorithm


def fits_aggregate(algorithm: Algorithm, aggregate: str, n: int) -> None:
    """Refuse a rule that the method does not have; warn if its steps are too sparse for it."""
    if aggregate == "mean":
        return
    if getattr(algorithm, "aggregate", None) != aggregate:
        names = [name for name, method in METHODS.items() if method.aggregates]
        raise ValueError(
            f"aggregate={aggregate!r} is for the methods that average over workers "
            f"({', '.join(names)}), got {algorithm.name}; leave it out, or set it in the "
            "algorithm object"
        )
    sampler = getattr(algorithm, "sampler", None)
    draws = getattr(sampler, "l", 2 * n) * getattr(algorithm, "iterations", 1)
    if draws < 2 * n:
        warn(
            f"aggregate={aggregate!r} with {draws} draws of {n} coordinates a round: most workers "
            "leave most coordinates alone, so that the step is 0 there; use more iterations, a "
            "larger mixture, or method='des'",
            RuntimeWarning,
            stacklevel=5,
        )


def as_callbacks(callbacks: Any) -> tuple[Callable[..., Any], ...]:
    """The ``callbacks`` argument: one function or several."""
    given = (callbacks,) if callable(callbacks) else callbacks
    if not isinstance(given, Iterable):
        raise TypeError(f"callbacks must be a list of functions, got {callbacks!r}")
    functions = tuple(given)
    for function in functions:
        if not callable(function):
            raise TypeError(f"callbacks must be functions of a row, got {function!r}")
        if isinstance(function, type):
            name = function.__name__
            raise TypeError(f"callbacks has the class {name}; give an object of it: {name}(...)")
    return functions


def as_path(journal: Any) -> Path | None:
    """The ``journal`` argument: a file, in a folder that exists."""
    if journal is None:
        return None
    if not isinstance(journal, str | os.PathLike):
        raise TypeError(f"journal must be a file's path or None, got {journal!r}")
    path = Path(os.fspath(journal))
    if path.is_symlink():  # also of a file that is still to be made
        path = Path(os.path.realpath(path))
    if path.is_dir():
        raise ValueError(f"journal must be a file, got the folder {str(journal)!r}")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        what = "a link to itself" if path.is_symlink() else "a pipe or a device"
        raise ValueError(f"journal must be a file, got {str(journal)!r}, {what}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"journal: there is no folder {path.absolute().parent}; make it first"
        )
    return path


def starting_point(x0: Any, objective: Objective, shards: Sequence[Shard]) -> FloatArray:
    """x0 as a new vector: the caller's array is never modified."""
    n = objective.dimension(shards)
    if isinstance(x0, Scattered):
        return x0  # type: ignore[return-value]
    if x0 is None:
        if n is None:
            raise ValueError("x0 is missing; only linear models on arrays can start at zeros")
        return np.zeros(n)
    if np.ma.is_masked(x0):
        raise ValueError("x0 has masked entries; fill them first")
    try:
        given = np.asarray(x0)
        if given.dtype.kind not in "fiub":
            raise TypeError
        x = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"x0 must be a vector of real numbers, got {x0!r:.80}") from None
    if x.ndim != 1 or not 1 <= x.size <= MAX_DIMENSION:
        raise ValueError(f"x0 must be a vector of at least one number, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"x0 must be finite; entry {np.flatnonzero(~np.isfinite(x))[0]} is not")
    if n is not None and x.size != n:
        raise ValueError(f"x0 has {x.size} numbers but the data have {n} columns")
    return x


def warn_outside_theory(algorithm: Algorithm, batch_size: int | None, rounds: int) -> None:
    """Warn of settings that no theorem of the paper covers (``batch_size`` None: no batches)."""
    beta = getattr(algorithm, "momentum", None)
    if beta is None:
        return
    if beta >= MAX_MOMENTUM:
        _outside(f"momentum {beta:g}", f"momentum < {MAX_MOMENTUM:.4g}")
    if batch_size is not None and batch_size < math.sqrt(rounds):
        least = f"batch_size >= sqrt(rounds) = {math.sqrt(rounds):.4g}"
        _outside(f"batch_size {batch_size}", least)


def warn_of_auto(algorithm: Algorithm, problem: ProblemSize, penalty: float | None) -> None:
    """Warn where ``step_size="auto"`` is known to fail (docs/step-size.md).

    ``penalty``: of a linear model; None for other objectives.
    """
    if getattr(algorithm, "step_size", None) != "auto":
        return
    bits, why = problem.workers * problem.iterations, ""
    if not hasattr(algorithm, "schedule"):
        return
    if bits < 20:
        why = f"{bits} accept bits a round say little about it; use more iterations or workers"
    elif penalty == 0.0 and getattr(algorithm.sampler, "l", 0) == 1:  # type: ignore[attr-defined]
        why = (
            "steps of one coordinate without a penalty are accepted whatever their size where "
            "the minibatch lacks that column; use a larger mixture or a penalty"
        )
    if why:
        warn(f"step_size='auto' may fail: {why}, or a number", RuntimeWarning, stacklevel=5)


def _outside(what: str, covered: str) -> None:
    warn(
        f"{what} is outside the theory, which covers {covered}; the run goes on",
        TheoryWarning,
        stacklevel=5,
    )
