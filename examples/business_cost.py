"""Fit a classifier to what wrong decisions cost, inside scikit-learn.

A missed positive costs as much as ten false alarms. The model is fitted to that cost, and compared
with logistic regression as it is, and with a threshold tuned to the cost.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from desopt.sklearn import DESClassifier

COSTS = np.array([[0, 1], [10, 0]])  # COSTS[i, j]: deciding for j where i is true


def cost(y: NDArray[np.int64], decided: NDArray[np.int64]) -> float:
    return float(COSTS[y, decided].mean())


def main() -> None:
    X, y = make_classification(
        6000,
        12,
        n_informative=6,
        n_clusters_per_class=3,
        weights=[0.9],
        flip_y=0.02,
        random_state=2,
    )
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    tuned = make_scorer(cost, greater_is_better=False)
    models = {
        "logistic regression": LogisticRegression(),
        "with a tuned threshold": TunedThresholdClassifierCV(LogisticRegression(), scoring=tuned),
        "fitted to the cost": DESClassifier(COSTS),
    }
    for name, model in models.items():
        decided = make_pipeline(StandardScaler(), model).fit(X_train, y_train).predict(X_test)
        print(f"{name:<24} cost per row {cost(y_test, decided):.3f}")


if __name__ == "__main__":
    main()
