"""REGRESSION: coefficients with intervals that cover, from a few private sums. No torch, but for the noise."""

from tacit.regression.design import Design
from tacit.regression.priors import Prior
from tacit.regression.problem import RegressionProblem
from tacit.regression.regression import PrivateRegression, Regression, regress, regress_in_memory
from tacit.regression.results.summary import Coefficient, Draws
from tacit.regression.spread import spread_of

__all__ = [
    "Coefficient",
    "Design",
    "Draws",
    "Prior",
    "PrivateRegression",
    "Regression",
    "RegressionProblem",
    "regress",
    "regress_in_memory",
    "spread_of",
]
