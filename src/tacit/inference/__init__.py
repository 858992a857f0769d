"""Bayesian methods on released sums. They import no privacy code: private by construction (design, rule 1)."""

from tacit.inference.bayes_by_backprop import bayes_by_backprop
from tacit.inference.bounded_posteriors import BoundedBernoulli, BoundedLogistic, BoundedPosterior
from tacit.inference.descent import Adam, Descent, PlainDescent
from tacit.inference.gaussian_families import FullRank, GaussianFamily, MeanField
from tacit.inference.langevin import stable_logistic_step
from tacit.inference.mc_dropout import MCDropout
from tacit.inference.method import INFERENCE_METHODS, FollowsPlannedNoise, InferenceMethod, MakesPosterior, Tempered
from tacit.inference.priors import FlatPrior, GaussianPrior, LaplacePrior, Prior, ScaleMixturePrior
from tacit.inference.psgld import PSGLD
from tacit.inference.sgd import SGD
from tacit.inference.sghmc import SGHMC
from tacit.inference.sgld import SGLD, sgd_from_sgld, sgld_from_sgd, sgld_noise_multiplier
from tacit.inference.sgnht import SGNHT
from tacit.inference.step_sizes import CyclicalStep, DecreasingStep, FixedStep, PolynomialStep, StepSize
from tacit.inference.variational import VariationalInference

__all__ = [
    "INFERENCE_METHODS",
    "PSGLD",
    "SGD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Adam",
    "BoundedBernoulli",
    "BoundedLogistic",
    "BoundedPosterior",
    "CyclicalStep",
    "DecreasingStep",
    "Descent",
    "FixedStep",
    "FlatPrior",
    "FollowsPlannedNoise",
    "FullRank",
    "GaussianFamily",
    "GaussianPrior",
    "InferenceMethod",
    "LaplacePrior",
    "MCDropout",
    "MakesPosterior",
    "MeanField",
    "PlainDescent",
    "PolynomialStep",
    "Prior",
    "ScaleMixturePrior",
    "StepSize",
    "Tempered",
    "VariationalInference",
    "bayes_by_backprop",
    "sgd_from_sgld",
    "sgld_from_sgd",
    "sgld_noise_multiplier",
    "stable_logistic_step",
]
