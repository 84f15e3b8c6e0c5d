"""scikit-learn estimators; ``desopt.sklearn`` is their public door."""
