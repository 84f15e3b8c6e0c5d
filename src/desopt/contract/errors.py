"""Exceptions and warnings of the package, and helpers for their messages."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

#: Between the message of an ObjectiveError and the traceback that follows it.
_TRACEBACK = "\n\nOriginal traceback:\n"


class ObjectiveError(RuntimeError):
    """The user's code failed in a worker. The message has the place and the original traceback.

    >>> def broken(x):
    ...     return 1.0 / 0.0
    >>> try:
    ...     desopt.minimize(broken, np.ones(2), engine="serial")
    ... except desopt.ObjectiveError as error:
    ...     print(error.error)
    ZeroDivisionError: float division by zero
    """

    def __init__(self, what: str, error: str, traceback: str) -> None:
        super().__init__(what, error, traceback)
        self.what, self.error, self.traceback = what, error, traceback
        self.worker: int | None = None
        self.round: int | None = None
        self.iteration: int | None = None

    def __str__(self) -> str:
        places = ("worker", self.worker), ("round", self.round), ("iteration", self.iteration)
        where = ", ".join(f"{name} {number}" for name, number in places if number is not None)
        place = f" ({where})" if where else ""
        return f"{self.what} failed{place}: {self.error}{_TRACEBACK}{self.traceback}"


def headline(message: str) -> str:
    """The message of an error without the traceback of the user's code, for a single line."""
    return message.partition(_TRACEBACK)[0]


def check_name(argument: str, name: str, known: Iterable[str]) -> None:
    """Refuse an unknown name and suggest the nearest one."""
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(str(name).lower(), names, 1, 0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown {argument} {name!r}: choose from {', '.join(names)}{hint}")


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn any exception of the user's code into an ObjectiveError."""
    try:
        yield
    except Exception as error:
        raise failure(what, error) from error


def failure(what: str, error: Exception) -> ObjectiveError:
    """The ObjectiveError for an exception of the user's code."""
    trace = "".join(traceback.format_exception(error))
    return ObjectiveError(what, f"{type(error).__name__}: {_text(error)}", trace)


def _text(error: Exception) -> str:
    """What an exception says; in the words of Python's tracebacks where it cannot say it."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


class Failed(Exception):
    """An evaluation has no value: it counts as a rejected step, or ranks last.

    ``fun`` raises this exception, as in ``raise desopt.Failed("the solver diverged")``. The run
    goes on, and the reason is logged. Any other exception ends the run.

    >>> def half(x):
    ...     if x[0] < 0.0:
    ...         raise desopt.Failed("outside")
    ...     return float(x @ x)
    >>> result = desopt.minimize(half, np.ones(2), rounds=5)
    >>> result.nan_count > 0, bool(result.x[0] >= 0.0)
    (True, True)
    """

    @property
    def reason(self) -> str:
        return str(self)


class EngineError(RuntimeError):
    """The engine could not collect the answers of a round. A journal, if any, resumes the run.

    >>> issubclass(desopt.EngineError, RuntimeError)
    True
    """


class JournalError(ValueError):
    """The journal is damaged or belongs to another run; the message names what differs.

    >>> with open("not-a.journal", "w") as file:
    ...     count = file.write("hello")
    >>> try:
    ...     desopt.replay("not-a.journal")
    ... except desopt.JournalError as error:
    ...     print(type(error).__name__)
    JournalError
    """


class TheoryWarning(UserWarning):
    """A setting that works but that the paper's theorems do not cover.

    >>> import warnings
    >>> fun = lambda x: float(x @ x)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     result = desopt.minimize(fun, np.ones(2), method="des", momentum=0.7, rounds=2)
    >>> caught[0].category is desopt.TheoryWarning
    True
    """
