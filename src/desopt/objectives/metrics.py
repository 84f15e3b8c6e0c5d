"""Scores of a model on rows that it was not trained on: functions of labels and scores.

Labels are -1 (or 0) and +1, a score > 0 says +1. A metric of scikit-learn with these arguments,
such as ``roc_auc_score``, serves as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray

Metric: TypeAlias = Callable[[FloatArray, FloatArray], float]


def accuracy(y: FloatArray, score: FloatArray) -> float:
    """The share of rows on the right side."""
    return float(np.mean((score > 0.0) == (y > 0.0)))


def auc(y: FloatArray, score: FloatArray) -> float:
    """The share of pairs of a +1 and a -1 that are in order, ties count half; NaN: no pairs."""
    positive = y > 0.0
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - 0.5 * (count - 1))[place]  # 1, 2, ...; equal scores share theirs
    p = int(positive.sum())
    pairs = p * (y.size - p)
    return float((ranks[positive].sum() - p * (p + 1) / 2) / pairs) if pairs else float("nan")


def log_loss(y: FloatArray, score: FloatArray) -> float:
    """The mean of log(1 + exp(-y score))."""
    return float(np.mean(np.logaddexp(0.0, np.where(y > 0.0, -score, score))))


METRICS: dict[str, Metric] = {"accuracy": accuracy, "auc": auc, "log_loss": log_loss}


def as_metrics(metrics: Mapping[str, Metric] | Iterable[str]) -> dict[str, Metric]:
    """The ``metrics`` argument: functions by name, or names of ``METRICS``."""
    if isinstance(metrics, Mapping):
        if not all(isinstance(name, str) and callable(f) for name, f in metrics.items()):
            raise TypeError(f"metrics must be functions (y, score) by name, got {metrics!r:.80}")
        return dict(metrics)
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    for name in names:
        check_name("metrics", name, METRICS)
    return {name: METRICS[name] for name in names}
