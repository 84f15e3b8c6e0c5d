"""Checks of numbers that a user passes: the message says what was given and what is allowed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number in a range, as a Python int."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    number = int(value)
    if number < least or (most is not None and number > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} must be {allowed}, got {number}")
    return number


def seed(name: str, value: Any) -> int:
    """The seed of random streams."""
    return whole(name, value, 0, 2**64 - 1)


def real(name: str, value: Any) -> float:
    """A real number other than NaN, as a Python float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number, got NaN")
    return float(value)


def as_float(value: Any) -> float:
    """A value as a float: infinite where it is a whole number that no float can hold."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def positive(name: str, value: Any) -> float:
    """A real number > 0."""
    number = real(name, value)
    if not number > 0:
        raise ValueError(f"{name} must be > 0, got {value!r}")
    return number


def share(name: str, value: Any) -> float:
    """A real number in (0, 1]."""
    number = real(name, value)
    if not 0 < number <= 1:
        raise ValueError(f"{name} must be > 0 and at most 1, got {value!r}")
    return number


def optional(check: Callable[..., Any], name: str, value: Any, *limits: Any) -> Any:
    """None, or the checked value."""
    return None if value is None else check(name, value, *limits)
