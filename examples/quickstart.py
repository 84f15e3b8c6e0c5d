"""Logistic regression from function values alone, with the data spread over ten workers.

Needs scikit-learn for the data: pip install '.[sklearn]' in a clone.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import desopt


def main() -> None:
    rows, classes = load_breast_cancer(return_X_y=True)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    labels = np.where(classes == 1, 1.0, -1.0)

    # "lr" is compiled: mean of log(1 + exp(-y z'x)) + regularization / 2 |x|^2. The rows are
    # divided among the workers; each draws a minibatch per round and answers with 100 bits.
    result = desopt.minimize(
        "lr",
        None,
        (rows, labels),
        method="des-mr",
        workers=10,
        rounds=60,
        iterations=100,
        batch_size=50,
        regularization=1e-3,
        seed=1,
    )
    accuracy = np.mean(np.sign(rows @ result.x) == labels)
    history = result.history
    print(result.message)
    print(f"loss      {result.initial_fun:.4f} -> {result.fun:.4f}, engine {result.engine}")
    print(f"accuracy  {accuracy:.1%} of the training rows")
    print(f"cost      {result.nfev:,} evaluations, {history['bytes_up'][-1] / 1000:.1f} kB sent up")
    print("loss by round:", *(f"{loss:.3f}" for loss in history["loss"][9::10]))


if __name__ == "__main__":
    main()
