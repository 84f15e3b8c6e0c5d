"""What goes wrong, and how it is said."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ObjectiveError(RuntimeError):
    """The user's code failed inside a worker; says where, and carries the original traceback."""

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
    """Refuse a name that is not known, suggesting the nearest one."""
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(name.lower(), names, 1, 0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown {argument} {name!r}: choose from {', '.join(names)}{hint}")


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into an ObjectiveError that says whose fault it is."""
    try:
        yield
    except Exception as error:
        raise failure(what, error) from error


def failure(what: str, error: Exception) -> ObjectiveError:
    """The ObjectiveError for an exception of the user's code."""
    trace = "".join(traceback.format_exception(error))
    return ObjectiveError(what, f"{type(error).__name__}: {error}", trace)


class EngineError(RuntimeError):
    """The engine could not bring all answers back; what is in the journal can be resumed."""


class JournalError(ValueError):
    """The journal is damaged, or belongs to another run; the message says which field differs."""


class TheoryWarning(UserWarning):
    """The setting works but is outside what the paper's theorems cover."""
