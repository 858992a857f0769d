"""Balls in bins (random allocation): in each pass every unit takes part in exactly one of the batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.errors import check_positive
from tacit.ledger import BallsInBinsStep, GaussianSumQuery, Neighbours
from tacit.randomness import Randomness


@dataclass(frozen=True, slots=True)
class BallsInBinsSampling:
    """A pass throws every unit into one of ``bins`` batches, independently and uniformly.

    Like shuffling, every unit is seen once in a pass; unlike shuffling, units are independent of each other, which is
    what lets it be accounted for (Chua et al. 2024). A pass is charged whole, even if it is not finished.

    Args:
        bins: the number of batches, hence steps, of a pass.
        expected_size: the declared size of a batch, the public denominator of its sum.
    """

    bins: int
    expected_size: float

    by_unit: ClassVar[bool] = True
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        BallsInBinsStep(self.bins, ())  # the event knows which numbers make sense
        check_positive("expected_size", self.expected_size)

    @property
    def denominator(self) -> float:
        return self.expected_size

    @property
    def implied_size(self) -> float:
        return self.expected_size * self.bins

    @property
    def steps_per_pass(self) -> int:
        return self.bins

    def event(self, queries: tuple[GaussianSumQuery, ...]) -> BallsInBinsStep:
        return BallsInBinsStep(bins=self.bins, queries=queries)

    def check_population(self, population: int) -> None:
        """Nothing to check: the real number of units is private here."""

    def draws(self, population: int, randomness: Randomness) -> Iterator[npt.NDArray[np.int64]]:
        """Unit i looks only at word i of a pass. The remainder favours no bin by more than bins / 2^64."""
        while True:
            bin_of = randomness.words("sampling", population) % np.uint64(self.bins)
            for number in range(self.bins):
                yield np.flatnonzero(bin_of == number)
