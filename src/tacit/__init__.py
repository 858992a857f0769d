"""Tacit: private, Bayesian, uncertainty-aware training on PyTorch.

The names here are those that most users need; all others are in the subpackages (``tacit.likelihoods.Poisson``). They
are loaded on first use, so that reading a ledger or accounting for it needs neither torch nor any time.
"""

import os
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

# PyTorch's matrix products on x86 (MKL) round a row by its place in memory unless they are told not to before the first
# of them: one record more would then change the last bits of all others, and through a tie their gradients.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__version__ = "0.1.0"

_HOME = {
    "tacit.accountants": ["Budget", "Guarantee", "calibrate_noise", "guarantees"],
    "tacit.errors": ["InputError", "TacitError", "UndeclaredWarning"],
    "tacit.estimators": ["PrivateClassifier", "PrivateRegressor"],
    "tacit.evaluation": ["reliability", "scores", "separation"],
    "tacit.layers": ["replace_batch_norm"],
    "tacit.inference": ["GaussianPrior", "MCDropout", "SGD", "SGLD", "VariationalInference", "bayes_by_backprop"],
    "tacit.ledger": ["read_ledger"],
    "tacit.mechanisms": ["AdaptiveClip", "ClipGroups", "ClipLayers", "ClipRecords", "GaussianNoise", "VectorGroup"],
    "tacit.posteriors": ["Draws", "load_posterior", "predict"],
    "tacit.queries": ["ask"],
    "tacit.randomness": ["Randomness"],
    "tacit.regression": ["PrivateRegression"],
    "tacit.runs": ["tune"],
    "tacit.sampling": [
        "BallsInBinsSampling",
        "FixedSizeSampling",
        "Microbatches",
        "PoissonSampling",
        "Records",
        "Users",
    ],
    "tacit.training": ["DataSource", "EvidencePlan", "PrivacyPlan", "PrivateGradient", "TrainingPlan", "train"],
}
# Names that were here in version 0.1; they go with 0.3.
_MOVED = {
    "tacit.accountants": ["Calibration", "Refusal", "attack_probability", "calibrate_probability", "calibrate_steps"],
    "tacit.accountants.bayesian": [
        "BayesianAccountant",
        "IndividualAccountant",
        "individual_epsilons",
        "percentile_curve",
    ],
    "tacit.errors": [
        "BudgetError",
        "LedgerError",
        "RankLostError",
        "RecordMixingError",
        "RefusedError",
        "StorageError",
    ],
    "tacit.evaluation": [
        "Convergence",
        "Coverage",
        "LeakageCheck",
        "Reliability",
        "Scores",
        "convergence",
        "coverage",
        "leakage_check",
    ],
    "tacit.evidence": ["Evidence", "load_evidence"],
    "tacit.features": ["Scattering", "StatisticsPlan", "Whitening", "private_statistics"],
    "tacit.gradients": ["gradient_distances"],
    "tacit.inference": [
        "BoundedBernoulli",
        "BoundedLogistic",
        "CyclicalStep",
        "DecreasingStep",
        "FixedStep",
        "FlatPrior",
        "FullRank",
        "LaplacePrior",
        "MeanField",
        "PSGLD",
        "PlainDescent",
        "PolynomialStep",
        "SGHMC",
        "SGNHT",
        "ScaleMixturePrior",
        "stable_logistic_step",
    ],
    "tacit.ledger": [
        "Charge",
        "FixedSizeSample",
        "GaussianSumQuery",
        "Ledger",
        "LedgerFile",
        "LedgerHeader",
        "PoissonSample",
        "PosteriorSample",
        "merged_noise_multiplier",
    ],
    "tacit.likelihoods": [
        "Bernoulli",
        "Categorical",
        "Gaussian",
        "HeteroscedasticGaussian",
        "LearnedGaussian",
        "Poisson",
    ],
    "tacit.posteriors": [
        "DropoutPosterior",
        "GaussianPosterior",
        "Point",
        "Prediction",
        "RegressionPrediction",
        "SWAG",
        "combine",
    ],
    "tacit.tables": ["Category", "Flag", "Number", "Schema", "Table", "read_schema", "read_table"],
    "tacit.training": ["IndividualFilter", "Run", "hybrid", "one_posterior_sample", "private_temperature"],
}
_RENAMED = {"Adam": "tacit.inference.AdamDescent", "ScaleMixture": "tacit.likelihoods.GaussianMixture"}
_ROOMS = (
    "accountants",
    "audit",
    "data",
    "distributed",
    "errors",
    "estimators",
    "evaluation",
    "evidence",
    "features",
    "gradients",
    "inference",
    "layers",
    "ledger",
    "likelihoods",
    "mechanisms",
    "pate",
    "posteriors",
    "queries",
    "randomness",
    "regression",
    "release",
    "reports",
    "runs",
    "sampling",
    "tables",
    "training",
)
_MODULE = {name: module for module, names in _HOME.items() for name in names}
_FORMER = {name: f"{module}.{name}" for module, names in _MOVED.items() for name in names} | _RENAMED

