"""Linear classifiers and regressors for scikit-learn, fitted by DES: any loss that has values.

``DESClassifier`` and ``DESRegressor`` need the extra ``sklearn``.
"""

from __future__ import annotations

try:
    import sklearn as _sklearn  # noqa: F401 - the error of the estimators would not name the extra
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "desopt.sklearn needs scikit-learn: pip install 'desopt[sklearn]'"
    ) from error

from desopt.estimators.classifier import DESClassifier
from desopt.estimators.regressor import DESRegressor

__all__ = ["DESClassifier", "DESRegressor"]
