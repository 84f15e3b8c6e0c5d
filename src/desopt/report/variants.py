"""What an item compares: its variants, apart from the step size, with their labels and looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from desopt.methods.registry import METHODS, Look
from desopt.report import names, style
from desopt.report.results import Series, varying

Key = tuple[Any, ...]


class Variants:
    """The variants of these series, methods in the paper's order and numbers ascending."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._compared = [each for each in varying(series) if each != "step_size"]
        self.keys = in_order(self._compared, dict.fromkeys(map(self.key, series)))

    def key(self, series: Series) -> Key:
        """The values that make it a variant."""
        return tuple(getattr(series.case, name) for name in self._compared)

    def label(self, key: Key) -> str:
        """The method, and what tells its variants apart; the step size is for others to add."""
        compared = self._compared
        its = [other for other in self.keys if "method" not in compared or other[0] == key[0]]
        told = [
            i
            for i, name in enumerate(compared)
            if name == "method"
            or (
                len({other[i] for other in its}) > 1
                and (name, key[i]) != ("step_rule", names.FIXED)
            )
        ]
        return names.label([compared[i] for i in told], [key[i] for i in told])

    def look(self, key: Key) -> Look:
        """The method's colour and marker, its variants told apart by their dashes.

        Looks by place where no methods are compared, or one is not known or has more variants.
        """
        place = self.keys.index(key)
        if self._compared[:1] == ["method"]:
            counts = Counter(method for method, *_ in self.keys)
            if counts.keys() <= METHODS.keys() and max(counts.values()) <= len(style.STEP_DASHES):
                before = sum(other[0] == key[0] for other in self.keys[:place])
                return style.method_look(key[0])._replace(dash=style.dashes(key[0])[before])
        return style.setting_look(self._compared, key, place)


def with_step(label: str, series: Iterable[Series]) -> str:
    """The label with the step size of its series, if they have only one."""
    found = {s.case.step_size for s in series}
    step = names.setting("step_size", found.pop()) if len(found) == 1 else ""
    return label if label.endswith(step) else f"{label}, {step}"


def in_order(compared: Sequence[str], keys: Iterable[Key]) -> list[Key]:
    """Methods in the paper's order, numbers in ascending order."""
    methods = list(METHODS)

    def rank(name: str, value: Any) -> tuple[Any, ...]:
        if name == "method":
            return (methods.index(value) if value in methods else len(methods), value)
        return names.size(value)

    return sorted(keys, key=lambda key: [rank(*each) for each in zip(compared, key, strict=True)])
