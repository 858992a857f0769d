"""Putting it together: sample, clip, add noise, record; for the user's own loop or for an inference method."""

from tacit.training.evidence import EvidencePlan
from tacit.training.individual_filter import IndividualFilter
from tacit.training.plan import TrainingPlan
from tacit.training.private_gradient import PrivateGradient
from tacit.training.private_sum import PrivateSum
from tacit.training.samples import DataSource, Sample
from tacit.training.train import Run, train

__all__ = [
    "DataSource",
    "EvidencePlan",
    "IndividualFilter",
    "PrivateGradient",
    "PrivateSum",
    "Run",
    "Sample",
    "TrainingPlan",
    "train",
]
