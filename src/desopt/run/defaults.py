"""Settings that are chosen from the problem where the user leaves them open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from desopt.contract.participation import asked
from desopt.contract.streams import MAX_ROUNDS
from desopt.contract.types import Algorithm
from desopt.methods import METHODS
from desopt.methods.registry import WITH_DATA, WITHOUT_DATA

WORKERS, ROUNDS = 10, 100


def choose_method(settings: SimpleNamespace, data: Any) -> None:
    """``method="auto"``: a population for a plain function, DES where workers have data.

    DES as well with settings that only DES has.
    """
    settings.picked = ""
    if isinstance(settings.method, str) and settings.method == "auto":
        what, settings.method = "workers with data", WITH_DATA
        if settings.sampler is not None or settings.aggregate != "mean":
            what = "sampler or aggregate are given"
        elif data is None:
            what, settings.method = "a function without data", WITHOUT_DATA
        settings.picked = f"method {settings.method}: {what}; "


def workers(settings: SimpleNamespace, data: Any) -> int:
    """M. Without data, workers that share a population would compute the same values."""
    if settings.workers is not None:
        return int(settings.workers)
    entry = METHODS.get(settings.method) if isinstance(settings.method, str) else None
    alone = entry is not None and entry.one_population and data is None
    return 1 if alone else WORKERS


def choose_rounds(settings: SimpleNamespace, algorithm: Algorithm, workers: int) -> None:
    """T: as many rounds as the budget of function values allows, else the paper's 100."""
    if settings.rounds is not None:
        return
    cost, budget = getattr(algorithm, "cost", None), settings.max_evaluations
    if budget is None or cost is None:
        settings.rounds = ROUNDS
    else:
        each = asked(workers, settings.participation) * cost.most
        settings.rounds = max(1, min(MAX_ROUNDS, -(-budget // each)))
