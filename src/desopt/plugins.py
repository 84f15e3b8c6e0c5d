"""Methods, samplers and objectives of your own, by name.

``desopt.register`` adds one to the registries of the built-in ones. Everything that takes a name
takes it: ``minimize``, ``replay``, ``desopt run``, ``desopt suite``, the nodes of a federation. A
*plug-in* is a module that calls ``register`` when it is imported. Every process that resolves
names has to import it: commands do so for ``--plugin MODULE``, and pass it to the processes that
they start through the environment variable ``DESOPT_PLUGINS``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any, Literal

from desopt.methods.base import ProblemSize
from desopt.methods.registry import DASHES, MARKERS, METHODS, Look, Method
from desopt.methods.samplers import SAMPLERS, CustomSampler, Sampler
from desopt.objectives import LOSSES, OBJECTIVES, PythonObjective

#: The environment variable with the modules to import, separated by commas.
VARIABLE = "DESOPT_PLUGINS"

METHOD_MEMBERS = (
    "state_type", "layout", "cost", "init", "plan", "work", "merge", "settings",
)  # fmt: skip
OBJECTIVE_MEMBERS = ("compiled", "settings", "prepare", "dimension", "bind")

#: For methods without a look of their own; no built-in method has one of these colours, or dash
#: and marker together.
_LOOKS = (
    Look("#B8860B", "--", "o"), Look("#6A3D9A", ":", "^"), Look("#8B4513", "-", "D"),
    Look("#4D4D4D", "-.", "s"), Look("#B2182B", "--", "P"), Look("#1F4E79", "-", "v"),
)  # fmt: skip

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")

#: What was registered here, by kind and name; built-in entries are never replaced.
_ours: dict[tuple[str, str], Any] = {}


def register(
    kind: Literal["method", "sampler", "objective"],
    name: str,
    thing: Any,
    *,
    title: str | None = None,
    look: tuple[str, str, str] | None = None,
    sampler: type[Sampler] | None = None,
    defaults: Callable[[ProblemSize], Mapping[str, Any]] | None = None,
) -> None:
    """Make a part of your own available by name.

    kind, name, thing
        ``"method"``: the class of the algorithm, a frozen dataclass with a field ``name``. Used by
        name, it receives those settings of ``minimize`` that it has as fields.
        ``"sampler"``: a subclass of ``samplers.Sampler``, or a function ``draw(rng, n)``.
        ``"objective"``: a function ``fun(x, batch)`` or ``fun(x)``, an objective, or the class of
        one; a class receives ``penalty`` if it takes it.
    title, look
        For a method: its name and its line (colour, dash, marker) in figures, such as
        ``("#1f77b4", "--", "o")``.
    sampler
        For a method: the sampler that belongs to its name, as ``des-mr`` is DES with a certain one.
    defaults
        For a method: settings derived from the size of the problem, such as a population.

    Registering the same class or function again replaces it, as when a cell of a notebook runs
    twice. A name that belongs to something else is refused.

    >>> desopt.register("objective", "bowl", lambda x: float(x @ x))
    >>> desopt.minimize("bowl", np.ones(2), rounds=20).fun < 0.1
    True
    """
    kinds: dict[str, dict[str, Any]] = {
        "method": METHODS, "sampler": SAMPLERS, "objective": OBJECTIVES,
    }  # fmt: skip
    if kind not in kinds:
        raise ValueError(f"unknown kind {kind!r}: choose from {', '.join(kinds)}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"a name consists of letters, digits, '-', '_' and '.', and begins with a letter; "
            f"got {name!r}"
        )
    registry = kinds[kind]
    _refuse_taken(kind, name, thing, registry)
    facts = {"title": title, "look": look, "sampler": sampler, "defaults": defaults}
    given: dict[str, Any] = {key: fact for key, fact in facts.items() if fact is not None}
    if kind == "method":
        registry[name] = _method(name, thing, **given)
    else:
        if given:
            raise ValueError(f"{', '.join(given)} is for methods, not for a {kind}")
        registry[name] = (_sampler if kind == "sampler" else _objective)(name, thing)
    _ours[kind, name] = thing


def _refuse_taken(kind: str, name: str, thing: Any, registry: Mapping[str, Any]) -> None:
    reserved = [*registry, "auto"] if kind == "method" else [*registry]
    reserved += LOSSES if kind == "objective" else []
    before = _ours.get((kind, name))
    if name in reserved and (before is None or _place(before) != _place(thing)):
        by = "by desopt" if before is None else f"by {_place(before)}"
        raise ValueError(f"the {kind} name {name!r} is taken {by}: choose another one")


def _place(thing: Any) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def _check_members(kind: str, name: str, thing: Any, members: Iterable[str]) -> None:
    missing = [member for member in members if not hasattr(thing, member)]
    if missing:
        raise TypeError(
            f"{kind} {name!r}: {_place(thing)} has no {', '.join(missing)}; it needs "
            f"{', '.join(members)} (see CONTRIBUTING.md)"
        )


def _method(
    name: str,
    thing: Any,
    *,
    title: str | None = None,
    look: tuple[str, str, str] | None = None,
    **facts: Any,
) -> Method:
    if not isinstance(thing, type):
        raise TypeError(
            f"method {name!r} must be the class of an algorithm, got {thing!r:.80}; an object goes "
            "to minimize(method=...) as it is"
        )
    _check_members("method", name, thing, METHOD_MEMBERS)
    if not is_dataclass(thing) or "name" not in {field.name for field in fields(thing)}:
        raise TypeError(
            f"method {name!r}: {_place(thing)} must be a frozen dataclass with a field 'name'"
        )
    return Method(
        algorithm=thing,
        title=title or name,
        look=_checked_look(name, look) if look else _look_of(name),
        answer="its layout",
        values="its cost",
        **facts,
    )


def _checked_look(name: str, look: Any) -> Look:
    """A look that figures and the page can draw: they would only fail after a study."""
    given = tuple(look)
    texts = len(given) == 3 and all(isinstance(part, str) for part in given)
    if not (texts and _COLOUR.fullmatch(given[0]) and given[1] in DASHES and given[2] in MARKERS):
        raise ValueError(
            f"method {name!r}: look must be a colour as '#1f77b4', one of the dashes "
            f"{' '.join(DASHES)} and one of the markers {' '.join(MARKERS)}, got {look!r:.80}"
        )
    return Look(*given)


def _look_of(name: str) -> Look:
    """The look of a method without one of its own; the same when it is registered again."""
    methods = [own for kind, own in _ours if kind == "method"]
    place = methods.index(name) if name in methods else len(methods)
    return _LOOKS[place % len(_LOOKS)]


def _sampler(name: str, thing: Any) -> Callable[..., Sampler]:
    if isinstance(thing, type) and issubclass(thing, Sampler):
        made = _made(name, "sampler", thing)
        _check_settings_name("sampler", name, made)
        return thing
    if isinstance(thing, type | Sampler) or not callable(thing):
        raise TypeError(
            f"sampler {name!r} must be a subclass of desopt.samplers.Sampler or a function "
            f"draw(rng, n), got {thing!r:.80}"
        )
    return partial(CustomSampler, thing, name)


def _objective(name: str, thing: Any) -> Callable[..., Any]:
    """A factory with the arguments (penalty, setup)."""
    if isinstance(thing, type):
        _check_members("objective", name, thing, OBJECTIVE_MEMBERS[1:])
        takes_penalty = "penalty" in signature(thing).parameters
        made = _made(name, "objective", thing)
        _check_members("objective", name, made, OBJECTIVE_MEMBERS)
        _check_settings_name("objective", name, made)
        return lambda penalty, setup: thing(penalty=penalty) if takes_penalty else thing()
    if hasattr(thing, "bind") or not callable(thing):
        _check_members("objective", name, thing, OBJECTIVE_MEMBERS)
        _check_settings_name("objective", name, thing)
        return lambda penalty, setup: thing
    return lambda penalty, setup: PythonObjective(thing, setup, name)


def _made(name: str, kind: str, thing: Any) -> Any:
    try:
        return thing()
    except TypeError as error:
        raise TypeError(
            f"{kind} {name!r}: {_place(thing)} must have defaults for all of its parameters "
            f"({error})"
        ) from error


def _check_settings_name(kind: str, name: str, thing: Any) -> None:
    """Journals and nodes know it by the name in its settings."""
    own = thing.settings().get("name")
    if own != name:
        raise ValueError(
            f"{kind} {name!r}: settings() of {_place(thing)} has the name {own!r}, and journals "
            f"would look for that; register it as {own!r}, or return {{'name': {name!r}, ...}}"
        )


def load(modules: Iterable[str] = ()) -> list[str]:
    """Import plug-ins: these modules, and those in ``DESOPT_PLUGINS``; returns all of them.

    Modules of the current folder count. The processes started from here import them as well.
    """
    named = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    named = list(dict.fromkeys([*named, *modules]))
    if named and os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in named:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the plug-in is there; something that it imports is not
            raise ValueError(
                f"there is no plug-in {name!r}: give the name of a module in this folder or of an "
                "installed one, without .py"
            ) from None
    if named:
        os.environ[VARIABLE] = ",".join(named)
    return named


def imported(place: str, argument: str) -> Any:
    """What ``module:name`` stands for; modules of the current folder count."""
    module, _, name = place.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{argument} {place} cannot be imported: {error}; give module:function, with the "
            f"module installed or in {here}"
        ) from error
    if not (callable(found) or hasattr(found, "fun")):
        raise TypeError(f"{argument} {place} is {type(found).__name__}, not a function")
    return found
