"""Putting it together: sample, clip, add noise, record; for the user's own loop or for an inference method."""

from tacit.training.checkpoints import Checkpoint, read_checkpoint
from tacit.training.evidence import EvidencePlan
from tacit.training.individual_filter import IndividualFilter
from tacit.training.plan import PrivacyPlan, TrainingPlan
from tacit.training.private_gradient import PrivateGradient
from tacit.training.private_sum import PrivateSum
from tacit.training.procedures.one_posterior_sample import hybrid, one_posterior_sample
from tacit.training.procedures.temperature import private_temperature
from tacit.training.reading.samples import Sample
from tacit.training.reading.source import DataSource
from tacit.training.train import Run, train

__all__ = [
    "Checkpoint",
    "DataSource",
    "EvidencePlan",
    "IndividualFilter",
    "PrivacyPlan",
    "PrivateGradient",
    "PrivateSum",
    "Run",
    "Sample",
    "TrainingPlan",
    "hybrid",
    "one_posterior_sample",
    "private_temperature",
    "read_checkpoint",
    "train",
]
