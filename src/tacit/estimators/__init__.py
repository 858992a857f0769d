"""scikit-learn estimators: a fit is charged to a ledger, and what was not declared is said to be taken from data."""

from tacit.estimators.classifier import PrivateClassifier
from tacit.estimators.regressor import PrivateRegressor

__all__ = ["PrivateClassifier", "PrivateRegressor"]
