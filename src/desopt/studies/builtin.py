"""The studies that come with desopt, besides the paper's.

A study is a module with two names:

``SCALES``
    The names that ``--scale`` takes, the default first; by custom ``full`` and ``smoke``, the
    latter with a case or two of every kind, for tests.
``items(scale, data_dir)``
    The cases by item, made by ``cases.make_case`` and ``Case.varied``. The names of items are
    free, except for those of the paper (``paper.ITEMS``). Several items may share cases.

Its report is a module of ``desopt.report`` (see ``report.findings``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from desopt.contract.errors import check_name

if TYPE_CHECKING:  # desopt --help reads this module
    from desopt.studies.cases import Case


@dataclass(frozen=True)
class BuiltIn:
    """The module of a study, and what it is about in one line of ``desopt suite --help``."""

    module: str
    about: str

    def items(self, scale: str | None, data_dir: str | None) -> tuple[str, dict[str, list[Case]]]:
        """The scale, by default the study's own, and the cases."""
        module: Any = import_module(self.module)
        scales: Sequence[str] = module.SCALES
        chosen = scales[0] if scale is None else scale
        check_name("scale", chosen, scales)
        found: Mapping[str, Sequence[Case]] = module.items(chosen, data_dir)
        return chosen, {item: list(cases) for item, cases in found.items()}


#: By the name that ``desopt suite`` takes; one line each.
BUILT_IN: dict[str, BuiltIn] = {
    "stepsize": BuiltIn("desopt.studies.stepsize", 'step_size="auto" against fixed step sizes'),
    "heterogeneity": BuiltIn(
        "desopt.studies.heterogeneity", "workers whose data differ: DES, DES-C, shared directions"
    ),
    "rivals": BuiltIn("desopt.studies.rivals", "DES and its rivals at equal bytes and round trips"),
}
