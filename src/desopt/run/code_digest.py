"""Digests of the user's code, with which a resumed run notices that it has changed.

A digest covers what the code does: instructions, constants, names, nested functions, plain
default values and closure variables, and the plain constants and functions of the same module that
it uses. It does not cover files, lines, function names and docstrings. A callable object counts by
its class, and by what its ``code_identity()`` gives, if it has one: a tuple of plain values.
Values that may change during a run (lists, arrays, counters) are left out, as is the inside of
compiled functions.

Instructions differ between minor versions of Python: digests are comparable within one only.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any

from desopt.objectives.scaled import ScaledObjective

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType)

#: Where wrappers keep what they wrap: functools, numba, NumPy's vectorize.
_WRAPPED = ("__wrapped__", "py_func", "pyfunc")

#: CO_HAS_DOCSTRING of Python 3.14; before, a function's first constant is a text if and only if
#: it is the docstring.
_HAS_DOCSTRING = 0x4000000


def code_digest(*functions: Any) -> str | None:
    """16 hexadecimal digits, or None if the code cannot be inspected."""
    try:
        found = [*map(_Walk(), functions)]
        return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()
    except Exception:  # whatever an odd object does when it is inspected
        return None


class _Walk:
    """Turns code into nested tuples of numbers and texts; repetitions become references."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used again

    def __call__(self, thing: Any) -> Any:
        if id(thing) in self._met:
            return ("again", self._met[id(thing)])
        self._met[id(thing)] = len(self._met)
        self._kept.append(thing)
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, types.MethodType):
            return ("method", self(thing.__func__), self._class(type(thing.__self__)))
        if isinstance(thing, functools.partial):
            rest = self._values(thing.args), self._values(sorted(thing.keywords.items()))
            return ("partial", self(thing.func), *rest)
        if isinstance(thing, _BUILTIN):
            return ("builtin", _owner(thing), thing.__qualname__)
        if isinstance(thing, type):
            return ("class", self._class(thing))
        wrapped = [n for n in _WRAPPED if inspect.getattr_static(thing, n, None) is not None]
        if wrapped:
            return ("wrapper", type(thing).__qualname__, self(getattr(thing, wrapped[0])))
        identity = (_of_constant(thing.code_identity()),) if _has_identity(thing) else ()
        return ("object", self._class(type(thing)), *identity)

    def _function(self, function: types.FunctionType) -> Any:
        code = function.__code__
        inside = list(_nested(code))
        rebound = _names(inside, ("STORE_DEREF", "STORE_GLOBAL", "DELETE_DEREF", "DELETE_GLOBAL"))
        closure = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        used = {name: _content(cell) for name, cell in closure.items()}
        for name in _names(inside, ("LOAD_GLOBAL", "LOAD_NAME")):
            value = function.__globals__.get(name)
            own = getattr(value, "__module__", None) == function.__module__
            if own or _is_plain(value) or _has_identity(value):
                used.setdefault(name, value)
        defaults = function.__defaults__ or (), sorted((function.__kwdefaults__ or {}).items())
        return (
            "function",
            _of_code(code),
            *(self._values(values) for values in defaults),
            self._values((name, used[name]) for name in sorted(used.keys() - rebound)),
        )

    def _values(self, values: Iterable[Any]) -> Any:
        """Plain values and code in full, the others by their type."""
        return tuple(self._value(value) for value in values)

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return self._values(value)
        if _is_plain(value):
            return _of_constant(value)
        is_code = isinstance(value, types.FunctionType | types.MethodType | functools.partial)
        if is_code or _has_identity(value) or (isinstance(value, type) and not _is_library(value)):
            return self(value)
        return type(value).__qualname__

    def _class(self, cls: type) -> Any:
        """The functions of a class and of its bases in the same package."""
        found: list[Any] = [cls.__qualname__]
        for base in cls.__mro__:
            if _package(base) != _package(cls) or _is_library(base):
                continue
            for name, member in sorted(vars(base).items()):
                found.extend((name, self(function)) for function in _functions(member))
        return tuple(found)


