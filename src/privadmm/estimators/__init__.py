"""Estimators for scikit-learn: `ADMMClassifier` and `ADMMRegressor`."""

from privadmm.estimators.classifier import ADMMClassifier
from privadmm.estimators.regressor import ADMMRegressor

__all__ = ["ADMMClassifier", "ADMMRegressor"]
