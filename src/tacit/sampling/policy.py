"""What every sampling policy can do, and the registry that the contract tests run over."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit.ledger import GaussianSumQuery, Neighbours, SamplingEvent
from tacit.randomness import Randomness
from tacit.sampling.balls_in_bins import BallsInBinsSampling
from tacit.sampling.fixed_size import FixedSizeSampling
from tacit.sampling.poisson import PoissonSampling


class SamplingPolicy(Protocol):
    """Public facts are fields; the number of units, which may be secret, is an argument."""

    @property
    def neighbours(self) -> Neighbours: ...

    @property
    def by_unit(self) -> bool:
        """Whether units are drawn independently of each other, so that every rank of a job can draw its own."""

    @property
    def denominator(self) -> float:
        """The declared public number by which a released sum is divided."""

    @property
    def implied_size(self) -> float:
        """The number of units that the declared fields imply."""

    def event(self, queries: tuple[GaussianSumQuery, ...]) -> SamplingEvent:
        """The ledger entry of one draw, made of the very fields that :meth:`draw` uses."""

    def check_population(self, population: int) -> None:
        """Refuse a population that contradicts the declared public facts."""

    @property
    def steps_per_pass(self) -> int:
        """How many steps are drawn together and must be charged together; 1 where every step is drawn afresh."""

    def draws(self, population: int, randomness: Randomness) -> Iterator[npt.NDArray[np.int64]]:
        """The drawn units of one step after the other, without end, ascending."""


# Small examples on 100 units, one per policy, for the contract tests.
SAMPLING_POLICIES: dict[str, SamplingPolicy] = {
    "poisson": PoissonSampling(probability=0.1, expected_size=10),
    "fixed_size": FixedSizeSampling(size=10, population=100),
    "balls_in_bins": BallsInBinsSampling(bins=10, expected_size=10),
}
