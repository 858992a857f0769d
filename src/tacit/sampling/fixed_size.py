"""Fixed-size sampling without replacement, for a public population."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.ledger import FixedSizeSample, GaussianSumQuery, Neighbours
from tacit.randomness import Randomness


@dataclass(frozen=True, slots=True)
class FixedSizeSampling:
    """A uniformly random set of ``size`` units out of exactly ``population``.

    The population is public, so the neighbours are replace-one; the guarantee is not comparable with add/remove.

    Example:
        >>> FixedSizeSampling(size=32, population=569).neighbours
        'replace_one'
    """

    size: int
    population: int

    by_unit: ClassVar[bool] = False
    neighbours: ClassVar[Neighbours] = "replace_one"

    def __post_init__(self) -> None:
        FixedSizeSample(self.size, self.population, ())  # the event knows which numbers make sense

    @property
    def denominator(self) -> float:
        return self.size

    @property
    def implied_size(self) -> float:
        return self.population

    @property
    def steps_per_pass(self) -> int:
        return 1

    def event(self, queries: tuple[GaussianSumQuery, ...]) -> FixedSizeSample:
        return FixedSizeSample(size=self.size, population=self.population, queries=queries)

    def check_population(self, population: int) -> None:
        if population != self.population:
            raise InputError(f"the declared population is {self.population}, the data set holds {population} units")

    def draws(self, population: int, randomness: Randomness) -> Iterator[npt.NDArray[np.int64]]:
        """The units with the ``size`` smallest words: every set of that size is equally likely."""
        self.check_population(population)
        while True:
            words = randomness.words("sampling", population)
            yield np.sort(np.argpartition(words, self.size - 1)[: self.size])
