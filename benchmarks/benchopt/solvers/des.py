"""The methods of desopt: ten workers, minibatches of 1,000 rows."""

import numpy as np
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "desopt"
    sampling_strategy = "callback"
    requirements = ["pip::desopt"]
    parameters = {
        "method, step_size": [
            ("des-mr", "auto"), ("des", "auto"), ("des-mr", 1.0),
            ("fed-zo-sgd", 1.0), ("zo-signsgd", 0.1), ("es-csa", 0.1),
        ],
    }  # fmt: skip

    def set_objective(self, X, y, loss, regularization):
        import desopt

        self.desopt, self.data, self.loss = desopt, (X, y), loss
        self.settings = {
            "method": self.method, "step_size": self.step_size, "regularization": regularization,
            "eval_every": 0, "progress": False,
        }  # fmt: skip
        self.x = np.zeros(X.shape[1])
        desopt.minimize(loss, self.x, self.data, rounds=1, **self.settings)  # compiles

    def run(self, callback):
        def look(row):
            self.x = row.x
            return not callback()

        if callback():  # x = 0
            self.desopt.minimize(
                self.loss, self.x, self.data, rounds=10**6, callbacks=look, **self.settings
            )

    def get_result(self):
        return {"x": np.array(self.x)}
