"""The figures of a study of one's own: metrics against costs, as ``figures`` in the TOML says."""

from __future__ import annotations

from typing import Any, NamedTuple

from desopt.contract.errors import check_name

COSTS = {
    "rounds": "rounds",
    "evaluations": "function evaluations",
    "upload": "bytes sent by the workers",
    "bytes": "bytes sent in both directions",
    "seconds": "seconds",
}
METRICS = {
    "train_loss": "training loss",
    "train_error": "training error",
    "test_loss": "test loss",
    "test_error": "test error",
}


class View(NamedTuple):
    """What a figure shows."""

    metric: str
    cost: str = "rounds"

    @classmethod
    def parse(cls, text: Any) -> View:
        """``METRIC`` or ``METRIC:COST``: ``test_error``, ``train_loss:bytes``."""
        if not isinstance(text, str):
            raise TypeError(f"figures must be texts such as 'train_loss:bytes', got {text!r}")
        metric, _, cost = text.partition(":")
        check_name("metric in figures", metric, METRICS)
        view = cls(metric, cost or "rounds")
        check_name("cost in figures", view.cost, COSTS)
        return view

    def __str__(self) -> str:
        return f"{self.metric}:{self.cost}"

    @property
    def name(self) -> str:
        """For a file: ``training-loss``, ``training-loss-by-bytes``."""
        by = "" if self.cost == "rounds" else f"-by-{self.cost}"
        return METRICS[self.metric].replace(" ", "-") + by

    @property
    def title(self) -> str:
        """``training loss``; against anything but rounds, the cost as well."""
        against = "" if self.cost == "rounds" else f" against {COSTS[self.cost]}"
        return f"{METRICS[self.metric]}{against}"


#: Where the TOML has no ``figures``.
DEFAULT = (View("train_loss"), View("test_error"), View("train_loss", "bytes"))
