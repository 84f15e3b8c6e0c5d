"""The value in the output of a program: by a regular expression, a JSON path, or all of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from desopt.contract.errors import Failed

#: Bytes of output in which a value is looked for.
MOST = 1 << 24
_JSON = "json:"
_STEP = re.compile(r"""\.?([^.\[\]"]+)|\[(-?\d+)\]|\["([^"]+)"\]""")


def reading(value: str | None) -> Callable[[str, bool], float]:
    """A function of an output's text, and of whether its beginning is missing."""
    if value is None:
        return _only_number
    if not isinstance(value, str):
        raise TypeError(
            "value must be a regular expression, 'json:' and a path, or None for an output that is "
            f"one number; got {value!r:.200}"
        )
    if value.startswith(_JSON):
        return _JsonPath(value)
    try:
        return _Match(re.compile(value))
    except re.error as error:
        raise ValueError(f"value={value!r:.200} is no regular expression: {error}") from None


def _only_number(text: str, cut: bool) -> float:
    if cut or not text.strip():
        raise Failed("more output than one number" if cut else "no output")
    if len(text.split()) > 1:
        raise Failed(f"{_short(text)}, which is not one number; value= says where the number is")
    return _number(text)


class _Match:
    """The last match of a pattern: its first group, or all of it if there is none."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def __call__(self, text: str, cut: bool) -> float:
        last = None
        for last in self._pattern.finditer(text):  # noqa: B007 - the last one is used
            pass
        if last is None:
            where = "its last 16 MiB" if cut else "the output"
            raise Failed(f"no match of {self._pattern.pattern!r} in {where}")
        found = last[1] if self._pattern.groups else last[0]
        if found is None:
            raise Failed(f"a match of {self._pattern.pattern!r} without its first group")
        return _number(found)


class _JsonPath:
    """A number in a JSON document: ``json:results[0].loss``; keys with a dot: ``["a.b"]``."""

    def __init__(self, value: str) -> None:
        self._path = value.removeprefix(_JSON)
        self._steps: list[str | int] = []
        at = 0
        while at < len(self._path):
            step = _STEP.match(self._path, at)
            if step is None:
                raise ValueError(
                    f"value={value!r:.200} is no JSON path; write 'json:' and keys and numbers, as "
                    """in 'json:results[0].loss', 'json:["a.b"]', or 'json:' for the whole"""
                )
            key, index, quoted = step.groups()
            self._steps.append(int(index) if index is not None else key or quoted)
            at = step.end()

    def __call__(self, text: str, cut: bool) -> float:
        document = _document(text, cut)
        for step in self._steps:
            try:
                if isinstance(step, str) != isinstance(document, dict):
                    raise TypeError
                document = document[step]
            except (LookupError, TypeError):
                raise Failed(f"no {self._path!r} in the JSON output: {step!r} is missing") from None
        if isinstance(document, bool) or not isinstance(document, int | float):
            raise Failed(f"{_short(document)} at {self._path!r}, which is not a number")
        try:
            return _finite(float(document))
        except OverflowError:
            raise Failed(f"{_short(document)}, which is too large for a float") from None


def _document(text: str, cut: bool) -> Any:
    """The text as JSON, or its last line: messages may come before it."""
    text = text.strip()
    last = text.rpartition("\n")[2]
    for part in (last,) if cut else (text, last):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    raise Failed(f"output that is not JSON: {_short(text)}" if text else "no output")


def _number(text: str) -> float:
    """A number as C, Python or Fortran (1.5D+03) write it."""
    try:
        return _finite(float(re.sub("[dD]", "e", text.strip(), count=1)))
    except ValueError:
        raise Failed(f"{_short(text)}, which is not a number") from None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise Failed(f"the value {value}, which is not finite")
    return value


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-15:]}"
