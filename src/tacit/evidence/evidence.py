"""Evidence: how far single records could move a run's releases, kept by the data holder and never published.

A record's *share* at a step is the length of its clipped gradient in units of the most that was charged for: 1 is the
worst case that differential privacy assumes for everybody. With noise multiplier z its distance is r = share / z
(maths.md 8). Shares depend on the data, so they are private; an accountant that reads them says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InputError
from tacit.ledger import Head

Kind = Literal["probes", "members"]
Shares = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Stretch:
    """``steps`` equal steps of a ledger, and the evaluations ``first`` and ``last`` of the shares around them."""

    probability: float
    noise_multiplier: float
    steps: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The shares of some records over a run.

    Args:
        head: of the ledger when the evidence was written; it binds the two.
        kind: "probes" are held-out records, drawn like the data but never trained on: they speak of the population.
            "members" are the records of the data: they speak of themselves only.
        shares: [evaluations, records], rounded up, at most 1.
        stretches: what was released between evaluations. Shares between two of them count as the larger one.
    """

    head: Head
    kind: Kind
    shares: Shares
    stretches: tuple[Stretch, ...]

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"the kind of evidence is probes or members, found {self.kind!r}")
        if not isinstance(self.shares, np.ndarray) or self.shares.ndim != 2 or self.shares.dtype != np.float32:
            raise InputError(f"shares must be a float32 table of evaluations by records, found {np.shape(self.shares)}")
        if self.shares.size and not (self.shares.min() >= 0 and self.shares.max() <= 1):  # NaN fails both
            raise InputError("shares must lie in [0, 1]")
        for item in self.stretches:
            if not 0 <= item.first <= item.last < len(self.shares) or item.steps < 1:
                raise InputError("stretches name evaluations that are not there, or no steps")

    @property
    def records(self) -> int:
        return int(self.shares.shape[1])

    @property
    def steps(self) -> int:
        return sum(item.steps for item in self.stretches)

    def between(self) -> Iterator[tuple[Stretch, Shares]]:
        """Each stretch with the shares [records] that count for all of its steps."""
        for item in self.stretches:
            yield item, self.shares[item.first : item.last + 1].max(axis=0)


def round_up(shares: ArrayLike) -> Shares:
    """To float32, never downwards, and at most 1."""
    exact = np.asarray(shares, dtype=np.float64)
    rounded = exact.astype(np.float32)
    up = np.where(rounded < exact, np.nextafter(rounded, np.float32(np.inf)), rounded)
    return np.minimum(up, np.float32(1)).astype(np.float32)
