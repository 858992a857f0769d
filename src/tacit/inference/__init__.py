"""Bayesian methods on released sums. They import no privacy code: private by construction (design, rule 1)."""

from tacit.errors import former_names
from tacit.inference.bounded_posteriors import BoundedBernoulli, BoundedLogistic, BoundedPosterior
from tacit.inference.descent import AdamDescent, Descent, PlainDescent
from tacit.inference.gaussian_families import FullRank, GaussianFamily, MeanField
from tacit.inference.mc_dropout import MCDropout
from tacit.inference.method import FollowsPlannedNoise, InferenceMethod, MakesPosterior, Tempered
from tacit.inference.priors import FlatPrior, GaussianPrior, LaplacePrior, Prior, ScaleMixturePrior
from tacit.inference.samplers.langevin import stable_logistic_step
from tacit.inference.samplers.psgld import PSGLD
from tacit.inference.samplers.sghmc import SGHMC
from tacit.inference.samplers.sgld import SGLD, sgd_from_sgld, sgld_from_sgd, sgld_noise_multiplier
from tacit.inference.samplers.sgnht import SGNHT
from tacit.inference.sgd import SGD
from tacit.inference.step_sizes import CyclicalStep, DecreasingStep, FixedStep, PolynomialStep, StepSize
from tacit.inference.variational import VariationalInference, bayes_by_backprop

__all__ = [
    "PSGLD",
    "SGD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "AdamDescent",
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

__getattr__ = former_names(__name__, {"Adam": "AdamDescent"})
