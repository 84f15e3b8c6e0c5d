"""Exceptions and warnings of the package, and helpers for their messages."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ObjectiveError(RuntimeError):
    """The user's code failed in a worker; with the place and the original traceback."""

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
        return f"{self.what} failed{place}: {self.error}\n\nOriginal traceback:\n{self.traceback}"


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
    return ObjectiveError(what, f"{type(error).__name__}: {error}", trace)


class Failed(Exception):
    """An evaluation without a value: a rejected step, or ranked last.

    ``fun`` raises it, as in ``raise desopt.Failed("the solver diverged")``; the run goes on, and
    the reason is logged. Any other exception ends the run.
    """

    @property
    def reason(self) -> str:
        return str(self)


class EngineError(RuntimeError):
    """The engine could not collect the answers of a round; the journal, if any, resumes."""


class JournalError(ValueError):
    """The journal is damaged or belongs to another run; the message names what differs."""


class TheoryWarning(UserWarning):
    """A setting that works but that the paper's theorems do not cover."""
