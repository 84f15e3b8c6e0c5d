"""Texts with the variables of a problem in them: ``--rate={rate:.3e}``, ``{x[0]}``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from desopt.contract.types import FloatArray

#: A number for trying a template out.
_SAMPLE = 0.5


class Vector(tuple[float, ...]):
    """x in a template: ``{x[0]}`` is a number; ``{x}`` are all of them, with blanks between."""

    def __format__(self, spec: str) -> str:
        return " ".join([format(number, spec) for number in self])


class Variables:
    """The names of the numbers in x, in their order; None: ``x0``, ``x1``, ..."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.names = None if names is None else _checked(names)

    def values(self, x: FloatArray) -> dict[str, Any]:
        """What templates may use: the numbers by name, and x."""
        numbers = [float(number) for number in x]
        if self.names is None:
            return {"x": Vector(numbers)} | {f"x{i}": number for i, number in enumerate(numbers)}
        if len(numbers) != len(self.names):
            raise ValueError(
                f"x has {len(numbers)} numbers, but variables names {len(self.names)}: "
                f"{_listed(self.names)}; give x0 one number for each"
            )
        return {"x": Vector(numbers)} | dict(zip(self.names, numbers, strict=True))

    def as_json(self, values: dict[str, Any]) -> dict[str, Any]:
        """The object of a JSON file: numbers by name, or ``{"x": [...]}`` without names."""
        return {name: values[name] for name in self.names or ("x",)}

    def check(self, templates: Iterable[tuple[str, str]], *, all_used: bool) -> None:
        """Refuse (argument, text) pairs that cannot be filled, and variables in none of them."""
        sample = _Sample(self.names)
        for argument, text in templates:
            _try(argument, text, sample)
        used = sample.used | (set(self.names or "x") if all_used else set())
        if self.names is None and not used:
            raise ValueError(
                "no variable is used: write {x0}, {x1}, ... or {x} into the command, env, stdin or "
                "input, or give input='params.json'"
            )
        whole = "x" in used and "x" not in (self.names or ())  # all of them, or any
        unused = [name for name in self.names or () if name not in used and not whole]
        if unused:
            raise ValueError(
                f"no template uses the variables {_listed(unused)}, so that the value cannot "
                f"depend on them: write {{{unused[0]}}} into the command, env, stdin or input, "
                "give input='params.json', or leave them out"
            )


def fill(text: str, values: dict[str, Any]) -> str:
    """The text with the values in it."""
    try:
        return text.format_map(values)
    except (KeyError, IndexError) as error:  # only without names: x may be too short
        raise ValueError(
            f"{text!r:.200} needs more numbers than the {len(values['x'])} in x ({error})"
        ) from None


class _Sample(dict[str, Any]):
    """Values for trying templates out; it notes which ones they use."""

    def __init__(self, names: Sequence[str] | None) -> None:
        numbers = None if names is None else dict.fromkeys(names, _SAMPLE)
        super().__init__({"x": _Any() if numbers is None else Vector(numbers.values())})
        self.update(numbers or {})
        self.used: set[str] = set()
        self._open = names is None

    def __getitem__(self, name: str) -> Any:
        if self._open and re.fullmatch(r"x(0|[1-9]\d*)", name):
            value: Any = _SAMPLE
        else:
            value = super().__getitem__(name)
        self.used.add(name)
        return value


class _Any(Vector):
    """x of unknown length."""

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if not isinstance(index, int):
            raise TypeError(f"x is indexed by numbers, not by {index!r}")
        return _SAMPLE

    def __format__(self, spec: str) -> str:
        return format(_SAMPLE, spec)


def _try(argument: str, text: str, sample: _Sample) -> None:
    where = f"{argument}: {text!r:.200}"
    if "\0" in text:
        raise ValueError(f"{where} contains a zero character, which no program can be given")
    try:
        text.format_map(sample)
    except KeyError as error:
        name = str(error.args[0])
        known = ["x", "x0", "x1"] if sample._open else [*sample]
        near = difflib.get_close_matches(name, known, 1, 0.6)
        hint = f"did you mean {{{near[0]}}}? " if near else ""
        names = "{x}, {x[0]}, {x0}, {x1}, ..." if sample._open else _listed(known)
        raise ValueError(
            f"{where} uses {name!r}, which is no variable; there are {names}; {hint}"
            "Write {{ and }} for braces of the text"
        ) from None
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} is no template: {error}; the variables are floats: write {{name}}, "
            "{name:.3e} or {x[0]}, and {{ and }} for braces of the text"
        ) from None


def _checked(names: Sequence[str]) -> tuple[str, ...]:
    listed = isinstance(names, Iterable) and not isinstance(names, str)
    if not listed or not all(isinstance(name, str) for name in names):
        raise TypeError(f"variables must be a list of names, as in ['a', 'b'], got {names!r:.200}")
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"variables: {name!r} is no name; use letters, digits and _")
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice or not names:
        what = f"{_listed(twice)} twice" if twice else "no name"
        raise ValueError(f"variables must be different names, one for each number in x, got {what}")
    return tuple(names)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown}, ... ({len(names)} in all)"
