"""The only code of a query that sees records: exact sums of bounded parts, each released once with Gaussian noise.

A query asks for parts. In a part every row adds one number of size at most 1 to one of its coordinates, or nothing.
Rows are the units of privacy, or a unit is a user whose rows are averaged: each weighs one over how many there are, so
that whatever a unit holds, it moves the part's sum by at most 1 in L2 norm.

Contributions are cut to whole multiples of 2^-32 and added as whole numbers. So sums do not depend on the order of rows
and nothing is lost to rounding before the noise; SLACK covers the one rounding when noise is added to a sum below 10^9.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.ledger import Charge, GaussianSumQuery, PoissonSample
from tacit.types import Floats

Places = NDArray[np.int64]
SLACK = 1e-6
_GRID = 1 << 32


@dataclass(frozen=True, slots=True)
class Part:
    """A vector of sums that a query asks for, in public facts.

    Args:
        name: for the ledger.
        width: how many coordinates there are.
        share: of the precision that the query may spend.
    """

    name: str
    width: int
    share: float


@dataclass(frozen=True, slots=True)
class Contribution:
    """What each row adds to a part: ``values`` (at most 1 in size) at ``places``; -1 for nothing. Private."""

    places: Places
    values: Floats


@dataclass(frozen=True, slots=True)
class Noisy:
    """A released part and the standard deviation of its noise. Public."""

    sums: Floats
    stddev: float


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """Every part with the standard deviation of its noise, and what the ledger is charged for all of them together.

    A share s of the precision 1/z^2 is noise of z / sqrt(s) on a sum to which no unit adds more than 1; shares that add
    up to 1 make one Gaussian release of multiplier z (McMahan et al. 2018, section 3).

    Example:
        >>> plan = ReleasePlan((Part("count", 1, 0.25), Part("ages", 1, 0.75)), multiplier=2.0)
        >>> round(plan.stddevs[0], 4), round(plan.charge.event.noise_multiplier, 6)
        (4.0, 2.0)
    """

    parts: tuple[Part, ...]
    multiplier: float

    @property
    def stddevs(self) -> list[float]:
        return [self.multiplier * (1 + SLACK) / math.sqrt(part.share) for part in self.parts]

    @property
    def charge(self) -> Charge:
        """One release on the full batch."""
        named = zip(self.parts, self.stddevs, strict=True)
        return Charge(
            PoissonSample(1.0, tuple(GaussianSumQuery(1.0, stddev, SLACK, group=part.name) for part, stddev in named)),
            1,
        )


def release(
    plan: ReleasePlan, contributions: Sequence[Contribution], weights: Floats | None, normals: Callable[[int], Floats]
) -> list[Noisy]:
    """Add up and add noise. It has been charged."""
    return [
        Noisy(exact_sums(given, part.width, weights) + stddev * normals(part.width), stddev)
        for part, given, stddev in zip(plan.parts, contributions, plan.stddevs, strict=True)
    ]


def exact_sums(given: Contribution, width: int, weights: Floats | None) -> Floats:
    """Private until noise is added.

    Example:
        >>> rows = Contribution(np.array([0, 1, 0, -1]), np.array([1.0, 0.5, -0.25, 1.0]))
        >>> exact_sums(rows, 2, None)
        array([0.75, 0.5 ])
    """
    kept = given.places >= 0
    values = np.clip(given.values, -1.0, 1.0) if weights is None else np.clip(given.values, -1.0, 1.0) * weights
    whole = np.trunc(values[kept] * _GRID).astype(np.int64)
    total = np.zeros(width, dtype=np.int64)
    np.add.at(total, given.places[kept], whole)
    return np.asarray(total / _GRID)


def unit_weights(owners: NDArray[np.object_]) -> Floats:
    """One over how many rows the owner of each has; 0 for a row of nobody, which cannot be protected as somebody's.

    Example:
        >>> unit_weights(np.array(["ann", "bob", "ann", ""], dtype=object))
        array([0.5, 1. , 0.5, 0. ])
    """
    _, place, counts = np.unique(owners.astype(str), return_inverse=True, return_counts=True)
    return np.where(owners == "", 0.0, 1.0 / counts[place])
