"""Bayesian differential privacy (Triastcyn and Faltings 2020) and individual privacy, from evidence about records."""

from tacit.accountants.bayesian.accountant import BayesianAccountant, chernoff_epsilons, mixture_delta, mixture_epsilon
from tacit.accountants.bayesian.cost import (
    MOMENTS,
    Outcome,
    gaussian_outcome,
    holder_cost,
    laplace_outcome,
    printed_reverse_cost,
    privacy_costs,
)
from tacit.accountants.bayesian.estimators import ESTIMATORS, betting, binary, mean_upper, student_t
from tacit.accountants.bayesian.exposure import Exposure, constant_exposure, exposure_of
from tacit.accountants.bayesian.individual import IndividualAccountant, individual_epsilons, percentile_curve
from tacit.accountants.bayesian.percentiles import (
    best_percentile,
    clopper_pearson_upper,
    flat_prior_gamma,
    flat_prior_upper,
    most_exceeding,
    percentile_value,
)
from tacit.accountants.bayesian.record_losses import record_deltas, record_epsilons
from tacit.accountants.bayesian.summary import bayesian_guarantees

__all__ = [
    "ESTIMATORS",
    "MOMENTS",
    "BayesianAccountant",
    "Exposure",
    "IndividualAccountant",
    "Outcome",
    "bayesian_guarantees",
    "best_percentile",
    "betting",
    "binary",
    "chernoff_epsilons",
    "clopper_pearson_upper",
    "constant_exposure",
    "exposure_of",
    "flat_prior_gamma",
    "flat_prior_upper",
    "gaussian_outcome",
    "holder_cost",
    "individual_epsilons",
    "laplace_outcome",
    "mean_upper",
    "mixture_delta",
    "mixture_epsilon",
    "most_exceeding",
    "percentile_curve",
    "percentile_value",
    "printed_reverse_cost",
    "privacy_costs",
    "record_deltas",
    "record_epsilons",
    "student_t",
]
