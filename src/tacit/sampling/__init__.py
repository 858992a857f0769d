"""Which records: a policy draws units and writes its own half of the ledger entry, from the same fields."""

from tacit.sampling.balls_in_bins import BallsInBinsSampling
from tacit.sampling.fixed_size import FixedSizeSampling
from tacit.sampling.poisson import PoissonSampling
from tacit.sampling.policy import SAMPLING_POLICIES, SamplingPolicy
from tacit.sampling.units import RECORDS, Microbatches, Records, UnitOfPrivacy, Users

__all__ = [
    "RECORDS",
    "SAMPLING_POLICIES",
    "BallsInBinsSampling",
    "FixedSizeSampling",
    "Microbatches",
    "PoissonSampling",
    "Records",
    "SamplingPolicy",
    "UnitOfPrivacy",
    "Users",
]
