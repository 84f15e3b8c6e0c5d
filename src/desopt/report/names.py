"""Display names of methods, problems, data sets and settings, and the paper's order of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from desopt.methods.registry import METHODS
from desopt.objectives.losses import LOSSES
from desopt.studies.cases import FIXED
from desopt.studies.output import short
from desopt.studies.paper import FURTHER, STAND_INS, representative
from desopt.studies.problems import NO_DATA
from desopt.studies.views import COSTS, METRICS

#: Rows of the paper's figures: rcv1, SUSY, mnist in the first, the others in the second.
ROWS = (("rcv1", "SUSY", "mnist"), ("real-sim", "ijcnn1", "covtype"))
#: The paper's order of data sets, each followed by its stand-ins; then those of the supplement.
DATA = (
    *(name for row in ROWS for slot in row for name in (slot, *STAND_INS.get(slot, ()))),
    *FURTHER,
)
SETTINGS = {
    "step_size": "\N{GREEK SMALL LETTER ALPHA}",
    "momentum": "β",
    "batch_size": "b",
    "workers": "M",
    "iterations": "K",
    "mixture": "l",
    "radius": "μ",
    "regularization": "λ",
    "budget": "E",
    "rounds": "T",
    "rows": "rows",
}
ITEMS = {
    "curves": "Methods",
    "alpha": "Step size",
    "momentum": "Momentum",
    "batch": "Minibatch size",
}
GENERATED = "(generated)"


def method(name: str) -> str:
    return METHODS[name].title if name in METHODS else short(name)


def problem(name: str) -> str:
    return LOSSES[name].title if name in LOSSES else short(name.rpartition(":")[2])


def data(name: str, generated: bool) -> str:
    if name == NO_DATA:
        return "own samples"
    shown = short(name.replace("susy", "SUSY"))
    return f"{shown} {GENERATED}" if generated else shown


def instance(key: tuple[str, str], generated: bool) -> str:
    """``LR on ijcnn1``."""
    return f"{problem(key[0])} on {data(key[1], generated)}"


def paper_rows(found: Iterable[str]) -> list[list[str]]:
    """The data sets that stand for the paper's, by figure; the others are further ones."""
    present = set(found)
    return [[name for slot in row if (name := representative(slot, present))] for row in ROWS]


def item(name: str) -> str:
    return ITEMS.get(name) or short(name)


def setting(name: str, given: Any) -> str:
    """``β = 0.2``; a method is shown by its name alone."""
    if name == "method":
        return method(given)
    if name == "step_rule":
        name = "step_size"
        if given == FIXED:
            return f"best {SETTINGS[name]}"
    none = "all" if name == "rows" else "none"
    shown = none if given is None else value(given)
    return f"{SETTINGS.get(name, name)} = {shown}"


def value(given: Any) -> str:
    """A number or a text, such as auto."""
    return f"{given:g}" if isinstance(given, int | float) else short(str(given))


def size(value: Any) -> tuple[Any, ...]:
    """A key that sorts the values of a setting: numbers, then texts such as auto, then None."""
    return value is None, isinstance(value, str), value or 0


def label(names: Sequence[str], values: Iterable[Any]) -> str:
    return ", ".join(setting(n, v) for n, v in zip(names, values, strict=True)) or "all runs"


def in_order(found: Iterable[str], known: Iterable[str]) -> list[str]:
    """The known names in their order, then the others alphabetically."""
    order = {name: place for place, name in enumerate(known)}
    return sorted(set(found), key=lambda name: (order.get(name, len(order)), name))


__all__ = [
    "COSTS",
    "DATA",
    "FIXED",
    "GENERATED",
    "ITEMS",
    "METRICS",
    "ROWS",
    "SETTINGS",
    "data",
    "in_order",
    "instance",
    "item",
    "label",
    "method",
    "paper_rows",
    "problem",
    "setting",
    "size",
    "value",
]
