"""Tacit: private, Bayesian, uncertainty-aware training on PyTorch.

The names below are the public ones. They are loaded on first use, so that reading a ledger or accounting for it needs
neither torch nor any time.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# PyTorch's matrix products on x86 (MKL) round a row by its place in memory unless they are told not to before the first
# of them: one record more would then change the last bits of all others, and through a tie their gradients.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__version__ = "0.1.0"

_HOME = {
    "tacit.accountants": ["Budget", "Calibration", "Guarantee", "Refusal", "attack_probability", "calibrate_noise",
                          "calibrate_probability", "calibrate_steps", "guarantees"],
    "tacit.accountants.bayesian": ["BayesianAccountant", "IndividualAccountant", "individual_epsilons",
                                   "percentile_curve"],
    "tacit.errors": ["BudgetError", "InputError", "LedgerError", "RecordMixingError", "RefusedError", "StorageError",
                     "TacitError", "UndeclaredWarning"],
    "tacit.estimators": ["PrivateClassifier", "PrivateRegressor"],
    "tacit.evaluation": ["Convergence", "Coverage", "LeakageCheck", "Reliability", "Scores", "convergence", "coverage",
                         "leakage_check", "reliability", "scores", "separation"],
    "tacit.evidence": ["Evidence", "load_evidence"],
    "tacit.features": ["Scattering", "StatisticsPlan", "Whitening", "private_statistics"],
    "tacit.gradients": ["gradient_distances", "replace_batch_norm"],
    "tacit.inference": ["PSGLD", "SGD", "SGHMC", "SGLD", "SGNHT", "Adam", "BoundedBernoulli", "BoundedLogistic",
                        "CyclicalStep", "DecreasingStep", "FixedStep", "FlatPrior", "FullRank", "GaussianPrior",
                        "LaplacePrior", "MCDropout", "MeanField", "PlainDescent", "PolynomialStep",
                        "ScaleMixturePrior", "VariationalInference", "bayes_by_backprop", "stable_logistic_step"],
    "tacit.ledger": ["Charge", "FixedSizeSample", "GaussianSumQuery", "Ledger", "LedgerFile", "LedgerHeader",
                     "PoissonSample", "PosteriorSample", "RegisteredLedger", "merged_noise_multiplier", "read_ledger"],
    "tacit.likelihoods": ["Bernoulli", "Categorical", "Gaussian", "HeteroscedasticGaussian", "LearnedGaussian",
                          "Poisson", "ScaleMixture"],
    "tacit.mechanisms": ["AdaptiveClip", "ClipGroups", "ClipLayers", "ClipRecords", "GaussianNoise", "VectorGroup"],
    "tacit.posteriors": ["SWAG", "Draws", "DropoutPosterior", "GaussianPosterior", "Point", "Prediction",
                         "RegressionPrediction", "combine", "load_posterior", "predict"],
    "tacit.randomness": ["Randomness"],
    "tacit.sampling": ["BallsInBinsSampling", "FixedSizeSampling", "Microbatches", "PoissonSampling", "Records",
                       "Users"],
    "tacit.tables": ["Category", "Flag", "Number", "Schema", "Table", "read_schema", "read_table"],
    "tacit.training": ["DataSource", "EvidencePlan", "IndividualFilter", "PrivateGradient", "Run", "TrainingPlan",
                       "hybrid", "one_posterior_sample", "private_temperature", "train"],
}  # fmt: skip
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [*sorted(_MODULE), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:  # the same names for type checkers; a test keeps the two lists equal
    from tacit.accountants import Budget as Budget
    from tacit.accountants import Calibration as Calibration
    from tacit.accountants import Guarantee as Guarantee
    from tacit.accountants import Refusal as Refusal
    from tacit.accountants import attack_probability as attack_probability
    from tacit.accountants import calibrate_noise as calibrate_noise
    from tacit.accountants import calibrate_probability as calibrate_probability
    from tacit.accountants import calibrate_steps as calibrate_steps
    from tacit.accountants import guarantees as guarantees
    from tacit.accountants.bayesian import BayesianAccountant as BayesianAccountant
    from tacit.accountants.bayesian import IndividualAccountant as IndividualAccountant
    from tacit.accountants.bayesian import individual_epsilons as individual_epsilons
    from tacit.accountants.bayesian import percentile_curve as percentile_curve
    from tacit.errors import BudgetError as BudgetError
    from tacit.errors import InputError as InputError
    from tacit.errors import LedgerError as LedgerError
    from tacit.errors import RecordMixingError as RecordMixingError
    from tacit.errors import RefusedError as RefusedError
    from tacit.errors import StorageError as StorageError
    from tacit.errors import TacitError as TacitError
    from tacit.errors import UndeclaredWarning as UndeclaredWarning
    from tacit.estimators import PrivateClassifier as PrivateClassifier
    from tacit.estimators import PrivateRegressor as PrivateRegressor
    from tacit.evaluation import Convergence as Convergence
    from tacit.evaluation import Coverage as Coverage
    from tacit.evaluation import LeakageCheck as LeakageCheck
    from tacit.evaluation import Reliability as Reliability
    from tacit.evaluation import Scores as Scores
    from tacit.evaluation import convergence as convergence
    from tacit.evaluation import coverage as coverage
    from tacit.evaluation import leakage_check as leakage_check
    from tacit.evaluation import reliability as reliability
    from tacit.evaluation import scores as scores
    from tacit.evaluation import separation as separation
    from tacit.evidence import Evidence as Evidence
    from tacit.evidence import load_evidence as load_evidence
    from tacit.features import Scattering as Scattering
    from tacit.features import StatisticsPlan as StatisticsPlan
    from tacit.features import Whitening as Whitening
    from tacit.features import private_statistics as private_statistics
    from tacit.gradients import gradient_distances as gradient_distances
    from tacit.gradients import replace_batch_norm as replace_batch_norm
    from tacit.inference import PSGLD as PSGLD
    from tacit.inference import SGD as SGD
    from tacit.inference import SGHMC as SGHMC
    from tacit.inference import SGLD as SGLD
    from tacit.inference import SGNHT as SGNHT
    from tacit.inference import Adam as Adam
    from tacit.inference import BoundedBernoulli as BoundedBernoulli
    from tacit.inference import BoundedLogistic as BoundedLogistic
    from tacit.inference import CyclicalStep as CyclicalStep
    from tacit.inference import DecreasingStep as DecreasingStep
    from tacit.inference import FixedStep as FixedStep
    from tacit.inference import FlatPrior as FlatPrior
    from tacit.inference import FullRank as FullRank
    from tacit.inference import GaussianPrior as GaussianPrior
    from tacit.inference import LaplacePrior as LaplacePrior
    from tacit.inference import MCDropout as MCDropout
    from tacit.inference import MeanField as MeanField
    from tacit.inference import PlainDescent as PlainDescent
    from tacit.inference import PolynomialStep as PolynomialStep
    from tacit.inference import ScaleMixturePrior as ScaleMixturePrior
    from tacit.inference import VariationalInference as VariationalInference
    from tacit.inference import bayes_by_backprop as bayes_by_backprop
    from tacit.inference import stable_logistic_step as stable_logistic_step
    from tacit.ledger import Charge as Charge
    from tacit.ledger import FixedSizeSample as FixedSizeSample
    from tacit.ledger import GaussianSumQuery as GaussianSumQuery
    from tacit.ledger import Ledger as Ledger
    from tacit.ledger import LedgerFile as LedgerFile
    from tacit.ledger import LedgerHeader as LedgerHeader
    from tacit.ledger import PoissonSample as PoissonSample
    from tacit.ledger import PosteriorSample as PosteriorSample
    from tacit.ledger import RegisteredLedger as RegisteredLedger
    from tacit.ledger import merged_noise_multiplier as merged_noise_multiplier
    from tacit.ledger import read_ledger as read_ledger
    from tacit.likelihoods import Bernoulli as Bernoulli
    from tacit.likelihoods import Categorical as Categorical
    from tacit.likelihoods import Gaussian as Gaussian
    from tacit.likelihoods import HeteroscedasticGaussian as HeteroscedasticGaussian
    from tacit.likelihoods import LearnedGaussian as LearnedGaussian
    from tacit.likelihoods import Poisson as Poisson
    from tacit.likelihoods import ScaleMixture as ScaleMixture
    from tacit.mechanisms import AdaptiveClip as AdaptiveClip
    from tacit.mechanisms import ClipGroups as ClipGroups
    from tacit.mechanisms import ClipLayers as ClipLayers
    from tacit.mechanisms import ClipRecords as ClipRecords
    from tacit.mechanisms import GaussianNoise as GaussianNoise
    from tacit.mechanisms import VectorGroup as VectorGroup
    from tacit.posteriors import SWAG as SWAG
    from tacit.posteriors import Draws as Draws
    from tacit.posteriors import DropoutPosterior as DropoutPosterior
    from tacit.posteriors import GaussianPosterior as GaussianPosterior
    from tacit.posteriors import Point as Point
    from tacit.posteriors import Prediction as Prediction
    from tacit.posteriors import RegressionPrediction as RegressionPrediction
    from tacit.posteriors import combine as combine
    from tacit.posteriors import load_posterior as load_posterior
    from tacit.posteriors import predict as predict
    from tacit.randomness import Randomness as Randomness
    from tacit.sampling import BallsInBinsSampling as BallsInBinsSampling
    from tacit.sampling import FixedSizeSampling as FixedSizeSampling
    from tacit.sampling import Microbatches as Microbatches
    from tacit.sampling import PoissonSampling as PoissonSampling
    from tacit.sampling import Records as Records
    from tacit.sampling import Users as Users
    from tacit.tables import Category as Category
    from tacit.tables import Flag as Flag
    from tacit.tables import Number as Number
    from tacit.tables import Schema as Schema
    from tacit.tables import Table as Table
    from tacit.tables import read_schema as read_schema
    from tacit.tables import read_table as read_table
    from tacit.training import DataSource as DataSource
    from tacit.training import EvidencePlan as EvidencePlan
    from tacit.training import IndividualFilter as IndividualFilter
    from tacit.training import PrivateGradient as PrivateGradient
    from tacit.training import Run as Run
    from tacit.training import TrainingPlan as TrainingPlan
    from tacit.training import hybrid as hybrid
    from tacit.training import one_posterior_sample as one_posterior_sample
    from tacit.training import private_temperature as private_temperature
    from tacit.training import train as train
