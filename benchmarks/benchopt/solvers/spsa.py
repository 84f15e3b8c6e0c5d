"""Simultaneous perturbation (Spall, 1992): two values for a step along a random sign vector."""

import itertools

import numpy as np
from benchmark_utils import value
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "spsa"
    sampling_strategy = "callback"
    requirements = ["numpy"]
    parameters = {"step_size": [0.01, 0.1]}

    def set_objective(self, X, y, loss, regularization):
        self.X, self.y, self.x = X, y, np.zeros(X.shape[1])
        self.value = lambda x, rows: value(x, X[rows], y[rows], loss, regularization)

    def run(self, callback):
        rng, rounds = np.random.default_rng(0), itertools.count()
        while callback():
            first = 100 * next(rounds)
            for k in range(first, first + 100):
                rows = rng.integers(len(self.y), size=1000)
                u = rng.choice([-1.0, 1.0], self.x.size)
                slope = self.value(self.x + 1e-3 * u, rows) - self.value(self.x - 1e-3 * u, rows)
                self.x = self.x - self.step_size / (k + 1) ** 0.602 * slope / 2e-3 * u

    def get_result(self):
        return {"x": self.x}