__all__ = [*sorted(_MODULE), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"tacit.{name}")
    if name in _FORMER:
        where = _FORMER[name]
        warnings.warn(f"tacit.{name} is now {where}; the old name goes with 0.3", DeprecationWarning, stacklevel=2)
        module, _, now = where.rpartition(".")
        return getattr(import_module(module), now)
    if name not in _MODULE:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])


if TYPE_CHECKING:  # the same names for type checkers; a test keeps the two lists equal
    from tacit import accountants as accountants
    from tacit import audit as audit
    from tacit import data as data
    from tacit import distributed as distributed
    from tacit import errors as errors
    from tacit import estimators as estimators
    from tacit import evaluation as evaluation
    from tacit import evidence as evidence
    from tacit import features as features
    from tacit import gradients as gradients
    from tacit import inference as inference
    from tacit import layers as layers
    from tacit import ledger as ledger
    from tacit import likelihoods as likelihoods
    from tacit import mechanisms as mechanisms
    from tacit import pate as pate
    from tacit import posteriors as posteriors
    from tacit import queries as queries
    from tacit import randomness as randomness
    from tacit import regression as regression
    from tacit import release as release
    from tacit import reports as reports
    from tacit import runs as runs
    from tacit import sampling as sampling
    from tacit import tables as tables
    from tacit import training as training
    from tacit.accountants import Budget as Budget
    from tacit.accountants import Guarantee as Guarantee
    from tacit.accountants import calibrate_noise as calibrate_noise
    from tacit.accountants import guarantees as guarantees
    from tacit.errors import InputError as InputError
    from tacit.errors import TacitError as TacitError
    from tacit.errors import UndeclaredWarning as UndeclaredWarning
    from tacit.estimators import PrivateClassifier as PrivateClassifier
    from tacit.estimators import PrivateRegressor as PrivateRegressor
    from tacit.evaluation import reliability as reliability
    from tacit.evaluation import scores as scores
    from tacit.evaluation import separation as separation
    from tacit.inference import SGD as SGD
    from tacit.inference import SGLD as SGLD
    from tacit.inference import GaussianPrior as GaussianPrior
    from tacit.inference import MCDropout as MCDropout
    from tacit.inference import VariationalInference as VariationalInference
    from tacit.inference import bayes_by_backprop as bayes_by_backprop
    from tacit.layers import replace_batch_norm as replace_batch_norm
    from tacit.ledger import read_ledger as read_ledger
    from tacit.mechanisms import AdaptiveClip as AdaptiveClip
    from tacit.mechanisms import ClipGroups as ClipGroups
    from tacit.mechanisms import ClipLayers as ClipLayers
    from tacit.mechanisms import ClipRecords as ClipRecords
    from tacit.mechanisms import GaussianNoise as GaussianNoise
    from tacit.mechanisms import VectorGroup as VectorGroup
    from tacit.posteriors import Draws as Draws
    from tacit.posteriors import load_posterior as load_posterior
    from tacit.posteriors import predict as predict
    from tacit.queries import ask as ask
    from tacit.randomness import Randomness as Randomness
    from tacit.regression import PrivateRegression as PrivateRegression
    from tacit.runs import tune as tune
    from tacit.sampling import BallsInBinsSampling as BallsInBinsSampling
    from tacit.sampling import FixedSizeSampling as FixedSizeSampling
    from tacit.sampling import Microbatches as Microbatches
    from tacit.sampling import PoissonSampling as PoissonSampling
    from tacit.sampling import Records as Records
    from tacit.sampling import Users as Users
    from tacit.training import DataSource as DataSource
    from tacit.training import EvidencePlan as EvidencePlan
    from tacit.training import PrivacyPlan as PrivacyPlan
    from tacit.training import PrivateGradient as PrivateGradient
    from tacit.training import TrainingPlan as TrainingPlan
    from tacit.training import train as train
