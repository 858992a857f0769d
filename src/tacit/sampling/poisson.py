"""Poisson sampling: every unit takes part independently with the same probability."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, check_positive, check_share
from tacit.ledger import DiscretePoissonSample, GaussianSumQuery, Neighbours, PoissonSample
from tacit.randomness import Randomness

_FEW = 3  # zeros: for every eighth unit and more it takes longer to look at bits than to draw whole numbers


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
        """The drawn units of each step: those whose secret 64-bit number is below the probability times 2^64.

        Where few are drawn, the first bits of all units are looked at together, 64 units in a word, as long as those of
        the threshold are 0; only the units that are left need the rest. A unit more, at the end, does not change what
        the others draw.
        """
        # Exact integer threshold, rounded down: the true rate is never above the recorded one.
        threshold = int(Fraction(self.probability) * 2**64)
        zeros = max(0, 64 - threshold.bit_length())
        zeros = 0 if zeros < _FEW else zeros
        while True:
            left = _with_zeros(zeros, population, randomness) if zeros else None
            rest = randomness.words("sampling", population if left is None else len(left))
            if threshold == 2**64:
                yield np.arange(population)
            else:
                drawn = np.flatnonzero(rest < np.uint64(threshold << zeros))
                yield drawn if left is None else left[drawn]


def _with_zeros(zeros: int, population: int, randomness: Randomness) -> npt.NDArray[np.int64]:
    """The units whose number begins with so many zeros, in order."""
    count = -(-population // 64)
    words = randomness.words("sampling", count)
    for _ in range(zeros - 1):
        words &= randomness.words("sampling", count)
    places = np.flatnonzero(words)
    bits = np.unpackbits(words[places].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    row, bit = np.nonzero(bits)
    units = 64 * places[row] + bit
    return np.asarray(units[units < population])
