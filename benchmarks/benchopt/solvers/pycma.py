"""pycma with a diagonal covariance; a generation is ranked on one minibatch."""

import numpy as np
from benchmark_utils import value
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "pycma"
    sampling_strategy = "callback"
    requirements = ["pip::cma"]
    parameters = {"sigma": [0.1]}

    def set_objective(self, X, y, loss, regularization):
        self.X, self.y, self.x = X, y, np.zeros(X.shape[1])
        self.value = lambda x, rows: value(x, X[rows], y[rows], loss, regularization)

    def run(self, callback):
        import cma

        options = {"CMA_diagonal": True, "verbose": -9, "seed": 1}
        search = cma.CMAEvolutionStrategy(self.x, self.sigma, options)
        rng = np.random.default_rng(0)
        while callback():
            points = search.ask()
            rows = rng.integers(len(self.y), size=1000)
            search.tell(points, [self.value(x, rows) for x in points])
            self.x = search.mean

    def get_result(self):
        return {"x": np.array(self.x)}
