"""Two overlapping clouds of points."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "simulated"
    requirements = ["numpy"]
    parameters = {"rows, n": [(2000, 20), (20_000, 200)]}

    def get_data(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((self.rows, self.n))
        truth = rng.standard_normal(self.n)
        y = np.sign(X @ truth + np.linalg.norm(truth) * rng.standard_normal(self.rows))
        half = 4 * self.rows // 5
        return {"X": X[:half], "y": y[:half], "X_test": X[half:], "y_test": y[half:]}
