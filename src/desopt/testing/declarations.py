"""What a method declares of itself: members, settings, and what they make."""

from __future__ import annotations

import dataclasses
from typing import Any

from desopt.contract.payload import Cost, Layout
from desopt.methods.base import UNLESS_GIVEN
from desopt.methods.registry import METHODS, restore
from desopt.plugins import METHOD_MEMBERS
from desopt.testing.claims import Claims


def check_declarations(claim: Claims, algorithm: Any) -> None:
    """All members, of the right kinds."""
    claim.has(algorithm, "name", *METHOD_MEMBERS)
    parameters = getattr(type(algorithm), "__dataclass_params__", None)
    claim(
        parameters is not None and parameters.frozen,
        "a method is a frozen dataclass",
        f"{type(algorithm).__name__} needs @dataclass(frozen=True, kw_only=True)",
    )
    claim(isinstance(algorithm.layout, Layout), "layout is a Layout", f"It is {algorithm.layout!r}")
    cost = algorithm.cost
    claim(isinstance(cost, Cost), "cost is a Cost", f"It is {cost!r}")
    claim(1 <= cost.least <= cost.most, "1 <= cost.least <= cost.most", f"cost is {cost}")
    claim(
        isinstance(algorithm.state_type, type) and dataclasses.is_dataclass(algorithm.state_type),
        "state_type is the class of the states, a dataclass",
        f"It is {algorithm.state_type!r}",
    )


def check_settings(claim: Claims, algorithm: Any) -> None:
    """They are plain and complete: the method can be rebuilt from them."""
    settings = claim.plain_settings(algorithm)
    claim(
        settings["name"] == algorithm.name,
        "settings() has the name of the method",
        f"settings() has {settings['name']!r}, name is {algorithm.name!r}",
    )
    given = [f.name for f in dataclasses.fields(algorithm) if f.init]
    optional = {name for name in UNLESS_GIVEN if not getattr(algorithm, name, None)}
    missing = set(given) - set(settings) - optional
    claim(
        not missing,
        "settings() has every field: it is the identity of a run",
        f"It lacks {', '.join(sorted(missing))}",
    )
    unpickled = claim.pickles(algorithm)
    claim(
        unpickled.settings() == settings,
        "a pickled copy has the same settings",
        f"They are {unpickled.settings()}, not {settings}",
    )
    entry = METHODS.get(algorithm.name)
    if entry is not None and entry.algorithm is type(algorithm):
        rebuilt: Any = restore(settings, getattr(algorithm, "sampler", None))
    else:  # fields with settings of their own, such as samplers, stay as they are
        own = {name: getattr(algorithm, name, value) for name, value in settings.items()}
        plain = {
            name: own[name] if hasattr(own[name], "settings") else settings[name] for name in own
        }
        try:
            rebuilt = type(algorithm)(**plain)
        except (TypeError, ValueError) as error:
            rebuilt = error
    claim(
        rebuilt == algorithm,
        "a method rebuilt from its settings equals the original",
        f"It is {rebuilt!r}, not {algorithm!r}",
    )
