"""The paper's linear models: the mean loss of margins y z^T x, and a penalty."""

import numpy as np
from benchmark_utils import value
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "linear model"
    min_benchopt_version = "1.7"
    requirements = ["numpy"]
    parameters = {"loss": ["lr", "nsvm", "lsvm"], "regularization": [1e-6]}

    def set_data(self, X, y, X_test, y_test):
        self.X, self.y, self.X_test, self.y_test = X, y, X_test, y_test

    def get_objective(self):
        """What a solver gets: rows, labels in {-1, 1}, and the settings of f."""
        return {"X": self.X, "y": self.y, "loss": self.loss, "regularization": self.regularization}

    def evaluate_result(self, x):
        wrong = self.y_test * (self.X_test @ x) <= 0.0
        return {
            "value": value(x, self.X, self.y, self.loss, self.regularization),
            "test_error": float(np.mean(wrong)),
        }

    def get_one_result(self):
        return {"x": np.zeros(self.X.shape[1])}