def _functions(member: Any) -> Iterator[types.FunctionType]:
    """The functions behind a member of a class."""
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if isinstance(member, property):
        parts: tuple[Any, ...] = (member.fget, member.fset)
    else:
        parts = (getattr(member, "func", member), getattr(member, "py_func", None))
    for part in parts:
        if isinstance(part, types.FunctionType):
            yield part


def _of_code(code: types.CodeType) -> Any:
    constants = list(code.co_consts)
    documented = code.co_flags & _HAS_DOCSTRING or code.co_flags & inspect.CO_OPTIMIZED
    if documented and constants and isinstance(constants[0], str):
        constants[0] = None
    return (
        code.co_code.hex(),
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        code.co_flags & ~_HAS_DOCSTRING,
        code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        getattr(code, "co_exceptiontable", b"").hex(),
        tuple(_of_constant(constant) for constant in constants),
    )  # fmt: skip


def _of_constant(value: Any) -> Any:
    """A constant with its type: 1, 1.0 and True differ. Sets have no order."""
    if isinstance(value, types.CodeType):
        return _of_code(value)
    if isinstance(value, tuple):
        return ("tuple", *map(_of_constant, value))
    if isinstance(value, frozenset):
        return ("frozenset", *sorted(repr(_of_constant(item)) for item in value))
    return (type(value).__name__, repr(value))


def _is_plain(value: Any) -> bool:
    """Whether a value is a constant, nested ones included."""
    if isinstance(value, tuple | frozenset) and type(value) in (tuple, frozenset):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


def _has_identity(value: Any) -> bool:
    """Whether an object says itself what it is; a class does not."""
    return callable(inspect.getattr_static(type(value), "code_identity", None))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _names(codes: Iterable[types.CodeType], operations: tuple[str, ...]) -> set[str]:
    """The operands of these operations."""
    instructions = (one for code in codes for one in dis.get_instructions(code))
    return {str(one.argval) for one in instructions if one.opname.startswith(operations)}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _owner(function: Any) -> str:
    """The module of a compiled function, or the class of a compiled method."""
    bound = getattr(function, "__self__", None)
    if bound is None or isinstance(bound, types.ModuleType):
        return str(getattr(function, "__module__", None))
    return type(bound).__qualname__


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _is_library(cls: type) -> bool:
    """Whether versions identify the code: Python's own and this package's."""
    return _package(cls) in ("builtins", "desopt", "abc", "typing", "functools", "collections")


def user_code_of(objective: Any, algorithm: Any, shards: Any) -> dict[str, str]:
    """The digests of the user's own code in a run, by the name of the argument."""
    parts = user_parts(objective, algorithm, shards)
    found = {name: code_digest(*part) for name, part in parts.items()}
    return {name: digest for name, digest in found.items() if digest is not None}


def user_parts(objective: Any, algorithm: Any, shards: Any) -> dict[str, list[Any]]:
    """The user's own functions and objects in a run, by the name of the argument."""
    sampler, constraints = getattr(algorithm, "sampler", None), None
    if isinstance(objective, ScaledObjective):
        objective, constraints = objective.inner, objective.constraints
    own = {"fun": objective, "method": algorithm, "sampler": sampler}
    parts = {name: [part] for name, part in own.items() if not _is_library(type(part))}
    for name, place in (("fun", objective), ("setup", objective), ("draw", sampler)):
        if callable(getattr(place, name, None)):
            parts.setdefault("sampler" if name == "draw" else name, []).append(getattr(place, name))
    if constraints is not None:
        parts["constraints"] = [constraints]
    for name, argument in (("load", "loader"), ("draw", "draw")):
        places = shards if isinstance(shards, list) else [shards]
        given = {id(f): f for f in (getattr(place, name, None) for place in places) if callable(f)}
        if given:
            parts[argument] = [*given.values()]
    return parts
