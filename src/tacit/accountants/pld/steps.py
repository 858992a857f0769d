"""What the engines read (Poisson-subsampled Gaussian steps) and what they answer (a bracket)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import erf, ndtri

from tacit.errors import InputError, RefusedError
from tacit.types import Floats

Direction = Literal["remove", "add"]

FAINT = 1e-150  # noise multipliers below which squares leave floating point
UNIT = 2.0**-53  # half the distance from 1 to the next float


class UnresolvedError(RefusedError):
    """An engine would need more points than fit; another bound is taken instead."""


@dataclass(frozen=True, slots=True)
class PoissonGaussian:
    """``count`` steps of a Poisson-subsampled Gaussian of sensitivity 1 and noise z; probability 1 is the plain one.

    Args:
        probability: q, with which one record takes part in a step.
        noise_multiplier: z (m in maths.md 3), the noise in units of the sensitivity.
        count: how many such steps were taken.

    Example:
        >>> PoissonGaussian(probability=0.01, noise_multiplier=1.1, count=1000).count
        1000
    """

    probability: float
    noise_multiplier: float
    count: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.probability) and 0 < self.probability <= 1):
            raise InputError(f"probability must lie in (0, 1], found {self.probability!r}")
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0):
            raise InputError(f"noise_multiplier must be a finite number above 0, found {self.noise_multiplier!r}")
        if isinstance(self.count, bool) or self.count != int(self.count) or self.count < 0:
            raise InputError(f"count must be a whole number of at least 0, found {self.count!r}")


@dataclass(frozen=True, slots=True)
class Bracket:
    """The true value lies in [lower, upper]; ``upper`` is the number to report.

    Args:
        resolved: False where no engine could narrow it: then ``upper`` is a bound that may be far above the truth.
        two_sided: False where ``upper`` is all that was computed; ``lower`` is 0 then and says nothing.
    """

    lower: float
    upper: float
    resolved: bool = True
    two_sided: bool = True


@dataclass(frozen=True, slots=True)
class Steps:
    """A ledger as arrays: equal steps merged, all plain Gaussians folded into one.

    Args:
        probabilities, noise_multipliers, counts: one entry for each distinct subsampled step (q < 1).
        gaussian_square: mu^2 = sum of count / z^2 over the steps with q = 1; together they are one Gaussian mechanism
            with mu, whatever the order, because Gaussian privacy losses add up to a Gaussian one.
        caps: the noise x of each step is cut off above this; the mass beyond is charged to delta in full, see ``cut``.
    """

    probabilities: Floats
    noise_multipliers: Floats
    counts: Floats
    gaussian_square: float
    caps: Floats

    @property
    def size(self) -> int:
        """The number of distinct subsampled steps."""
        return len(self.counts)

    @property
    def total(self) -> float:
        """The number of subsampled steps."""
        return float(self.counts.sum())

    @property
    def has_closed_form(self) -> bool:
        """Only plain Gaussians, or one single subsampled step."""
        total = float(self.counts.sum())
        return total == 0 or (total == 1 and self.gaussian_square == 0)


def merge(events: Sequence[PoissonGaussian]) -> Steps:
    """Add up equal steps; the order of a ledger does not matter to a privacy loss distribution."""
    merged: dict[tuple[float, float], int] = {}
    for event in events:
        key = (float(event.probability), float(event.noise_multiplier))
        merged[key] = merged.get(key, 0) + int(event.count)
    rows = [(q, m, n) for (q, m), n in sorted(merged.items()) if n > 0 and q < 1]
    square = math.fsum(n * (1 / m) ** 2 if m > FAINT else math.inf for (q, m), n in merged.items() if n > 0 and q >= 1)
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    caps = np.full(len(table), np.inf)
    return Steps(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy(), square, caps)


def cut(steps: Steps, dropped: float) -> Steps:
    """Cut off noise so large that all steps together meet it with probability at most ``dropped`` (remove direction).

    Large moments of the loss come from noise that no run will ever see: without it the line of integration may lie
    where the losses of real runs are. P(x > cap) = (1-q) Phi(-cap/m) + q Phi(-(cap-1)/m), half of the share for each.
    """
    q, m = steps.probabilities, steps.noise_multipliers
    share = dropped / max(steps.total, 1.0) / 2
    caps = np.maximum(-m * ndtri(share), 1 - m * ndtri(np.minimum(share / q, 0.5))) * (1 + 1e-9)
    return replace(steps, caps=caps)


def tolerance(epsilon: float) -> float:
    """The width of a bracket we aim at: 0.001 % or 1e-6, with a margin; ten times better than we promise."""
    return 0.3 * max(1e-6, 1e-5 * epsilon)


def enough(epsilon: float) -> float:
    """The width at which a lattice, whose cost grows as it narrows, is left as it is: half of what we promise."""
    return 0.5 * max(1e-6, 1e-4 * epsilon)


def at_floor(low: float, floor: float) -> Bracket:
    """The answer where delta(low) <= delta: the floor. Where ``low`` was raised by a proof, two proofs disagree."""
    if low > floor:
        raise RefusedError(f"two bounds contradict each other at epsilon {low!r}; please report this ledger")
    return Bracket(low, low)


def total_variation(steps: Steps) -> float:
    """An upper bound of delta(0): total variation is subadditive, q (2 Phi(1/(2m)) - 1) for a step."""
    single = steps.probabilities * erf(1 / (math.sqrt(8) * steps.noise_multipliers))
    whole = math.erf(math.sqrt(steps.gaussian_square / 8))
    return (float(steps.counts @ single) + whole) * (1 + 1e-12)
