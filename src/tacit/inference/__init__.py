"""Bayesian methods on released sums. They import no privacy code: private by construction (design, rule 1)."""

from tacit.inference.langevin import stable_logistic_step
from tacit.inference.method import INFERENCE_METHODS, FollowsPlannedNoise, InferenceMethod, Tempered
from tacit.inference.priors import FlatPrior, GaussianPrior, LaplacePrior, Prior
from tacit.inference.psgld import PSGLD
from tacit.inference.sgd import SGD
from tacit.inference.sghmc import SGHMC
from tacit.inference.sgld import SGLD, sgd_from_sgld, sgld_from_sgd, sgld_noise_multiplier
from tacit.inference.sgnht import SGNHT
from tacit.inference.step_sizes import CyclicalStep, DecreasingStep, FixedStep, PolynomialStep, StepSize

__all__ = [
    "INFERENCE_METHODS",
    "PSGLD",
    "SGD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "CyclicalStep",
    "DecreasingStep",
    "FixedStep",
    "FlatPrior",
    "FollowsPlannedNoise",
    "GaussianPrior",
    "InferenceMethod",
    "LaplacePrior",
    "PolynomialStep",
    "Prior",
    "StepSize",
    "Tempered",
    "sgd_from_sgld",
    "sgld_from_sgd",
    "sgld_noise_multiplier",
    "stable_logistic_step",
]
