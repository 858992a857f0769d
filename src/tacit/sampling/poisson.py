"""Poisson sampling: every unit takes part independently with the same probability."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, check_positive, check_share
from tacit.ledger import DiscretePoissonSample, GaussianSumQuery, Neighbours, PoissonSample
from tacit.randomness import Randomness
from tacit.sampling.gaps import drawn_by_gaps

_RARE = 2**60  # below a rate of 1/16: a logarithm takes longer than a number for each of a few units
_STEPS, _WORDS = 20, 2**16  # whose numbers are drawn at once, and how many of them


@dataclass(frozen=True, slots=True)
class PoissonSampling:
    """Each unit is drawn with ``probability``; sums are divided by the declared ``expected_size``.

    The expected size is declared, not computed: the real number of units is secret under add/remove, and dividing by
    it, or by the size of the drawn sample, leaks it (failure-modes.md, F1).

    Example:
        >>> PoissonSampling(probability=0.01, expected_size=600).denominator
        600
    """

    probability: float
    expected_size: float

    by_unit: ClassVar[bool] = True
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        check_share("probability", self.probability)
        check_positive("expected_size", self.expected_size)

    @classmethod
    def of(cls, *, batch_size: int, dataset_size: int) -> "PoissonSampling":
        """From the two numbers people usually know, both declared as public."""
        if not 0 < batch_size <= dataset_size:
            raise InputError(f"batch_size must lie between 1 and dataset_size {dataset_size}, found {batch_size}")
        return cls(probability=batch_size / dataset_size, expected_size=batch_size)

    @property
    def denominator(self) -> float:
        return self.expected_size

    @property
    def implied_size(self) -> float:
        """The number of units that the two declared numbers imply."""
        return self.expected_size / self.probability

    @property
    def steps_per_pass(self) -> int:
        return 1

    def event(self, queries: tuple[GaussianSumQuery, ...]) -> PoissonSample | DiscretePoissonSample:
        on_a_grid = any(query.grid is not None for query in queries)
        kind = DiscretePoissonSample if on_a_grid else PoissonSample
        return kind(probability=float(self.probability), queries=queries)

    def check_population(self, population: int) -> None:
        """Nothing to check: the real number of units is private here and must not change what happens."""

    def draws(self, population: int, randomness: Randomness) -> Iterator[npt.NDArray[np.int64]]:
        """The drawn units of each step: where few are drawn by the gaps between them (:mod:`tacit.sampling.gaps`), else
        those whose secret 64-bit number is below the probability times 2^64.

        A unit more, at the end, does not change what the others draw. The numbers of several steps come at once where
        there are few units: as many as the declared ones allow.
        """
        # Exact integer threshold, rounded down: the true rate is never above the recorded one.
        threshold = int(Fraction(self.probability) * 2**64)
        words = partial(randomness.words, "sampling")
        steps = max(1, min(_STEPS, int(_WORDS / self.implied_size)))
        steps = steps if population * steps <= 8 * _WORDS else 1  # far more units than were declared
        while True:
            if threshold == 2**64:
                yield np.arange(population)
            elif threshold < _RARE:
                yield drawn_by_gaps(threshold, population, words)
            else:
                drawn = words(population * steps).reshape(population, steps) < np.uint64(threshold)
                yield from map(np.flatnonzero, np.ascontiguousarray(drawn.T))
